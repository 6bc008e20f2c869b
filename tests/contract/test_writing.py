"""Creating, replacing, patching and deleting, whatever the kind."""

from typing import Any

import pytest

from tests.contract.contract_server import APPLY, MERGE, STRATEGIC, Answer, ContractServer, Object
from tests.controlplane import objects

pytestmark = pytest.mark.asyncio(loop_scope="module")

LEASES = ("coordination.k8s.io/v1", "leases")
SLICES = ("discovery.k8s.io/v1", "endpointslices")


def claim_of(server: ContractServer, name: str = "claim", **metadata: Any) -> Object:
    claim = objects.resource_claim(name, server.namespace, objects.request("gpu", "gpu"))
    return {**claim, "metadata": {**claim["metadata"], **metadata}}


async def new_claim(server: ContractServer, name: str = "claim", **metadata: Any) -> Object:
    made = await server.ask("POST", server.claims(), claim_of(server, name, **metadata))
    assert made.code == 201, made
    body: Object = made.body
    return body


def changed(thing: Object, **metadata: Any) -> Object:
    return {**thing, "metadata": {**thing["metadata"], **metadata}}


def version_of(thing: Object) -> str:
    version: str = thing["metadata"]["resourceVersion"]
    return version


async def test_create_fills_in_who_and_when_and_answers_with_what_is_stored(server: ContractServer) -> None:
    made = await server.ask("POST", server.claims(), claim_of(server, uid="mine"))
    assert made.code == 201
    metadata = made.body["metadata"]
    assert metadata["uid"] != "mine"
    assert metadata["creationTimestamp"].endswith("Z")
    assert made.body["spec"]["devices"]["requests"][0]["exactly"]["allocationMode"] == "ExactCount"
    assert (await server.ask("GET", server.claims("claim"))).body == made.body
    again = await server.ask("POST", server.claims(), claim_of(server))
    assert again.refusal == (409, "AlreadyExists")
    assert '"claim" already exists' in again.body["message"]


async def test_a_claim_without_a_spec_is_stored(server: ContractServer) -> None:
    claim = claim_of(server)
    del claim["spec"]
    assert (await server.ask("POST", server.claims(), claim)).code == 201


async def test_create_makes_a_name_of_generate_name(server: ContractServer) -> None:
    claim = claim_of(server)
    del claim["metadata"]["name"]
    names = set()
    for _ in range(3):
        made = await server.ask("POST", server.claims(), {**claim, "metadata": {"generateName": "made-"}})
        names.add(made.body["metadata"]["name"])
    assert len(names) == 3
    assert all(name.startswith("made-") and len(name) == len("made-") + 5 for name in names)


async def test_create_leaves_the_status_out(server: ContractServer) -> None:
    status = {"reservedFor": [{"resource": "pods", "name": "x", "uid": "u"}]}
    made = await server.ask("POST", server.claims(), {**claim_of(server), "status": status})
    assert not made.body.get("status")
    pod = objects.pod("pod", server.namespace)
    made = await server.ask("POST", server.pods(), {**pod, "status": {"phase": "Running"}})
    assert made.body["status"]["phase"] == "Pending"


async def test_create_needs_the_namespace_and_kind_of_the_path(server: ContractServer) -> None:
    other = {**claim_of(server), "kind": "Pod"}
    assert (await server.ask("POST", server.claims(), other)).refusal == (400, "BadRequest")
    elsewhere = claim_of(server, namespace="elsewhere")
    assert (await server.ask("POST", server.claims(), elsewhere)).refusal == (400, "BadRequest")
    path = "/apis/resource.k8s.io/v1/namespaces/none/resourceclaims"
    assert (await server.ask("POST", path, claim_of(server, namespace="none"))).refusal == (404, "NotFound")
    assert (await server.ask("POST", server.claims(), b"{")).refusal == (400, "BadRequest")
    nameless = {**claim_of(server), "metadata": {}}
    assert (await server.ask("POST", server.claims(), nameless)).invalid_fields == {"metadata.name"}


async def test_object_that_is_not_there_is_not_found(server: ContractServer) -> None:
    for method, body in (("GET", None), ("PUT", claim_of(server, "none")), ("PATCH", {}), ("DELETE", None)):
        answer = await server.ask(
            method, server.claims("none"), body, media=MERGE if method == "PATCH" else "application/json"
        )
        assert answer.refusal == (404, "NotFound"), method
        assert '"none" not found' in answer.body["message"]


