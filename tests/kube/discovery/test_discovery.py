import json
from collections.abc import Mapping
from typing import Any

import pytest
from dra_extender.kube.client.objects import ResourceKind
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiTransport
from dra_extender.kube.discovery import OPTIONAL_FIELDS, Discovery, ServerFacts, Support, supports
from dra_extender.scheduling.ports.cluster import NotFoundError, RequestRejectedError, ServerUnavailableError

from tests.simulation.api_server import Fault
from tests.simulation.faults import ALWAYS, Faults


def serve(faults: Faults, pages: Mapping[str, Any]) -> None:
    """Let these documents be at these paths from now on, whatever was there before."""
    for path, document in pages.items():
        fault = Fault(refuse=404) if document is None else Fault(answer=(200, json.dumps(document).encode()))
        faults.plan("get", path, fault, ALWAYS)


def group(*versions: str) -> dict[str, Any]:
    return {"kind": "APIGroup", "versions": [{"groupVersion": f"x/{each}", "version": each} for each in versions]}


def resources(*names: str) -> dict[str, Any]:
    return {"kind": "APIResourceList", "resources": [{"name": each, "kind": "X"} for each in names]}


def version(minor: str, emulated: str | None = None) -> dict[str, str]:
    more = {"emulationMajor": "1", "emulationMinor": emulated} if emulated else {}
    return {"major": "1", "minor": minor, "gitVersion": f"v1.{minor}.1", **more}


def gates(**states: bool) -> str:
    head = "# TYPE kubernetes_feature_enabled gauge\n"
    lines = [f'kubernetes_feature_enabled{{name="{name}",stage="ALPHA"}} {int(on)}' for name, on in states.items()]
    return head + "\n".join(lines) + '\napiserver_request_total{code="200"} 7\n'


def schema(**properties: Any) -> dict[str, Any]:
    """The OpenAPI document of resource.k8s.io/v1 of which results of allocations have these properties."""
    described = {"type": "object", "properties": {"device": {"type": "string"}, **properties}}
    name = "io.k8s.api.resource.v1.DeviceRequestAllocationResult"
    return {"openapi": "3.0.0", "components": {"schemas": {name: described, "x": {"type": "object"}}}}


SCHEMA = "/openapi/v3/apis/resource.k8s.io/v1"
GROUPS = {
    "description": "what the KEP plans",
    "type": "object",
    "additionalProperties": {"type": "array", "items": {"type": "string", "default": ""}},
}


@pytest.fixture
def discovery(faults: Faults, transport: ApiTransport, settings: KubeSettings) -> Discovery:
    pages = {
        "/version": version("37"),
        SCHEMA: schema(),
        "/apis/resource.k8s.io": group("v1"),
        "/apis/resource.k8s.io/v1": resources("resourceclaims", "resourceslices", "devicetaintrules"),
        "/apis/scheduling.k8s.io": group("v1", "v1beta1", "v1alpha3"),
        "/apis/scheduling.k8s.io/v1beta1": resources("podgroups", "workloads"),
    }
    serve(faults, pages)
    return Discovery(transport, settings)


async def test_a_current_server_needs_few_notes(faults: Faults, discovery: Discovery) -> None:
    everything = {field.gate.gate_name: True for field in OPTIONAL_FIELDS}
    faults.plan("get", "/metrics", Fault(answer=(200, gates(**everything).encode())))
    facts = await discovery.facts()
    assert (facts.git_version, facts.minor) == ("v1.37.1", 37)
    assert facts.pod_groups == ResourceKind("podgroups", "scheduling.k8s.io/v1beta1")
    assert facts.taint_rules == ResourceKind("devicetaintrules", "resource.k8s.io/v1", namespaced=False)
    assert set(facts.fields.values()) == {Support.KEPT}
    assert facts.notes() == {"api-server": "v1.37.1, behaves as 1.37"}


async def test_an_emulated_version_decides_what_is_served(faults: Faults, discovery: Discovery) -> None:
    serve(faults, {"/version": version("37", "36")})
    facts = await discovery.facts()
    assert facts.minor == 36
    assert facts.fields["compatibility-groups"] is Support.DROPPED
    assert facts.notes()["compatibility-groups"] == (
        "not served by this API server (behaves as 1.36): drivers cannot publish groups"
    )
    assert facts.notes()["api-server"] == "v1.37.1, behaves as 1.36"


async def test_without_the_right_to_read_metrics_gates_are_unknown(faults: Faults, discovery: Discovery) -> None:
    faults.plan("get", "/metrics", Fault(refuse=403))
    facts = await discovery.facts()
    assert facts.fields["compatibility-groups"] is Support.UNKNOWN
    assert facts.notes()["compatibility-groups"].startswith("unknown until an object carries it")
    assert facts.fields["device-status"] is Support.KEPT


async def test_a_gate_that_is_off_is_named(faults: Faults, discovery: Discovery) -> None:
    off = gates(DRADeviceCompatibilityGroups=False, DRAPartitionableDevices=True)
    faults.plan("get", "/metrics", Fault(answer=(200, off.encode())))
    facts = await discovery.facts()
    assert facts.fields["partitionable-devices"] is Support.KEPT
    assert facts.notes()["compatibility-groups"] == (
        "not served by this API server (gate DRADeviceCompatibilityGroups is off): drivers cannot publish groups"
    )


