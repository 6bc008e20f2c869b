"""How strong the tests are: change the product in small places and see which tests notice.

python -m tests.mutants --map                  # run the tests once and note which lines each test runs (slow)
python -m tests.mutants --count 500 --seed 1   # prints a table; the survivors are in .mutants/survivors.json
"""

import argparse
import json
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.mutants.mutations import ROOT, Mutation, choose
from tests.mutants.trial import Fate, Trials
from tests.mutants.who_runs import LineMap, make_map

PACKAGES: Final = ("allocator", "ledger", "scheduling", "kube", "nodefit", "inspection")
FOLDER: Final = ROOT / ".mutants"


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
    trials = Trials(LineMap(FOLDER / "lines.coverage"))
    fates: dict[Mutation, Fate] = {}
    with ThreadPoolExecutor(options.workers) as pool:
        for mutation, fate in zip(mutations, pool.map(trials.run, mutations), strict=True):
            fates[mutation] = fate
            sys.stdout.write(f"{fate.value:10} {mutation}\n")
            sys.stdout.flush()
    survivors = [str(mutation) for mutation, fate in fates.items() if not fate.is_killed]
    (FOLDER / "survivors.json").write_text(json.dumps(survivors, indent=1))
    sys.stdout.write(table(fates))
    return 0


def table(fates: dict[Mutation, Fate]) -> str:
    """Return a row for each package in Markdown: mutants, killed, survived, run by no test."""
    lines = ["| package | mutants | killed | survived | run by no test |", "|---|---|---|---|---|"]
    packages = sorted({Path(mutation.path).parts[2] for mutation in fates})
    for package in (*packages, "all"):
        count = Counter(fate for mutation, fate in fates.items() if package in {"all", Path(mutation.path).parts[2]})
        killed = sum(number for fate, number in count.items() if fate.is_killed)
        total = count.total()
        share = f"{killed} ({killed / total:.1%})"
        lines.append(f"| {package} | {total} | {share} | {count[Fate.SURVIVED]} | {count[Fate.NOT_RUN]} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
