"""A scan of the real process: which ports it listens on, and what answers there without credentials."""

import asyncio
import json
import os
import ssl
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from dra_extender.service.server import has_ipv6

from tests.controlplane.ports import free_ports
from tests.support.api.tls import NO_AUTHORITY, caller, issuer

pytestmark = pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="sockets are found in /proc")

SECONDS = 60.0
POD = "127.0.0.2"
"""Stands for the address of the pod: an address of this machine, but not that of the loopback listener."""
PATHS = (
    *("/filter", "/prioritize", "/bind", "/preempt", "/metrics", "/version", "/docs", "/openapi.json", "/redoc"),
    *("/debug/holds", "/debug/decisions", "/", "/healthz", "/livez", "/readyz"),
)


@asynccontextmanager
async def process(folder: Path, environment: Mapping[str, str]) -> AsyncIterator[int]:
    """The service without an API server: it waits for one, and says that it listens on two addresses; yields its process ID."""
    (closed,) = free_ports(1)
    kubeconfig = folder / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{closed}"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    user = {"name": "u", "user": {"token": "t"}}
    kubeconfig.write_text(
        json.dumps({"clusters": [cluster], "contexts": [context], "users": [user], "current-context": "c"})
    )
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dra_extender", "serve", "--kubeconfig", str(kubeconfig)),
        env={**os.environ, **environment},
        stderr=asyncio.subprocess.PIPE,
    )
    assert started.stderr is not None
    try:
        async with asyncio.timeout(SECONDS):
            for _ in range(2):
                while json.loads(await started.stderr.readline())["msg"] != "listening":
                    pass
        yield started.pid
    finally:
        started.kill()
        await started.wait()


def listening(pid: int) -> Iterator[tuple[str, int]]:
    """The addresses, in hexadecimal, and ports on which the process listens."""
    owned = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        try:
            owned.add(str(each.readlink()))
        except OSError:
            continue
    for family in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/{pid}/net/{family}").read_text().splitlines()[1:]:
            fields = line.split()
            if f"socket:[{fields[9]}]" in owned and (fields[3] == "0A" or family.startswith("udp")):
                address, port = fields[1].split(":")
                yield address, int(port, 16)


async def answers(address: str, port: int, *, scheme: str = "http", trust: ssl.SSLContext = NO_AUTHORITY) -> set[str]:
    """The paths that answer with something else than that they do not exist or are not for others; a port may refuse."""
    host = f"[{address}]" if ":" in address else address
    found = set()
    async with httpx.AsyncClient(base_url=f"{scheme}://{host}:{port}", verify=trust, timeout=SECONDS) as client:
        for path in PATHS:
            for method in ("GET", "POST"):
                try:
                    answer = await client.request(method, path, json={} if method == "POST" else None)
                except (httpx.HTTPError, ssl.SSLError):
                    continue
                if answer.status_code not in (403, 404, 405):
                    found.add(path)
    return found


PROBES = {"/livez", "/readyz"}


async def test_beside_a_second_scheduler_the_address_of_the_pod_answers_probes_and_metrics_alone(
    tmp_path: Path,
) -> None:
    verbs, probes = free_ports(2)
    environment = {
        "DRA_EXTENDER_SERVER__PORT": str(verbs),
        "DRA_EXTENDER_PROBES__PORT": str(probes),
    }
    async with process(tmp_path, environment) as pid:
        assert {port for _, port in listening(pid)} == {verbs, probes}
        assert await answers(POD, verbs) == set()
        assert await answers(POD, probes) == {*PROBES, "/metrics"}
        if has_ipv6():
            assert await answers("::1", verbs) == set()
            assert await answers("::1", probes) >= PROBES
        assert {"/filter", "/bind"} <= await answers("127.0.0.1", verbs)


async def test_alone_the_address_of_the_pod_answers_the_verbs_to_a_certificate_alone(tmp_path: Path) -> None:
    verbs, probes = free_ports(2)
    ours = issuer(tmp_path / "tls")
    certificate, key = ours.server("localhost", POD)
    environment = {
        "DRA_EXTENDER_SERVER__HOST": "*",
        "DRA_EXTENDER_SERVER__PORT": str(verbs),
        "DRA_EXTENDER_PROBES__PORT": str(probes),
        "DRA_EXTENDER_PROBES__METRICS": "authorized",
        "DRA_EXTENDER_TLS__CERT_FILE": str(certificate),
        "DRA_EXTENDER_TLS__PRIVATE_KEY_FILE": str(key),
        "DRA_EXTENDER_TLS__CLIENT_CA_FILE": str(ours.bundle()),
    }
    async with process(tmp_path, environment) as pid:
        assert {port for _, port in listening(pid)} == {verbs, probes}
        unknown = caller(ours.bundle())
        assert await answers(POD, verbs) == await answers(POD, probes) == set()
        assert await answers(POD, verbs, scheme="https", trust=unknown) == set()
        # A scrape without a token is refused with 401, which is an answer.
        assert await answers(POD, probes, scheme="https", trust=unknown) == {*PROBES, "/metrics"}
        async with httpx.AsyncClient(base_url=f"https://{POD}:{probes}", verify=unknown, timeout=SECONDS) as client:
            assert (await client.get("/metrics")).status_code == 401
        known = caller(ours.bundle(), ours.client())
        assert {"/filter", "/bind"} <= await answers(POD, verbs, scheme="https", trust=known)
