"""`make hostile`: an adversarial search for inputs that take too much CPU or memory, or break something.

Every part climbs from random inputs towards the worst ones that validation admits, on this checkout or on another one
(`--target`). Prints a table for each part, and every finding with how to see it again. The exit code is 1 if there is one.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from secrets import randbelow
from typing import Final

from tests.hostile import (
    part_cel,
    part_compile,
    part_http,
    part_informer,
    part_lives,
    part_natives,
    part_objects,
    part_policy,
    part_search,
    part_tls,
)
from tests.hostile.climbing import Part
from tests.hostile.genes import Gene
from tests.hostile.report import table
from tests.hostile.worker import HERE, Worker

_SECONDS: Final = 180.0
_REPLAY_CPU_SECONDS: Final = 30.0
PARTS: Final[Mapping[str, Part[Gene]]] = {
    part.PART.name: part.PART
    for part in (
        *(part_cel, part_natives, part_compile, part_policy, part_informer, part_lives, part_objects),
        *(part_http, part_tls, part_search),
    )
}
_ATTACKS: Final = {part_http.ATTACK: part_http.attack, part_tls.ATTACK: part_tls.attack}
"""What is not for the worker alone, by the kind of the job."""


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="make hostile", description=__doc__)
    parser.add_argument("--only", choices=sorted(PARTS), help="search this part alone")
    parser.add_argument("--about", default="", help="search only subjects whose names have this in them")
    parser.add_argument("--seconds", type=float, default=_SECONDS, help="how long in all, shared by the parts")
    parser.add_argument("--seed", type=int, help="where the random numbers begin (default: anywhere; printed)")
    parser.add_argument("--target", type=Path, default=HERE, help="the checkout to attack (default: this one)")
    parser.add_argument("--replay", help="run one input again, as a finding prints it: MODULE JSON")
    parser.add_argument("--rows", type=int, default=10, help="how many rows of each table are shown, the worst first")
    arguments = parser.parse_args()
    target = arguments.target.resolve()
    if arguments.replay is not None:
        return _replay(target, arguments.replay)
    seed = randbelow(2**32) if arguments.seed is None else arguments.seed
    parts = {name: part for name, part in PARTS.items() if arguments.only in {None, name}}
    found = 0
    for name, part in parts.items():
        print(f"{name}: seed {seed}", flush=True)
        tally = part.run(target, seed, arguments.seconds / len(parts), arguments.about)
        print("\n".join(table(tally, arguments.rows)), flush=True)
        found += len(tally.findings)
    print(f"hostile: {found} findings" if found else "hostile: nothing found")
    return 1 if found else 0


def _replay(target: Path, text: str) -> int:
    module, _, job = text.partition(" ")
    given = json.loads(job)
    with Worker(target, module, cpu_seconds=_REPLAY_CPU_SECONDS) as worker:
        attack = _ATTACKS.get(given["kind"])
        measured = worker.measure(given) if attack is None else attack(worker, given)
    print({name: f"{value:.6g}" for name, value in measured.values.items()}, measured.note)
    return 0


if __name__ == "__main__":
    sys.exit(main())
