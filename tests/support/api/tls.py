"""Certificates for tests, and callers with and without one."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from dra_extender.config.service_settings import ServerSettings, TlsSettings
from dra_extender.service.certificate_issuer import (
    KeyPair,
    new_authority,
    new_client_certificate,
    new_server_certificate,
)
from dra_extender.service.certificates import Certificates
from dra_extender.service.server import connections_of, listen, serving

from tests.support.api.serving import Peer, Server
from tests.support.api.sites import make_site

YEAR: Final = timedelta(days=365)
SCHEDULER: Final = "system:kube-scheduler"
NO_AUTHORITY: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For clients that speak plain HTTP; without it they read all authorities of the machine."""


def authority(name: str = "test") -> KeyPair:
    return new_authority(name, datetime.now(UTC), YEAR)


@dataclass
class Issuer:
    """An authority, and files with certificates of it."""

    folder: Path
    pair: KeyPair

    def server(self, *names: str, lifetime: timedelta = YEAR, now: datetime | None = None) -> tuple[Path, Path]:
        now = now or datetime.now(UTC)
        issued = new_server_certificate(self.pair, names or ("localhost", "127.0.0.1"), now, lifetime)
        return write_pair(self.folder, "server", issued)

    def client(self, name: str = SCHEDULER, lifetime: timedelta = YEAR) -> tuple[Path, Path]:
        return write_pair(self.folder, "client", new_client_certificate(self.pair, name, datetime.now(UTC), lifetime))

    def bundle(self, *others: KeyPair) -> Path:
        path = self.folder / "ca.crt"
        path.write_bytes(b"".join(each.certificate for each in (self.pair, *others)))
        return path


def write_pair(folder: Path, name: str, pair: KeyPair) -> tuple[Path, Path]:
    """The files of a certificate and its key."""
    folder.mkdir(exist_ok=True)
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    certificate.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    return certificate, key


def issuer(folder: Path, name: str = "test") -> Issuer:
    folder.mkdir(exist_ok=True)
    return Issuer(folder, authority(name))


def caller(trusted: Path, client: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    """The context of a caller that checks the server as kube-scheduler does."""
    context = ssl.create_default_context(cafile=trusted)
    if client is not None:
        context.load_cert_chain(*client)
    return context


@dataclass(kw_only=True)
class TlsServer(Server):
    """A running server that speaks TLS."""

    certificates: Certificates

    async def tls_peer(self, context: ssl.SSLContext, source: str = "127.0.0.1") -> Peer:
        """A new connection with TLS from this address, closed with the server."""
        connected = asyncio.open_connection(
            "127.0.0.1", self.port, ssl=context, server_hostname="localhost", local_addr=(source, 0)
        )
        self.peers.append(Peer(*await connected))
        return self.peers[-1]


@asynccontextmanager
async def serve_tls(tls: TlsSettings, *, probes: bool = False, **settings: float) -> AsyncIterator[TlsServer]:
    """The verbs over TLS, with these settings beside port and address; with `probes`, callers need no certificate."""
    given = ServerSettings.model_validate({"host": "127.0.0.1", "port": 0, **settings})
    site = make_site(given)
    certificates = Certificates(tls, site.metrics)
    certificates.load()
    connections = connections_of(given, site.metrics)
    with listen(given.host, given.port) as listener:
        async with serving(site.app, given, listener, connections, certificates, clients=not probes):
            server = TlsServer(listener.getsockname()[1], site, connections, certificates=certificates)
            try:
                yield server
            finally:
                await server.close_peers()
