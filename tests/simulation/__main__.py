"""`python -m tests.simulation`: run seeds, show one, or replay one."""

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import islice, repeat

from tests.simulation import planted_document
from tests.simulation.course import Result, run, shrink
from tests.simulation.planted import PLANTED
from tests.simulation.soak import LEAST_LOOKS, soak


def main(arguments: Sequence[str]) -> int:
    """Return 1 if anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seed", type=int, help="run this seed; a run in which something is wrong shrinks")
    parser.add_argument("--steps", action="store_true", help="print every log line of the seed, as it is written")
    parser.add_argument("--replay", action="store_true", help="run the seed twice, and compare")
    parser.add_argument("--seeds", type=int, default=200, help="without --seed: run so many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at work")
    parser.add_argument(
        "--planted",
        nargs="?",
        const="",
        help="look for planted faults, or those with this in their name, in at most --seeds seeds",
    )
    parser.add_argument("--write", action="store_true", help="write what is found of planted faults to their document")
    parser.add_argument(
        "--soak", action="store_true", help="a cluster that lives for --hours, whose memory may not grow"
    )
    parser.add_argument("--hours", type=float, default=24.0, help="virtual hours of a soak")
    parser.add_argument("--nodes", type=int, default=500, help="nodes of a soak")
    given = parser.parse_args(arguments)
    if given.soak:
        return _soak(given.seed or 0, given.hours, given.nodes)
    if given.planted is not None:
        names = [name for name in PLANTED if given.planted in name]
        return _planted(names, range(given.first, given.first + given.seeds), given.jobs, write=given.write)
    if given.seed is None:
        return _seeds(range(given.first, given.first + given.seeds), given.jobs)
    result = run(given.seed, log=print if given.steps else None)
    if given.replay:
        again = run(given.seed)
        print(f"replayed: {'the same' if again.digest == result.digest else 'NOT THE SAME'}, {again.digest}")
    for line in described(result):
        print(line)
    return bool(result.wrong)


def _soak(seed: int, hours: float, nodes: int) -> int:
    result = soak(seed, hours, nodes, max(LEAST_LOOKS, round(hours / 2)), lambda hour: print(hour, flush=True))
    for line in result.lines():
        print(line)
    return bool(result.failed)


def _seeds(seeds: range, jobs: int) -> int:
    started = time.perf_counter()
    wrong = []
    with ProcessPoolExecutor(jobs) as pool:
        for result in pool.map(run, seeds, chunksize=4):
            if result.wrong:
                wrong.append(result.seed)
                print(f"seed {result.seed}: {result.wrong[0]}", flush=True)
    seconds = time.perf_counter() - started
    print(
        f"{len(seeds)} seeds in {seconds:.0f} s, {len(seeds) / seconds:.1f} a second; something is wrong in {len(wrong)}"
    )
    for seed in islice(wrong, 3):
        for line in described(run(seed)):
            print(line)
    return bool(wrong)


def _planted(names: Sequence[str], seeds: range, jobs: int, *, write: bool) -> int:
    """Print the rows of these planted faults: a seed that finds each, and what it finds."""
    missed = 0
    with ProcessPoolExecutor(jobs) as pool:
        for name, found in zip(names, pool.map(_first, names, repeat(seeds)), strict=True):
            missed += found is None
            row = (f"none of {len(seeds)}", "") if found is None else (str(found.seed), _short(found.wrong[0]))
            print(planted_document.line(name, row), flush=True)
            if write:
                planted_document.write({**planted_document.rows(), name: row})
    print(f"{missed} of {len(names)} were not found")
    return bool(missed)


def _first(name: str, seeds: range) -> Result | None:
    """The run that finds this planted fault: of the seed that found it last, or of the first of all others that does."""
    known = planted_document.rows().get(name, ("", ""))[0]
    order = [int(known)] if known.isdigit() else []
    results = (run(seed, planted=PLANTED[name]) for seed in (*order, *seeds))
    return next((result for result in results if result.wrong), None)


def _short(wrong: str) -> str:
    """The rule that is broken."""
    of_write = wrong.partition("step ")[2].partition(": ")[2]
    found = of_write or wrong
    if found.startswith("replica-"):
        found = found.partition(": ")[2].partition("<")[0].partition("(")[0]
    return found.partition(":")[0].partition(", while")[0]


def described(result: Result) -> Iterator[str]:
    """A run in words; one in which something is wrong with as few actions as possible."""
    yield (
        f"seed {result.seed}: digest {result.digest}, {result.steps} steps, {result.seconds:.0f} virtual seconds, "
        f"{result.writes} writes, {len(result.actions)} actions"
    )
    if not result.wrong:
        return
    smaller, without = shrink(result)
    yield f"with {len(smaller.actions)} of {len(result.actions)} actions; without {sorted(without)}:"
    yield from (f"  {action}" for action in smaller.actions)
    yield from (f"  {line}" for line in smaller.log[-40:])
    yield from (f"WRONG: {each}" for each in smaller.wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
