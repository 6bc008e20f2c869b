"""How strong the tests are: change the product in small places and see which tests notice.

python -m tests.mutants --map                  # run the tests once and note which lines each test runs (slow)
python -m tests.mutants --count 500 --seed 1   # prints a table; what became of each mutant is in .mutants/outcomes.json

A mutant that a test killed in an earlier trial meets that test first: trials after a change of the tests are quick.
"""

import argparse
import json
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.mutants.mutations import ROOT, Mutation, choose
from tests.mutants.trial import Outcome, Status, Trials
from tests.mutants.who_runs import LineMap, make_map

PACKAGES: Final = ("allocator", "ledger", "scheduling", "kube", "nodefit", "inspection")
FOLDER: Final = ROOT / ".mutants"
OUTCOMES: Final = FOLDER / "outcomes.json"


def main() -> int:
    """Return the exit status: 0, or 2 if there is no map of lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--map", action="store_true", help="run the tests of `make test` and note which lines each runs"
    )
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--packages", nargs="*", default=PACKAGES)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    if options.map:
        return make_map(FOLDER / "lines.coverage", options.workers)
    if not (FOLDER / "lines.coverage").exists():
        sys.stderr.write("mutants: there is no map of lines; run python -m tests.mutants --map first\n")
        return 2
    mutations = choose(options.packages, options.count, options.seed)
    outcomes = try_mutations(mutations, options.workers)
    sys.stdout.write(table(outcomes))
    return 0


def try_mutations(mutations: list[Mutation], workers: int) -> dict[Mutation, Outcome]:
    """Try each mutation, write what became of it to `OUTCOMES`, and return all outcomes."""
    kept = json.loads(OUTCOMES.read_text()) if OUTCOMES.exists() else {}
    trials = Trials(LineMap(FOLDER / "lines.coverage"))
    outcomes: dict[Mutation, Outcome] = {}
    with ThreadPoolExecutor(workers) as pool:
        killers = (kept.get(str(mutation), {}).get("killer", "") for mutation in mutations)
        for mutation, outcome in zip(mutations, pool.map(trials.try_mutation, mutations, killers), strict=True):
            outcomes[mutation] = outcome
            sys.stdout.write(f"{outcome.status.value:10} {mutation}\n")
            sys.stdout.flush()
            kept[str(mutation)] = {"status": outcome.status.value, "killer": outcome.killer}
            OUTCOMES.write_text(json.dumps(kept, indent=1))
    return outcomes


def table(outcomes: dict[Mutation, Outcome]) -> str:
    """Return a row for each package in Markdown."""
    lines = ["| package | mutants | killed | survived | timed out | run by no test |", "|---|---|---|---|---|---|"]
    packages = sorted({Path(mutation.path).parts[2] for mutation in outcomes})
    for package in (*packages, "all"):
        count = Counter(
            outcome.status for mutation, outcome in outcomes.items() if package in {"all", Path(mutation.path).parts[2]}
        )
        total, killed = count.total(), count[Status.KILLED]
        cells = (total, f"{killed} ({killed / total:.1%})", *(count[status] for status in list(Status)[1:]))
        lines.append(f"| {package} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
