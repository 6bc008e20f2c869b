"""At every boundary between two writes of a bind, not at some: the extender is killed, the pod vanishes, the scheduler restarts.

All pods of a round stand at different boundaries at the same moment, so that one kill meets all of them.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest
import pytest_asyncio
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION
from dra_extender.model.resource_claim import EXTENDED_ANNOTATION

from tests.controlplane.objects import Object, device, device_class
from tests.controlplane.planes import SECOND_DEFAULTS
from tests.controlplane.resources import DEVICE_CLASSES, NODES, RESOURCE_CLAIMS
from tests.support.e2e.api_relay import BINDING, CLAIM, CLAIM_STATUS, CREATION, NOMINATION, TOLD, ApiRelay, pass_on
from tests.support.e2e.boundaries import Boundaries, Boundary, every_boundary
from tests.support.e2e.checker import expect_rest, forbidden_findings
from tests.support.e2e.driver import ATTACHED, FAILED, driving
from tests.support.e2e.installed_extender import InstalledExtender, Setup
from tests.support.e2e.namespace_fixture import SECONDS, NamespaceFixture

pytestmark = [pytest.mark.e2e, pytest.mark.plane(SECOND_DEFAULTS), pytest.mark.asyncio(loop_scope="module")]

ONE: Final = "one"
TWO: Final = "two"
JOINS: Final = "joins"
EXTENDED: Final = "extended"
BESIDE: Final = "beside"
KINDS: Final = (ONE, TWO, JOINS, EXTENDED, BESIDE)
"""One claim, two of which one has to wait for its device, one that is allocated already, an extended resource, and one whose
device has to be waited for beside a claim."""
ROUNDS: Final = pytest.mark.parametrize(
    "kinds", [(ONE, TWO, JOINS), (EXTENDED, BESIDE)], ids=["claims", "extended-resources"]
)
"""What stands at its boundaries at the same moment: each bind keeps one of the extender's connections to the API server."""
Steps = Mapping[str, list[str]]


@pytest.fixture(scope="module")
def setup() -> Setup:
    scheduling = {"RECLAIM_GRACE_SECONDS": 5, "RECLAIM_INTERVAL_SECONDS": 0.5}
    environment = {f"DRA_EXTENDER_SCHEDULING__{name}": str(value) for name, value in scheduling.items()}
    return Setup(api_relayed=True, environment=environment)


@pytest.fixture
def relay(world: InstalledExtender) -> ApiRelay:
    assert world.api_relay is not None
    return world.api_relay


async def furnish(scene: NamespaceFixture) -> None:
    """Nodes with devices that are ready and devices that have to be attached."""
    conditions: dict[str, Any] = {
        "bindingConditions": [ATTACHED],
        "bindingFailureConditions": [FAILED],
        "bindsToNode": True,
    }
    for suffix in ("a", "b", "c"):
        await scene.node_with_devices(
            suffix,
            *(device(f"quick-{index}", attributes={"slow": False}) for index in range(16)),
            *(device(f"slow-{index}", attributes={"slow": True}, **conditions) for index in range(8)),
        )
    for kind, slow in ((EXTENDED, "false"), (BESIDE, "true")):
        chosen = f'device.driver == "{scene.driver}" && {scene.attribute("slow")} == {slow}'
        fields = {"extendedResourceName": resource(scene, kind)}
        await scene.api.create(DEVICE_CLASSES, device_class(f"{scene.name}-{kind}", chosen, **fields))


def resource(scene: NamespaceFixture, kind: str) -> str:
    """The extended resource of pods of this kind."""
    return f"{scene.driver}/{kind}"


async def prepare(scene: NamespaceFixture, kind: str, name: str) -> None:
    """The claims of a pod of this kind; a pod that joins finds its claim allocated by another one."""
    if kind != EXTENDED:
        await scene.claim(f"{name}.a", f"!{scene.attribute('slow')}")
    if kind == TWO:
        await scene.claim(f"{name}.b", scene.attribute("slow"))
    if kind == JOINS:
        await scene.pod(f"host.{name}", claim=f"{name}.a")


