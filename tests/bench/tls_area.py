"""What TLS costs the service: each bind on a connection of its own, as kube-scheduler makes them when many binds run at once.

Go resumes no TLS session, so that each connection is a whole handshake with both certificates.  Counted is the processor time
of the service, of which that of the same binds over plain HTTP is taken away.
"""

import asyncio
import json
import ssl
from pathlib import Path
from typing import Final

from tests.bench.accounting import processor_seconds
from tests.bench.processes import helper
from tests.bench.rows import BenchError, Row, within
from tests.bench.scale import Scale
from tests.controlplane.ports import free_ports
from tests.support.api.tls import issuer

AREA: Final = "tls"
GOAL_MS: Final = 1.0
_BODY: Final = json.dumps({"PodName": "p", "PodNamespace": "ns", "PodUID": "u", "Node": "n"}).encode()
_CALL: Final = (
    b"POST /bind HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    % len(_BODY)
) + _BODY
_AT_ONCE: Final = 16


async def measure(scale: Scale, workdir: Path) -> list[Row]:
    ours = issuer(workdir / "tls")
    ours.server()
    ours.bundle()
    trust = _trust(*ours.client())
    rounds, plain, secured = [], [], []
    for _ in range(scale.runs):
        plain.append(await _milliseconds(scale.pods, workdir, None, None))
        secured.append(await _milliseconds(scale.pods, workdir, ours.folder, trust))
        rounds.append(secured[-1] - plain[-1])
    details = {"over plain HTTP ms": sum(plain) / len(plain), "over TLS ms": sum(secured) / len(secured)}
    case = f"handshake of {scale.pods} binds, each on a connection of its own"
    return [within(AREA, case, "ms CPU per bind", rounds, GOAL_MS, details=details)]


def _trust(certificate: Path, key: Path) -> ssl.SSLContext:
    """A caller that sends its certificate alone, as Go does: OpenSSL would send an authority that it trusts as well."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(certificate, key)
    return context


async def _milliseconds(binds: int, workdir: Path, folder: Path | None, trust: ssl.SSLContext | None) -> float:
    """Processor time of the service for one bind."""
    (measured,) = free_ports(1)
    arguments = ["--measured", str(measured), *(("--folder", str(folder)) if folder else ())]
    async with helper("tls_server", arguments, workdir, ready="/readyz") as server:
        await asyncio.gather(*(_bind(measured, trust) for _ in range(_AT_ONCE)))
        began = processor_seconds(server.pid)
        todo = iter(range(binds))

        async def caller_of_many() -> None:
            for _ in todo:
                await _bind(measured, trust)

        await asyncio.gather(*(caller_of_many() for _ in range(_AT_ONCE)))
        return 1000.0 * (processor_seconds(server.pid) - began) / binds


async def _bind(port: int, trust: ssl.SSLContext | None) -> None:
    name = "localhost" if trust else None
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname=name)
    writer.write(_CALL)
    answer = await reader.read()
    writer.close()
    if not answer.endswith(b'{"Error":""}'):
        raise BenchError(f"a bind was answered with {answer[:200]!r}")