@pytest.mark.parametrize(
    ("served", "said"),
    [
        (group("v1beta2", "v1beta1"), "resource.k8s.io only as v1beta2, v1beta1"),
        (None, "nothing of resource.k8s.io"),
    ],
)
async def test_a_server_without_the_needed_version_is_refused_in_words(
    faults: Faults, discovery: Discovery, served: dict[str, Any] | None, said: str
) -> None:
    serve(faults, {"/version": version("33")})
    serve(faults, {"/apis/resource.k8s.io": served})
    with pytest.raises(RequestRejectedError) as refused:
        await discovery.facts()
    assert not isinstance(refused.value, NotFoundError)
    assert str(refused.value) == (
        f"This API server (v1.33.1, behaves as 1.33) serves {said}. dra-extender needs resource.k8s.io/v1: "
        "Kubernetes 1.34 or newer, with that version not disabled."
    )


async def test_something_that_is_no_api_server_is_told_in_words(faults: Faults, discovery: Discovery) -> None:
    faults.plan("get", "/version", Fault(answer=(200, b"<html>It works!</html>")))
    with pytest.raises(ServerUnavailableError, match="get /version: the answer cannot be read, is this an API server"):
        await discovery.facts()


async def test_a_provider_may_append_to_the_minor_version(faults: Faults, discovery: Discovery) -> None:
    serve(faults, {"/version": version("35+")})
    assert (await discovery.facts()).minor == 35


async def test_kinds_are_found_in_the_newest_version_that_has_them(faults: Faults, discovery: Discovery) -> None:
    pages = {
        "/apis/resource.k8s.io": group("v1", "v1beta2", "v1alpha3"),
        "/apis/resource.k8s.io/v1": resources("resourceclaims"),
        "/apis/resource.k8s.io/v1beta2": resources("resourceclaims", "devicetaintrules"),
        "/apis/resource.k8s.io/v1alpha3": resources("devicetaintrules"),
        "/apis/scheduling.k8s.io": group("v1", "v1alpha2"),
        "/apis/scheduling.k8s.io/v1alpha2": resources("podgroups"),
    }
    serve(faults, pages)
    facts = await discovery.facts()
    assert facts.taint_rules == ResourceKind("devicetaintrules", "resource.k8s.io/v1beta2", namespaced=False)
    assert facts.pod_groups == ResourceKind("podgroups", "scheduling.k8s.io/v1alpha2")


async def test_kinds_that_nobody_serves_are_noted(faults: Faults, discovery: Discovery) -> None:
    serve(faults, {"/apis/scheduling.k8s.io": group("v1")})
    serve(faults, {"/apis/resource.k8s.io/v1": resources("resourceclaims")})
    facts = await discovery.facts()
    assert (facts.pod_groups, facts.taint_rules) == (None, None)
    assert {"pod-groups", "device-taint-rules"} <= facts.notes().keys()


@pytest.mark.parametrize("minor", range(30, 40))
def test_every_field_has_one_support_at_every_release(minor: int) -> None:
    for known in (None, {}, {field.gate.gate_name: False for field in OPTIONAL_FIELDS}):
        facts = ServerFacts("v", minor, None, None, supports(minor, known))
        assert facts.fields.keys() == {field.name for field in OPTIONAL_FIELDS}
        for field in OPTIONAL_FIELDS:
            noted = field.name in facts.notes()
            assert noted is (facts.fields[field.name] is not Support.KEPT)
            assert (facts.fields[field.name] is Support.DROPPED) or minor >= field.gate.since


@pytest.mark.parametrize(
    ("properties", "support"),
    [
        ({}, Support.DROPPED),
        ({"compatibilityGroups": GROUPS}, Support.KEPT),
        ({"compatibilityGroups": {"type": "array", "items": {"type": "string"}}}, Support.DROPPED),
        ({"compatibilityGroups": {"type": "object", "additionalProperties": {"type": "string"}}}, Support.DROPPED),
        ({"compatibilityGroups": {"type": "object", "additionalProperties": True}}, Support.DROPPED),
        ({"compatibilityGroups": {"$ref": "#/components/schemas/x"}}, Support.DROPPED),
    ],
)
async def test_schema_tells_whether_allocations_keep_groups_in_the_form_of_the_kep(
    faults: Faults, discovery: Discovery, properties: dict[str, Any], support: Support
) -> None:
    """Whatever the release says of itself: a field of that name and another form is not one to write."""
    serve(faults, {SCHEMA: schema(**properties), "/version": version("36")})
    facts = await discovery.facts()
    assert facts.allocation_groups is support
    assert ("allocation-groups" in facts.notes()) is (support is Support.KEPT)


@pytest.mark.parametrize("page", [None, {}, {"components": {"schemas": {"x": {}}}}, {"components": []}])
async def test_schema_that_cannot_be_read_is_noted_and_no_obstacle(
    faults: Faults, discovery: Discovery, page: dict[str, Any] | None
) -> None:
    serve(faults, {SCHEMA: page})
    facts = await discovery.facts()
    assert facts.allocation_groups is Support.UNKNOWN
    assert facts.notes()["allocation-groups"] == (
        "the API's schema cannot be read: groups are kept only in the annotation"
    )
