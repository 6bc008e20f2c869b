"""Claims of PodGroups that are made by the service, where kube-controller-manager does not make them (KEP-5729)."""

import asyncio
import dataclasses

import pytest
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION
from dra_extender.model.pod_group import PROTECTION_FINALIZER
from dra_extender.model.templated_claim import ENTRY_ANNOTATION
from dra_extender.scheduling.podgroup_claims.plan import MEMBERS_PER_TURN
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind
from dra_extender.simulator.controllers.claims import create_claim

from tests.support.scheduling.grouped import GROUP, NAMED
from tests.support.scheduling.making_groups import GPU, GRACE, NET, OWN, ClaimMakingExtender
from tests.support.scheduling.reclaiming import GRACE as RECLAIM_GRACE
from tests.support.scheduling.reclaiming import pass_by, reclaimed
from tests.support.turns import turns


def a_world(*entries: Json, pods: int = 3, enabled: bool = True) -> ClaimMakingExtender:
    """A group with these entries and members that have the same."""
    world = ClaimMakingExtender(enabled=enabled)
    world.group(*(entries or (GPU,)))
    for number in range(pods):
        world.member(f"p{number}", *(entries or (GPU,)))
    return world


async def test_each_template_entry_gets_one_claim_that_the_group_and_its_members_know() -> None:
    world = a_world(GPU, NET)
    await world.work()
    (gpu,), (net,) = world.made("gpu"), world.made("net")
    known = {"gpu": gpu, "net": net}
    assert world.recorded(StoredKind.POD_GROUP, GROUP) == known
    assert [world.recorded(StoredKind.POD, f"p{number}") for number in range(3)] == [known] * 3
    assert world.extender.group_claims.notes() == {}


async def test_made_claims_are_counted_as_kube_controller_manager_would_count_them() -> None:
    world = a_world(GPU, NET)
    await world.work()
    labels = {"admin_access": "false", "owner_api_group": "scheduling.k8s.io", "owner_api_kind": "PodGroup"}
    name = "dynamic_resource_allocation_resourceclaim_creates_total"
    assert world.metrics.registry.get_sample_value(name, {"status": "success", **labels}) == 2


async def test_the_claim_is_what_the_template_says_and_the_groups() -> None:
    world = a_world()

    def label(template: Json) -> None:
        template["spec"]["metadata"] = {"labels": {"team": "blue"}, "annotations": {"note": "x"}}

    world.cluster.store.edit_unchecked(Key(StoredKind.TEMPLATE, "default", "template"), label)
    await world.work()
    claim = world.claim(world.made("gpu")[0])
    group = world.stored_group()
    assert claim["metadata"]["labels"] == {"team": "blue"}
    assert claim["metadata"]["annotations"] == {"note": "x", ENTRY_ANNOTATION: "gpu"}
    assert claim["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "name": GROUP,
            "uid": group["metadata"]["uid"],
            "controller": True,
        }
    ]
    assert claim["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "gpu"


@pytest.mark.parametrize("where", ["annotations", "labels"])
async def test_what_marks_claims_is_not_taken_from_a_template(where: str) -> None:
    """The account that creates the claim may write a snapshot; the author of the template may not."""
    world = a_world()
    forged = {
        SNAPSHOT_ANNOTATION: "{}",
        "dra-extender.io/other": "x",
        "a.dra-extender.io/other": "x",
        "resource.kubernetes.io/pod-claim-name": "other",
        "resource.kubernetes.io/podgroup-claim-name": "other",
        "resource.kubernetes.io/extended-resource-claim": "true",
    }
    kept = {"note": "x", "team.example/dra-extender.io": "x", "not-dra-extender.io/x": "y"}

    def forge(template: Json) -> None:
        owners = [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}]
        template["spec"]["metadata"] = {where: kept | forged, "finalizers": ["x/y"], "ownerReferences": owners}

    world.cluster.store.edit_unchecked(Key(StoredKind.TEMPLATE, "default", "template"), forge)
    await world.work()
    meta = world.claim(world.made("gpu")[0])["metadata"]
    own = {ENTRY_ANNOTATION: "gpu"} if where == "annotations" else {}
    assert meta[where] == kept | own
    assert meta.get("finalizers", []) == []
    assert [each["kind"] for each in meta["ownerReferences"]] == ["PodGroup"]