async def add(scene: NamespaceFixture, kind: str, name: str) -> None:
    claims = {} if kind == EXTENDED else {"a": f"{name}.a"} | ({"b": f"{name}.b"} if kind == TWO else {})
    extended = {resource(scene, kind): "1"} if kind in (EXTENDED, BESIDE) else {}
    await scene.pod(name, claims=claims, extended=extended)


async def populate(scene: NamespaceFixture, relay: ApiRelay, plan: Mapping[str, tuple[str, Boundary]]) -> Boundaries:
    """Pods (kind, boundary) by name; returns when every bind stands at its boundary."""
    await asyncio.gather(*(prepare(scene, kind, name) for name, (kind, _) in plan.items()))
    for name, (kind, _) in plan.items():
        if kind == JOINS:
            await scene.wait_until_bound(f"host.{name}")
    stops = relay.handler = Boundaries({name: at for name, (_, at) in plan.items()})
    await asyncio.gather(*(add(scene, kind, name) for name, (kind, _) in plan.items()))
    try:
        await scene.api.wait_for(stops.all_reached, SECONDS, "every bind stands at its boundary")
    except TimeoutError as late:
        raise TimeoutError(f"{late} {stops.missing}") from late
    assert await forbidden_findings(scene.api) == []
    return stops


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def steps(world: InstalledExtender) -> Steps:
    """The writes of an undisturbed bind of each kind, as the API server gets them: what there is to be enumerated."""
    scene, relay = NamespaceFixture(world, "undisturbed"), world.api_relay
    assert relay is not None
    await scene.open()
    await furnish(scene)
    for kind in KINDS:
        await prepare(scene, kind, kind)
    await scene.wait_until_bound(f"host.{JOINS}")
    seen = relay.handler = Boundaries()
    async with driving(scene, after_nomination=True):
        for kind in KINDS:
            await add(scene, kind, kind)
        for kind in KINDS:
            await scene.wait_until_bound(kind)
    relay.handler = pass_on
    await scene.clear()
    return {kind: seen.steps[kind] for kind in KINDS}


