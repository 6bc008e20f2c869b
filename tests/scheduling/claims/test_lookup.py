"""Which claim an entry of a pod stands for, and for whom it is reserved (KEP-5729, released and drafted)."""

from typing import Any

import msgspec
import pytest
from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.pod_groups import START_LABEL, GroupEntryPolicy
from dra_extender.ledger.sinks import sinks_of
from dra_extender.model.node import Node
from dra_extender.model.pod import Pod
from dra_extender.model.resource_claim import ConsumerReference
from dra_extender.scheduling.claims.lookup import FoundClaim, find_claims

from tests.support.model.reading import plain, pod_from

Json = dict[str, Any]
GROUP = ConsumerReference(api_group="scheduling.k8s.io", resource="podgroups", name="g", uid="g-uid")
POD = ConsumerReference(resource="pods", name="p", uid="p-uid")
TEMPLATE = {"name": "dev", "resourceClaimTemplateName": "t"}
NAMED = {"name": "dev", "resourceClaimName": "c"}


def owner(kind: str, name: str, uid: str, api: str = "scheduling.k8s.io/v1beta1") -> Json:
    return {"apiVersion": api, "kind": kind, "name": name, "uid": uid, "controller": True}


GROUP_OWNER = owner("PodGroup", "g", "g-uid")


