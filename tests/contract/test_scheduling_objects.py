"""Claims, pods, slices and PodGroups: what their writers may do."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from dra_extender.kube.claims import KubeClaims
from dra_extender.kube.client.credentials import find_credentials
from dra_extender.kube.client.transport import ApiTransport
from dra_extender.runtime.clock import SystemClock
from dra_extender.scheduling.ports.cluster import ConflictError
from dra_extender.telemetry.observer import Observer

from tests.contract.contract_server import MERGE, STRATEGIC, Answer, ContractServer, Object
from tests.controlplane import objects

pytestmark = pytest.mark.asyncio(loop_scope="module")

GROUPS = ("scheduling.k8s.io/v1beta1", "podgroups")
SLICES = "/apis/resource.k8s.io/v1/resourceslices"


async def new_claim(server: ContractServer, name: str = "claim", *requests: Object, **metadata: Any) -> Object:
    """Create a claim, by default for one device."""
    claim = objects.resource_claim(name, server.namespace, *(requests or (objects.request("gpu", "gpu"),)))
    claim["metadata"] |= metadata
    made = await server.ask("POST", server.claims(), claim)
    assert made.code == 201, made
    body: Object = made.body
    return body


def result(**fields: Any) -> Object:
    """A device that is allocated for the request."""
    return {"request": "gpu", "driver": "gpu.example.com", "pool": "pool", "device": "gpu-0", **fields}


def consumer(uid: str) -> Object:
    """A pod that uses the claim."""
    return {"resource": "pods", "name": "pod", "uid": uid}


def allocated(claim: Object, *uids: str, **fields: Any) -> Object:
    """The claim with a device, for pods with these UIDs; `fields` are those of the result."""
    status = {
        "allocation": {"devices": {"results": [result(**fields)]}},
        "reservedFor": [consumer(uid) for uid in uids],
    }
    return {**claim, "status": status}


async def put_status(server: ContractServer, claim: Object) -> Answer:
    """Replace the claim's status."""
    return await server.ask("PUT", server.claims(claim["metadata"]["name"], "status"), claim)


async def test_allocation_and_reservation_are_written_together_and_taken_back(server: ContractServer) -> None:
    claim = await new_claim(server)
    first = await put_status(server, allocated(claim, "a"))
    assert first.code == 200, first
    assert first.body["status"] == allocated(claim, "a")["status"]
    second = await put_status(server, allocated(first.body, "a", "b"))
    assert [each["uid"] for each in second.body["status"]["reservedFor"]] == ["a", "b"]
    freed = await put_status(server, {**second.body, "status": {}})
    assert not freed.body.get("status")


async def test_status_write_of_another_version_is_a_conflict(server: ContractServer) -> None:
    claim = await new_claim(server)
    assert (await put_status(server, allocated(claim, "a"))).code == 200
    assert (await put_status(server, allocated(claim, "b"))).refusal == (409, "Conflict")


async def test_allocation_does_not_change_while_it_lasts(server: ContractServer) -> None:
    claim = (await put_status(server, allocated(await new_claim(server), "a"))).body
    answer = await put_status(server, allocated(claim, "a", device="gpu-1"))
    assert answer.invalid_fields == {"status.allocation"}


@pytest.mark.parametrize(
    ("fields", "invalid"),
    [
        ({"request": "other"}, "status.allocation.devices.results[0].request"),
        ({"driver": "Not A Driver"}, "status.allocation.devices.results[0].driver"),
        ({"pool": "Not A Pool"}, "status.allocation.devices.results[0].pool"),
        ({"device": "Not A Device"}, "status.allocation.devices.results[0].device"),
        ({"bindingConditions": ["ready"]}, "status.allocation.devices.results[0]"),
    ],
)
async def test_allocation_must_be_valid(server: ContractServer, fields: Mapping[str, Any], invalid: str) -> None:
    answer = await put_status(server, allocated(await new_claim(server), "a", **fields))
    assert any(field.startswith(invalid) for field in answer.invalid_fields), answer.invalid_fields