async def test_update_of_another_version_is_a_conflict(server: ContractServer) -> None:
    first = await new_claim(server)
    second = await server.ask("PUT", server.claims("claim"), changed(first, annotations={"x": "1"}))
    assert (second.code, second.body["metadata"]["annotations"]) == (200, {"x": "1"})
    assert second.version > int(version_of(first))
    late = await server.ask("PUT", server.claims("claim"), changed(first, annotations={"x": "2"}))
    assert late.refusal == (409, "Conflict")
    assert "the object has been modified" in late.body["message"]
    anyway = await server.ask("PUT", server.claims("claim"), changed(first, resourceVersion="", annotations={"x": "3"}))
    assert anyway.body["metadata"]["annotations"] == {"x": "3"}


async def test_update_of_another_uid_is_a_conflict(server: ContractServer) -> None:
    claim = await new_claim(server)
    answer = await server.ask("PUT", server.claims("claim"), changed(claim, uid="another", annotations={"x": "1"}))
    assert answer.refusal == (409, "Conflict")


async def test_update_leaves_the_status_alone_and_that_of_the_status_the_rest(server: ContractServer) -> None:
    pod = (await server.ask("POST", server.pods(), objects.pod("pod", server.namespace))).body
    pod["status"]["nominatedNodeName"] = "node"
    updated = await server.ask("PUT", server.pods("pod"), changed(pod, annotations={"x": "1"}))
    assert updated.body["metadata"]["annotations"] == {"x": "1"}
    assert "nominatedNodeName" not in updated.body["status"]
    pod = updated.body
    pod["status"]["nominatedNodeName"] = "node"
    pod["spec"]["schedulingGates"] = [{"name": "example.com/gate"}]
    updated = await server.ask("PUT", server.pods("pod", "status"), pod)
    assert updated.body["status"]["nominatedNodeName"] == "node"
    assert "schedulingGates" not in updated.body["spec"]


async def test_merge_patch_replaces_lists_and_removes_with_null(server: ContractServer) -> None:
    await new_claim(server, annotations={"a": "1", "b": "1"}, finalizers=["example.com/a"])
    change = {"metadata": {"annotations": {"a": None, "c": "1"}, "finalizers": ["example.com/b"]}}
    answer = await server.ask("PATCH", server.claims("claim"), change, media=MERGE)
    assert answer.code == 200
    assert answer.body["metadata"]["annotations"] == {"b": "1", "c": "1"}
    assert answer.body["metadata"]["finalizers"] == ["example.com/b"]


async def test_patch_of_another_version_is_a_conflict_and_of_another_uid_invalid(server: ContractServer) -> None:
    claim = await new_claim(server)
    old = version_of(claim)
    change = {"metadata": {"uid": "another", "annotations": {"x": "1"}}}
    answer = await server.ask("PATCH", server.claims("claim"), change, media=MERGE)
    assert answer.invalid_fields == {"metadata.uid"}
    change = {"metadata": {"resourceVersion": old, "annotations": {"x": "1"}}}
    assert (await server.ask("PATCH", server.claims("claim"), change, media=MERGE)).code == 200
    change = {"metadata": {"resourceVersion": old, "uid": "another", "annotations": {"x": "2"}}}
    answer = await server.ask("PATCH", server.claims("claim"), change, media=MERGE)
    assert answer.refusal == (409, "Conflict")


async def test_strategic_merge_patch_merges_lists_by_their_keys(server: ContractServer) -> None:
    await server.ask("POST", server.pods(), objects.pod("pod", server.namespace, claims={"a": "x", "b": "y"}))

    async def patch(**status: Any) -> Answer:
        return await server.ask("PATCH", server.pods("pod", "status"), {"status": status}, media=STRATEGIC)

    await patch(resourceClaimStatuses=[{"name": "a", "resourceClaimName": "first"}])
    await patch(resourceClaimStatuses=[{"name": "b", "resourceClaimName": "second"}])
    await patch(conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}])
    answer = await patch(conditions=[{"type": "PodScheduled", "status": "True"}, {"type": "Other", "status": "True"}])
    claims = answer.body["status"]["resourceClaimStatuses"]
    assert sorted(claims, key=lambda each: str(each["name"])) == [
        {"name": "a", "resourceClaimName": "first"},
        {"name": "b", "resourceClaimName": "second"},
    ]
    conditions = {each["type"]: (each["status"], each.get("reason")) for each in answer.body["status"]["conditions"]}
    assert conditions == {"PodScheduled": ("True", "Unschedulable"), "Other": ("True", None)}


