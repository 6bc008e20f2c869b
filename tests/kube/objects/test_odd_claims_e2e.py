"""Claims that a user may store on a real API server, and that the decoder does not get through, are followed like all others."""

import asyncio

import pytest
from dra_extender.kube.client.credentials import find_credentials
from dra_extender.kube.client.errors import ApiCallError, RequestIntent
from dra_extender.kube.client.objects import WATCHED
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiCall, ApiTransport
from dra_extender.kube.cluster import KubeCluster
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.sinks import sinks_of
from dra_extender.runtime.clock import SystemClock

from tests.controlplane.cluster import ControlPlane
from tests.support.kube.recording import CountingObserver
from tests.support.turns import until

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

PATH = WATCHED["resourceclaims"].path("default")
HALF = rb'"\ud800"'


def nested(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


def lists(depth: int) -> bytes:
    return b'{"a":' + b"[" * depth + b"]" * depth + b"}"


def body(name: str, parameters: bytes) -> bytes:
    return (
        b'{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"name":"%b"},"spec":{"devices":{"requests":['
        b'{"name":"r","exactly":{"deviceClassName":"gpu"}}],"config":[{"opaque":{"driver":"d.example.com","parameters":%b}}]}}}'
    ) % (name.encode(), parameters)


async def test_the_deepest_and_oddest_claims_that_the_server_admits_are_followed_and_listed_anew(
    cluster: ControlPlane,
) -> None:
    settings = KubeSettings(kubeconfig=cluster.admin_kubeconfig)
    transport = ApiTransport(settings, SystemClock(), CountingObserver())
    transport.connect(await find_credentials(settings, SystemClock()))

    async def create(name: str, parameters: bytes) -> str | None:
        call = ApiCall(
            RequestIntent("create", "resourceclaims"), "POST", PATH, 30.0, body=body(name, parameters), query={}
        )
        try:
            await transport.send(call)
        except ApiCallError as refused:
            return str(refused)
        return None

    ledger, observer = Ledger(), CountingObserver()
    service = KubeCluster(settings, observer=observer)
    try:
        await service.start({"resourceclaims": sinks_of(ledger)["resourceclaims"]})
        await service.wait_synced()
        # An API server that starts may refuse the first list of a kind.
        failed = observer.of("watch_failed")
        admitted: dict[str, bytes] = {}
        for name, parameters in {
            "half": b'{"a":' + HALF + b"}",
            **{f"objects-{depth}": nested(depth) for depth in (500, 1_000, 1_700)},
            **{f"lists-{depth}": lists(depth) for depth in (1_000, 4_000, 5_000, 5_110)},
            "plain": b'{"a":1}',
        }.items():
            assert await create(name, parameters) is None
            admitted[name] = parameters
        await until(lambda: len(ledger.claims) == len(admitted))
        for name, parameters in admitted.items():
            record = ledger.claims.by_key("default", name)
            assert record is not None
            config = record.spec.devices.config[0].opaque
            assert config is not None
            assert bytes(config.parameters) == parameters
        assert (observer.of("unreadable"), observer.of("watch_failed")) == ([], failed)
        assert not any(service.health().values())
    finally:
        await service.stop()

    again, observer = Ledger(), CountingObserver()
    service = KubeCluster(settings, observer=observer)
    try:
        await service.start({"resourceclaims": sinks_of(again)["resourceclaims"]})
        async with asyncio.timeout(120):
            await service.wait_synced()
        assert len(again.claims) == len(admitted)
        assert (observer.of("unreadable"), observer.of("watch_failed")) == ([], [])
    finally:
        await service.stop()
        await transport.close()
        # Python's json, with which the next module would list them, does not get through either.
        await cluster.api.raw("DELETE", PATH)
