"""What `why` says of attributes that devices lack, of resources that nobody has, and of the binding timeout."""

from typing import Any

import pytest
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.objects import ClusterObjects
from dra_extender.inspection.text.why import tree
from dra_extender.inspection.why.report import Cause
from dra_extender.inspection.why.why import why
from dra_extender.model.metadata import Moment
from dra_extender.scheduling.hold_report import FORMAT, HoldReport

from tests.controlplane.objects import device, device_class, node, pod, request, resource_claim
from tests.support.inspection.made_cluster import NAMESPACE, NOW, Json, MadeCluster

NUMA = "gpu.example.com/numa"


@pytest.fixture
def made() -> MadeCluster:
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu"))
    return made


def constrained(made: MadeCluster, constraint: str, count: int, *attributes: Json) -> str:
    made.gpus("n1", *(device(f"gpu-{place}", attributes=each) for place, each in enumerate(attributes)))
    wanted = request("gpu", "gpu", count=count)
    made.add(resource_claim("claim-train", NAMESPACE, wanted, constraints=[{constraint: NUMA}]))
    made.add(pod("train", NAMESPACE, claims={"gpu": "claim-train"}))
    return " ".join(tree(why(made.view(), NAMESPACE, "train")).split())


@pytest.mark.parametrize("constraint", ["matchAttribute", "distinctAttribute"])
@pytest.mark.parametrize(
    ("count", "attributes", "named", "values"),
    [
        pytest.param(1, ({},), "gpu-0", "1 with no value", id="one-without"),
        pytest.param(2, ({}, {}), "gpu-0", "2 with no value", id="none-has-it"),
        pytest.param(2, ({"numa": 1}, {}), "gpu-1", "1 with no value, 1 with 1", id="one-of-two-without"),
    ],
)
def test_attribute_that_devices_lack_is_named_with_the_device(
    made: MadeCluster, constraint: str, count: int, attributes: tuple[Json, ...], named: str, values: str
) -> None:
    text = constrained(made, constraint, count, *attributes)
    assert f"{named} does not satisfy {constraint} {NUMA}, which it does not have" in text
    assert f"{constraint} {NUMA} on n1: {values}" in text
    assert "no device is free" not in text


def test_values_of_different_types_differ_in_the_answer(made: MadeCluster) -> None:
    text = constrained(made, "matchAttribute", 2, {"numa": 1}, {"numa": "1"})
    assert f'matchAttribute {NUMA} on n1: 1 with "1", 1 with 1' in text


def test_extended_resource_that_no_node_and_no_class_has_is_named(made: MadeCluster) -> None:
    made.add(device_class("other", extendedResourceName="example.com/gpu"))
    made.add(pod("train", NAMESPACE, extended={"example.com/gpus": "1"}))

    report = why(made.view(), NAMESPACE, "train")

    assert (report.cause, report.fitting) == (Cause.NO_DEVICES, 0)
    assert "has its devices" not in report.summary
    assert report.summary.endswith(
        "no node has example.com/gpus (nearest name example.com/gpu), and no DeviceClass serves it"
    )


def test_extended_resource_that_nobody_has_is_named_beside_a_claim(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    made.pod("train", request("gpu", "gpu"), extended={"example.com/none": "1"})
    assert "no node has example.com/none, and no DeviceClass serves it" in why(made.view(), NAMESPACE, "train").summary


@pytest.mark.parametrize("source", ["node", "class"])
def test_extended_resource_that_a_node_or_a_class_has_is_not_missed(made: MadeCluster, source: str) -> None:
    if source == "node":
        made.add(node("n2", extended={"example.com/gpu": "1"}))
    else:
        made.add(device_class("backed", extendedResourceName="example.com/gpu"))
    made.add(pod("train", NAMESPACE, extended={"example.com/gpu": "2"}))
    assert "no node has" not in why(made.view(), NAMESPACE, "train").summary


def awaiting(made: MadeCluster) -> ClusterObjects:
    """A pod whose device was allocated 40 s ago and reports nothing."""
    made.gpus("n1", device("gpu-0", bindingConditions=["Attached"], bindingFailureConditions=["Failed"]))
    made.running("train", "n1", "gpu-0", request("gpu", "gpu"))
    made.objects["pods"][-1]["spec"]["nodeName"] = ""
    allocation: Any = made.objects["resourceclaims"][-1]["status"]["allocation"]
    allocation["devices"]["results"][0].update(bindingConditions=["Attached"], bindingFailureConditions=["Failed"])
    allocation["allocationTimestamp"] = "2026-11-25T09:46:00Z"
    return made.cluster()


def view_with(made: MadeCluster, holds: HoldReport | None) -> ClusterView:
    objects = awaiting(made)
    return ClusterView(ClusterObjects(objects.origin, objects.by_kind, holds=holds))


def test_binding_timeout_is_that_of_the_running_service(made: MadeCluster) -> None:
    holds = HoldReport(format=FORMAT, taken_at=Moment(NOW), binding_timeout_seconds=100.0)
    report = why(view_with(made, holds), NAMESPACE, "train")
    assert [(each.limit - NOW, each.assumed_timeout) for each in report.awaited] == [(60.0, None)]
    assert "limit in 60s\n" in tree(report)


@pytest.mark.parametrize(
    "holds",
    [
        pytest.param(None, id="no-service"),
        pytest.param(HoldReport(format=FORMAT, taken_at=Moment(NOW)), id="older-service"),
    ],
)
def test_binding_timeout_that_is_not_known_is_marked_as_assumed(made: MadeCluster, holds: HoldReport | None) -> None:
    report = why(view_with(made, holds), NAMESPACE, "train")
    assert [(each.limit - NOW, each.assumed_timeout) for each in report.awaited] == [(560.0, 600.0)]
    assert "limit in 560s if the binding timeout is 600s, the default" in " ".join(tree(report).split())
