"""The extender is killed at every boundary between two writes of its binds, while real kubelets start and end what is bound.

All pods of a round stand at different boundaries at the same moment, so that one kill meets all of them.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

import pytest
import pytest_asyncio
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION
from dra_extender.model.resource_claim import EXTENDED_ANNOTATION

from tests.controlplane import objects
from tests.controlplane.node.options import NodeOptions, gpus
from tests.controlplane.resources import DEVICE_CLASSES, RESOURCE_CLAIMS
from tests.support.e2e.api_relay import BINDING, CLAIM, CLAIM_STATUS, CREATION, TOLD, ApiRelay, pass_on
from tests.support.e2e.boundaries import Boundaries, Boundary, every_boundary
from tests.support.e2e.checker import expect_rest, forbidden_findings
from tests.support.e2e.installed_extender import Setup
from tests.support.node.nodes import NodesSetup, RealNodes
from tests.support.node.pod_scene import PodScene
from tests.support.node.prepared import expect_nothing_prepared, expect_prepared

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

NODES: Final = ("127.0.0.2", "127.0.0.3")
ONE: Final = "one"
TWO: Final = "two"
JOINS: Final = "joins"
EXTENDED: Final = "extended"
KINDS: Final = (ONE, TWO, JOINS, EXTENDED)
"""Pods with one claim, with two, with one that is prepared for a pod that runs already, and with an extended resource."""
ROUNDS: Final = pytest.mark.parametrize("kinds", [(ONE, TWO, JOINS), (EXTENDED,)], ids=["claims", "extended-resources"])
"""What stands at its boundaries at the same moment: each bind keeps one of the extender's connections to the API server."""
SECONDS: Final = 120.0
AGAIN: Final = "Always"
"""A container whose start is cut off by the end of its kubelet has failed; it is started again."""
Steps = Mapping[str, Sequence[str]]
Plan = Mapping[str, tuple[str, Boundary]]


@pytest.fixture(scope="module")
def setup() -> NodesSetup:
    scheduling = {"RECLAIM_GRACE_SECONDS": 5, "RECLAIM_INTERVAL_SECONDS": 0.5}
    environment = {f"DRA_EXTENDER_SCHEDULING__{name}": str(value) for name, value in scheduling.items()}
    options = NodeOptions(devices=gpus(20))
    return NodesSetup(dict.fromkeys(NODES, options), Setup(api_relayed=True, environment=environment))


@pytest_asyncio.fixture(loop_scope="module")
async def relay(nodes: RealNodes) -> AsyncIterator[ApiRelay]:
    """What passes everything on, at the end too."""
    assert nodes.world.api_relay is not None
    yield nodes.world.api_relay
    nodes.world.api_relay.handler = pass_on


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def steps(nodes: RealNodes) -> Steps:
    """The writes of an undisturbed bind of each kind."""
    scene, relay = PodScene(nodes.world, "undisturbed", nodes=nodes), nodes.world.api_relay
    assert relay is not None
    await scene.open()
    await furnish(scene)
    for kind in KINDS:
        await prepare(scene, kind, kind)
    seen = relay.handler = Boundaries()
    for kind in KINDS:
        await add(scene, kind, kind)
        await scene.expect_devices(kind)
    relay.handler = pass_on
    await scene.clear()
    assert seen.steps[ONE] == [CLAIM, CLAIM_STATUS, BINDING]
    assert seen.steps[JOINS] == [CLAIM_STATUS, BINDING]
    assert seen.steps[EXTENDED] == [CREATION, CLAIM, CLAIM_STATUS, TOLD, BINDING]
    return {kind: seen.steps[kind] for kind in KINDS}


def resource(scene: PodScene) -> str:
    """The extended resource that a class of the scene backs."""
    return f"{scene.name}.example.com/gpu"


async def furnish(scene: PodScene) -> None:
    """A class that backs an extended resource."""
    fields = {"extendedResourceName": resource(scene)}
    chosen = objects.device_class(f"{scene.name}-extended", f'device.driver == "{scene.driver}"', **fields)
    await scene.api.create(DEVICE_CLASSES, chosen)


async def prepare(scene: PodScene, kind: str, name: str) -> None:
    """The claims of a pod of this kind; one that joins finds its claim prepared for a pod that runs."""
    for request, own in claims_of(kind, name).items():
        body = objects.resource_claim(own, scene.name, objects.request(request, scene.name))
        await scene.api.create(RESOURCE_CLAIMS, body)
    if kind == JOINS:
        await scene.pod(f"host.{name}", claim=f"{name}.a", restartPolicy=AGAIN)
        await scene.wait_until_running(f"host.{name}")


