"""What counts as unused, decided from values alone."""

from pathlib import Path

import pytest
from dra_extender.model.allocation import AllocationResult, named_nodes
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION
from dra_extender.model.managed_fields import Writers, writers_of
from dra_extender.model.node_selector import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, only_node
from dra_extender.model.pod import Pod
from dra_extender.model.resource_claim import FINALIZER, ClaimStatus, ConsumerReference, ResourceClaim, claim_from
from dra_extender.scheduling.claims.readiness import Readiness
from dra_extender.scheduling.reclaim.release_reasons import (
    RELEASE_MESSAGES,
    ConsumerState,
    ReclaimReason,
    Releasable,
    consumer_state,
    find_releasable,
    permitted_part,
)

ON_N1 = AllocationResult(node_selector=only_node("n1"))
POD = ConsumerReference(resource="pods", name="p", uid="u")
US = "dra-extender"


def pod(node: str = "", phase: str = "Pending", *, deleting: bool = False) -> Pod:
    return Pod(namespace="default", name="p", uid="u", node_name=node, phase=phase, deleting=deleting)


def claim(*uids: str, allocated: bool = True, finalizer: bool = True, snapshot: bool = False) -> ResourceClaim:
    metadata = {
        "name": "c",
        "namespace": "default",
        "uid": "c",
        "finalizers": [FINALIZER] if finalizer else [],
        "annotations": {SNAPSHOT_ANNOTATION: "{}"} if snapshot else {},
    }
    consumers = tuple(ConsumerReference(resource="pods", name=uid, uid=uid) for uid in uids)
    status = ClaimStatus(allocation=ON_N1 if allocated else None, reserved_for=consumers)
    return ResourceClaim(metadata=claim_from({"metadata": metadata}).metadata, status=status)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (None, ConsumerState.GONE),
        (pod(phase="Succeeded", node="n1"), ConsumerState.OVER),
        (pod(phase="Failed"), ConsumerState.OVER),
        (pod(deleting=True), ConsumerState.OVER),
        (pod(deleting=True, node="n1"), ConsumerState.IN_USE),
        (pod(), ConsumerState.IDLE),
        (pod(node="n1"), ConsumerState.IN_USE),
        (pod(node="n2"), ConsumerState.ELSEWHERE),
        (pod(node="n2", phase="Running"), ConsumerState.IN_USE),
    ],
)
def test_the_state_of_a_consumer_follows_from_its_pod(found: Pod | None, expected: ConsumerState) -> None:
    assert consumer_state(POD, found, ON_N1, busy=False) is expected


def test_a_pod_that_is_being_bound_and_a_consumer_that_is_no_pod_use_the_claim() -> None:
    group = ConsumerReference(api_group="scheduling.k8s.io", resource="podgroups", name="g", uid="g")

    assert consumer_state(POD, pod(), ON_N1, busy=True) is ConsumerState.IN_USE
    assert consumer_state(group, None, ON_N1, busy=False) is ConsumerState.IN_USE


def test_a_node_that_lost_a_label_is_not_elsewhere() -> None:
    """Devices in use must not be taken from a pod because its node was relabelled."""
    labelled = NodeSelectorTerm(match_expressions=(NodeSelectorRequirement(key="zone", operator="In", values=("a",)),))
    allocation = AllocationResult(node_selector=NodeSelector(node_selector_terms=(labelled,)))

    assert named_nodes(allocation) is None
    assert consumer_state(POD, pod(node="n2"), allocation, busy=False) is ConsumerState.IN_USE
    assert named_nodes(AllocationResult()) is None
    assert named_nodes(ON_N1) == frozenset({"n1"})


