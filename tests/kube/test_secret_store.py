"""Secrets with certificates: read, created, and replaced only in the version that was read."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.secret_store import SecretStore, StoredSecret
from dra_extender.scheduling.ports.cluster import ConflictError, ServerUnavailableError
from dra_extender.simulator.apiserver.objects import Key, StoredKind

from tests.simulation.api_server import ApiServer, Fault
from tests.simulation.faults import Faults


@pytest_asyncio.fixture
async def store(settings: KubeSettings) -> AsyncIterator[SecretStore]:
    made = SecretStore(settings, "space")
    await made.connect()
    yield made
    await made.close()


async def test_a_secret_is_read_with_its_version_and_without_what_is_no_base64(
    faults: Faults, store: SecretStore
) -> None:
    body = b'{"metadata":{"resourceVersion":"7"},"data":{"a":"AHg=","b":"?"}}'
    faults.plan("get", "secrets", Fault(answer=(200, body)))
    assert await store.read("tls") == StoredSecret({"resourceVersion": "7"}, "kubernetes.io/tls", {"a": b"\0x"})


async def test_a_secret_that_is_not_there_is_none(store: SecretStore) -> None:
    assert await store.read("tls") is None


async def test_a_secret_that_cannot_be_read_is_no_reason_to_replace_it(faults: Faults, store: SecretStore) -> None:
    faults.plan("get", "secrets", Fault(answer=(200, b'{"data": 7}')))
    with pytest.raises(ServerUnavailableError, match="Secret tls cannot be read"):
        await store.read("tls")


async def test_a_secret_is_created_or_its_data_replaced_in_the_version_that_was_read(
    server: ApiServer, store: SecretStore
) -> None:
    await store.write("tls", {"a": b"1"}, None)
    key = Key(StoredKind.SECRET, "space", "tls")
    created = server.store.get(key)
    assert (created["type"], created["data"]) == ("kubernetes.io/tls", {"a": "MQ=="})
    server.store.replace(key, lambda secret: secret.update(type="Opaque"))
    before = await store.read("tls")
    assert before is not None
    await store.write("tls", {"a": b"2"}, before)
    with pytest.raises(ConflictError):
        await store.write("tls", {"a": b"3"}, before)
    replaced = server.store.get(key)
    assert (replaced["type"], replaced["data"]) == ("Opaque", {"a": "Mg=="})
    assert replaced["metadata"]["uid"] == created["metadata"]["uid"]
