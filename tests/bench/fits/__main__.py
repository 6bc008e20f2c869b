"""`python -m tests.bench.fits FILE`: the allocated share by rule for another list of pods in the format of the trace."""

import argparse
from pathlib import Path

from tests.bench.fits.trace import read_task_file
from tests.bench.fits_area import OURS, RULES, filled


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fits", description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rules", nargs="+", choices=list(RULES), default=[OURS])
    arguments = parser.parse_args()
    for file in arguments.files:
        workload = read_task_file(file)
        for seed in range(1, arguments.seeds + 1):
            for rule in arguments.rules:
                found = filled(rule, workload, seed)
                print(
                    f"{workload.name}, seed {seed}, {rule}: {found.at_capacity:.2f} % at 100 %, {found.at_end:.2f} % at 130 %"
                )


if __name__ == "__main__":
    main()