@pytest.mark.parametrize(
    ("consumer_states", "expected"),
    [
        ({}, Releasable(ReclaimReason.UNRESERVED, release=True)),
        ({"a": ConsumerState.IN_USE}, None),
        ({"a": ConsumerState.IDLE}, Releasable(ReclaimReason.POD_IDLE, frozenset("a"), release=True)),
        ({"a": ConsumerState.GONE}, Releasable(ReclaimReason.POD_GONE, frozenset("a"), release=True)),
        (
            {"a": ConsumerState.OVER, "b": ConsumerState.GONE},
            Releasable(ReclaimReason.POD_OVER, frozenset("ab"), release=True),
        ),
        ({"a": ConsumerState.ELSEWHERE}, Releasable(ReclaimReason.POD_ELSEWHERE, frozenset("a"), release=True)),
        ({"a": ConsumerState.IN_USE, "b": ConsumerState.IDLE}, Releasable(ReclaimReason.POD_IDLE, frozenset("b"))),
        ({"a": ConsumerState.IN_USE, "b": ConsumerState.GONE}, Releasable(ReclaimReason.POD_GONE, frozenset("b"))),
        ({"a": ConsumerState.IN_USE, "b": ConsumerState.OVER}, Releasable(ReclaimReason.POD_OVER, frozenset("b"))),
        ({"a": ConsumerState.IN_USE, "b": ConsumerState.ELSEWHERE}, None),
    ],
)
def test_an_allocation_goes_without_users_and_a_reservation_when_its_pod_does_not_use_it(
    consumer_states: dict[str, ConsumerState], expected: Releasable | None
) -> None:
    assert find_releasable(claim(*consumer_states), consumer_states) == expected


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"readiness": Readiness.FAILED}, ReclaimReason.DEVICE_FAILED),
        ({"readiness": Readiness.TIMED_OUT}, ReclaimReason.DEVICE_TIMED_OUT),
        ({"reachable": False}, ReclaimReason.NODE_GONE),
        ({"blocks_pod": True}, ReclaimReason.NODE_UNFIT),
        ({"blocks_pod": True, "readiness": Readiness.PENDING}, ReclaimReason.NODE_UNFIT),
        ({"readiness": Readiness.READY}, ReclaimReason.POD_IDLE),
    ],
)
def test_facts_about_devices_and_nodes_count_only_without_a_user_of_the_allocation(
    facts: dict[str, Readiness | bool], reason: ReclaimReason
) -> None:
    idle, used = {"a": ConsumerState.IDLE}, {"a": ConsumerState.IN_USE}

    found = find_releasable(claim("a"), idle, **facts)  # type: ignore[arg-type]
    assert found == Releasable(reason, frozenset("a"), release=True)
    assert found.prompt is (reason is not ReclaimReason.POD_IDLE)
    assert find_releasable(claim("a"), used, **facts) is None  # type: ignore[arg-type]


def test_devices_that_are_being_prepared_for_a_pending_pod_stay() -> None:
    assert find_releasable(claim("a"), {"a": ConsumerState.IDLE}, readiness=Readiness.PENDING) is None
    assert find_releasable(claim(), {}, readiness=Readiness.PENDING) == Releasable(
        ReclaimReason.UNRESERVED, release=True
    )


def test_marks_without_an_allocation_are_half_written() -> None:
    half = Releasable(ReclaimReason.HALF_WRITTEN)

    assert find_releasable(claim(allocated=False), {}) == half
    assert find_releasable(claim(allocated=False, finalizer=False, snapshot=True), {}) == half
    assert find_releasable(claim(allocated=False, finalizer=False), {}) is None


OURS = Writers(
    allocation=frozenset({US}), finalizer=frozenset({US}), reservations={uid: frozenset({US}) for uid in "ab"}
)
FOREIGN = Writers(allocation=frozenset({"kube-scheduler"}), reservations={"a": frozenset({"kube-scheduler"})})


