"""A gang with a member that cannot come holds nothing and names the member; when that can come, all are bound."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, NamedTuple

import pytest
import pytest_asyncio

from tests.controlplane.objects import device
from tests.controlplane.planes import SECOND_DEFAULTS
from tests.controlplane.resources import NODES, PODS
from tests.support.e2e.namespace_fixture import SECONDS, NamespaceFixture
from tests.support.e2e.workloads import bound_members, clear_groups, create_group, member

pytestmark = [pytest.mark.e2e, pytest.mark.plane(SECOND_DEFAULTS), pytest.mark.asyncio(loop_scope="module")]

GATES: Final = [{"name": "example.com/wait"}]
LACKING: Final = "PodGroup gang: 3 more members needed, 2 can be placed; pod c: "


@pytest_asyncio.fixture(loop_scope="module")
async def groups(scene: NamespaceFixture) -> AsyncIterator[NamespaceFixture]:
    """A scene with a node of one CPU and three devices, and a gang that needs its three members."""
    await scene.node_with_devices("n", *(device(f"gpu-{index}") for index in range(3)), cpu="1")
    await scene.template("one")
    await create_group(scene, "gang", min_count=3)
    yield scene
    await clear_groups(scene)


async def gang(scene: NamespaceFixture, **last: Any) -> None:
    """Create the members a and b, and c with these fields."""
    for name in "ab":
        await member(scene, "gang", name, template="one")
    await member(scene, "gang", "c", **{"template": "one", **last})


async def ungate(scene: NamespaceFixture) -> None:
    await scene.api.patch(PODS, "c", {"spec": {"schedulingGates": None}}, scene.name)


async def label(scene: NamespaceFixture) -> None:
    await scene.api.patch(NODES, f"{scene.name}-n", {"metadata": {"labels": {"zone": scene.name}}})


async def create_claim(scene: NamespaceFixture) -> None:
    await scene.claim("late")


class Obstacle(NamedTuple):
    """Fields of the member c, what the others say of it, and what takes the obstacle away."""

    fields: dict[str, Any]
    said: str
    clear: Callable[[NamespaceFixture], Awaitable[None]]


def obstacle(kind: str, scene: NamespaceFixture) -> Obstacle:
    match kind:
        case "gate":
            return Obstacle({"schedulingGates": GATES}, "pod has scheduling gates: example.com/wait", ungate)
        case "gated without devices":
            return Obstacle({"schedulingGates": GATES, "template": None}, "pod has scheduling gates", ungate)
        case "selector":
            said = "node(s) didn't match Pod's node affinity/selector"
            return Obstacle({"nodeSelector": {"zone": scene.name}}, said, label)
        case _:
            return Obstacle({"template": None, "claim": "late"}, 'claim "gpu" does not exist', create_claim)


@pytest.mark.parametrize("kind", ["gate", "gated without devices", "selector", "claim"])
async def test_nothing_is_held_until_the_member_can_come_and_then_all_are_bound(
    groups: NamespaceFixture, kind: str
) -> None:
    found = obstacle(kind, groups)
    await gang(groups, **found.fields)
    for name in "ab":
        await groups.wait_for_event(name, LACKING, found.said)
    assert await groups.allocated() == []
    assert await bound_members(groups) == {}
    await found.clear(groups)
    for name in "abc":
        await groups.wait_until_bound(name)


async def test_a_report_of_kube_scheduler_ends_the_holds_until_it_asks_about_the_member_again(
    groups: NamespaceFixture,
) -> None:
    """The node has too little CPU left for one of them, which kube-scheduler alone finds out; the time to bind is ten minutes."""
    await groups.pod("filler", cpu="600m")
    await groups.wait_until_bound("filler")
    await gang(groups, cpu="500m")
    for name in "ab":
        await groups.wait_for_event(name, LACKING, "Insufficient cpu")
    await groups.wait_until_free(SECONDS)
    groups.world.extender.kill()
    await groups.world.extender.start()
    assert await bound_members(groups) == {"filler": f"{groups.name}-n"}
    await groups.delete_pod("filler")
    for name in "abc":
        await groups.wait_until_bound(name)
