"""Claims of PodGroups where components differ in version or gates (KEP-5729, Version Skew and Upgrade/Downgrade of both drafts).

Cell by cell: what the API server keeps, whether kube-controller-manager knows claims of groups, what the kubelets accept and the
setting says of them.  Whatever the cell, nothing is reserved twice, nothing is released while a member is scheduled or being
bound, and a pod that is bound is one that its kubelet starts; but what was generated for a group only kubelets with the gate
start, for whomever it is reserved.
"""

import asyncio
from typing import Any

import pytest
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.simulator.apiserver.objects import Json, StoredKind

from tests.support.scheduling.grouped import GROUP, NAMED, TEMPLATED, PodGroupExtender
from tests.support.scheduling.reclaiming import GRACE, pass_by

FULL, NO_CLAIMS, NO_GROUPS = "claims of groups", "groups without claims", "no groups"
ON, OFF = True, False
TEAM = f"podgroups/{GROUP}"
PODS = ["pods/a", "pods/b"]
BY_GROUP, BY_POD, ITS_OWN, NOTHING, REFUSED = "group", "pod", "own claims", "nothing", "refused"
WHY = {
    NOTHING: "is not created yet",
    REFUSED: "was generated for a PodGroup, with which kubelets here start no pod",
}


def a_world(api: str, setting: str, entry: Json) -> PodGroupExtender:
    """Two members that want the same, as this API server stores them."""
    world = PodGroupExtender(setting, served=api != NO_GROUPS)
    world.devices_everywhere(2)
    world.template()
    if entry is NAMED:
        world.add_claim("shared")
    if api != NO_GROUPS:
        world.group(*([entry] if api == FULL else []))
    for name in ("a", "b"):
        world.member(name, entry, named=api != NO_GROUPS)
    return world


CELLS = [
    # API server, controller-manager's gate, setting, node (n1 declares the feature), entry -> for whom it is reserved
    (FULL, ON, "always", "n2", NAMED, BY_GROUP),
    (FULL, ON, "never", "n1", NAMED, BY_POD),
    (FULL, ON, "auto", "n1", NAMED, BY_GROUP),
    (FULL, ON, "auto", "n2", NAMED, BY_POD),
    (FULL, OFF, "always", "n2", NAMED, BY_GROUP),
    (FULL, OFF, "never", "n1", NAMED, BY_POD),
    (FULL, OFF, "auto", "n1", NAMED, BY_GROUP),
    (FULL, OFF, "auto", "n2", NAMED, BY_POD),
    (FULL, ON, "always", "n2", TEMPLATED, BY_GROUP),
    (FULL, ON, "never", "n1", TEMPLATED, REFUSED),
    (FULL, ON, "auto", "n1", TEMPLATED, BY_GROUP),
    (FULL, ON, "auto", "n2", TEMPLATED, BY_GROUP),
    *((FULL, OFF, setting, "n1", TEMPLATED, NOTHING) for setting in ("always", "never", "auto")),
    *(
        (api, gate, setting, "n1", NAMED, BY_POD)
        for api in (NO_CLAIMS, NO_GROUPS)
        for gate in (ON, OFF)
        for setting in ("always", "never", "auto")
    ),
    *(
        (api, gate, setting, "n1", TEMPLATED, ITS_OWN)
        for api in (NO_CLAIMS, NO_GROUPS)
        for gate in (ON, OFF)
        for setting in ("always", "never", "auto")
    ),
]


def _name(value: Any) -> str:
    return {"True": "manager on", "False": "manager off"}.get(str(value)) or (
        ("named" if value is NAMED else "templated") if isinstance(value, dict) else str(value)
    )


@pytest.mark.parametrize(("api", "gate", "setting", "node", "entry", "expected"), CELLS, ids=_name)
async def test_cell(api: str, gate: bool, setting: str, node: str, entry: Json, expected: str) -> None:
    """Members are bound and accepted; half of them going releases nothing; the last one, or the group, releases all."""
    world = a_world(api, setting, entry)
    world.manage(gate=gate)
    if expected in {NOTHING, REFUSED}:
        answer = await world.filter("a", node)
        assert WHY[expected] in answer.unresolvable[node]
        assert (world.claims_by_pod() == {}) is (expected == NOTHING)
        return
    assert list((await world.filter("a", node)).fitting) == [node]
    await world.bound("a", "b", node=node)
    claims = world.claims_by_pod()
    supported = setting == "always" or (setting == "auto" and node == "n1")
    of_group = entry is TEMPLATED and expected != ITS_OWN
    assert all(world.kubelet_accepts(pod, gate=ON) for pod in ("a", "b"))
    assert all(world.kubelet_accepts(pod, gate=supported) is (supported or not of_group) for pod in ("a", "b"))
    if expected == ITS_OWN:
        assert [world.reserved(claims[pod]) for pod in ("a", "b")] == [["pods/a"], ["pods/b"]]
        return
    (claim,) = set(claims.values())
    assert world.reserved(claim) == ([TEAM] if expected == BY_GROUP else PODS)
    world.delete(StoredKind.POD, "a")
    world.manage(gate=gate)
    await pass_by(world, 2 * GRACE)
    assert world.devices(claim)
    assert world.reserved(claim) == ([TEAM] if expected == BY_GROUP else PODS[1:])
    world.delete(StoredKind.POD, "b")
    world.manage(gate=gate)
    if expected == BY_GROUP:
        assert world.devices(claim)
        world.end_group(GROUP)
        world.manage(gate=gate)
    if expected == BY_GROUP and not gate:
        assert world.reserved(claim) == [TEAM]
        await pass_by(world, 2 * GRACE)
        assert (world.devices(claim), world.reserved(claim)) == ([], [])
    elif entry is NAMED:
        assert not world.devices(claim)


