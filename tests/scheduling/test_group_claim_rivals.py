"""The claims of PodGroups are never made beside another controller that makes them."""

import asyncio

import pytest

from app.scheduling.ports import Conflict
from app.simulator.claim_templates import from_template
from app.simulator.controller import ClaimController
from app.simulator.objects import Json, Key, Kind
from tests.scheduling.grouped import GROUP
from tests.scheduling.making_groups import GPU, GRACE, MakingWorld

STOPPED = "stopped, because another controller makes the claims of PodGroups: it made "


def a_world() -> MakingWorld:
    world = MakingWorld()
    world.group(GPU)
    world.member("p0", GPU)
    return world


def manage_with_gate(world: MakingWorld) -> None:
    """kube-controller-manager with the gate does its work."""
    ClaimController(world.cluster.store).settle()


def note(world: MakingWorld) -> str:
    return world.extender.group_claims.notes().get("group-claims", "")


async def refused(world: MakingWorld) -> float:
    lines = (await world.metrics.render()).decode().splitlines()
    (value,) = (line.split()[1] for line in lines if line.startswith("dra_extender_group_claims_refused "))
    return float(value)


async def test_a_claim_that_another_one_makes_within_the_grace_ends_the_work() -> None:
    world = a_world()
    await world.work(GRACE / 2)
    assert await refused(world) == 0
    manage_with_gate(world)
    await world.work()
    (claim,) = world.made("gpu")
    assert note(world).startswith(f"{STOPPED}claim default/{claim} for entry gpu of PodGroup {GROUP}; ")
    assert not world.extender.group_claims.ends_reservations
    assert await refused(world) == 1


async def test_another_one_is_noticed_though_it_was_quicker_than_the_first_look() -> None:
    world = a_world()
    manage_with_gate(world)
    await world.work()
    assert note(world).startswith(STOPPED)


async def test_once_stopped_it_makes_nothing_more_in_later_terms_either() -> None:
    world = a_world()
    manage_with_gate(world)
    await world.work()
    await world.extender.group_claims.stop()
    world.create(
        Kind.POD_GROUP, {"metadata": {"name": "next", "namespace": "default"}, "spec": {"resourceClaims": [GPU]}}
    )
    await asyncio.wait_for(world.extender.group_claims.run(), 5)
    world.clock.seconds += 100
    assert world.made("gpu", "next") == []
    assert note(world).startswith(STOPPED)


async def test_claims_that_another_one_made_before_the_term_are_used_and_say_nothing() -> None:
    """The gate was on once: whoever switches it off starts the service with ours on."""
    world = a_world()
    manage_with_gate(world)
    (claim,) = world.made("gpu")
    world.restart()
    world.member("late", GPU)
    await world.work()
    assert world.recorded(Kind.POD, "late") == {"gpu": claim}
    assert world.made("gpu") == [claim]
    assert note(world) == ""


async def test_a_claim_that_was_made_before_and_not_recorded_is_recorded() -> None:
    world = a_world()
    group = world.cluster.store.get(Key(Kind.POD_GROUP, "default", GROUP))
    theirs = from_template(world.cluster.store, group, "gpu", "template")["metadata"]["name"]
    world.restart()
    await world.work()
    assert world.recorded(Kind.POD_GROUP, GROUP) == {"gpu": theirs}
    assert world.made("gpu") == [theirs]


async def test_a_late_member_that_another_one_tells_of_the_claim_ends_the_work() -> None:
    world = a_world()
    await world.work()
    (claim,) = world.made("gpu")
    world.member("late", GPU)
    world.extender.group_claims.sweep()
    await world.extender.group_claims.look()

    def tell(pod: Json) -> None:
        pod.setdefault("status", {})["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": claim}]

    world.cluster.store.replace(Key(Kind.POD, "default", "late"), tell)
    await world.work()
    assert note(world).startswith(f"{STOPPED}the status of pod default/late, a member of PodGroup {GROUP}; ")


async def test_a_member_that_the_leader_before_us_told_last_is_no_sign_of_another_one() -> None:
    world = a_world()
    await world.work()
    (claim,) = world.made("gpu")
    world.member("late", GPU)
    world.restart()
    world.extender.group_claims.sweep()
    await world.extender.group_claims.look()

    def tell(pod: Json) -> None:
        pod.setdefault("status", {})["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": claim}]

    world.cluster.store.replace(Key(Kind.POD, "default", "late"), tell)
    await world.work()
    assert note(world) == ""


async def test_our_claim_is_withdrawn_if_another_one_comes_beside_it_before_anybody_was_told() -> None:
    world = a_world()
    await world.work(GRACE + 0.5)
    (ours,) = world.made("gpu")
    group = world.cluster.store.get(Key(Kind.POD_GROUP, "default", GROUP))
    theirs = from_template(world.cluster.store, group, "gpu", "template")["metadata"]["name"]
    await world.work(1.0)
    assert ours != theirs
    assert world.made("gpu") == [theirs]
    assert world.recorded(Kind.POD_GROUP, GROUP) == {}


@pytest.mark.parametrize("used", ["recorded", "changed"])
async def test_our_claim_stays_if_the_other_one_uses_it(used: str) -> None:
    """It was recorded in the group's status, or somebody wrote it just when it was to be withdrawn."""
    world = a_world()
    await world.work(GRACE + 0.5)
    (ours,) = world.made("gpu")
    record = world.ledger.claims.by_key("default", ours)
    assert record is not None
    if used == "recorded":
        statuses = [{"name": "gpu", "resourceClaimName": ours}]
        world.edit_group(lambda group: group.setdefault("status", {}).update(resourceClaimStatuses=statuses))
        with pytest.raises(Conflict, match="in use"):
            await world.extender.group_claims.writing.withdraw(record.claim)
    else:
        with pytest.raises(Conflict, match="version"):
            await world.cluster.claims.delete("default", ours, record.claim.metadata.uid, "1")
    assert world.made("gpu") == [ours]
