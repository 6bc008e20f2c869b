"""Device taints: what kube-controller-manager evicts ends on its node, and what comes after it runs with another device."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest

from tests.controlplane.node.options import NodeOptions, gpus
from tests.controlplane.objects import Object, device, taint_rule
from tests.controlplane.resources import DEVICE_TAINT_RULES
from tests.support.node.nodes import NodesSetup, RealNodes, republish
from tests.support.node.pod_scene import PodScene
from tests.support.node.replica_set import pods_of, replica_set

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("never_twice"),
]

NODE: Final = "127.0.0.2"
SECONDS: Final = 120.0
BROKEN: Final = {"key": "example.com/broken", "value": "yes"}
EVICTING: Final = {**BROKEN, "effect": "NoExecute"}
TOLERATED: Final = {"key": BROKEN["key"], "operator": "Exists", "effect": "NoExecute"}
TAINTED: Final = "matching devices are tainted"


@pytest.fixture(scope="module")
def setup() -> NodesSetup:
    return NodesSetup(nodes={NODE: NodeOptions(devices=gpus(2))})


def tainted(index: int, *taints: Object) -> list[Object]:
    """The node's two devices, one of which has taints."""
    return [device(f"gpu-{each}", taints=list(taints) if each == index else []) for each in range(2)]


@asynccontextmanager
async def rule(scene: PodScene, taint: Object, **selector: str) -> AsyncIterator[None]:
    """A DeviceTaintRule for devices of the driver (`device`, `pool`), inside the block."""
    body = taint_rule(scene.name, taint, driver=scene.driver, **selector)
    heard = await scene.world.metric("watch_events_total", kind="devicetaintrules")

    async def known(more: int) -> bool:
        return await scene.world.metric("watch_events_total", kind="devicetaintrules") >= heard + more

    await scene.api.create(DEVICE_TAINT_RULES, body)
    try:
        await scene.api.wait_for(lambda: known(1), SECONDS, "the extender has heard of the rule")
        yield
    finally:
        await scene.api.delete(DEVICE_TAINT_RULES, scene.name)
    await scene.api.wait_for(lambda: known(2), SECONDS, "the extender has heard that the rule is gone")


async def pod_of_set(scene: PodScene, *, but: str = "") -> str:
    """The pod of the set that is not on its way out, and not `but`."""

    async def name() -> str:
        names = [each["metadata"]["name"] for each in await pods_of(scene, "set")]
        return next((each for each in names if each != but), "")

    return await scene.api.wait_for(name, SECONDS, "the set has a pod")


async def test_device_that_its_driver_taints_loses_its_pod_and_the_next_pod_runs_with_another(
    scene: PodScene, nodes: RealNodes
) -> None:
    """The driver has published the taint; kube-controller-manager evicts, a ReplicaSet makes the next pod."""
    await republish(nodes, NODE, tainted(0))
    await scene.template("one")
    async with replica_set(scene, "set", 1, "one"):
        first = await pod_of_set(scene)
        (held,) = (await scene.expect_devices(first)).values()
        other = {"gpu-0": "gpu-1", "gpu-1": "gpu-0"}[held.rpartition("/")[2]]
        await republish(nodes, NODE, tainted(int(held[-1]), EVICTING))
        second = await pod_of_set(scene, but=first)
        assert await scene.expect_devices(second) == {"DRA_GPU_0": f"{NODE}/{other}"}
        await scene.wait_until_gone(first)


async def test_taint_rule_evicts_the_pod_of_the_device_alone_and_the_next_pod_runs_with_another(
    scene: PodScene, nodes: RealNodes
) -> None:
    await republish(nodes, NODE, tainted(0))
    await scene.template("one")
    async with replica_set(scene, "set", 1, "one"):
        first = await pod_of_set(scene)
        (held,) = (await scene.expect_devices(first)).values()
        async with rule(scene, EVICTING, pool=NODE, device=held.rpartition("/")[2]):
            second = await pod_of_set(scene, but=first)
            (given,) = (await scene.expect_devices(second)).values()
            assert given != held


async def test_pods_wait_while_rules_taint_all_devices_and_run_once_one_is_gone(
    scene: PodScene, nodes: RealNodes
) -> None:
    """The running pod stays: NoSchedule is for those who come."""
    await republish(nodes, NODE, tainted(0))
    await scene.template("one")
    await scene.pod("runs", template="one")
    await scene.expect_devices("runs")
    async with rule(scene, {**BROKEN, "effect": "NoSchedule"}):
        await scene.pod("waits", template="one")
        await scene.wait_until_unschedulable("waits", TAINTED)
    await scene.expect_devices("waits")
    assert "deletionTimestamp" not in (await scene.read("runs"))["metadata"]


async def test_claim_that_tolerates_the_taint_runs_on_the_device_and_stays(scene: PodScene, nodes: RealNodes) -> None:
    """A pod beside it is evicted.  The controller wants the effect said: a toleration without one does not count for it."""
    await republish(nodes, NODE, tainted(0))
    await scene.template("one")
    await scene.template("tolerant", tolerations=[TOLERATED])
    await scene.pod("evicted", template="one")
    await scene.pod("stays", template="tolerant")
    for name in ("evicted", "stays"):
        await scene.expect_devices(name)
    async with rule(scene, EVICTING):
        await scene.wait_until_gone("evicted")
        await scene.pod("late", template="tolerant")
        await scene.expect_devices("late")
        assert "deletionTimestamp" not in (await scene.read("stays"))["metadata"]


async def test_toleration_without_an_effect_does_not_keep_the_pod_on_its_device(
    scene: PodScene, nodes: RealNodes
) -> None:
    """Schedulers take it for every effect, kube-controller-manager 1.37.1 for none: docs/operate/troubleshooting.md says so."""
    await republish(nodes, NODE, tainted(0, EVICTING)[:1])
    vague = {"key": BROKEN["key"], "operator": "Exists"}
    await scene.claim("vague", tolerations=[vague])
    await scene.pod("evicted", claim="vague")
    await scene.wait_until_gone("evicted")
    reasons = {each.get("reason") for each in await scene.events("evicted")}
    assert {"Scheduled", "DeviceTaintManagerEviction"} <= reasons
