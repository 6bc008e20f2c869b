"""Who may do what: rights, reviews, admission, secrets."""

import base64

import pytest

from tests.contract.contract_server import MERGE, ContractServer, Object
from tests.controlplane import objects

pytestmark = pytest.mark.asyncio(loop_scope="module")


def rule(group: str, resource: str, *verbs: str) -> Object:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}


async def new_claim(server: ContractServer) -> Object:
    claim = objects.resource_claim("claim", server.namespace, objects.request("gpu", "gpu"))
    made = await server.ask("POST", server.claims(), claim)
    assert made.code == 201
    body: Object = made.body
    return body


async def test_each_verb_is_a_right_of_its_own(server: ContractServer) -> None:
    claim = await new_claim(server)
    user = server.namespace
    await server.grant(user, [rule("resource.k8s.io", "resourceclaims", "get", "list")])
    assert (await server.ask("GET", server.claims("claim"), user=user)).code == 200
    assert (await server.ask("GET", server.claims(), user=user)).code == 200
    change = {"metadata": {"labels": {"x": "1"}}}
    for verb, answer in (
        ("watch", await server.ask("GET", server.claims(), watch="true", user=user)),
        ("update", await server.ask("PUT", server.claims("claim"), claim, user=user)),
        ("patch", await server.ask("PATCH", server.claims("claim"), change, media=MERGE, user=user)),
        ("delete", await server.ask("DELETE", server.claims("claim"), user=user)),
        ("create", await server.ask("POST", server.claims(), claim, user=user)),
        ("update", await server.ask("PUT", server.claims("claim", "status"), claim, user=user)),
        ("list", await server.ask("GET", "/api/v1/nodes", user=user)),
    ):
        assert answer.refusal == (403, "Forbidden"), verb
        assert f'User "{user}" cannot {verb} resource ' in answer.body["message"]
    assert (await server.ask("GET", "/metrics", user=user)).refusal == (403, "Forbidden")


async def test_allocation_needs_a_right_beside_that_to_the_status(server: ContractServer) -> None:
    claim = await new_claim(server)
    user = server.namespace
    await server.grant(user, [rule("resource.k8s.io", "resourceclaims/status", "update")])
    device = {"driver": "gpu.example.com", "pool": "pool", "device": "gpu-0"}
    status: Object = {"allocation": {"devices": {"results": [{"request": "gpu", **device}]}}}
    refused = await server.ask("PUT", server.claims("claim", "status"), {**claim, "status": status}, user=user)
    assert refused.invalid_fields == {"status.allocation"}
    assert 'resource="resourceclaims/binding", verb="update"' in refused.body["message"]
    claim = (await server.ask("PUT", server.claims("claim", "status"), {**claim, "status": status})).body
    assert (await server.ask("PUT", server.claims("claim", "status"), claim, user=user)).code == 200
    status["devices"] = [device]
    refused = await server.ask("PUT", server.claims("claim", "status"), {**claim, "status": status}, user=user)
    assert refused.invalid_fields == {"status.devices"}
    assert "resourceclaims/driver" in refused.body["message"]


async def test_rights_to_a_named_object_are_for_that_alone(server: ContractServer) -> None:
    await new_claim(server)
    user = server.namespace
    await server.grant(user, [{**rule("resource.k8s.io", "resourceclaims", "get"), "resourceNames": ["claim"]}])
    assert (await server.ask("GET", server.claims("claim"), user=user)).code == 200
    assert (await server.ask("GET", server.claims("other"), user=user)).refusal == (403, "Forbidden")


@pytest.mark.parametrize(("reason", "code"), [("Invalid", 422), ("Forbidden", 403)])
async def test_policy_denies_for_its_reason(server: ContractServer, reason: str, code: int) -> None:
    label = f"{server.namespace[:40]}-{reason.lower()}"
    await server.deny(label, reason)
    claim = objects.resource_claim("claim", server.namespace, objects.request("gpu", "gpu"))
    claim["metadata"]["labels"] = {label: ""}
    refused = await server.ask("POST", server.claims(), claim)
    assert refused.refusal == (code, reason)
    assert f"ValidatingAdmissionPolicy '{label}' with binding '{label}' denied request" in refused.body["message"]
    await new_claim(server)


async def test_reviews_tell_whose_a_token_is_and_what_a_user_may(server: ContractServer) -> None:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "of-nobody"}}
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    answer = await server.ask("POST", path, review)
    assert (answer.code, answer.body["status"].get("authenticated", False)) == (201, False)
    answer = await server.ask("POST", path, {**review, "spec": {"token": server.token}})
    assert answer.body["status"]["authenticated"]
    assert answer.body["status"]["user"]["username"] == "admin"
    user = server.namespace
    rules = [
        rule("resource.k8s.io", "resourceclaims", "get"),
        {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
    ]
    await server.grant(user, rules)
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    for asked, allowed in (("/metrics", True), ("/logs", False)):
        spec = {"user": user, "nonResourceAttributes": {"path": asked, "verb": "get"}}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        answer = await server.ask("POST", path, review)
        assert (answer.code, answer.body["status"]["allowed"]) == (201, allowed)


async def test_secret_is_replaced_by_who_knows_its_version(server: ContractServer) -> None:
    data = {"tls.crt": base64.b64encode(b"a").decode(), "tls.key": base64.b64encode(b"b").decode()}
    secret = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "data": data}
    metadata = {"namespace": server.namespace, "name": "secret"}
    made = await server.ask("POST", server.path("v1", "secrets"), {**secret, "metadata": metadata})
    assert (made.code, made.body["data"]) == (201, data)
    changed = {**made.body, "data": {**data, "more": base64.b64encode(b"c").decode()}}
    assert (await server.ask("PUT", server.path("v1", "secrets", "secret"), changed)).code == 200
    assert (await server.ask("PUT", server.path("v1", "secrets", "secret"), changed)).refusal == (409, "Conflict")
