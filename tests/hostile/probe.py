"""The program of a worker: reads jobs from its input, one JSON line each, runs them, and writes what it measured.

`dra_extender` is the target's; nothing else of the target is used.
"""

import importlib
import json
import os
import resource
import sys
from typing import Any, Final

_MEMORY: Final = 3 * 2**30


def main() -> None:
    """Answer until the input ends; standard output is for answers alone."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    probes = importlib.import_module(f"tests.hostile.probe_{sys.argv[1]}")
    answers.write(json.dumps("ready") + "\n")
    for line in sys.stdin:
        job: dict[str, Any] = json.loads(line)
        answers.write(json.dumps(getattr(probes, job["kind"])(job)) + "\n")


if __name__ == "__main__":
    main()