def shared(setting: str = "always", *, served: bool = True) -> PodGroupExtender:
    """A claim by name, and members a, b and c."""
    world = PodGroupExtender(setting, served=served)
    world.devices_everywhere()
    world.add_claim("shared")
    world.group(NAMED)
    for name in ("a", "b", "c"):
        world.member(name)
    return world


async def test_when_kubelets_lose_the_gate_pods_are_reserved_beside_the_group() -> None:
    """Pods that run keep the reservation that they have; deallocation waits for both kinds."""
    world = shared()
    await world.bound("a")
    world.set_up("never")
    await world.bound("b")
    assert world.reserved() == [TEAM, "pods/b"]
    assert world.kubelet_accepts("b", gate=False)
    world.delete(StoredKind.POD, "b")
    world.manage()
    assert world.reserved() == [TEAM]
    await world.bound("c")
    world.delete(StoredKind.POD, "a")
    world.end_group(GROUP)
    world.manage()
    assert (world.reserved(), world.devices("shared")) == (["pods/c"], ["fabric/gpu-0"])
    world.delete(StoredKind.POD, "c")
    world.manage()
    assert world.devices("shared") == []


async def test_a_pod_with_a_reservation_of_its_own_gets_no_other_through_its_group() -> None:
    """It was reserved before the change of the setting, and is bound after it."""
    world = shared("never")
    await world.abandoned("a")
    assert world.reserved() == ["pods/a"]
    world.set_up("always")
    await world.bound("a")
    assert world.reserved() == ["pods/a"]


async def test_there_and_back_again_nothing_is_reserved_twice() -> None:
    world = shared()
    await world.bound("a")
    for setting, pod in [("never", "b"), ("always", "c"), ("never", "d"), ("always", "e")]:
        world.set_up(setting)
        if pod in "de":
            world.member(pod)
        await world.bound(pod)
    assert world.reserved() == [TEAM, "pods/b", "pods/d"]


async def test_entries_of_groups_that_an_older_api_server_does_not_serve_stay_for_ever() -> None:
    """Nobody can tell whether such a group still runs, so neither the devices nor the entry are touched."""
    world = shared()
    await world.bound("a")
    world.set_up("always", served=False)
    world.member("d", named=False)
    await world.bound("d")
    assert world.reserved() == [TEAM, "pods/d"]
    for pod in ("a", "b", "c", "d"):
        world.delete(StoredKind.POD, pod)
    world.manage(gate=OFF)
    await pass_by(world, 2 * GRACE)
    assert (world.reserved(), world.devices("shared")) == ([TEAM], ["fabric/gpu-0"])


async def test_a_group_made_anew_gets_its_own_entry_and_the_old_one_is_the_controllers() -> None:
    world = shared()
    await world.bound("a")
    world.end_group(GROUP)
    world.group(NAMED)
    await world.bound("b")
    assert world.reserved() == [TEAM, TEAM]
    assert len({each["uid"] for each in world.claim("shared")["status"]["reservedFor"]}) == 2
    await pass_by(world, 2 * GRACE)
    assert len(world.reserved()) == 2
    world.manage()
    assert world.reserved() == [TEAM]
    assert world.devices("shared") == ["fabric/gpu-0"]


async def test_with_mixed_reservations_a_member_that_only_waits_loses_its_own_and_nothing_else() -> None:
    world = shared()
    await world.bound("a")
    world.set_up("never")
    await world.abandoned("b")
    assert world.reserved() == [TEAM, "pods/b"]
    await pass_by(world, GRACE)
    assert (world.reserved(), world.devices("shared")) == ([TEAM], ["fabric/gpu-0"])


async def test_pods_of_the_group_bound_at_once_leave_one_entry() -> None:
    world = shared()
    async with world.watching():
        await asyncio.gather(*(world.bind(pod, "n1") for pod in ("a", "b", "c")))
    assert world.reserved() == [TEAM]


async def test_256_pods_and_no_room_for_the_group_are_refused_in_words() -> None:
    """An upgrade with a full list: a member that would add the group has to wait for one that goes."""
    world = shared("never")
    await world.bound("a")

    def fill(claim: Json) -> None:
        others = [{"resource": "pods", "name": f"p{index}", "uid": f"p{index}"} for index in range(255)]
        claim["status"]["reservedFor"] += others

    stored = world.claim("shared")
    fill(stored)
    world.cluster.store.update_status(StoredKind.CLAIM, stored)
    world.set_up("always")
    answer = await world.filter("b", "n1")
    assert "is reserved by 256 pods already" in answer.unresolvable["n1"]
    async with world.watching():
        with pytest.raises(RetryableError, match="256"):
            await world.bind("b", "n1")
    assert len(world.reserved()) == 256