def endpoint_slice(server: ContractServer, address: str, **labels: str) -> Object:
    """What the leader applies."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"namespace": server.namespace, "name": "slice", "labels": labels},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": [{"name": "verbs", "port": 8080, "protocol": "TCP"}],
    }


async def test_apply_creates_then_changes_and_takes_back_what_it_no_longer_lists(server: ContractServer) -> None:
    async def apply(thing: Object, manager: str = "me") -> Answer:
        return await server.ask(
            "PATCH", server.path(*SLICES, "slice"), thing, media=APPLY, fieldManager=manager, force="true"
        )

    made = await apply(endpoint_slice(server, "192.0.2.1", x="1", y="1"))
    assert made.code == 201
    again = await apply(endpoint_slice(server, "192.0.2.1", x="1", y="1"))
    assert (again.code, again.version) == (200, made.version)
    await server.ask("PATCH", server.path(*SLICES, "slice"), {"metadata": {"labels": {"z": "1"}}}, media=MERGE)
    moved = await apply(endpoint_slice(server, "192.0.2.2", x="1"))
    assert moved.body["endpoints"] == [{"addresses": ["192.0.2.2"], "conditions": {"ready": True}}]
    assert moved.body["metadata"]["labels"] == {"x": "1", "z": "1"}
    other = await apply(endpoint_slice(server, "192.0.2.3"), "other")
    assert other.body["endpoints"][0]["addresses"] == ["192.0.2.3"]
    wrong = await apply(endpoint_slice(server, "nowhere"))
    assert wrong.invalid_fields == {"endpoints[0].addresses[0]"}


async def test_apply_to_a_status_keeps_entries_of_others(server: ContractServer) -> None:
    """As the controller does that makes claims from templates."""
    await server.ask("POST", server.pods(), objects.pod("pod", server.namespace, claims={"a": "x", "b": "y"}))
    entry = {"name": "a", "resourceClaimName": "first"}
    await server.ask(
        "PATCH", server.pods("pod", "status"), {"status": {"resourceClaimStatuses": [entry]}}, media=STRATEGIC
    )
    applied = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod", "namespace": server.namespace},
        "status": {"resourceClaimStatuses": [{"name": "b", "resourceClaimName": "second"}]},
    }
    path = server.pods("pod", "status")
    answer = await server.ask("PATCH", path, applied, media=APPLY, fieldManager="controller", force="true")
    names = {each["name"]: each["resourceClaimName"] for each in answer.body["status"]["resourceClaimStatuses"]}
    assert names == {"a": "first", "b": "second"}


async def test_delete_keeps_to_its_preconditions(server: ContractServer) -> None:
    claim = await new_claim(server)
    uid, version = claim["metadata"]["uid"], version_of(claim)
    for wanted in ({"uid": "another"}, {"uid": uid, "resourceVersion": "1"}):
        refused = await server.ask("DELETE", server.claims("claim"), {"preconditions": wanted})
        assert refused.refusal == (409, "Conflict")
        assert "in the precondition" in refused.body["message"]
    wanted = {"uid": uid, "resourceVersion": version}
    assert (await server.ask("DELETE", server.claims("claim"), {"preconditions": wanted})).code == 200
    assert (await server.ask("GET", server.claims("claim"))).code == 404


async def test_object_with_finalizers_is_marked_and_goes_with_the_last_one(server: ContractServer) -> None:
    claim = await new_claim(server, finalizers=["example.com/a", "example.com/b"])
    marked = await server.ask("DELETE", server.claims("claim"))
    assert marked.code == 200
    assert marked.body["metadata"]["deletionTimestamp"].endswith("Z")
    again = await server.ask("DELETE", server.claims("claim"))
    assert again.version == marked.version
    more = {"metadata": {"finalizers": ["example.com/a", "example.com/b", "example.com/c"]}}
    refused = await server.ask("PATCH", server.claims("claim"), more, media=MERGE)
    assert refused.invalid_fields == {"metadata.finalizers"}
    less = await server.ask(
        "PATCH", server.claims("claim"), {"metadata": {"finalizers": ["example.com/b"]}}, media=MERGE
    )
    assert less.body["metadata"]["finalizers"] == ["example.com/b"]
    await server.ask("PATCH", server.claims("claim"), {"metadata": {"finalizers": None}}, media=MERGE)
    assert (await server.ask("GET", server.claims("claim"))).code == 404
    events = await server.events(server.claims(), count=3, resourceVersion=version_of(claim))
    assert [event["type"] for event in events] == ["MODIFIED", "MODIFIED", "DELETED"]


async def test_pod_with_a_node_is_given_time_and_one_without_goes_at_once(server: ContractServer) -> None:
    for name in ("waiting", "bound", "ended"):
        pod = objects.pod(name, server.namespace)
        pod["spec"]["terminationGracePeriodSeconds"] = 20
        pod["metadata"]["finalizers"] = ["example.com/a"] if name == "bound" else []
        await server.ask("POST", server.pods(), pod)
    for name in ("bound", "ended"):
        binding = objects.binding(name, server.namespace, "node")
        assert (await server.ask("POST", server.pods(name, "binding"), binding)).code == 201
    await server.ask("PATCH", server.pods("ended", "status"), {"status": {"phase": "Succeeded"}}, media=MERGE)
    for name in ("waiting", "bound", "ended"):
        assert (await server.ask("DELETE", server.pods(name))).code == 200
    left = await server.ask("GET", server.pods())
    assert left.names == ["bound"]
    assert left.body["items"][0]["metadata"]["deletionGracePeriodSeconds"] == 20
    finalizers = {"metadata": {"finalizers": None}}
    assert (await server.ask("PATCH", server.pods("bound"), finalizers, media=MERGE)).code == 200
    assert (await server.ask("GET", server.pods())).names == ["bound"]
    assert (await server.ask("DELETE", server.pods("bound"), gracePeriodSeconds="0")).code == 200
    assert (await server.ask("GET", server.pods())).names == []


def lease(server: ContractServer, **spec: Any) -> Object:
    """A Lease as the service writes it."""
    stamp = "2026-01-01T00:00:00.000000Z"
    given = {"holderIdentity": "a", "leaseDurationSeconds": 15, "leaseTransitions": 0, "renewTime": stamp, **spec}
    metadata = {"namespace": server.namespace, "name": "lease"}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": given}


async def test_lease_is_taken_once_and_renewed_by_who_knows_its_version(server: ContractServer) -> None:
    made = await server.ask("POST", server.path(*LEASES), lease(server))
    assert made.code == 201
    other = await server.ask("POST", server.path(*LEASES), lease(server, holderIdentity="b"))
    assert other.refusal == (409, "AlreadyExists")
    stamp = "2026-01-01T00:00:02.000001Z"
    renewed = await server.ask(
        "PUT", server.path(*LEASES, "lease"), {**made.body, "spec": lease(server, renewTime=stamp)["spec"]}
    )
    assert (renewed.code, renewed.body["spec"]["renewTime"]) == (200, stamp)
    late = await server.ask("PUT", server.path(*LEASES, "lease"), {**made.body, "spec": lease(server)["spec"]})
    assert late.refusal == (409, "Conflict")
    unconditional = await server.ask("PUT", server.path(*LEASES, "lease"), lease(server, holderIdentity="b"))
    assert unconditional.invalid_fields == {"metadata.resourceVersion"}
    released = {**renewed.body, "spec": lease(server, holderIdentity="", leaseDurationSeconds=1)["spec"]}
    assert (await server.ask("PUT", server.path(*LEASES, "lease"), released)).code == 200
    wrong = await server.ask("POST", server.path(*LEASES), changed(lease(server, leaseDurationSeconds=0), name="wrong"))
    assert wrong.invalid_fields == {"spec.leaseDurationSeconds"}


async def test_renewal_of_a_lease_that_was_deleted_makes_it_anew_unless_it_names_the_uid(
    server: ContractServer,
) -> None:
    made = await server.ask("POST", server.path(*LEASES), lease(server))
    await server.ask("DELETE", server.path(*LEASES, "lease"))
    late = await server.ask("PUT", server.path(*LEASES, "lease"), made.body)
    assert late.refusal == (409, "Conflict")
    assert (await server.ask("GET", server.path(*LEASES, "lease"))).code == 404
    anew = await server.ask(
        "PUT", server.path(*LEASES, "lease"), changed(lease(server), resourceVersion=version_of(made.body))
    )
    assert anew.code == 201
    assert anew.body["metadata"]["uid"] != made.body["metadata"]["uid"]


def event(server: ContractServer, **fields: Any) -> Object:
    """An Event as the service records it."""
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": server.namespace, "name": "event"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "dra-extender",
        "reportingInstance": "replica",
        "action": "Scheduling",
        "type": "Warning",
        "reason": "NoDevice",
        "note": "no device",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": server.namespace, "name": "pod", "uid": "u"},
        **fields,
    }


async def test_event_is_created_and_counted(server: ContractServer) -> None:
    events = ("events.k8s.io/v1", "events")
    assert (await server.ask("POST", server.path(*events), event(server))).code == 201
    series = {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:05.000000Z"}}
    answer = await server.ask("PATCH", server.path(*events, "event"), series, media=MERGE)
    assert answer.body["series"]["count"] == 2
    long = await server.ask("POST", server.path(*events), event(server, note="x" * 1025))
    assert long.invalid_fields == {"message"}
    for field in ("reportingController", "reportingInstance", "action", "reason"):
        refused = await server.ask("POST", server.path(*events), event(server, **{field: ""}))
        assert field in refused.invalid_fields
    fixed = await server.ask("PATCH", server.path(*events, "event"), {"note": "other"}, media=MERGE)
    assert fixed.invalid_fields == {"message"}
