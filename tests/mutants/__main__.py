"""How strong the tests are: change the product in small places and see which of these changes the tests of `make test` notice.

python -m tests.mutants --count 500 --seed 1             # prints a table; what became of each mutant is in .mutants/outcomes.json
python -m tests.mutants --count 500 --seed 1 --into DIR  # writes the mutants that survived into the clone DIR, for `make e2e` there

All tests run once without a mutant, to see which mutants each reaches. Then each mutant meets the nearest tests that reach it, for
at most 20 s. Then all tests run with all survivors at once; a test that fails runs again with half of them, until the mutant is
found that it kills.
"""

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.mutants.mutations import ROOT, Mutation, choose, with_mutations
from tests.mutants.switches import install
from tests.mutants.trials import Outcome, Status, tried

PACKAGES: Final = ("allocator", "ledger", "scheduling", "kube", "nodefit", "inspection")
OUTCOMES: Final = ROOT / ".mutants" / "outcomes.json"


def main() -> None:
    """Try the mutants, or write them into a clone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--packages", nargs="*", default=PACKAGES)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--into", type=Path, help="a clone of this commit; no test is run")
    parser.add_argument(
        "--only", nargs="*", type=int, help="with --into: numbers of the mutants, instead of all survivors"
    )
    options = parser.parse_args()
    mutations = choose(options.packages, options.count, options.seed)
    if options.into is not None:
        write_into(options.into, mutations, options.only)
        return
    outcomes = try_mutations(mutations, options.workers)
    OUTCOMES.parent.mkdir(exist_ok=True)
    rows = [(number, status.value, str(mutations[number]), killer) for number, status, killer in outcomes.values()]
    OUTCOMES.write_text(json.dumps(sorted(rows), indent=0))
    sys.stdout.write(table(mutations, outcomes))


def try_mutations(mutations: Sequence[Mutation], workers: int) -> dict[int, Outcome]:
    """Return what becomes of each mutant, and print it as it comes."""
    sys.path[:0] = [str(ROOT / "app")]
    outcomes: dict[int, Outcome] = {}
    for result in tried(mutations, install(mutations), workers):
        if isinstance(result, Outcome):
            outcomes[result.number] = result
            line = f"{result.status.value:15} {result.number:4} {mutations[result.number]}"
        else:
            line = result
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    return outcomes


def write_into(clone: Path, mutations: Sequence[Mutation], only: Sequence[int] | None) -> None:
    """Write these mutants into the files of the clone, or all that survived; leave out a change within another change."""
    if only is None:
        only = [number for number, status, *_ in json.loads(OUTCOMES.read_text()) if status != Status.KILLED.value]
    by_path: dict[str, list[Mutation]] = defaultdict(list)
    for number in only:
        by_path[mutations[number].path].append(mutations[number])
    for path, changes in by_path.items():
        (clone / path).write_bytes(with_mutations((ROOT / path).read_bytes(), changes))
    sys.stdout.write(f"{len(only)} mutants in {len(by_path)} files\n")


def table(mutations: Sequence[Mutation], outcomes: Mapping[int, Outcome]) -> str:
    """Return a row for each package in Markdown."""
    lines = ["| package | mutants | killed | survived | run by no test |", "|---|---|---|---|---|"]
    package_of = {number: Path(mutations[number].path).parts[2] for number in outcomes}
    for package in (*sorted(set(package_of.values())), "all"):
        count = Counter(
            outcome.status for number, outcome in outcomes.items() if package in {"all", package_of[number]}
        )
        total, killed = count.total(), count[Status.KILLED]
        cells = (total, f"{killed} ({killed / total:.1%})", count[Status.SURVIVED], count[Status.NOT_RUN])
        lines.append(f"| {package} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
