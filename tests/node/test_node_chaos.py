"""Extender, scheduler, API server, kubelets, drivers and whole nodes fail at random while pods come and go.

`make node K=chaos CHAOS_SECONDS=300` lets it go on for longer, CHAOS_SEED=n begins with the random numbers of another run.
"""

import asyncio
import os
from contextlib import AsyncExitStack
from random import Random, SystemRandom
from typing import Final

import pytest
from dra_extender.runtime.supervision import running_task

from tests.chaos.faults import Faults, Rates
from tests.controlplane.waiting import wait_for
from tests.support.e2e.api_relay import pass_on
from tests.support.e2e.checker import expect_rest
from tests.support.e2e.installed_extender import Setup
from tests.support.node.chaos_audit import NodeAudit
from tests.support.node.chaos_load import PodLoad, node_options
from tests.support.node.chaos_troubles import WEIGHTS, NodeTroubles
from tests.support.node.nodes import NodesSetup
from tests.support.node.pod_scene import PodScene

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

SECONDS: Final = float(os.environ.get("CHAOS_SECONDS", "60"))
CALM_SECONDS: Final = 180.0
"""How long the next of the pods that wait may take when nothing fails any more."""


@pytest.fixture(scope="module")
def setup() -> NodesSetup:
    settings = {"RECLAIM_GRACE_SECONDS": "5", "RECLAIM_INTERVAL_SECONDS": "1", "DEVICE_BACKOFF_SECONDS": "5"}
    environment = {f"DRA_EXTENDER_SCHEDULING__{name}": value for name, value in settings.items()}
    nodes = dict.fromkeys(("127.0.0.2", "127.0.0.3"), node_options())
    return NodesSetup(nodes, Setup(api_relayed=True, environment=environment))


@pytest.mark.timeout(4 * SECONDS + 1200)
async def test_devices_are_prepared_for_the_pods_of_their_claims_and_every_pod_runs(scene: PodScene) -> None:
    """The seed, which is printed, decides about everything that is left to chance."""
    seed = int(os.environ.get("CHAOS_SEED") or SystemRandom().randrange(1_000_000))
    chance, nodes = Random(seed), scene.nodes
    relay = nodes.world.api_relay
    assert relay is not None
    load = PodLoad(scene, Random(chance.random()))
    audit = NodeAudit(nodes, Random(chance.random()))
    troubles = NodeTroubles(nodes, relay, Random(chance.random()))
    # An API server that starts does not know its rules yet.
    nodes.world.tolerated.append("forbidden")
    await load.furnish()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(running_task(audit.run()))
        await stack.enter_async_context(running_task(load.tend()))
        relay.handler = Faults(Random(chance.random()), Rates())
        await asyncio.gather(troubles.run(SECONDS), load.make(SECONDS))
        relay.handler = pass_on
        while before := len(load.waiting):
            try:
                await wait_for(lambda before=before: _fewer(load, before), CALM_SECONDS, "one more pod runs")  # type: ignore[misc]
            except TimeoutError:
                states = [f"{name}: {await scene.state(name)}" for name in load.waiting]
                pytest.fail(f"seed {seed}: pods do not run\n" + "\n".join(states))
    assert audit.violations == [], f"seed {seed}"
    assert load.wrong == [], f"seed {seed}"
    await expect_rest(scene.api)
    print(f"seed {seed}: {len(load.lives)} pods, {audit.looks} looks, {dict(troubles.counts)}")
    assert troubles.counts.keys() == WEIGHTS.keys()
    assert audit.looks
    assert sum(each.compared for each in load.lives.values()) > len(load.lives) / 4


async def _fewer(load: PodLoad, than: int) -> bool:
    return len(load.waiting) < than
