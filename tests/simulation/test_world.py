import os
import re
import subprocess
import sys
import weakref
from pathlib import Path

from tests.simulation import environment
from tests.simulation.course import run
from tests.simulation.network import NetworkedLoop

ROOT = Path(__file__).parents[2]
SEED = 7


def test_a_seed_replays_exactly_and_another_does_not() -> None:
    assert run(SEED).digest == run(SEED).digest != run(SEED + 1).digest


def test_a_seed_replays_exactly_in_another_process_with_another_order_of_sets() -> None:
    hash_seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
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


def test_a_world_in_which_a_module_was_imported_is_freed() -> None:
    with environment.collected():
        loop = NetworkedLoop(SEED)
        kept = weakref.ref(loop)
        environment._functions.cache_clear()
        with environment.simulated(loop, SEED):
            pass
        loop.abandon()
        del loop
    assert kept() is None
