"""The verbs over TLS with client certificates, called by the real kube-scheduler: calls, and every renewal under load."""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Final, Self

import pytest
import pytest_asyncio
from dra_extender.service.certificate_issuer import (
    KeyPair,
    new_authority,
    new_client_certificate,
    new_server_certificate,
)

from tests.controlplane.objects import device
from tests.controlplane.planes import LATER_GATES
from tests.controlplane.ports import free_ports
from tests.support.e2e.installed_extender import SCHEDULER, InstalledExtender, Setup
from tests.support.e2e.namespace_fixture import NamespaceFixture

pytestmark = [pytest.mark.e2e, pytest.mark.plane(LATER_GATES), pytest.mark.asyncio(loop_scope="module")]

YEAR: Final = timedelta(days=365)
CALLER: Final = "system:kube-scheduler"
FAILED: Final = ("tls:", "x509", "EOF", "connection reset", "broken pipe", "status code", "remote error")
"""What kube-scheduler says of a call over TLS that failed."""


class MountedFolder:
    """The files are links through `..data`, which is a link to the folder of the moment."""

    def __init__(self, path: Path, files: Mapping[str, bytes]) -> None:
        path.mkdir()
        self.path = path
        self._numbers = count()
        self.exchange(files)
        for name in files:
            (path / name).symlink_to(Path("..data") / name)

    def exchange(self, files: Mapping[str, bytes]) -> None:
        """Put these in the place of the files before."""
        folder = self.path / f"..{next(self._numbers)}"
        folder.mkdir()
        for name, data in files.items():
            (folder / name).write_bytes(data)
        link = self.path / "..next"
        link.symlink_to(folder.name)
        os.replace(link, self.path / "..data")  # noqa: PTH105 - a link is replaced, not what it leads to

    def __truediv__(self, name: str) -> Path:
        return self.path / name


@dataclass
class Sides:
    """The files of both sides, and the authority that issued what is in them."""

    service: MountedFolder
    scheduler: MountedFolder
    authority: KeyPair


def files(issuer: KeyPair, trusted: KeyPair, *others: KeyPair) -> tuple[Mapping[str, bytes], Mapping[str, bytes]]:
    """The files of the service and of kube-scheduler, issued by one authority; both trust the others."""
    now = datetime.now(UTC)
    server = new_server_certificate(issuer, ("localhost",), now, YEAR)
    client = new_client_certificate(issuer, CALLER, now, YEAR)
    bundle = b"".join(each.certificate for each in (trusted, *others))
    return (
        {"tls.crt": server.certificate, "tls.key": server.key, "ca.crt": bundle},
        {"tls.crt": client.certificate, "tls.key": client.key, "ca.crt": bundle},
    )


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Sides:
    folder = tmp_path_factory.mktemp("tls")
    authority = new_authority("first", datetime.now(UTC), YEAR)
    service, scheduler = files(authority, authority)
    return Sides(MountedFolder(folder / "service", service), MountedFolder(folder / "scheduler", scheduler), authority)


@pytest.fixture(scope="module")
def setup(sides: Sides) -> Setup:
    (probes,) = free_ports(1)
    environment = {
        "DRA_EXTENDER_PROBES__HOST": "127.0.0.1",
        "DRA_EXTENDER_PROBES__PORT": str(probes),
        "DRA_EXTENDER_TLS__CERT_FILE": str(sides.service / "tls.crt"),
        "DRA_EXTENDER_TLS__PRIVATE_KEY_FILE": str(sides.service / "tls.key"),
        "DRA_EXTENDER_TLS__CLIENT_CA_FILE": str(sides.service / "ca.crt"),
        "DRA_EXTENDER_TLS__CHECK_SECONDS": "0.2",
    }
    trust = {
        "serverName": "localhost",
        "caFile": str(sides.scheduler / "ca.crt"),
        "certFile": str(sides.scheduler / "tls.crt"),
        "keyFile": str(sides.scheduler / "tls.key"),
    }
    return Setup(environment=environment, scheduler_tls=trust)


class Load:
    """Pods that come one after the other while something else happens; each has a device of its own."""

    def __init__(self, scene: NamespaceFixture, name: str) -> None:
        self._scene = scene
        self._name = name
        self._made: list[str] = []
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for each in self._made:
            await self._scene.wait_until_bound(each)

    async def more(self) -> None:
        """Return when six further pods are bound."""
        goal = len(self._made) + 6

        async def made() -> bool:
            return len(self._made) >= goal

        await self._scene.api.wait_for(made, 60.0, "six pods more")
        for each in self._made[:goal]:
            await self._scene.wait_until_bound(each)

    async def _run(self) -> None:
        while True:
            name = f"{self._name}-{len(self._made)}"
            await self._scene.pod(name, template="gpu")
            self._made.append(name)
            await asyncio.sleep(0.05)


