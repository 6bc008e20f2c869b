"""The claims of PodGroups are never made beside another controller that makes them."""

import asyncio

import pytest
from dra_extender.scheduling.podgroup_claims.plan import CreateClaim, owner_of_group
from dra_extender.scheduling.ports.cluster import ConflictError
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind
from dra_extender.simulator.controllers.claims import ClaimController, create_claim

from tests.support.scheduling.grouped import GROUP
from tests.support.scheduling.making_groups import GPU, GRACE, ClaimMakingExtender

STOPPED = "stopped, because another controller makes the claims of PodGroups: it made "
ENTRY = {"name": "gpu", "resourceClaimTemplateName": "template"}


def a_world() -> ClaimMakingExtender:
    world = ClaimMakingExtender()
    world.group(GPU)
    world.member("p0", GPU)
    return world


def manage_with_gate(world: ClaimMakingExtender) -> None:
    """kube-controller-manager with the gate does its work."""
    ClaimController(world.cluster.store).reconcile()


def note(world: ClaimMakingExtender) -> str:
    return world.extender.group_claims.notes().get("group-claims", "")


def tell(world: ClaimMakingExtender, pod: str, claim: str) -> None:
    """Somebody records the claim in the status of the pod."""
    statuses = [{"name": "gpu", "resourceClaimName": claim}]
    world.cluster.store.edit_unchecked(
        Key(StoredKind.POD, "default", pod),
        lambda raw: raw.setdefault("status", {}).update(resourceClaimStatuses=statuses),
    )


async def refused(world: ClaimMakingExtender) -> float:
    return await world.metric("dra_extender_group_claims_refused")


async def test_a_claim_that_another_one_makes_within_the_grace_ends_the_work() -> None:
    world = a_world()
    await world.work(GRACE / 2)
    assert await refused(world) == 0
    manage_with_gate(world)
    await world.work()
    (claim,) = world.made("gpu")
    assert note(world).startswith(f"{STOPPED}claim default/{claim} for entry gpu of PodGroup {GROUP}; ")
    assert await refused(world) == 1


async def test_once_stopped_it_makes_nothing_more_in_later_terms_either() -> None:
    world = a_world()
    manage_with_gate(world)
    await world.work()
    await world.extender.group_claims.stop()
    another_group(world)
    await asyncio.wait_for(world.extender.group_claims.keep_reconciling(), 60)
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
    assert world.recorded(StoredKind.POD, "late") == {"gpu": claim}
    assert world.made("gpu") == [claim]
    assert note(world) == ""


async def test_a_claim_that_was_made_before_and_not_recorded_is_recorded() -> None:
    world = a_world()
    theirs = claim_for(world)
    world.restart()
    await world.work()
    assert world.recorded(StoredKind.POD_GROUP, GROUP) == {"gpu": theirs}
    assert world.made("gpu") == [theirs]


async def test_a_late_member_that_another_one_tells_of_the_claim_ends_the_work() -> None:
    world = a_world()
    await world.work()
    (claim,) = world.made("gpu")
    world.member("late", GPU)
    world.extender.group_claims.sweep()
    await world.extender.group_claims.reconcile_due()
    tell(world, "late", claim)
    await world.work()
    assert note(world).startswith(f"{STOPPED}the status of pod default/late, a member of PodGroup {GROUP}; ")


async def test_a_member_that_the_leader_before_us_told_last_is_no_sign_of_another_one() -> None:
    world = a_world()
    await world.work()
    (claim,) = world.made("gpu")
    world.member("late", GPU)
    world.restart()
    world.extender.group_claims.sweep()
    await world.extender.group_claims.reconcile_due()
    tell(world, "late", claim)
    await world.work()
    assert note(world) == ""


async def test_our_claim_is_withdrawn_if_another_one_comes_beside_it_before_anybody_was_told() -> None:
    world = a_world()
    await world.work(GRACE + 0.5)
    (ours,) = world.made("gpu")
    theirs = claim_for(world)
    await world.work(1.0)
    assert ours != theirs
    assert world.made("gpu") == [theirs]
    assert world.recorded(StoredKind.POD_GROUP, GROUP) == {}


def claim_for(world: ClaimMakingExtender, name: str = GROUP) -> str:
    """What a user who may write claims can do: one that says of itself that it is made for an entry of his PodGroup."""
    made: str = create_claim(world.cluster.store, StoredKind.POD_GROUP, world.stored_group(name), ENTRY)
    return made


def another_group(world: ClaimMakingExtender) -> None:
    world.create(
        StoredKind.POD_GROUP, {"metadata": {"name": "next", "namespace": "default"}, "spec": {"resourceClaims": [GPU]}}
    )