async def test_nothing_is_made_within_the_grace_or_while_it_is_switched_off() -> None:
    world = a_world()
    await world.work(GRACE - 0.5)
    assert world.made("gpu") == []
    off = a_world(enabled=False)
    run = asyncio.create_task(off.extender.group_claims.keep_reconciling())
    await asyncio.wait_for(run, 60)
    assert off.made("gpu") == []


async def test_without_the_feature_nothing_is_made_although_it_is_switched_on() -> None:
    world = a_world()
    world.options = dataclasses.replace(world.options, pod_group_claims=False)
    world.start()
    world.sync()
    await asyncio.wait_for(asyncio.create_task(world.extender.group_claims.keep_reconciling()), 60)
    assert world.made("gpu") == []


async def test_members_are_bound_on_the_claim_and_released_with_the_group() -> None:
    """While a pod of it is bound the reservation of a group that is gone stays; the garbage collector deletes the claim."""
    world = a_world()
    await world.work()
    (claim,) = world.made("gpu")
    await world.bound("p0", "p1")
    assert world.reserved(claim) == [f"podgroups/{GROUP}"]
    world.end_group(GROUP)
    world.manage_without_gate()
    world.sync()
    await pass_by(world, RECLAIM_GRACE)
    await pass_by(world, RECLAIM_GRACE)
    assert world.reserved(claim) == [f"podgroups/{GROUP}"]
    for number in range(3):
        world.cluster.store.delete(Key(StoredKind.POD, "default", f"p{number}"))
    world.manage_without_gate()
    world.sync()
    assert world.reserved(claim) == [f"podgroups/{GROUP}"]
    await pass_by(world, RECLAIM_GRACE)
    assert await reclaimed(world, "group_gone") == 1
    world.manage_without_gate()
    assert world.made("gpu") == []


@pytest.mark.parametrize("feature", [True, False])
async def test_reservations_of_a_group_that_is_gone_end_without_this_work_but_not_without_the_feature(
    *, feature: bool
) -> None:
    world = a_world()
    await world.work()
    (claim,) = world.made("gpu")
    await world.bound("p0")
    world.end_group(GROUP)
    world.cluster.store.delete(Key(StoredKind.POD, "default", "p0"))
    world.sync()
    await world.extender.group_claims.stop()
    world.ledger.pod_groups.have_claims = feature
    await pass_by(world, RECLAIM_GRACE)
    assert world.reserved(claim) == ([] if feature else [f"podgroups/{GROUP}"])


async def test_a_watch_that_is_behind_ends_no_reservation_of_a_group_that_exists() -> None:
    world = a_world()
    await world.work()
    (claim,) = world.made("gpu")
    await world.bound("p0")
    world.cluster.store.delete(Key(StoredKind.POD, "default", "p0"))
    world.sync()
    group = world.stored_group()["metadata"]
    assert world.ledger.pod_groups.drop("default", GROUP, group["uid"]) is not None
    await pass_by(world, RECLAIM_GRACE)
    assert await reclaimed(world, "group_gone", "changed") == 1
    assert world.reserved(claim) == [f"podgroups/{GROUP}"]


async def test_a_member_with_a_claim_of_its_own_beside_gets_both() -> None:
    """kube-controller-manager gives up on such a pod at the group's entry while its gate is off."""
    world = ClaimMakingExtender()
    world.group(GPU)
    world.member("mixed", GPU, OWN)
    await world.work()
    assert world.recorded(StoredKind.POD, "mixed") == {
        "gpu": world.made("gpu")[0],
        "own": world.made("own", "mixed")[0],
    }
    pod = world.pod("mixed")["metadata"]
    assert world.claim(world.made("own", "mixed")[0])["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Pod", "name": "mixed", "uid": pod["uid"], "controller": True}
    ]


async def test_an_own_claim_of_a_member_is_made_again_after_its_deletion() -> None:
    world = ClaimMakingExtender()
    world.group(GPU)
    world.member("mixed", GPU, OWN)
    await world.work()
    made = world.made("own", "mixed")
    world.cluster.store.delete(Key(StoredKind.CLAIM, "default", made[0]))
    await world.work()
    assert world.made("own", "mixed") == made


