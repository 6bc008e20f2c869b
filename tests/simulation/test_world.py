import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.course import run
from tests.simulation.environment import simulated
from tests.simulation.invariants import left_at_rest
from tests.simulation.network import NetworkedLoop
from tests.simulation.world import LEASE, World, logged, run_until_complete

ROOT = Path(__file__).parents[2]
SEED = 7


def bound_pods(seed: int, folder: Path) -> tuple[int, str]:
    """Have 20 pods bound; return how many are, and the digest."""
    loop = NetworkedLoop(seed)
    with simulated(loop, seed), logged(lambda _: None, str):
        world = World(loop, folder, 3)

        async def work() -> None:
            await world.start()
            await asyncio.sleep(5)
            for number in range(20):
                world.users.create_pod(f"pod-{number}", world.users.random_kind(), "")
            await asyncio.sleep(120)

        run_until_complete(loop, work())
        assert world.invariants.violations == []
        assert left_at_rest(world.store, LEASE.namespace) == []
    found = 20 - len(world.pending()), loop.digest()
    loop.abandon()
    return found


def test_the_service_binds_pods_over_the_simulated_network_and_a_seed_replays_exactly(tmp_path: Path) -> None:
    bound, digest = bound_pods(1, tmp_path)
    assert bound > 10
    assert bound_pods(1, tmp_path) == (bound, digest)
    assert bound_pods(2, tmp_path)[1] != digest


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_a_seed_replays_exactly_in_another_process_with_another_order_of_sets(hash_seed: str) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seed", str(SEED)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"{ROOT / 'app'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = re.search(r"digest (\w+)", shown)
    assert found is not None
    assert found.group(1) == run(SEED).digest
