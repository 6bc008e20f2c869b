"""A short run of `make chaos`: requests, connections and processes fail at random while pods come and go."""

from pathlib import Path
from random import SystemRandom

import pytest

from tests.chaos.report import faults, table
from tests.chaos.run import Plan, run
from tests.chaos.troubles import WEIGHTS
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.planes import BROKEN
from tests.controlplane.process import START_SECONDS

pytestmark = [pytest.mark.e2e, pytest.mark.plane(BROKEN), pytest.mark.asyncio(loop_scope="module")]

SECONDS = 30.0
PODS = 100


@pytest.mark.timeout(SECONDS + 10 * START_SECONDS)
async def test_no_pod_is_stuck_and_no_device_is_lost_or_given_away_twice(cluster: ControlPlane, tmp_path: Path) -> None:
    """Printed with its seed, which `make chaos SEED=n` takes for a longer run."""
    result = await run(
        Plan(seed=SystemRandom().randrange(1_000_000), seconds=SECONDS, pods=PODS, nodes=10), tmp_path, cluster
    )
    print(table(result))
    assert result.good, "\n".join((*faults(result), f"The logs are in {tmp_path}."))
    assert result.looks
    assert result.troubles.keys() == WEIGHTS.keys()
    assert len(result.lives) == PODS
