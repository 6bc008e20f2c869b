"""Claims that an audit cannot compare with their devices are named, and so is why; taints count where they have an effect."""

from typing import Any

import msgspec
import pytest
from dra_extender.cel.budget import Budget
from dra_extender.inspection.audit.cluster_audit import AuditedCluster, audit_steps
from dra_extender.inspection.audit.findings import Check
from dra_extender.inspection.audit.report import AuditReport, Soundness, audit_report
from dra_extender.inspection.audit.requests import UnjudgedCheck, UnjudgedClaims
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.objects import AssumedGate, ClusterObjects, GateState, MissingKind
from dra_extender.inspection.text.audit import audit_tree
from dra_extender.model.resource_claim import FINALIZER, ClaimHead

from tests.controlplane import objects
from tests.support.inspection.made_cluster import NOW, MadeCluster

COMPARING = (Check.REQUEST_NOT_MET, Check.DEVICE_MISMATCH, Check.DEVICE_DRIFT)


def two_pods(mode: str = "ExactCount") -> MadeCluster:
    """Two pods that run with a GPU each, of a class with a selector."""
    made = MadeCluster()
    made.nodes("n1")
    made.add(objects.device_class("gpu"))
    made.gpus("n1", objects.device("gpu-0"), objects.device("gpu-1"))
    for index in (0, 1):
        request = objects.request("r", "gpu")
        request["exactly"]["allocationMode"] = mode
        made.running(f"p{index}", "n1", f"gpu-{index}", request)
        made.objects["resourceclaims"][-1]["metadata"]["finalizers"] = [FINALIZER]
    return made


def unjudged(view: ClusterView, **fields: Any) -> tuple[UnjudgedCheck, ...]:
    claims = UnjudgedClaims()
    for _ in audit_steps(AuditedCluster(view.ledger, lambda: NOW, 600, **fields), claims):
        pass
    return tuple(claims.checks())


@pytest.mark.parametrize("mode", ["ExactCount", "All"])
def test_claims_are_named_that_the_budget_does_not_suffice_for(mode: str) -> None:
    view = two_pods(mode).view()
    assert unjudged(view, new_budget=lambda: Budget(0)) == (
        UnjudgedCheck(
            checks=COMPARING,
            reason="claims ml/claim-p0, ml/claim-p1: evaluating their selectors takes longer than an audit may",
        ),
    )
    assert unjudged(view) == ()


def test_claims_are_named_whose_spec_is_not_kept() -> None:
    view = two_pods().view()
    for record in view.ledger.claims.records():
        record.claim = ClaimHead(metadata=record.claim.metadata, status=record.claim.status)
        record.raw, record.specs = b"", None
    assert unjudged(view) == (
        UnjudgedCheck(
            checks=COMPARING, reason="claims ml/claim-p0, ml/claim-p1: what they ask for is not kept in memory"
        ),
    )


def report_without_class(*missing: MissingKind) -> AuditReport:
    made = two_pods()
    made.objects["deviceclasses"].clear()
    made.missing = missing
    return audit_report(made.view())


def test_claims_are_named_whose_class_is_gone() -> None:
    report = report_without_class()
    (entry,) = report.unjudged
    assert report.verdict is Soundness.UNKNOWN
    assert entry.checks == COMPARING
    assert entry.reason == "claims ml/claim-p0, ml/claim-p1: device class gpu does not exist"
    assert "not judged: request not met, device mismatch, device drift" in audit_tree(report)


def test_no_class_is_said_to_be_gone_if_classes_could_not_be_read() -> None:
    report = report_without_class(MissingKind(kind="deviceclasses", reason="403"))
    (entry,) = report.unjudged
    assert "does not exist" not in entry.reason
    assert Check.DEVICE_MISMATCH in entry.checks


@pytest.mark.parametrize(
    ("gates", "found"),
    [
        pytest.param((), 1, id="not-known"),
        pytest.param((AssumedGate(gate="DRADeviceTaints", state=GateState.UNKNOWN),), 1, id="unknown"),
        pytest.param((AssumedGate(gate="DRADeviceTaints", state=GateState.ON),), 1, id="on"),
        pytest.param((AssumedGate(gate="DRADeviceTaints", state=GateState.OFF),), 0, id="off"),
    ],
)
def test_taints_count_unless_the_api_server_does_not_serve_them(gates: tuple[AssumedGate, ...], found: int) -> None:
    made = two_pods()
    taint = {"key": "example.com/broken", "effect": "NoExecute"}
    made.objects["resourceslices"][0]["spec"]["devices"][0]["taints"] = [taint]
    cluster = made.cluster()
    cluster = ClusterObjects(msgspec.structs.replace(cluster.origin, gates=gates), cluster.by_kind)
    report = audit_report(ClusterView(cluster))
    assert [each.check for each in report.findings].count(Check.TAINTED_DEVICE) == found


def test_claims_of_controllers_that_are_not_known_are_not_said_to_be_orphans() -> None:
    """Whether a Job exists is nothing that the audit reads."""
    made = two_pods()
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
    made.objects["resourceclaims"][0]["metadata"]["ownerReferences"] = [owner]
    assert audit_report(made.view()).findings == ()