async def test_no_claim_is_made_for_an_own_entry_of_a_member_that_needs_none_by_its_status() -> None:
    world = ClaimMakingExtender()
    world.group(GPU)
    world.member("mixed", GPU, OWN)

    def needs_none(pod: Json) -> None:
        pod.setdefault("status", {})["resourceClaimStatuses"] = [{"name": "own"}]

    world.cluster.store.edit_unchecked(Key(StoredKind.POD, "default", "mixed"), needs_none)
    await world.work()
    assert world.made("own", "mixed") == []
    assert world.pod("mixed")["status"]["resourceClaimStatuses"] == [
        {"name": "own"},
        {"name": "gpu", "resourceClaimName": world.made("gpu")[0]},
    ]


async def test_a_claim_that_kube_controller_manager_made_for_a_mixed_pod_is_taken() -> None:
    world = ClaimMakingExtender()
    world.group(GPU)
    world.member("other", OWN, GPU)
    world.manage_without_gate()
    (theirs,) = world.made("own", "other")
    assert world.recorded(StoredKind.POD, "other") == {}
    await world.work(meanwhile=world.manage_without_gate)
    assert world.made("own", "other") == [theirs]
    assert world.recorded(StoredKind.POD, "other") == {"own": theirs, "gpu": world.made("gpu")[0]}


async def test_a_claim_that_was_deleted_is_made_again_under_its_name() -> None:
    world = a_world()
    await world.work()
    (before,) = world.made("gpu")
    uid = world.claim(before)["metadata"]["uid"]
    world.cluster.store.delete(Key(StoredKind.CLAIM, "default", before))
    await world.work()
    assert world.made("gpu") == [before]
    assert world.claim(before)["metadata"]["uid"] != uid
    assert world.extender.group_claims.notes() == {}


async def test_a_group_made_anew_under_its_name_gets_another_claim() -> None:
    world = a_world(pods=0)
    await world.work()
    (before,) = world.made("gpu")
    world.end_group(GROUP)
    world.group(GPU)
    await world.work()
    (after,) = {*world.made("gpu")} - {before}
    assert world.recorded(StoredKind.POD_GROUP, GROUP) == {"gpu": after}


async def test_what_is_lacking_is_said_and_made_up_for() -> None:
    world = ClaimMakingExtender()
    world.group(GPU, {"name": "net", "resourceClaimTemplateName": "missing"})
    world.member("p0", GPU)
    await world.work()
    note = world.extender.group_claims.notes()["group-claims"]
    assert note == (
        "PodGroups that lack something: 1; default/team: "
        "entry net of PodGroup default/team: there is no ResourceClaimTemplate missing"
    )
    assert world.recorded(StoredKind.POD, "p0") == {"gpu": world.made("gpu")[0]}
    template = world.cluster.store.get(Key(StoredKind.TEMPLATE, "default", "template"))
    spec = {"metadata": {"name": "missing", "namespace": "default"}, "spec": template["spec"]}
    world.create(StoredKind.TEMPLATE, spec)
    await world.work()
    assert world.recorded(StoredKind.POD_GROUP, GROUP) == {"gpu": world.made("gpu")[0], "net": world.made("net")[0]}
    assert world.extender.group_claims.notes() == {}


async def test_a_foreign_claim_under_our_name_is_not_adopted() -> None:
    world = a_world()
    await world.work()
    (name,) = world.made("gpu")
    world.cluster.store.delete(Key(StoredKind.CLAIM, "default", name))
    world.add_claim(name)
    world.edit_group(lambda group: group["status"].pop("resourceClaimStatuses"))
    world.restart()
    await world.work()
    assert f"claim default/{name} was not made for entry gpu" in world.extender.group_claims.notes()["group-claims"]
    assert world.recorded(StoredKind.POD_GROUP, GROUP) == {}


async def test_an_entry_that_is_marked_as_not_needed_gets_no_claim() -> None:
    world = a_world(pods=0)
    world.edit_group(lambda group: group.setdefault("status", {}).update(resourceClaimStatuses=[{"name": "gpu"}]))
    await world.work()
    assert world.made("gpu") == []


