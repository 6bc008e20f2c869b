"""Secrets with certificates: read, created, and replaced only in the version that was read."""

import base64
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiohttp import web
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.secret_store import SecretStore, StoredSecret
from dra_extender.scheduling.ports.cluster import ConflictError, ServerUnavailableError

from tests.support.kube.fake_api_server import FakeApiServer, status_answer

PATH = "/api/v1/namespaces/ns/secrets"


@pytest_asyncio.fixture
async def store(settings: KubeSettings) -> AsyncIterator[SecretStore]:
    made = SecretStore(settings, "ns")
    await made.connect()
    yield made
    await made.close()


async def test_a_secret_is_read_with_its_version_and_without_what_is_no_base64(
    server: FakeApiServer, store: SecretStore
) -> None:
    body = {"metadata": {"resourceVersion": "7"}, "data": {"a": base64.b64encode(b"\0x").decode(), "b": "?"}}
    server.intervene("GET", f"{PATH}/tls", lambda _: web.json_response(body))
    assert await store.read("tls") == StoredSecret({"resourceVersion": "7"}, "kubernetes.io/tls", {"a": b"\0x"})


async def test_a_secret_that_is_not_there_is_none(server: FakeApiServer, store: SecretStore) -> None:
    server.intervene("GET", f"{PATH}/tls", lambda _: status_answer(404, "NotFound", "no"))
    assert await store.read("tls") is None


async def test_a_secret_that_cannot_be_read_is_no_reason_to_replace_it(
    server: FakeApiServer, store: SecretStore
) -> None:
    server.intervene("GET", f"{PATH}/tls", lambda _: web.json_response({"data": 7}))
    with pytest.raises(ServerUnavailableError, match="Secret tls cannot be read"):
        await store.read("tls")


async def test_a_secret_is_created_or_its_data_replaced_in_the_version_that_was_read(
    server: FakeApiServer, store: SecretStore
) -> None:
    server.intervene("POST", PATH, lambda _: web.json_response({}, status=201))
    await store.write("tls", {"a": b"1"}, None)
    server.intervene("PUT", f"{PATH}/tls", lambda _: status_answer(409, "Conflict", "another version"))
    before = StoredSecret({"resourceVersion": "7", "labels": {"team": "a"}}, "Opaque", {})
    with pytest.raises(ConflictError):
        await store.write("tls", {"a": b"2"}, before)
    created, replaced = (json.loads(each.body) for each in server.seen)
    assert created["type"] == "kubernetes.io/tls"
    assert created["data"] == {"a": base64.b64encode(b"1").decode()}
    assert created["metadata"] == {"namespace": "ns", "name": "tls"}
    assert replaced["metadata"] == {"namespace": "ns", "name": "tls", "resourceVersion": "7", "labels": {"team": "a"}}
    assert replaced["type"] == "Opaque"
