"""A claim that is reserved for a PodGroup is in use as long as one member is; a group that only waits keeps no devices."""

import pytest
from dra_extender.ledger.pod_groups import GroupEntryPolicy
from dra_extender.model.pod import Pod
from dra_extender.scheduling.reclaim.release_reasons import ConsumerState, group_state

from tests.support.scheduling.reclaiming import GRACE, OPTIONS, pass_by, reclaimed, small_world
from tests.support.scheduling.world import InMemoryExtender

ENTRY = {"name": "gpu", "resourceClaimName": "shared"}


def member(name: str, *, node: str = "", phase: str = "Pending", deleting: bool = False) -> Pod:
    return Pod(namespace="default", name=name, uid=name, node_name=node, phase=phase, deleting=deleting)


@pytest.mark.parametrize(
    ("members", "busy", "expected"),
    [
        ([member("a"), member("b")], "", ConsumerState.IDLE),
        ([member("a"), member("b")], "b", ConsumerState.IN_USE),
        ([member("a"), member("b", node="n1")], "", ConsumerState.IN_USE),
        ([member("a"), member("b", node="n1", phase="Succeeded")], "", ConsumerState.IDLE),
        ([member("a", phase="Failed"), member("b", deleting=True)], "", ConsumerState.IN_USE),
        ([], "", ConsumerState.IN_USE),
    ],
)
def test_a_group_is_idle_when_members_wait_and_none_is_bound_or_being_bound(
    members: list[Pod], busy: str, expected: ConsumerState
) -> None:
    assert group_state(members, lambda uid: uid == busy, exists=True) is expected


@pytest.fixture
def world() -> InMemoryExtender:
    world = small_world()
    world.ledger.pod_groups.entry_policy = GroupEntryPolicy.ALWAYS
    world.add_claim("shared")
    world.add_group("team", resourceClaims=[ENTRY])
    for name in ("m1", "m2"):
        world.add_member("team", name, resourceClaims=[ENTRY])
    return world


async def test_the_claim_of_a_group_that_only_waits_is_released_when_its_node_does_not_suit(
    world: InMemoryExtender,
) -> None:
    await world.abandoned("m1")
    assert list((await world.filter("m2", "n2")).fitting) == []

    await pass_by(world, OPTIONS.reclaim_unfit_seconds)

    assert world.devices("shared") == []
    assert await reclaimed(world, "node_unfit") == 1
    assert list((await world.filter("m2", "n2")).fitting) == ["n2"]


async def test_a_member_that_only_the_live_object_knows_to_be_bound_keeps_the_claim(world: InMemoryExtender) -> None:
    await world.abandoned("m1")
    world.silence("pods")
    pod = world.pod("m2")
    await world.cluster.pods.bind("default", "m2", pod["metadata"]["uid"], "n1")

    await pass_by(world, GRACE)

    assert world.devices("shared") == ["n1/gpu-0"]
    assert await reclaimed(world, "pod_idle", "changed") == 1
