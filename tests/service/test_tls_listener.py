"""The verbs over TLS: who may call, and what a caller without a certificate can do to the others."""

import asyncio
import inspect
import json
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import load_pem_x509_certificates
from dra_extender.config.service_settings import TlsSettings
from dra_extender.service import server as listeners
from dra_extender.service.certificates import chain_to_send, server_context
from dra_extender.service.connection_limits import PROBES
from dra_extender.service.server import HANDSHAKE_BYTES

from tests.support.api.serving import HEAD, PROBE
from tests.support.api.tls import SCHEDULER, Issuer, TlsServer, authority, caller, issuer, serve_tls
from tests.support.turns import until_async

FILTER = json.dumps({"Pod": {}, "NodeNames": ["a"]}).encode()
CALL = HEAD % len(FILTER) + FILTER


LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=LOOPS)
def loop_factory(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    return LOOPS[request.param]


def on_both_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The service runs on uvloop where that is installed, and each has its own TLS."""

    def run(loop_factory: Callable[[], asyncio.AbstractEventLoop], **given: object) -> None:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(test(**given))

    loop, _ = inspect.signature(run).parameters.values()
    run.__signature__ = inspect.Signature([loop, *inspect.signature(test).parameters.values()])  # type: ignore[attr-defined]
    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@pytest.fixture
def ours(tmp_path: Path) -> Issuer:
    return issuer(tmp_path / "ours")


def settings(ours: Issuer, **others: object) -> TlsSettings:
    certificate, key = ours.server()
    given = {"cert_file": certificate, "private_key_file": key, "client_ca_file": ours.bundle()}
    return TlsSettings.model_validate({**given, **others})


async def called(server: TlsServer, context: ssl.SSLContext) -> tuple[int, bytes]:
    """The answer to a filter call on a new connection."""
    peer = await server.tls_peer(context)
    await peer.send(CALL)
    answer = await peer.answer()
    peer.close()
    return answer


@on_both_loops
async def test_a_caller_without_a_certificate_gets_no_connection(ours: Issuer) -> None:
    async with serve_tls(settings(ours)) as server:
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await called(server, caller(ours.bundle()))
        assert server.site.verbs.filtered == []
        await until_failed(server, 1)


@on_both_loops
async def test_a_caller_with_a_certificate_of_another_authority_gets_no_connection(
    ours: Issuer, tmp_path: Path
) -> None:
    stranger = issuer(tmp_path / "stranger")
    async with serve_tls(settings(ours)) as server:
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await called(server, caller(ours.bundle(), stranger.client()))
        assert server.site.verbs.filtered == []


@on_both_loops
async def test_the_certificate_of_a_server_is_none_for_a_client(ours: Issuer) -> None:
    async with serve_tls(settings(ours)) as server:
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await called(server, caller(ours.bundle(), ours.server(SCHEDULER)))


@on_both_loops
async def test_a_caller_with_another_name_is_told_so(ours: Issuer) -> None:
    async with serve_tls(settings(ours)) as server:
        status, body = await called(server, caller(ours.bundle(), ours.client("somebody")))
        assert status == 403
        assert json.loads(body)["Error"] == (
            f"the client certificate is that of 'somebody'; expected one of {SCHEDULER} (setting tls.allowed_names)"
        )
        assert server.site.verbs.filtered == []
        assert await server.metric("closed_connections_total", reason="forbidden") == 1


@on_both_loops
async def test_without_allowed_names_every_certificate_of_the_authority_is_good(ours: Issuer) -> None:
    async with serve_tls(settings(ours, allowed_names=())) as server:
        assert (await called(server, caller(ours.bundle(), ours.client("somebody"))))[0] == 200


@pytest.mark.parametrize("latest", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
@on_both_loops
async def test_versions_before_tls_1_2_are_refused(ours: Issuer, latest: ssl.TLSVersion) -> None:
    async with serve_tls(settings(ours)) as server:
        context = caller(ours.bundle(), ours.client())
        with pytest.warns(DeprecationWarning, match="deprecated"):
            context.minimum_version = ssl.TLSVersion.TLSv1
        with pytest.warns(DeprecationWarning, match="deprecated"):
            context.maximum_version = latest
        context.set_ciphers("DEFAULT:@SECLEVEL=0")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await server.tls_peer(context)


@on_both_loops
async def test_plain_http_gets_no_answer(ours: Issuer) -> None:
    async with serve_tls(settings(ours)) as server:
        peer = await server.peer()
        await peer.send(CALL)
        assert not (await peer.rest()).startswith(b"HTTP")
        assert server.site.verbs.filtered == []


@pytest.mark.real_time(reason="uvloop has no clock that a test could move")
@on_both_loops
async def test_a_handshake_that_is_not_made_in_time_ends(ours: Issuer) -> None:
    async with serve_tls(settings(ours), receive_seconds=1) as server:
        peer = await server.peer()
        assert await peer.rest() == b""
        await until_failed(server, 1)
        assert len(server.connections) == 0


@on_both_loops
async def test_callers_that_never_begin_a_handshake_lose_their_connections_to_others(ours: Issuer) -> None:
    async with serve_tls(settings(ours), connections=16) as server:
        for _ in range(60):
            await server.peer()

        async def answered() -> bool:
            return (await called(server, caller(ours.bundle(), ours.client())))[0] == 200

        await until_async(answered)
        assert len(server.connections) <= 16 + PROBES


@on_both_loops
async def test_a_caller_whose_handshakes_fail_again_and_again_waits_and_others_do_not(
    ours: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The waits are of one address; the flood comes from another one than the good call."""
    burst = 50
    monkeypatch.setattr(listeners, "UNPROVEN_BURST", float(burst))
    async with serve_tls(settings(ours), connections=4096) as server:

        async def fail() -> None:
            peer = await server.peer("127.0.0.2")
            await peer.send(b"no handshake at all\r\n\r\n")
            await peer.rest(60)

        tasks = [asyncio.create_task(fail()) for _ in range(burst + 5)]

        async def most_have_failed() -> bool:
            return sum(each.done() for each in tasks) >= burst

        await until_async(most_have_failed)
        assert (await called(server, caller(ours.bundle(), ours.client())))[0] == 200
        await asyncio.gather(*tasks)
        assert await server.metric("tls_handshakes_total", outcome="failed") == len(tasks)


@on_both_loops
async def test_a_caller_without_a_certificate_has_so_many_handshakes_where_none_is_asked_for(
    ours: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those who show one have as many as they like."""
    monkeypatch.setattr(listeners, "UNPROVEN_BURST", 3.0)
    monkeypatch.setattr(listeners, "UNPROVEN_RATE", 0.001)
    context = caller(ours.bundle(), ours.client())
    async with serve_tls(settings(ours)) as server:
        for _ in range(5):
            await server.tls_peer(context)
    async with serve_tls(settings(ours), probes=True) as server:
        for _ in range(3):
            await server.tls_peer(context, "127.0.0.2")
        waiting = asyncio.create_task(server.tls_peer(context, "127.0.0.2"))
        await until_async(lambda: accepted(server, 4))
        await server.tls_peer(context)
        assert not waiting.done()
        assert await server.metric("tls_handshakes_total", outcome="done") == 4
        waiting.cancel()


async def accepted(server: TlsServer, number: int) -> bool:
    return len(server.connections) >= number


@on_both_loops
async def test_handshakes_take_no_more_memory_than_there_is_for_requests(ours: Issuer) -> None:
    """The address with most of them loses some; a caller from another address is answered."""
    room = 20 * HANDSHAKE_BYTES
    async with serve_tls(settings(ours), in_flight_bytes=room, body_limit_bytes=room // 2) as server:
        for _ in range(60):
            await server.peer("127.0.0.2")

        async def bounded() -> bool:
            assert await server.metric("in_flight_bytes") <= room
            return len(server.connections) <= 20

        await until_async(bounded)
        assert (await called(server, caller(ours.bundle(), ours.client())))[0] == 200


@on_both_loops
async def test_renewed_certificates_are_taken_up_without_a_failed_call(ours: Issuer, tmp_path: Path) -> None:
    """A connection of before answers one more call, and asks for a new one; an authority that is gone has no callers then."""
    given = settings(ours)
    client = caller(ours.bundle(), ours.client())
    async with serve_tls(given) as server:
        before = await server.tls_peer(client)
        await before.send(CALL)
        assert (await before.answer())[0] == 200
        successor = issuer(tmp_path / "successor")
        assert given.cert_file is not None
        assert given.client_ca_file is not None
        replace(given, successor)
        server.certificates.check()
        await before.send(CALL)
        head = await before.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert b"connection: close" in head.lower()
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await called(server, client)
        renewed = caller(tmp_path / "successor" / "ca.crt", successor.client())
        assert (await called(server, renewed))[0] == 200


def replace(given: TlsSettings, successor: Issuer) -> None:
    """Put the certificates of another authority into the files."""
    certificate, key = successor.server()
    assert given.cert_file is not None
    assert given.private_key_file is not None
    assert given.client_ca_file is not None
    for target, source in (
        (given.cert_file, certificate),
        (given.private_key_file, key),
        (given.client_ca_file, successor.bundle()),
    ):
        target.write_bytes(source.read_bytes())


@on_both_loops
async def test_a_stop_lets_a_call_end_and_leaves_no_handshake(ours: Issuer) -> None:
    async with serve_tls(settings(ours)) as server:
        idle = await server.peer()
        server.site.verbs.park = True
        peer = await server.tls_peer(caller(ours.bundle(), ours.client()))
        body = json.dumps({"PodName": "p", "PodNamespace": "ns", "PodUID": "u1", "Node": "n1"}).encode()
        await peer.send(
            b"POST /bind HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            % len(body)
            + body
        )
        await server.site.verbs.entered.wait()
        assert server.site.verbs.hung_up is not None
        server.site.verbs.hung_up.set()
        assert await peer.answer() == (200, b'{"Error":""}')
    assert await idle.rest() == b""


@on_both_loops
async def test_many_probes_ahead_are_answered_over_tls_as_without(ours: Issuer) -> None:
    async with serve_tls(settings(ours)) as server:
        peer = await server.tls_peer(caller(ours.bundle(), ours.client()))
        await peer.send(PROBE * 10)
        for _ in range(10):
            assert await peer.answer() == (200, b"ok")


async def until_failed(server: TlsServer, number: int) -> None:
    """Returns when so many handshakes have failed."""

    async def is_counted() -> bool:
        return await server.metric("tls_handshakes_total", outcome="failed") == number

    await until_async(is_counted)


def test_the_issuer_is_sent_behind_a_single_certificate_that_callers_trust_too(ours: Issuer) -> None:
    certificate, _ = ours.server()
    chain = load_pem_x509_certificates(
        chain_to_send(certificate.read_bytes(), ours.bundle(authority("other")).read_bytes())
    )
    assert chain == [
        *load_pem_x509_certificates(certificate.read_bytes()),
        *load_pem_x509_certificates(ours.pair.certificate),
    ]


def test_what_a_file_sends_stays_as_it_is_without_a_known_issuer(ours: Issuer) -> None:
    certificate = ours.server()[0].read_bytes()
    with_chain = certificate + ours.pair.certificate
    other = authority("other").certificate
    namesake = authority("test").certificate
    assert chain_to_send(certificate, b"") == certificate
    assert chain_to_send(certificate, other) == certificate
    assert chain_to_send(certificate, namesake) == certificate
    assert chain_to_send(with_chain, ours.pair.certificate) == with_chain
    assert chain_to_send(b"nothing of this kind", ours.pair.certificate) == b"nothing of this kind"
    assert chain_to_send(certificate, b"nothing of this kind") == certificate


def test_a_handshake_sends_the_issuer_whether_the_file_has_it_or_not(ours: Issuer) -> None:
    certificate, key = ours.server()
    context = server_context(certificate, key, ours.bundle())
    certificate.write_bytes(certificate.read_bytes() + ours.pair.certificate)
    issuers = load_pem_x509_certificates(ours.pair.certificate)
    for each in (context, server_context(certificate, key, ours.bundle())):
        assert first_flight(each).count(issuers[0].public_bytes(Encoding.DER)) == 1


def first_flight(context: ssl.SSLContext) -> bytes:
    """What a server answers to the first message of a caller, with TLS 1.2, in which certificates are readable."""
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust.check_hostname, trust.verify_mode, trust.maximum_version = False, ssl.CERT_NONE, ssl.TLSVersion.TLSv1_2
    to_server, to_caller = ssl.MemoryBIO(), ssl.MemoryBIO()
    for end in (trust.wrap_bio(to_caller, to_server), context.wrap_bio(to_server, to_caller, server_side=True)):
        with pytest.raises(ssl.SSLWantReadError):
            end.do_handshake()
    return to_caller.read()