@pytest.mark.parametrize(
    ("consumer_states", "reason", "release", "foreign_too"),
    [
        ({}, ReclaimReason.UNRESERVED, True, False),
        ({"a": ConsumerState.IDLE}, ReclaimReason.POD_IDLE, True, False),
        ({"a": ConsumerState.IDLE}, ReclaimReason.NODE_UNFIT, True, False),
        ({"a": ConsumerState.ELSEWHERE}, ReclaimReason.POD_ELSEWHERE, True, False),
        ({"a": ConsumerState.IDLE, "b": ConsumerState.IN_USE}, ReclaimReason.POD_IDLE, False, False),
        ({"a": ConsumerState.GONE}, ReclaimReason.POD_GONE, True, True),
        ({"a": ConsumerState.OVER}, ReclaimReason.POD_OVER, True, True),
        ({"a": ConsumerState.GONE, "b": ConsumerState.IN_USE}, ReclaimReason.POD_GONE, False, True),
    ],
)
def test_foreign_claims_are_touched_only_as_kube_controller_manager_would(
    consumer_states: dict[str, ConsumerState], reason: ReclaimReason, release: bool, foreign_too: bool
) -> None:
    uids = frozenset(uid for uid, found in consumer_states.items() if found is not ConsumerState.IN_USE)
    found, held = Releasable(reason, uids, release), claim(*consumer_states)

    assert permitted_part(found, held, consumer_states, OURS, US) == found
    assert permitted_part(found, held, consumer_states, FOREIGN, US) == (found if foreign_too else None)
    assert permitted_part(found, held, consumer_states, Writers(), US) == (found if foreign_too else None)


def test_only_our_own_preparation_is_removed() -> None:
    half = Releasable(ReclaimReason.HALF_WRITTEN)
    empty = claim(allocated=False)

    assert permitted_part(half, empty, {}, Writers(finalizer=frozenset({US})), US) == half
    assert permitted_part(half, empty, {}, Writers(snapshot=frozenset({US})), US) == half
    assert permitted_part(half, empty, {}, Writers(finalizer=frozenset({"kube-scheduler"})), US) is None


def test_the_document_names_every_reason() -> None:
    document = (Path(__file__).parents[3] / "docs" / "concepts" / "reclaim.md").read_text(encoding="utf-8")
    rows = [line.split("`")[1] for line in document.splitlines() if line.startswith("| `")]

    assert rows == [str(each) for each in ReclaimReason]
    assert set(RELEASE_MESSAGES) == set(ReclaimReason) - {ReclaimReason.HOLD_EXPIRED, ReclaimReason.HOLD_REVOKED}


def test_writers_are_read_as_the_api_server_keeps_them() -> None:
    raw = b"""{"metadata": {"managedFields": [
      {"manager": "dra-extender", "operation": "Update", "apiVersion": "resource.k8s.io/v1", "fieldsType": "FieldsV1",
       "fieldsV1": {"f:metadata": {"f:annotations": {".": {}, "f:dra-extender.io/allocation-snapshot": {}},
                    "f:finalizers": {".": {}, "v:\\"resource.kubernetes.io/delete-protection\\"": {}}}}},
      {"manager": "dra-extender", "operation": "Update", "subresource": "status",
       "fieldsV1": {"f:status": {"f:allocation": {".": {}, "f:devices": {}},
                    "f:reservedFor": {".": {}, "k:{\\"uid\\":\\"a\\"}": {".": {}, "f:uid": {}}}}}},
      {"manager": "kube-controller-manager", "subresource": "status",
       "fieldsV1": {"f:status": {"f:reservedFor": {"k:{\\"uid\\":\\"b\\"}": {}, "k:broken": {}, "k:[]": {}}}}}
    ]}}"""

    who, ours = writers_of(raw), frozenset({US})

    assert (who.allocation, who.finalizer, who.snapshot) == (ours, ours, ours)
    assert who.reserved("a") == ours
    assert who.reserved("b") == frozenset({"kube-controller-manager"})
    assert who.reserved("c") == frozenset()
    assert writers_of(b"{}") == Writers()
