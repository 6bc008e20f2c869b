"""A pod comes before its claim, which another watch brings: nobody is told that the claim does not exist."""

import asyncio

import pytest

from tests.controlplane.objects import device
from tests.controlplane.planes import SECOND_DEFAULTS
from tests.controlplane.resources import RESOURCE_CLAIMS
from tests.support.e2e.api_relay import Answer, ApiCall, ApiRelay, Forward, pass_on
from tests.support.e2e.installed_extender import InstalledExtender, Setup
from tests.support.e2e.namespace_fixture import SECONDS, NamespaceFixture

pytestmark = [pytest.mark.e2e, pytest.mark.plane(SECOND_DEFAULTS), pytest.mark.asyncio(loop_scope="module")]

MISSING = "does not exist"


@pytest.fixture(scope="module")
def setup() -> Setup:
    return Setup(api_relayed=True, environment={"DRA_EXTENDER_SCHEDULING__NEW_CLAIM_WAIT_SECONDS": "2"})


@pytest.fixture
def relay(world: InstalledExtender) -> ApiRelay:
    assert world.api_relay is not None
    return world.api_relay


async def notes(scene: NamespaceFixture, name: str) -> str:
    """What all Events say of the pod."""
    return "\n".join(str(each.get("note", "")) for each in await scene.events(name))


async def test_a_pod_waits_for_the_claim_that_the_watch_is_about_to_bring(
    scene: NamespaceFixture, relay: ApiRelay
) -> None:
    asked = asyncio.Event()

    async def listen(call: ApiCall, forward: Forward) -> Answer:
        answer = await forward()
        if call.method == "GET" and call.path.endswith("/resourceclaims/late"):
            asked.set()
        return answer

    await scene.node_with_devices("a", device("gpu-0"))
    relay.handler = listen
    try:
        with relay.holding(RESOURCE_CLAIMS.plural):
            await scene.claim("late")
            await scene.pod("early", claim="late")
            await asyncio.wait_for(asked.wait(), SECONDS)
        await scene.wait_until_bound("early")
    finally:
        relay.handler = pass_on
    assert MISSING not in await notes(scene, "early")


async def test_a_pod_is_told_that_its_claim_is_not_known_yet_and_is_tried_again(
    scene: NamespaceFixture, relay: ApiRelay
) -> None:
    """kube-scheduler takes it for an error, and not for a pod that fits nowhere."""

    async def told() -> bool:
        return f"claim {scene.name}/late is not known yet" in await notes(scene, "early")

    async def refused() -> bool:
        return (await scene.condition("early")).get("reason") == "SchedulerError"

    await scene.node_with_devices("a", device("gpu-0"))
    with relay.holding(RESOURCE_CLAIMS.plural):
        await scene.claim("late")
        await scene.pod("early", claim="late")
        await scene.api.wait_for(told, SECONDS, "an Event says that the claim is not known yet")
        # kube-scheduler records its Event first.
        await scene.api.wait_for(refused, SECONDS, "the pod is refused for an error")
    await scene.wait_until_bound("early")
    assert MISSING not in await notes(scene, "early")
