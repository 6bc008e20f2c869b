"""Opaque parameters nest as deep as their owner likes, and may name half a surrogate pair: every question is answered."""

from pathlib import Path
from random import Random

import pytest
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.objects import ClusterObjects
from dra_extender.inspection.redaction.redact import redacted
from dra_extender.inspection.snapshot_file import read_snapshot, write_snapshot
from dra_extender.inspection.what_if.report import OutcomeKind
from dra_extender.inspection.what_if.what_if import what_if
from dra_extender.inspection.why.why import why
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION

from tests.controlplane.objects import device, device_class, request
from tests.support.inspection.made_cluster import NAMESPACE, MadeCluster

DEEP = b"[" * 3000 + b"]" * 3000
MARK = b'"here"'


@pytest.fixture(params=[DEEP, rb'"\ud800"'], ids=["deep", "half a pair"])
def cluster(request: pytest.FixtureRequest) -> ClusterObjects:
    """A claim with such parameters, of a pod that asks for more devices than there are."""
    return with_parameters(request.param)


def with_parameters(parameters: bytes) -> ClusterObjects:
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu"))
    made.gpus("n1", device("gpu-0"))
    made.pod("train", request("gpu", "gpu", count=2))
    (claim,) = made.objects["resourceclaims"]
    claim["spec"]["devices"]["config"] = [{"opaque": {"driver": "gpu.example.com", "parameters": {"depth": "here"}}}]
    found = made.cluster()
    claims = [each.replace(MARK, parameters) for each in found.of_kind("resourceclaims")]
    assert all(parameters in each for each in claims)
    return with_claims(found, claims)


def with_claims(objects: ClusterObjects, claims: list[bytes]) -> ClusterObjects:
    return ClusterObjects(objects.origin, {**objects.by_kind, "resourceclaims": claims})


def test_snapshot_has_the_claim_without_its_parameters(cluster: ClusterObjects, tmp_path: Path) -> None:
    file = tmp_path / "cluster.tar.gz"
    write_snapshot(cluster, file)
    (claim,) = read_snapshot(file).of_kind("resourceclaims")
    assert b"parameters" not in claim
    assert why(ClusterView(read_snapshot(file)), NAMESPACE, "train").next


def test_redacted_snapshot_has_the_claim(cluster: ClusterObjects) -> None:
    (claim,) = redacted(cluster, Random(1)).objects.of_kind("resourceclaims")
    assert b'"requests"' in claim


def test_annotation_that_nests_too_deep_to_be_a_frozen_allocation_is_redacted_as_a_text() -> None:
    made = MadeCluster()
    made.pod("train", request("gpu", "gpu"))
    made.objects["resourceclaims"][0]["metadata"]["annotations"] = {SNAPSHOT_ANNOTATION: DEEP.decode()}
    (claim,) = redacted(made.cluster(), Random(1)).objects.of_kind("resourceclaims")
    assert b"[[" not in claim


def test_why_tries_changes_of_the_claim(cluster: ClusterObjects) -> None:
    texts = [each.text for each in why(ClusterView(cluster), NAMESPACE, "train").next]
    assert "ask for 1 device" in texts


async def test_what_if_places_a_pod_with_the_claim() -> None:
    objects = with_parameters(DEEP)
    fewer = [each.replace(b'"count":2', b'"count":1') for each in objects.of_kind("resourceclaims")]
    report = await what_if(with_claims(objects, fewer))
    assert [each.after.kind for each in report.pods] == [OutcomeKind.LANDS]


@pytest.mark.parametrize(
    "other",
    [
        b'{"metadata": {"name": "train", ',
        b'"train"',
        b'{"metadata": ["train"]}',
        b'{"metadata": null, "name": "train"}',
        b'\xff"train"',
    ],
    ids=["cut off", "a text", "metadata is a list", "no metadata", "no UTF-8"],
)
def test_why_answers_beside_a_pod_that_cannot_be_read_and_has_the_name_in_it(other: bytes) -> None:
    found = with_parameters(b'"none"')
    by_kind = {kind: found.of_kind(kind) for kind in found.by_kind}
    report = why(ClusterView(found), NAMESPACE, "train")
    beside = ClusterView(ClusterObjects(found.origin, {**by_kind, "pods": [other, *by_kind["pods"]]}))
    assert why(beside, NAMESPACE, "train").branches == report.branches
