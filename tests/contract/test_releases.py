"""What older releases serve, and which fields they drop in silence."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from dra_extender.kube.discovery import Support
from dra_extender.simulator.apiserver.served_fields import OLDEST
from dra_extender.simulator.virtual_time import VirtualClockLoop

from tests.contract.conftest import OPTIONS
from tests.contract.contract_server import MERGE, ContractServer, Object
from tests.contract.sides import RealServer, SimulatedServer
from tests.controlplane import objects
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.planes import V1_34, V1_36
from tests.simulation.api_discovery import Release

# As the simulated releases have them on.
ALPHA_GATES: Final = {"DRAPartitionableDevices": True, "DRADeviceTaints": True}
SINCE_36: Final = {"consumable-capacity", "binding-conditions", "extended-resources"}
PLANES: Final = {34: V1_34, 36: V1_36}
SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices"
CLASSES: Final = "/apis/resource.k8s.io/v1/deviceclasses"


@pytest.fixture(params=PLANES)
def minor(request: pytest.FixtureRequest) -> int:
    """The minor release of Kubernetes 1."""
    number: int = request.param
    return number


@pytest_asyncio.fixture
async def server(minor: int, tmp_path: Path) -> AsyncIterator[ContractServer]:
    """A server that behaves as this release."""
    if isinstance(asyncio.get_running_loop(), VirtualClockLoop):
        simulated = await SimulatedServer.start(tmp_path, Release.of(minor))
        simulated.namespace = "default"
        yield simulated
        await simulated.close()
        return
    named = PLANES[minor]
    options = replace(OPTIONS, release=named.release, emulated=named.emulated, feature_gates=ALPHA_GATES)
    async with ControlPlane.start(tmp_path, options) as plane:
        real = RealServer(plane)
        real.namespace = "default"
        yield real
        await real.close()


async def test_release_serves_and_keeps_what_it_knows(server: ContractServer, minor: int) -> None:
    facts = await server.facts()
    assert (facts.minor, facts.pod_groups, facts.taint_rules) == (minor, None, None)
    kept = {"partitionable-devices", "device-status", "device-taints"} | (SINCE_36 if minor >= 36 else set())
    assert {name for name, support in facts.fields.items() if support is Support.KEPT} == kept

    known = minor >= 36
    assert await kept_of_a_device(server, minor) == {
        "counters": True,
        "compatibilityGroups": False,
        "taints": True,
        "bindsToNode": known,
        "bindingConditions": known,
        "bindingFailureConditions": known,
        "allowMultipleAllocations": known,
        "requestPolicy": known,
    }
    made = await server.ask("POST", CLASSES, objects.device_class("class", extendedResourceName="example.com/gpu"))
    assert ("extendedResourceName" in made.body["spec"]) is known
    await server.ask("POST", server.pods(), objects.pod("pod", "default"))
    told = {"resourceClaimName": "claim", "requestMappings": []}
    change = {"status": {"extendedResourceClaimStatus": told, "phase": "Pending"}}
    answer = await server.ask("PATCH", server.pods("pod", "status"), change, media=MERGE)
    assert ("extendedResourceClaimStatus" in answer.body["status"]) is (known and answer.code == 200)
    assert await kept_of_a_claim(server) == {
        "capacity": known,
        "shareID": known,
        "consumedCapacity": known,
        "bindingConditions": known,
        "bindingFailureConditions": known,
        "allocationTimestamp": minor > OLDEST,
    }


async def kept_of_a_device(server: ContractServer, minor: int) -> Mapping[str, bool]:
    """Which optional fields of a device are stored. Its counter set is beside it in 1.34, and in a slice of its own later."""
    device = objects.device(
        "gpu-0",
        consumes=[objects.consumption("set", groups=["a"], memory="1Gi")],
        bindsToNode=True,
        bindingConditions=["example.com/ready"],
        bindingFailureConditions=["example.com/failed"],
        allowMultipleAllocations=True,
        taints=[{"key": "example.com/taint", "effect": "NoSchedule"}],
    )
    policy = {"default": "1Gi", "validRange": {"min": "1Gi"}}
    device["capacity"] = {"memory": {"value": "4Gi", "requestPolicy": policy}}
    apart = objects.resource_slice("slice", node="node", devices=[device])
    together = objects.resource_slice(
        "slice", node="node", devices=[device], counter_sets=[objects.counter_set("set", memory="4Gi")]
    )
    if minor != OLDEST:
        refused = await server.ask("POST", SLICES, together)
        assert refused.code == 422, refused
    made = await server.ask("POST", SLICES, together if minor == OLDEST else apart)
    assert made.code == 201, made
    stored = made.body["spec"]["devices"][0]
    consumed = (stored.get("consumesCounters") or [{}])[0]
    found = {name: name in stored for name in device if name not in ("name", "consumesCounters", "capacity")}
    return {
        **found,
        "counters": "counters" in consumed,
        "compatibilityGroups": "compatibilityGroups" in consumed,
        "requestPolicy": "requestPolicy" in stored["capacity"]["memory"],
    }


async def kept_of_a_claim(server: ContractServer) -> Mapping[str, bool]:
    """Which optional fields of a claim and its allocation are stored."""
    request = objects.request("gpu", "gpu", capacity={"requests": {"memory": "1Gi"}})
    claim = (await server.ask("POST", server.claims(), objects.resource_claim("claim", "default", request))).body
    result: Object = {
        "request": "gpu",
        "driver": "gpu.example.com",
        "pool": "node",
        "device": "gpu-0",
        "shareID": "11111111-1111-4111-8111-111111111111",
        "consumedCapacity": {"memory": "1Gi"},
        "bindingConditions": ["example.com/ready"],
        "bindingFailureConditions": ["example.com/failed"],
    }
    allocation: dict[str, Any] = {"devices": {"results": [result]}, "allocationTimestamp": "2026-01-01T00:00:00Z"}
    answer = await server.ask("PUT", server.claims("claim", "status"), {**claim, "status": {"allocation": allocation}})
    assert answer.code == 200, answer
    stored = answer.body["status"]["allocation"]
    optional = ("shareID", "consumedCapacity", "bindingConditions", "bindingFailureConditions")
    return {
        "capacity": "capacity" in claim["spec"]["devices"]["requests"][0]["exactly"],
        **{name: name in stored["devices"]["results"][0] for name in optional},
        "allocationTimestamp": "allocationTimestamp" in stored,
    }