async def add(scene: PodScene, kind: str, name: str) -> None:
    extended = {resource(scene): "1"} if kind == EXTENDED else {}
    await scene.pod(name, claims=claims_of(kind, name), extended=extended, restartPolicy=AGAIN)


def claims_of(kind: str, name: str) -> dict[str, str]:
    """The claims of a pod by its own names for them, which are those of their requests, too."""
    return {own: f"{name}.{own}" for own in {EXTENDED: "", TWO: "ab"}.get(kind, "a")}


def hosts(plan: Plan) -> Sequence[str]:
    """The pods that run from the beginning."""
    return [f"host.{name}" for name, (kind, _) in plan.items() if kind == JOINS]


def bound(plan: Plan) -> Sequence[str]:
    """The pods whose Binding is stored, although the extender does not know it."""
    last: dict[str, int] = {}
    for kind, at in plan.values():
        last[kind] = max(at.write, last.get(kind, 0))
    return [name for name, (kind, at) in plan.items() if at.after and at.write == last[kind]]


async def populate(scene: PodScene, relay: ApiRelay, plan: Plan) -> None:
    """Pods with their claims; returns when every bind stands at its boundary."""
    await furnish(scene)
    await asyncio.gather(*(prepare(scene, kind, name) for name, (kind, _) in plan.items()))
    stops = relay.handler = Boundaries({name: at for name, (_, at) in plan.items()})
    await asyncio.gather(*(add(scene, kind, name) for name, (kind, _) in plan.items()))
    try:
        await scene.api.wait_for(stops.all_reached, SECONDS, "every bind stands at its boundary")
    except TimeoutError as late:
        raise TimeoutError(f"{late} {stops.missing}") from late


async def expect_all_running(scene: PodScene, plan: Plan) -> None:
    """Every pod runs with the devices of its allocation, and nothing is kept for anybody else."""
    await asyncio.gather(*(scene.expect_devices(name) for name in (*plan, *hosts(plan))))
    await expect_rest(scene.api)
    await expect_prepared(scene.nodes)


@ROUNDS
async def test_every_pod_runs_with_its_devices_after_a_kill_at_each_boundary(
    scene: PodScene, nodes: RealNodes, relay: ApiRelay, steps: Steps, kinds: Sequence[str]
) -> None:
    """Kubelets start what is bound while there is no extender."""
    plan = every_boundary(steps, kinds)
    await populate(scene, relay, plan)
    nodes.world.extender.kill()
    relay.handler = pass_on
    await asyncio.gather(*(scene.expect_devices(name) for name in bound(plan)))
    assert await forbidden_findings(scene.api) == []
    await nodes.world.extender.start()
    await expect_all_running(scene, plan)


@ROUNDS
async def test_nothing_stays_taken_of_pods_that_end_after_a_kill_at_each_boundary(
    scene: PodScene, nodes: RealNodes, relay: ApiRelay, steps: Steps, kinds: Sequence[str]
) -> None:
    """Pods are deleted with their grace while there is no extender.

    Their claims are as they were made, and free again; those for extended resources are gone.
    """
    plan = every_boundary(steps, kinds)
    await populate(scene, relay, plan)
    nodes.world.extender.kill()
    relay.handler = pass_on
    await asyncio.gather(*(scene.expect_devices(name) for name in bound(plan)))
    await asyncio.gather(*(scene.delete_pod(name) for name in (*plan, *hosts(plan))))
    await asyncio.gather(*(scene.wait_until_gone(name) for name in (*plan, *hosts(plan))))
    await expect_nothing_prepared(nodes)
    await nodes.world.extender.start()
    await scene.wait_until_free(SECONDS)

    async def as_made() -> bool:
        metadata = [each["metadata"] for each in await scene.api.list(RESOURCE_CLAIMS, scene.name)]
        marks = {SNAPSHOT_ANNOTATION, EXTENDED_ANNOTATION}
        return not any(each.get("finalizers") or marks & each.get("annotations", {}).keys() for each in metadata)

    await scene.api.wait_for(as_made, SECONDS, "every claim is as it was made")


async def test_every_pod_runs_with_its_devices_after_kubelets_and_drivers_were_killed_with_the_extender(
    scene: PodScene, nodes: RealNodes, relay: ApiRelay, steps: Steps
) -> None:
    """The drivers come back last, so that kubelets begin without them."""
    plan = every_boundary(steps, (ONE, TWO, JOINS))
    await populate(scene, relay, plan)
    nodes.world.extender.kill()
    relay.handler = pass_on
    for node in nodes:
        await node.stop_kubelet(kill=True)
        await node.stop_driver(kill=True)
    assert await forbidden_findings(scene.api) == []
    await nodes.world.extender.start()
    for node in nodes:
        await node.start_kubelet()
        await node.start_driver()
        await node.wait_until_published()
    await expect_all_running(scene, plan)
