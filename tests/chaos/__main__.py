"""`make chaos`: everything fails at random, and the invariants hold.  Ends with 1 if they do not."""

import argparse
import asyncio
import logging
import sys
import tempfile
from pathlib import Path
from random import SystemRandom

from tests.chaos.report import table
from tests.chaos.run import Plan, run_alone


def main() -> int:
    """Run and print the summary."""
    arguments = _arguments()
    # The relays tell each connection that fails, which is what they are there for.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL + 1)
    plan = Plan(seed=arguments.seed, seconds=arguments.seconds, pods=arguments.pods, nodes=arguments.nodes)
    workdir = Path(tempfile.mkdtemp(prefix="dra-extender-chaos-"))
    print(f"seed {plan.seed}, {plan.pods} pods, {plan.seconds:g} s; logs in {workdir}", flush=True)
    result = asyncio.run(run_alone(plan, workdir))
    print(table(result))
    print("good" if result.good else f"NOT GOOD; again with SEED={plan.seed}")
    return 0 if result.good else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long things go wrong")
    parser.add_argument("--pods", type=int, default=1000, help="how many pods are made")
    parser.add_argument("--nodes", type=int, default=20, help="how many nodes there are")
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(1_000_000), help="decides what happens")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