@pytest_asyncio.fixture(loop_scope="module")
async def devices(scene: NamespaceFixture) -> NamespaceFixture:
    """Room for all pods of a test."""
    for suffix in "abcdef":
        await scene.node_with_devices(suffix, *(device(f"gpu-{number}") for number in range(100)))
    await scene.template("gpu")
    return scene


async def taken(world: InstalledExtender, number: float) -> None:
    """Returns when certificates were taken up so many times."""
    await world.wait_for_metric("certificate_reads_total", number, seconds=30.0, outcome="taken")


def failed_calls(world: InstalledExtender, since: int) -> list[str]:
    """What kube-scheduler's log says of calls that failed, from this line on."""
    lines = world.cluster.logs(SCHEDULER).read_text(errors="replace").splitlines()[since:]
    return [line for line in lines if "localhost" in line and any(word in line for word in FAILED)]


def logged(world: InstalledExtender) -> int:
    return len(world.cluster.logs(SCHEDULER).read_text(errors="replace").splitlines())


async def test_kube_scheduler_calls_with_its_certificate_over_no_more_than_a_connection_for_each_bind(
    devices: NamespaceFixture,
) -> None:
    """Which is what `make bench ONLY=tls` assumes."""
    world, many = devices.world, 150
    assert await world.metric("certificate_expiration_timestamp_seconds", certificate="server") > 0
    before = await world.metric("tls_handshakes_total", outcome="done")
    binds = await world.metric("requests_total", verb="bind")
    await asyncio.gather(*(devices.pod(f"many-{number}", template="gpu") for number in range(many)))
    for number in range(many):
        await devices.wait_until_bound(f"many-{number}")
    opened = await world.metric("tls_handshakes_total", outcome="done") - before
    # A bind that kube-scheduler had to repeat is one more.
    binds = max(many, await world.metric("requests_total", verb="bind") - binds)
    print(f"{opened:g} connections for {binds:g} binds")
    assert 0 < opened <= binds
    assert await world.metric("tls_handshakes_total", outcome="failed") == 0


async def test_every_certificate_is_renewed_under_load_without_a_failed_call(
    devices: NamespaceFixture, sides: Sides
) -> None:
    """Leaves first, then the authority: both bundles overlap, and kube-scheduler is restarted for its bundle alone."""
    world = devices.world
    begun, reads = logged(world), await world.metric("certificate_reads_total", outcome="taken")
    async with Load(devices, "renewed") as load:
        await load.more()
        service, scheduler = files(sides.authority, sides.authority)
        sides.service.exchange(service)
        sides.scheduler.exchange(scheduler)
        await taken(world, reads + 1)
        await load.more()
        assert failed_calls(world, begun) == []

        successor = new_authority("second", datetime.now(UTC), YEAR)
        service, scheduler = files(sides.authority, sides.authority, successor)
        sides.service.exchange(service)
        sides.scheduler.exchange(scheduler)
        await taken(world, reads + 2)
        assert await world.metric("tls_handshakes_total", outcome="failed") == 0
        await world.cluster.restart_scheduler(SCHEDULER)
        # Its end breaks the handshakes that it has begun.
        begun, broken = logged(world), await world.metric("tls_handshakes_total", outcome="failed")
        await load.more()

        service, scheduler = files(successor, sides.authority, successor)
        sides.service.exchange(service)
        sides.scheduler.exchange(scheduler)
        await taken(world, reads + 3)
        await load.more()

        service, scheduler = files(successor, successor)
        sides.service.exchange(service)
        sides.scheduler.exchange(scheduler)
        await taken(world, reads + 4)
        sides.authority = successor
        await load.more()
    assert failed_calls(world, begun) == []
    assert await world.metric("certificate_reads_total", outcome="refused") == 0
    assert await world.metric("tls_handshakes_total", outcome="failed") == broken


async def test_kube_scheduler_takes_up_its_certificate_but_its_authority_at_a_restart_alone(
    devices: NamespaceFixture, sides: Sides
) -> None:
    """Why bundles have to overlap."""
    world = devices.world
    reads = await world.metric("certificate_reads_total", outcome="taken")
    stranger = new_authority("third", datetime.now(UTC), YEAR)
    service, scheduler = files(stranger, stranger)
    begun = logged(world)
    sides.service.exchange(service)
    sides.scheduler.exchange(scheduler)
    await taken(world, reads + 1)
    # Connections of before answer one more call each.
    for number in range(12):
        await devices.pod(f"late-{number}", template="gpu")

    async def refuses() -> bool:
        return any("x509" in line or "unknown authority" in line for line in failed_calls(world, begun))

    await world.api.wait_for(refuses, 60.0, "kube-scheduler does not trust the new authority")
    await world.cluster.restart_scheduler(SCHEDULER)
    for number in range(12):
        await devices.wait_until_bound(f"late-{number}")
    sides.authority = stranger
