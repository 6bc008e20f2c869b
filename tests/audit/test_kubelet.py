"""What kubelets ask of a bound pod's claims before they start it, rule by rule."""

from typing import Any

import pytest
from dra_extender.inspection.audit.claims import admission_failures
from dra_extender.inspection.audit.findings import Invariant
from dra_extender.ledger.pod_groups import GROUP_RESERVATIONS_FEATURE, GroupEntryPolicy
from dra_extender.model.node import Node
from dra_extender.model.pod import Pod
from dra_extender.model.resource_claim import FINALIZER, ResourceClaim, claim_from

from tests.support.audit.raw_objects import audit
from tests.support.model.reading import pod_from

Json = dict[str, Any]

BY_NAME: Json = {"name": "gpu", "resourceClaimName": "c0"}
GENERATED: Json = {"name": "gpu", "resourceClaimTemplateName": "one"}
RECORDED: Json = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c0"}]}
FOR_POD: Json = {"resource": "pods", "name": "p", "uid": "p"}
FOR_GROUP: Json = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "team", "uid": "team"}
OF_POD: Json = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p", "controller": True}
OF_GROUP: Json = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PodGroup",
    "name": "team",
    "uid": "t",
    "controller": True,
}
NOT_ACCEPTED = f"which only a kubelet with {GROUP_RESERVATIONS_FEATURE} accepts"


def pod(entry: Json = BY_NAME, status: Json | None = None, group: str = "") -> Pod:
    """A pod on node n0 with this entry of resourceClaims."""
    spec: Json = {"nodeName": "n0", "resourceClaims": [entry]}
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    metadata = {"name": "p", "namespace": "default", "uid": "p"}
    return pod_from({"metadata": metadata, "spec": spec, "status": status or {}})


def claim(
    *reserved: Json, owner: Json | None = None, namespace: str = "default", allocated: bool = True
) -> ResourceClaim:
    """Claim c0, reserved for these."""
    metadata: Json = {"name": "c0", "namespace": namespace, "uid": "c0", "finalizers": [FINALIZER]}
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    results = [{"request": "r", "driver": "d", "pool": "p", "device": "g0"}]
    status: Json = {"reservedFor": list(reserved)}
    if allocated:
        status["allocation"] = {"devices": {"results": results}}
    return claim_from({"metadata": metadata, "status": status})


def words(asked: Pod, *claims: ResourceClaim, groups: bool = False) -> list[str]:
    """What the kubelet says."""
    by_key = {each.metadata.key: each for each in claims}
    kubelets = GroupEntryPolicy.ALWAYS if groups else GroupEntryPolicy.NEVER
    return [each.why for each in admission_failures(asked, by_key.get, kubelets, None)]


def test_a_pod_starts_with_claims_that_are_allocated_and_reserved_for_it() -> None:
    assert words(pod(), claim(FOR_POD)) == []
    assert words(pod(GENERATED, RECORDED), claim(FOR_POD, owner=OF_POD)) == []


def test_each_claim_exists_in_the_namespace_of_the_pod() -> None:
    assert words(pod()) == ["claim c0 does not exist"]
    assert words(pod(), claim(FOR_POD, namespace="other")) == ["claim c0 does not exist"]


def test_each_claim_is_allocated() -> None:
    assert words(pod(), claim(FOR_POD, allocated=False)) == ["claim c0 is not allocated"]


@pytest.mark.parametrize("reserved", [[], [{**FOR_POD, "uid": "older"}], [FOR_GROUP]], ids=["none", "uid", "group"])
def test_each_claim_is_reserved_for_the_uid_of_the_pod(reserved: list[Json]) -> None:
    """A pod that was made anew under its name, and one outside the group, have no part in the reservation."""
    assert words(pod(), claim(*reserved), groups=True) == ["claim c0 is not reserved for it"]


def test_a_generated_claim_is_recorded_in_the_status() -> None:
    why = "no claim is recorded for it in status.resourceClaimStatuses"
    assert words(pod(GENERATED), claim(FOR_POD, owner=OF_POD)) == [why]
    other = {"resourceClaimStatuses": [{"name": "nic", "resourceClaimName": "c0"}]}
    assert words(pod(GENERATED, other), claim(FOR_POD, owner=OF_POD)) == [why]


def test_a_template_for_which_no_claim_is_needed_is_left_out() -> None:
    assert words(pod(GENERATED, {"resourceClaimStatuses": [{"name": "gpu"}]})) == []


@pytest.mark.parametrize("owner", [None, {**OF_POD, "uid": "q"}, {**OF_POD, "controller": False}])
def test_a_generated_claim_is_controlled_by_the_pod(owner: Json | None) -> None:
    """One by name may be anybody's."""
    found = claim(FOR_POD, owner=owner)
    assert words(pod(GENERATED, RECORDED), found) == ["claim c0 was generated for another owner"]
    assert words(pod(), found) == []


