"""PodGroups, and pods that name one, in the shapes of every release that has them; 1.37 serves that of 1.36 no more."""

from typing import Any

import msgspec
import pytest
from dra_extender.model.pod import PodClaimStatus, PodResourceClaim
from dra_extender.model.pod_group import PodGroup, group_consumer, is_group, read_pod_group
from dra_extender.model.resource_claim import ConsumerReference

from tests.support.model.reading import pod_from

META = {"name": "g", "namespace": "ns", "uid": "g-uid", "resourceVersion": "7"}
CONDITION = {
    "status": "True",
    "reason": "Scheduled",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
TOPOLOGY = {"topology": [{"key": "topology.kubernetes.io/rack"}]}


def read(version: str, **more: Any) -> PodGroup:
    group = {"apiVersion": f"scheduling.k8s.io/{version}", "kind": "PodGroup", "metadata": META, **more}
    return read_pod_group(msgspec.json.encode(group))


def test_the_shape_of_1_36_with_all_it_may_have() -> None:
    """Its reference to the Workload, its topology and its condition are spelled as in no later version."""
    group = read(
        "v1alpha2",
        spec={
            "podGroupTemplateRef": {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}},
            "schedulingPolicy": {"gang": {"minCount": 3}},
            "schedulingConstraints": {"topologyConstraints": [{"topologyKey": "topology.kubernetes.io/rack"}]},
            "resourceClaims": [
                {"name": "made", "resourceClaimTemplateName": "template"},
                {"name": "given", "resourceClaimName": "claim"},
            ],
        },
        status={
            "conditions": [{"type": "PodGroupScheduled", **CONDITION}],
            "resourceClaimStatuses": [{"name": "made", "resourceClaimName": "g-made-x7x7x"}],
        },
    )
    assert (group.metadata.key, group.min_count) == (("ns", "g"), 3)
    assert group.spec.resource_claims == (
        PodResourceClaim(name="made", resource_claim_template_name="template"),
        PodResourceClaim(name="given", resource_claim_name="claim"),
    )
    assert group.status.resource_claim_statuses == (PodClaimStatus(name="made", resource_claim_name="g-made-x7x7x"),)
    assert group.consumer == ConsumerReference(
        api_group="scheduling.k8s.io", resource="podgroups", name="g", uid="g-uid"
    )


def test_the_shape_of_1_36_as_go_writes_what_is_not_set() -> None:
    """References without omitempty come as null."""
    spec: dict[str, Any] = {
        "podGroupTemplateRef": None,
        "schedulingPolicy": {"basic": {}},
        "schedulingConstraints": None,
    }
    group = read("v1alpha2", spec=spec, status={})
    assert (group.min_count, group.spec.resource_claims, group.status.resource_claim_statuses) == (None, (), ())


@pytest.mark.parametrize("version", ["v1alpha2", "v1alpha3", "v1beta1"])
def test_claims_gang_and_statuses_are_read_alike_in_every_version(version: str) -> None:
    claims = [{"name": "c", "resourceClaimTemplateName": "t"}]
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, "resourceClaims": claims}
    other = {**spec, "schedulingConstraints": TOPOLOGY, "priority": 7, "disruptionMode": {"all": {}}}
    status = {"resourceClaimStatuses": [{"name": "c", "resourceClaimName": "g-c"}]}
    group, with_more = read(version, spec=spec, status=status), read(version, spec=other, status=status)
    assert (group.spec, group.status) == (with_more.spec, with_more.status)
    assert group.min_count == 2


@pytest.mark.parametrize(
    "spec",
    [
        {"schedulingGroup": {"podGroupName": "g"}},
        {"workloadRef": {"name": "w", "podGroupName": "g"}},
        {"workloadRef": {"name": "w", "podGroup": "g", "podGroupReplicaKey": "0"}},
    ],
    ids=["1.36 and later", "first draft of the KEP", "1.35"],
)
def test_a_pod_names_its_group_in_the_way_of_its_release(spec: dict[str, Any]) -> None:
    assert pod_from({"metadata": {"name": "p"}, "spec": spec}).pod_group == "g"


def test_a_pod_with_empty_references_has_no_group() -> None:
    specs: tuple[dict[str, Any], ...] = (
        {},
        {"schedulingGroup": None},
        {"schedulingGroup": {}},
        {"workloadRef": {"name": "w"}},
    )
    for spec in specs:
        assert pod_from({"metadata": {"name": "p"}, "spec": spec}).pod_group is None


@pytest.mark.parametrize(
    ("consumer", "expected"),
    [
        (group_consumer("g", "u"), True),
        (ConsumerReference(resource="podgroups", name="g", uid="u"), False),
        (ConsumerReference(api_group="scheduling.k8s.io", resource="pods", name="g", uid="u"), False),
        (ConsumerReference(resource="pods", name="g", uid="u"), False),
    ],
)
def test_only_podgroups_of_the_scheduling_api_are_groups(consumer: ConsumerReference, *, expected: bool) -> None:
    assert is_group(consumer) is expected