class PodOfGroup:
    """A pod of group g, with what the test adds."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.ledger.pod_groups.entry_policy = GroupEntryPolicy.ALWAYS
        self._versions = iter(range(1, 100))

    def claim(self, *owners: Json, **meta: Any) -> None:
        meta = {"namespace": "ns", "name": "c", "uid": "c-uid", "ownerReferences": list(owners), **meta}
        self._feed("resourceclaims", {"metadata": meta, "spec": {"devices": {}}})

    def group(self, *claims: Json, **status: Any) -> None:
        meta = {"namespace": "ns", "name": "g", "uid": "g-uid"}
        self._feed("podgroups", {"metadata": meta, "spec": {"resourceClaims": list(claims)}, "status": status})

    def find(self, *entries: Json, node: Node | None = None, **more: Any) -> tuple[FoundClaim, ...] | Rejection:
        return find_claims(pod(*entries, **more), self.ledger, node)

    def one(self, *entries: Json, **more: Any) -> FoundClaim:
        found = self.find(*entries, **more)
        assert isinstance(found, tuple), found
        (only,) = found
        return only

    def _feed(self, kind: str, raw: Json) -> None:
        raw["metadata"]["resourceVersion"] = str(next(self._versions))
        sinks_of(self.ledger)[kind].changed(msgspec.json.encode(raw))


def pod(*entries: Json, group: str | None = "g", recorded: str | None = None) -> Pod:
    spec: Json = {"containers": [], "resourceClaims": list(entries)}
    if group is not None:
        spec["schedulingGroup"] = {"podGroupName": group}
    status = {} if recorded is None else {"resourceClaimStatuses": [{"name": "dev", "resourceClaimName": recorded}]}
    return pod_from({"metadata": {"namespace": "ns", "name": "p", "uid": "p-uid"}, "spec": spec, "status": status})


@pytest.fixture
def member() -> PodOfGroup:
    return PodOfGroup()


def refused(found: tuple[FoundClaim, ...] | Rejection) -> tuple[Code, str]:
    assert isinstance(found, Rejection), found
    return found.code, found.detail


@pytest.mark.parametrize(
    "theirs",
    [{"name": "other", "resourceClaimName": "c"}, {"name": "dev", "resourceClaimName": "d"}, TEMPLATE],
    ids=["name", "claim", "kind of reference"],
)
def test_entry_that_differs_from_the_groups_in_anything_is_the_pods(member: PodOfGroup, theirs: Json) -> None:
    member.claim()
    member.group(theirs)
    assert member.one(NAMED).consumer == POD


def test_claim_of_the_group_is_known_by_its_owner_where_no_group_is_served(member: PodOfGroup) -> None:
    member.claim(GROUP_OWNER)
    assert member.one(TEMPLATE, recorded="c").consumer == GROUP


@pytest.mark.parametrize(
    "other",
    [
        owner("PodGroup", "h", "h-uid"),
        owner("PodGroup", "g", "g-uid", "example.com/v1"),
        owner("Job", "g", "g-uid", "batch/v1"),
        {**GROUP_OWNER, "controller": False},
    ],
    ids=["another group", "another API", "another kind", "not the controller"],
)
def test_generated_claim_of_somebody_else_is_refused(member: PodOfGroup, other: Json) -> None:
    member.claim(other)
    member.group(TEMPLATE)
    assert refused(member.find(TEMPLATE, recorded="c")) == (
        Code.CLAIM_FOREIGN,
        "ns/c is not controlled by this pod or its PodGroup",
    )


def test_claim_of_a_group_is_reserved_for_its_owner_where_the_group_now_has_no_such_entry(member: PodOfGroup) -> None:
    """The group was deleted and made anew, with other entries."""
    member.claim(owner("PodGroup", "g", "old"))
    member.group({"name": "other", "resourceClaimTemplateName": "t"})
    assert member.one(TEMPLATE, recorded="c").consumer == msgspec.structs.replace(GROUP, uid="old")


@pytest.mark.parametrize("setting", ["always", "auto"])
@pytest.mark.parametrize("entry", [TEMPLATE, {"name": "dev", "podGroupResourceClaim": "dev"}])
def test_what_was_generated_for_the_group_is_reserved_for_it(member: PodOfGroup, setting: str, entry: Json) -> None:
    """Where kubelets refuse that, they refuse the claim for whomever it is reserved."""
    member.ledger.pod_groups.entry_policy = GroupEntryPolicy(setting)
    member.claim(GROUP_OWNER)
    member.group(TEMPLATE)
    for node in (Node(name="n2"), None):
        assert member.one(entry, recorded="c", node=node).consumer == GROUP


def test_what_was_generated_for_the_group_is_of_no_use_where_kubelets_know_no_groups(member: PodOfGroup) -> None:
    member.ledger.pod_groups.entry_policy = GroupEntryPolicy.NEVER
    member.claim(GROUP_OWNER)
    member.group(TEMPLATE)
    code, detail = refused(member.find(TEMPLATE, recorded="c"))
    assert code is Code.CLAIM_NOT_STARTED
    assert detail == "ns/c; the setting scheduling.reserve_for_pod_groups says so"


def test_group_that_is_missing_is_named_where_groups_are_served(member: PodOfGroup) -> None:
    member.claim()
    member.ledger.pod_groups.served = True
    assert refused(member.find(NAMED)) == (Code.POD_GROUP_MISSING, "ns/g")


def test_claim_not_generated_yet_says_for_which_group(member: PodOfGroup) -> None:
    member.group(TEMPLATE)
    assert refused(member.find(TEMPLATE)) == (Code.CLAIM_NOT_CREATED, "from template t for PodGroup g")


DRAFTED = {"name": "dev", "podGroupResourceClaim": "shared"}


def test_drafted_reference_to_a_claim_by_name(member: PodOfGroup) -> None:
    member.claim()
    member.group({"name": "shared", "resourceClaimName": "c"})
    assert member.one(DRAFTED).consumer == GROUP


def test_drafted_reference_to_a_generated_claim_is_read_from_the_groups_status(member: PodOfGroup) -> None:
    member.claim(GROUP_OWNER)
    recorded = [{"name": "shared", "resourceClaimName": "c"}]
    member.group({"name": "shared", "resourceClaimTemplateName": "t"}, resourceClaimStatuses=recorded)
    assert member.one(DRAFTED).consumer == GROUP
    assert member.one(DRAFTED, recorded="c").consumer == GROUP


def test_drafted_reference_names_what_is_missing(member: PodOfGroup) -> None:
    assert refused(member.find(DRAFTED, group=None)) == (
        Code.POD_GROUP_MISSING,
        "podGroupResourceClaim needs a PodGroup",
    )
    member.group({"name": "shared", "resourceClaimTemplateName": "t"})
    assert refused(member.find(DRAFTED)) == (Code.CLAIM_NOT_CREATED, "from template t for PodGroup g")
    assert refused(member.find({"name": "dev", "podGroupResourceClaim": "x"})) == (
        Code.CLAIM_MISSING,
        "PodGroup g has no resource claim x",
    )
    assert refused(member.find({**DRAFTED, "resourceClaimName": "c"}))[0] is Code.CLAIM_UNSUPPORTED


def test_entry_recorded_as_not_needed_is_left_out(member: PodOfGroup) -> None:
    member.group(TEMPLATE)
    assert member.find(TEMPLATE, recorded="") == ()


def test_reservation_by_a_group_of_the_same_name_but_another_uid_is_not_ours(member: PodOfGroup) -> None:
    """The group was deleted and made anew: the controller takes the old entry away."""
    old = plain(ConsumerReference(api_group="scheduling.k8s.io", resource="podgroups", name="g", uid="old"))
    member.group(NAMED)
    member._feed(
        "resourceclaims",
        {
            "metadata": {"namespace": "ns", "name": "c", "uid": "c-uid"},
            "spec": {"devices": {}},
            "status": {"reservedFor": [old]},
        },
    )
    assert not member.one(NAMED).reserved


@pytest.mark.parametrize("setting", ["always", "auto"])
def test_without_the_feature_podgroups_have_no_claims(member: PodOfGroup, setting: str) -> None:
    """As in-tree with DRAWorkloadResourceClaims off: claims by name are reserved for pods, and what is the group's is refused."""
    member.ledger.pod_groups.have_claims = False
    member.ledger.pod_groups.entry_policy = GroupEntryPolicy(setting)
    member.ledger.pod_groups.served = True
    member.claim()
    assert member.one(NAMED, node=Node(name="n1", labels={START_LABEL: "true"})).consumer == POD
    member.group(NAMED, TEMPLATE)
    assert member.one(NAMED).consumer == POD
    assert refused(member.find(DRAFTED)) == (
        Code.CLAIM_UNSUPPORTED,
        "podGroupResourceClaim, and features.pod_group_claims is off",
    )
    member.claim(GROUP_OWNER)
    assert refused(member.find(TEMPLATE, recorded="c")) == (
        Code.CLAIM_FOREIGN,
        "ns/c is controlled by the PodGroup of this pod, and features.pod_group_claims is off",
    )