def test_an_entry_names_a_claim_or_a_template() -> None:
    assert words(pod({"name": "gpu"})) == ["the entry names neither a claim nor a template"]


def test_a_reservation_for_the_group_counts_where_the_kubelet_accepts_it() -> None:
    found = claim(FOR_GROUP)
    assert words(pod(group="team"), found, groups=True) == []
    assert words(pod(group="team"), found) == [f"claim c0 is reserved only for its PodGroup, {NOT_ACCEPTED}"]
    assert words(pod(group="else"), found, groups=True) == ["claim c0 is not reserved for it"]
    foreign = claim({**FOR_GROUP, "apiGroup": "example.com"})
    assert words(pod(group="team"), foreign, groups=True) == ["claim c0 is not reserved for it"]
    assert words(pod(group="team"), claim(FOR_GROUP, FOR_POD)) == []


def test_a_claim_that_was_generated_for_the_group_is_accepted_by_the_same_kubelets_alone() -> None:
    """Reserving it for the pod does not help."""
    found = claim(FOR_POD, owner=OF_GROUP)
    member = pod(GENERATED, RECORDED, group="team")
    assert words(member, found, groups=True) == []
    assert words(member, found) == [f"claim c0 was generated for its PodGroup, {NOT_ACCEPTED}"]
    for owner in ({**OF_GROUP, "name": "else"}, {**OF_GROUP, "apiVersion": "x/v1"}, {**OF_GROUP, "kind": "Job"}):
        assert words(member, claim(FOR_POD, owner=owner), groups=True) == ["claim c0 was generated for another owner"]


def test_the_form_of_the_drafts_is_looked_up_in_the_status_too() -> None:
    drafted = {"name": "gpu", "podGroupResourceClaim": "shared"}
    assert words(pod(drafted, RECORDED, group="team"), claim(FOR_GROUP), groups=True) == []
    assert words(pod(drafted, group="team"), claim(FOR_GROUP), groups=True) == [
        "no claim is recorded for it in status.resourceClaimStatuses"
    ]


def test_the_claim_for_extended_resources_is_judged_as_one_by_name() -> None:
    metadata = {"name": "p", "namespace": "default", "uid": "p"}
    status = {"extendedResourceClaimStatus": {"resourceClaimName": "c0"}}
    told = pod_from({"metadata": metadata, "spec": {"nodeName": "n0"}, "status": status})
    assert words(told, claim(FOR_POD)) == []
    assert words(told) == ["claim c0 does not exist"]
    assert words(told, claim()) == ["claim c0 is not reserved for it"]
    assert words(told, claim(FOR_POD, allocated=False)) == ["claim c0 is not allocated"]


@pytest.mark.parametrize(
    ("kubelets", "declared", "fine"),
    [
        (GroupEntryPolicy.ALWAYS, False, True),
        (GroupEntryPolicy.NEVER, True, False),
        (GroupEntryPolicy.AUTO, True, True),
        (GroupEntryPolicy.AUTO, False, False),
    ],
)
def test_which_kubelets_accept_groups_is_told_or_known_by_node(
    kubelets: GroupEntryPolicy, *, declared: bool, fine: bool
) -> None:
    node = Node(name="n0", declared_features=(GROUP_RESERVATIONS_FEATURE,) if declared else ())
    found = audit([claim(FOR_GROUP)], [], [pod(group="team")], [node], None, kubelets)
    assert [each.rule for each in found] == ([] if fine else [Invariant.KUBELET])


@pytest.mark.parametrize(
    ("kubelets", "fine"),
    [(GroupEntryPolicy.ALWAYS, True), (GroupEntryPolicy.AUTO, True), (GroupEntryPolicy.NEVER, False)],
)
def test_what_was_generated_for_the_group_is_for_it_unless_no_kubelet_takes_it(
    kubelets: GroupEntryPolicy, *, fine: bool
) -> None:
    found = claim(FOR_GROUP, owner=OF_GROUP)
    member = pod(GENERATED, RECORDED, group="team")
    why = [each.why for each in admission_failures(member, {found.metadata.key: found}.get, kubelets, Node(name="n0"))]
    assert why == ([] if fine else [f"claim c0 was generated for its PodGroup, {NOT_ACCEPTED}"])


def test_pods_that_are_not_bound_or_are_over_are_not_judged() -> None:
    waiting = pod_from({"metadata": {"name": "p", "namespace": "default"}, "spec": {"resourceClaims": [BY_NAME]}})
    over = pod(status={"phase": "Failed"})
    assert audit([], [], [waiting, over], [Node(name="n0")]) == ()