async def test_a_drafted_entry_is_told_of_the_groups_claim_by_name_and_a_released_one_needs_nothing() -> None:
    """So that a kubelet need not look the PodGroup up; also in a group that has no claim from a template."""
    world = ClaimMakingExtender()
    world.group(NAMED)
    world.member("drafted", {"name": "mine", "podGroupResourceClaim": "gpu"})
    world.member("released", NAMED)
    world.member("unknown", {"name": "mine", "podGroupResourceClaim": "other"})
    world.restart()
    await world.work()
    assert world.recorded(StoredKind.POD, "drafted") == {"mine": "shared"}
    assert world.recorded(StoredKind.POD, "released") == {}
    assert world.recorded(StoredKind.POD, "unknown") == {}
    before = world.pod("drafted")["metadata"]["resourceVersion"]
    world.restart()
    await world.work()
    assert world.pod("drafted")["metadata"]["resourceVersion"] == before


async def test_a_member_with_drafted_entries_of_both_kinds_is_told_of_both_at_once() -> None:
    world = ClaimMakingExtender()
    world.group(NAMED, NET)
    entries = ({"name": "a", "podGroupResourceClaim": "gpu"}, {"name": "b", "podGroupResourceClaim": "net"})
    world.member("drafted", *entries)
    world.restart()
    await world.work()
    assert world.recorded(StoredKind.POD, "drafted") == {"a": "shared", "b": world.made("net")[0]}


async def test_a_protected_group_goes_once_no_pod_of_it_is_active() -> None:
    """Where kube-controller-manager does not look after the finalizer; with it, that happens before the grace is over."""
    world = a_world(pods=1)
    await world.work()
    world.edit_group(lambda group: group["metadata"].update(finalizers=["example.com/other", PROTECTION_FINALIZER]))
    world.delete(StoredKind.POD_GROUP, GROUP)
    await world.work()
    assert PROTECTION_FINALIZER in world.stored_group()["metadata"]["finalizers"]
    world.cluster.store.edit_unchecked(
        Key(StoredKind.POD, "default", "p0"), lambda pod: pod["status"].update(phase="Succeeded")
    )
    await world.work(GRACE - 0.5)
    assert PROTECTION_FINALIZER in world.stored_group()["metadata"]["finalizers"]
    await world.work(2.0)
    left = world.stored_group()["metadata"]["finalizers"]
    assert left == ["example.com/other"]


async def test_without_podgroups_there_is_nothing_to_do_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ClaimMakingExtender()
    monkeypatch.setattr(type(world.cluster.pod_groups), "api_version", property(lambda _: ""))
    await asyncio.wait_for(world.extender.group_claims.keep_reconciling(), 60)
    assert world.extender.group_claims.notes() == {
        "group-claims": "on, but PodGroups are not served by this API server: nothing to do"
    }


BATCHES = 3
ENTRY = {"name": "gpu", "resourceClaimTemplateName": "template"}


def large_world() -> ClaimMakingExtender:
    """A group with two members more than two batches."""
    world = ClaimMakingExtender()
    world.group(GPU)
    for number in range((BATCHES - 1) * MEMBERS_PER_TURN + 2):
        world.member(f"p{number}", GPU)
    world.sync()
    return world


async def test_other_tasks_get_a_turn_after_each_batch() -> None:
    world = large_world()
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    world.extender.group_claims.begin()
    world.extender.group_claims.sweep()
    await world.extender.group_claims.reconcile_due()
    counting.cancel()

    assert turns >= BATCHES - 1


async def test_a_stop_during_a_plan_ends_the_work_without_a_further_write() -> None:
    """A claim that another controller created would make this one withdraw its own."""
    world = large_world()
    store = world.cluster.store
    while not world.made("gpu"):
        await world.work(seconds=0.25, step=0.25)
    (ours,) = world.made("gpu")
    create_claim(
        store,
        StoredKind.POD_GROUP,
        world.stored_group(),
        ENTRY,
    )
    world.sync()
    controller = world.extender.group_claims
    controller.sweep()
    reconciling = asyncio.create_task(controller.reconcile_due())
    await asyncio.sleep(0)
    assert not reconciling.done()
    before = store.version
    await controller.stop()
    await reconciling

    assert store.version == before
    assert ours in world.made("gpu")


async def test_a_replica_that_does_not_lead_any_more_collects_no_changes() -> None:
    """They would be kept until it leads again."""
    world = a_world()
    world.start()
    world.sync()
    await world.extender.start()
    await turns()
    await world.extender.stop()
    world.extender.group_claims._changed.clear()
    world.member("late", GPU)
    assert not world.extender.group_claims._changed