async def test_allocation_names_a_request_or_an_alternative_of_it(server: ContractServer) -> None:
    alternatives = [{"name": name, "deviceClassName": "gpu"} for name in ("a", "b")]
    claim = await new_claim(server, "claim", {"name": "gpu", "firstAvailable": alternatives})
    refused = await put_status(server, allocated(claim, "u", request="gpu/c"))
    assert refused.invalid_fields == {"status.allocation.devices.results[0].request"}
    assert (await put_status(server, allocated(claim, "u", request="gpu/b"))).code == 200
    claim = await new_claim(server, "other", {"name": "gpu", "firstAvailable": alternatives})
    assert (await put_status(server, allocated(claim, "u", request="gpu"))).code == 200


async def test_reservations_need_an_allocation_and_a_uid_each(server: ContractServer) -> None:
    claim = await new_claim(server)
    answer = await put_status(server, {**claim, "status": {"reservedFor": [consumer("a")]}})
    assert answer.invalid_fields == {"status.reservedFor"}
    twice = await put_status(server, allocated(claim, "a", "a"))
    assert {field.partition("[")[0] for field in twice.invalid_fields} == {"status.reservedFor"}
    many = await put_status(server, allocated(claim, *(f"u{number}" for number in range(257))))
    assert many.invalid_fields == {"status.reservedFor"}
    assert (await put_status(server, allocated(claim, *(f"u{number}" for number in range(256))))).code == 200


async def test_claim_that_is_deleted_takes_no_further_consumer(server: ContractServer) -> None:
    claim = await new_claim(server, finalizers=["resource.kubernetes.io/delete-protection"])
    claim = (await put_status(server, allocated(claim, "a"))).body
    claim = (await server.ask("DELETE", server.claims("claim"))).body
    assert (await put_status(server, allocated(claim, "a", "b"))).invalid_fields == {"status.reservedFor"}
    assert (await put_status(server, {**claim, "status": {}})).code == 200


async def test_fields_that_the_server_does_not_know_are_dropped_in_silence(server: ContractServer) -> None:
    answer = await put_status(
        server, allocated(await new_claim(server), "a", compatibilityGroups={"set": ["a"]}, nonsense="x")
    )
    assert answer.code == 200
    assert answer.body["status"]["allocation"]["devices"]["results"] == [result()]


async def test_driver_reports_on_allocated_devices_alone(server: ContractServer) -> None:
    claim = (await put_status(server, allocated(await new_claim(server), "a"))).body
    entry = {"driver": "gpu.example.com", "pool": "pool", "device": "gpu-0"}
    claim["status"]["devices"] = [{**entry, "device": "gpu-1"}]
    assert (await put_status(server, claim)).invalid_fields == {"status.devices[0]"}
    claim["status"]["devices"] = [entry]
    reported = await put_status(server, claim)
    assert reported.body["status"]["devices"] == [{**entry, "conditions": None}]
    freed = await put_status(server, {**reported.body, "status": {"devices": [entry]}})
    assert (freed.code, freed.body.get("status", {})) == (200, {})


async def test_spec_of_a_claim_does_not_change(server: ContractServer) -> None:
    claim = await new_claim(server)
    claim["spec"]["devices"]["requests"][0]["exactly"]["count"] = 2
    answer = await server.ask("PUT", server.claims("claim"), claim)
    assert answer.invalid_fields == {"spec"}


async def test_writers_of_a_claim_are_known_by_their_field_managers(server: ContractServer) -> None:
    await new_claim(server)
    finalizer = {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}}
    answer = await server.ask("PATCH", server.claims("claim"), finalizer, media=MERGE, fieldManager="us")
    body = allocated(answer.body, "a")
    answer = await server.ask("PUT", server.claims("claim", "status"), body, fieldManager="us")
    body = allocated(answer.body, "a", "b")
    answer = await server.ask("PUT", server.claims("claim", "status"), body, fieldManager="other")
    owned: dict[str, list[Object]] = {}
    for entry in answer.body["metadata"]["managedFields"]:
        owned.setdefault(entry["manager"], []).append(entry["fieldsV1"])
    ours = owned["us"]
    assert any("f:allocation" in fields.get("f:status", {}) for fields in ours)
    assert any("f:finalizers" in fields.get("f:metadata", {}) for fields in ours)
    reserved = [fields["f:status"]["f:reservedFor"] for fields in owned["other"] if "f:status" in fields]
    assert [[key for key in each if key.startswith("k:")] for each in reserved] == [['k:{"uid":"b"}']]