async def one_special_claim_each(scene: NamespaceFixture, plan: Mapping[str, tuple[str, Boundary]]) -> None:
    """Each pod with an extended resource has one claim for it, of which it was told, and there are no others."""
    special = await special_claims(scene)
    told = [
        (await scene.read(name))["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
        for name, (kind, _) in plan.items()
        if kind in (EXTENDED, BESIDE)
    ]
    assert sorted(each["metadata"]["name"] for each in special) == sorted(told)


async def special_claims(scene: NamespaceFixture) -> list[Object]:
    """The claims that were made for extended resources."""
    claims = await scene.api.list(RESOURCE_CLAIMS, scene.name)
    return [each for each in claims if EXTENDED_ANNOTATION in each["metadata"].get("annotations", {})]


def expect_steps(steps: Steps) -> None:
    """Per claim finalizer with snapshot, then allocation with reservation; while it waits the nomination; then the Binding.

    For extended resources the claim is made before, and the pod is told of it when everything is ready.
    """
    assert steps[ONE] == [CLAIM, CLAIM_STATUS, BINDING]
    assert steps[JOINS] == [CLAIM_STATUS, BINDING]
    assert sorted(steps[TWO][:-2]) == sorted([CLAIM, CLAIM_STATUS] * 2)
    assert steps[TWO][-2:] == [NOMINATION, BINDING]
    assert steps[EXTENDED] == [CREATION, CLAIM, CLAIM_STATUS, TOLD, BINDING]
    assert sorted(steps[BESIDE][1:-3]) == sorted([CLAIM, CLAIM_STATUS] * 2)
    assert (steps[BESIDE][0], *steps[BESIDE][-3:]) == (CREATION, NOMINATION, TOLD, BINDING)


@ROUNDS
async def test_after_a_kill_at_each_boundary_pods_are_bound_and_deleted_ones_leave_nothing(
    scene: NamespaceFixture, world: InstalledExtender, relay: ApiRelay, steps: Steps, kinds: Sequence[str]
) -> None:
    """What is stored after one write and before the next is the same; so each state is met by a pod that stays and one that goes.

    Claims that are used by name stay, and in the end are as they were made; those for extended resources are gone.
    """
    expect_steps(steps)
    await furnish(scene)
    plan = every_boundary(steps, kinds)
    gone = {name for name, (_, at) in plan.items() if at.after}
    hosts = {f"host.{name}" for name in gone if plan[name][0] == JOINS}
    async with driving(scene, after_nomination=True):
        await populate(scene, relay, plan)
        world.extender.kill()
        relay.handler = pass_on
        assert await forbidden_findings(scene.api) == []
        await asyncio.gather(*(scene.delete_pod(name) for name in gone | hosts))
        await world.extender.start()
        for name in plan.keys() - gone:
            await scene.wait_until_bound(name, 2 * SECONDS)
        await expect_rest(scene.api)

    async def as_made() -> bool:
        claims = [
            claim
            for claim in await scene.api.list(RESOURCE_CLAIMS, scene.name)
            if claim["metadata"]["name"].partition(".")[0] in gone
        ]
        metadata = [claim["metadata"] for claim in claims]
        marked = [
            each for each in metadata if SNAPSHOT_ANNOTATION in each.get("annotations", {}) or each.get("finalizers")
        ]
        return not marked and not any(claim.get("status", {}).get("allocation") for claim in claims)

    await scene.api.wait_for(as_made, 2 * SECONDS, "every claim of a deleted pod is as it was made")
    await one_special_claim_each(scene, {name: plan[name] for name in plan.keys() - gone})


@ROUNDS
async def test_every_pod_is_bound_when_the_scheduler_restarts_at_each_boundary(
    scene: NamespaceFixture, world: InstalledExtender, relay: ApiRelay, steps: Steps, kinds: Sequence[str]
) -> None:
    """Also in the middle of a wait for a device: the first bind goes on without a caller, the second one joins or resumes it."""
    await furnish(scene)
    plan = every_boundary(steps, kinds)
    async with driving(scene, after_nomination=True) as driver:
        await prepare(scene, TWO, "waiter")
        driver.idle.add("waiter.b")
        await add(scene, TWO, "waiter")
        await scene.wait_for_event("waiter", f"waits for {ATTACHED}")
        stops = await populate(scene, relay, plan)
        await world.cluster.stop_scheduler()
        stops.release()
        assert await forbidden_findings(scene.api) == []
        await world.start_scheduler()
        driver.idle.clear()
        for name in ("waiter", *plan):
            await scene.wait_until_bound(name, 2 * SECONDS)
        relay.handler = pass_on
        await expect_rest(scene.api)
    await one_special_claim_each(scene, plan)


async def test_devices_on_a_node_that_became_unfit_before_the_binding_are_given_back(
    scene: NamespaceFixture, relay: ApiRelay
) -> None:
    """The pod has its claim allocated for a node that takes no pods any more; it gets a device of another node."""
    for suffix in ("a", "b"):
        await scene.node_with_devices(suffix, device("gpu-0"))
    await scene.claim("worker.a")
    stops = relay.handler = Boundaries({"worker": Boundary(2, after=False)})
    await scene.pod("worker", claims={"a": "worker.a"})
    await scene.api.wait_for(stops.all_reached, SECONDS, "the Binding has come to the relay")
    (held,) = await scene.allocated()
    await scene.api.patch(NODES, held.partition("/")[0], {"spec": {"unschedulable": True}})
    relay.handler = pass_on
    stops.lose()
    node = await scene.wait_until_bound("worker")
    assert node != held.partition("/")[0]
    assert await scene.allocated() == [f"{node}/gpu-0"]
    await scene.wait_for_event("worker", "devices", "given back", "its node does not suit the pod")