@pytest.mark.parametrize("seconds", [GRACE / 2, GRACE + 0.5, GRACE * 2])
async def test_a_claim_that_says_it_is_for_a_group_stops_the_work_for_no_other_group(seconds: float) -> None:
    """Before ours is made, beside ours, and after all was recorded."""
    world = a_world()
    await world.work(seconds)
    forged = claim_for(world)
    await world.work()
    another_group(world)
    await world.work()
    assert len(world.made("gpu", "next")) == 1
    assert world.recorded(StoredKind.POD_GROUP, "next") == {"gpu": world.made("gpu", "next")[0]}
    assert f"default/{GROUP}: somebody else made claim default/{forged} for entry gpu" in note(world)
    assert await refused(world) == 0


async def test_a_group_is_served_again_once_the_claim_that_was_made_for_it_is_gone() -> None:
    world = a_world()
    await world.work(GRACE / 2)
    forged = claim_for(world)
    await world.work()
    assert world.made("gpu") == [forged]
    world.delete(StoredKind.CLAIM, forged)
    await world.work(GRACE * 3)
    (ours,) = world.made("gpu")
    assert world.recorded(StoredKind.POD_GROUP, GROUP) == {"gpu": ours}
    assert note(world) == ""


async def test_a_claim_made_anew_under_a_name_that_the_groups_status_named_before_the_term_is_no_evidence() -> None:
    world = a_world()
    manage_with_gate(world)
    (claim,) = world.made("gpu")
    stored = world.cluster.store.get(Key(StoredKind.CLAIM, "default", claim))
    world.restart()
    world.delete(StoredKind.CLAIM, claim)
    await world.work(1.0)
    metadata = {name: stored["metadata"][name] for name in ("name", "namespace", "annotations", "ownerReferences")}
    world.create(StoredKind.CLAIM, {"metadata": metadata, "spec": stored["spec"]})
    await world.work()
    another_group(world)
    await world.work()
    assert len(world.made("gpu", "next")) == 1


async def test_a_claim_beside_ours_ends_the_work_once_the_groups_status_names_it() -> None:
    world = a_world()
    await world.work(GRACE + 0.5)
    theirs = claim_for(world)
    await world.work(1.0)
    statuses = [{"name": "gpu", "resourceClaimName": theirs}]
    world.edit_group(lambda group: group.setdefault("status", {}).update(resourceClaimStatuses=statuses))
    await world.work(1.0)
    assert note(world).startswith(f"{STOPPED}claim default/{theirs} for entry gpu of PodGroup {GROUP}; ")


async def test_our_claim_stays_if_the_other_one_recorded_it() -> None:
    world = a_world()
    await world.work(GRACE + 0.5)
    (ours,) = world.made("gpu")
    record = world.known_claim(ours)
    statuses = [{"name": "gpu", "resourceClaimName": ours}]
    world.edit_group(lambda group: group.setdefault("status", {}).update(resourceClaimStatuses=statuses))
    with pytest.raises(ConflictError, match="in use"):
        await world.extender.group_claims.writer.withdraw(record.claim)
    assert world.made("gpu") == [ours]


def record_for_group(world: ClaimMakingExtender, claim: str) -> None:
    """Somebody records the claim in the status of the PodGroup, and the watch does not bring it yet."""
    statuses = [{"name": "gpu", "resourceClaimName": claim}]
    world.cluster.store.edit_unchecked(
        Key(StoredKind.POD_GROUP, "default", GROUP),
        lambda raw: raw.setdefault("status", {}).update(resourceClaimStatuses=statuses),
    )


def creation(world: ClaimMakingExtender) -> CreateClaim:
    return CreateClaim(
        owner_of_group(world.known_group(GROUP), world.cluster.pod_groups.api_version), "gpu", "template"
    )


async def test_no_claim_is_made_beside_one_of_the_group_that_the_watch_has_not_brought() -> None:
    world = a_world()
    theirs = claim_for(world)
    record_for_group(world, theirs)
    with pytest.raises(ConflictError, match=f"PodGroup default/{GROUP} has claim {theirs}"):
        await world.extender.group_claims.writer.create(creation(world))
    assert world.made("gpu") == [theirs]


@pytest.mark.parametrize(
    "owner", [[], [{"apiVersion": "v1", "kind": "Pod", "name": "p0", "uid": "u", "controller": True}]]
)
async def test_a_recorded_claim_that_is_not_the_groups_stands_in_for_none(owner: list[Json]) -> None:
    world = a_world()
    metadata = {"name": "foreign", "namespace": "default", "ownerReferences": owner}
    spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}
    world.create(StoredKind.CLAIM, {"metadata": metadata, "spec": spec})
    record_for_group(world, "foreign")
    made = await world.extender.group_claims.writer.create(creation(world))
    (owned_by,) = world.claim(made.claim.metadata.name)["metadata"]["ownerReferences"]
    assert owned_by["uid"] == world.known_group(GROUP).metadata.uid
