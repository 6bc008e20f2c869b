"""`python -m tests.parity.fuzz`: random scenarios, answered by us and by upstream's own code, until the time is up.

Prints what differs, minimised; the exit code is 1 if a difference in outcome has no explanation.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping
from secrets import randbelow
from typing import Final, Protocol

from tests.controlplane.build import BuildError
from tests.parity.fuzz.allocator import campaign as allocator
from tests.parity.fuzz.cel import campaign as cel
from tests.parity.fuzz.oracle import OracleError

_SECONDS: Final = 180.0


class Tally(Protocol):
    """What a part found."""

    unexplained_count: int

    def lines(self) -> Iterable[str]: ...


PARTS: Final[Mapping[str, Callable[..., Tally]]] = {"allocator": allocator.run, "cel": cel.run}


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.parity.fuzz", description=__doc__)
    parser.add_argument("--only", choices=sorted(PARTS), help="compare this part alone")
    parser.add_argument("--seconds", type=float, help="how long in all, shared by the parts (default: 180, or --count)")
    parser.add_argument("--count", type=int, help="how many scenarios, for each part")
    parser.add_argument("--seed", type=int, help="where the random numbers begin (default: anywhere; printed)")
    arguments = parser.parse_args()
    seed = randbelow(2**32) if arguments.seed is None else arguments.seed
    total = _SECONDS if arguments.seconds is None and arguments.count is None else arguments.seconds
    parts = {name: run for name, run in PARTS.items() if arguments.only in {None, name}}
    seconds = None if total is None else total / len(parts)
    unexplained = 0
    try:
        for name, run in parts.items():
            print(f"{name}: seed {seed}", flush=True)
            tally = run(seed, seconds=seconds, count=arguments.count)
            print("\n".join(tally.lines()), flush=True)
            unexplained += tally.unexplained_count
    except (BuildError, OracleError) as problem:
        print(f"fuzz: {problem}", file=sys.stderr)
        return 1
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