async def test_reservations_are_patched_by_uid(server: ContractServer) -> None:
    """As kube-scheduler takes back a reservation."""
    claim = (await put_status(server, allocated(await new_claim(server), "a", "b"))).body
    change = {
        "metadata": {"uid": claim["metadata"]["uid"]},
        "status": {"reservedFor": [{"$patch": "delete", "uid": "a"}]},
    }
    answer = await server.ask("PATCH", server.claims("claim", "status"), change, media=STRATEGIC)
    assert [each["uid"] for each in answer.body["status"]["reservedFor"]] == ["b"]


async def test_service_changes_claims_beside_what_drivers_say(server: ContractServer) -> None:
    """It writes them in the protobuf form, in which what it does not edit stays the same."""
    claim = (await put_status(server, allocated(await new_claim(server), "a"))).body
    reported = {"driver": "gpu.example.com", "pool": "pool", "device": "gpu-0", "data": {"note": "a < b"}}
    claim["status"]["devices"] = [reported]
    claim = (await put_status(server, claim)).body
    transport = ApiTransport(server.settings, SystemClock(), Observer())
    transport.connect(await find_credentials(server.settings, SystemClock()))
    claims = KubeClaims(transport, server.settings)
    try:
        wanted = allocated(claim, "a", "b")
        wanted["status"]["devices"] = claim["status"]["devices"]
        written = await claims.update_status(server.namespace, "claim", msgspec.json.encode(wanted))
        status = msgspec.json.decode(written)["status"]
        assert [consumer["uid"] for consumer in status["reservedFor"]] == ["a", "b"]
        assert status["devices"] == [{**reported, "conditions": None}]
        assert status["allocation"] == claim["status"]["allocation"]
        with pytest.raises(ConflictError):
            await claims.update_status(server.namespace, "claim", msgspec.json.encode(wanted))
    finally:
        await transport.close()


async def new_pod(server: ContractServer, name: str = "pod", **spec: Any) -> Object:
    made = await server.ask("POST", server.pods(), objects.pod(name, server.namespace, **spec))
    assert made.code == 201, made
    body: Object = made.body
    return body


async def bind(server: ContractServer, name: str, uid: str = "") -> Answer:
    body = objects.binding(name, server.namespace, "node")
    if uid:
        body["metadata"]["uid"] = uid
    return await server.ask("POST", server.pods(name, "binding"), body)


async def test_pod_is_bound_once(server: ContractServer) -> None:
    pod = await new_pod(server)
    await server.ask("PATCH", server.pods("pod", "status"), {"status": {"nominatedNodeName": "other"}}, media=MERGE)
    answer = await bind(server, "pod", pod["metadata"]["uid"])
    assert (answer.code, answer.body["status"]) == (201, "Success")
    bound = (await server.ask("GET", server.pods("pod"))).body
    assert bound["spec"]["nodeName"] == "node"
    assert "nominatedNodeName" not in bound["status"]
    assert {each["type"]: each["status"] for each in bound["status"]["conditions"]}["PodScheduled"] == "True"
    again = await bind(server, "pod", pod["metadata"]["uid"])
    assert again.refusal == (409, "Conflict")
    assert 'already assigned to node "node"' in again.body["message"]


async def test_binding_that_is_not_possible_is_a_conflict(server: ContractServer) -> None:
    await new_pod(server)
    await new_pod(server, "gated", schedulingGates=[{"name": "example.com/gate"}])
    finalized = objects.pod("going", server.namespace)
    finalized["metadata"]["finalizers"] = ["example.com/a"]
    await server.ask("POST", server.pods(), finalized)
    await server.ask("DELETE", server.pods("going"))
    for name, uid, said in (
        ("pod", "another", "another"),
        ("gated", "", "schedulingGates"),
        ("going", "", "being deleted"),
    ):
        answer = await bind(server, name, uid)
        assert answer.refusal == (409, "Conflict"), name
        assert said in answer.body["message"]
    assert (await bind(server, "none")).refusal == (404, "NotFound")


async def test_spec_of_a_pod_does_not_change(server: ContractServer) -> None:
    pod = await new_pod(server)
    pod["spec"]["schedulerName"] = "other"
    answer = await server.ask("PUT", server.pods("pod"), pod)
    assert answer.invalid_fields == {"spec"}


async def test_nomination_is_set_and_removed_for_the_pod_that_is_meant(server: ContractServer) -> None:
    uid = (await new_pod(server))["metadata"]["uid"]

    async def nominate(node: str | None, uid: str) -> Answer:
        change = {"metadata": {"uid": uid}, "status": {"nominatedNodeName": node}}
        return await server.ask("PATCH", server.pods("pod", "status"), change, media=MERGE)

    assert (await nominate("node", uid)).body["status"]["nominatedNodeName"] == "node"
    assert (await nominate("other", "another")).invalid_fields == {"metadata.uid"}
    assert "nominatedNodeName" not in (await nominate(None, uid)).body["status"]


async def test_pod_is_told_of_its_extended_resource_claim(server: ContractServer) -> None:
    await new_pod(server, extended={"example.com/gpu": "1"})
    mapping = {"containerName": "main", "resourceName": "example.com/gpu", "requestName": "container-0-request-0"}
    told = {"resourceClaimName": "claim", "requestMappings": [mapping]}
    change = {"status": {"extendedResourceClaimStatus": told}}
    answer = await server.ask("PATCH", server.pods("pod", "status"), change, media=MERGE)
    assert answer.body["status"]["extendedResourceClaimStatus"] == told


async def test_slice_has_counters_or_devices_and_keeps_its_place(server: ContractServer) -> None:
    name = server.namespace
    counters = [objects.counter_set("set", memory="1Gi")]
    both = objects.resource_slice(name, node="node", counter_sets=counters, devices=[objects.device("gpu-0")])
    assert "spec" in (await server.ask("POST", SLICES, both)).invalid_fields
    devices = objects.resource_slice(name, node="node", devices=[objects.device("gpu-0")])
    made = (await server.ask("POST", SLICES, devices)).body
    assert made["metadata"]["generation"] == 1
    made["spec"]["pool"]["generation"] = 2
    updated = await server.ask("PUT", f"{SLICES}/{name}", made)
    assert updated.body["metadata"]["generation"] == 2
    moved = {**updated.body, "spec": {**updated.body["spec"], "nodeName": "other"}}
    assert (await server.ask("PUT", f"{SLICES}/{name}", moved)).invalid_fields == {"spec.nodeName"}
    assert (await server.ask("GET", SLICES, fieldSelector="spec.nodeName=node")).names == [name]
    await server.ask("DELETE", f"{SLICES}/{name}")


async def test_compatibility_groups_of_a_slice_are_kept(server: ContractServer) -> None:
    name = server.namespace
    consumed = objects.consumption("set", groups=["a"], memory="1Gi")
    devices = objects.resource_slice(name, node="node", devices=[objects.device("gpu-0", consumes=[consumed])])
    made = await server.ask("POST", SLICES, devices)
    assert made.body["spec"]["devices"][0]["consumesCounters"] == [consumed]
    await server.ask("DELETE", f"{SLICES}/{name}")


async def test_pod_group_is_protected_and_remembers_claims(server: ContractServer) -> None:
    group = objects.pod_group("group", server.namespace, min_count=2, templates={"a": "template"})
    made = await server.ask("POST", server.path(*GROUPS), group)
    assert made.code == 201, made
    assert made.body["metadata"]["finalizers"] == ["scheduling.k8s.io/podgroup-protection"]
    change = {
        "metadata": {"uid": made.body["metadata"]["uid"], "resourceVersion": made.body["metadata"]["resourceVersion"]},
        "status": {"resourceClaimStatuses": [{"name": "a", "resourceClaimName": "made"}]},
    }
    path = server.path(*GROUPS, "group", "status")
    answer = await server.ask("PATCH", path, change, media=STRATEGIC)
    assert answer.body["status"]["resourceClaimStatuses"] == [{"name": "a", "resourceClaimName": "made"}]
    late = await server.ask("PATCH", path, change, media=STRATEGIC)
    assert late.refusal == (409, "Conflict")
    other = {**answer.body, "spec": {**answer.body["spec"], "resourceClaims": []}}
    refused = await server.ask("PUT", server.path(*GROUPS, "group"), other)
    assert {field.partition("[")[0] for field in refused.invalid_fields} == {"spec.resourceClaims"}
