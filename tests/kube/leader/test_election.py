import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from dra_extender.kube.client.credentials import find_credentials
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiTransport
from dra_extender.kube.cluster import KubeCluster
from dra_extender.kube.leader.candidate import LeaseTimes
from dra_extender.kube.leader.election import LeaderElection, LeaseSettings
from dra_extender.kube.objects.claims import KubeClaims
from dra_extender.kube.objects.pods import KubePods
from dra_extender.kube.watch.reflector import SleepAndJitter
from dra_extender.model.claim_edits import MetadataChange
from dra_extender.scheduling.ports.cluster import ServerUnavailableError

from tests.support.kube.fake_api_server import FakeApiServer, status_answer
from tests.support.kube.recording import CountingObserver, ManualClock
from tests.support.turns import until

LEASES = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
LEASE = f"{LEASES}/extender"
FOLLOWED = f"{LEASES}/scheduler"
DAY = 86400.0


class LeaseServer:
    """The Leases of a server, with versions; `down` makes it answer 503."""

    def __init__(self, server: FakeApiServer) -> None:
        self.stored: dict[str, dict[str, Any]] = {}
        self.version = 0
        self.down = False
        self.writes: list[str] = []
        for path in (LEASE, FOLLOWED):
            server.intervene("GET", path, self._read, times=10**6)
            server.intervene("PUT", path, self._replace, times=10**6)
        server.intervene("POST", LEASES, self._create, times=10**6)

    def holder(self, path: str = LEASE) -> str:
        return str(self.stored[path]["spec"]["holderIdentity"]) if path in self.stored else ""

    def put(self, path: str, holder: str, **spec: Any) -> None:
        """Somebody else writes."""
        self.version += 1
        fields = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": str(self.version), **spec}
        self.stored[path] = {"metadata": {"resourceVersion": str(self.version)}, "spec": fields}

    def _read(self, request: web.Request) -> web.Response:
        if self.down:
            return status_answer(503, "", "down")
        found = self.stored.get(request.path)
        return web.json_response(found) if found else status_answer(404, "NotFound", "no such lease")

    async def _create(self, request: web.Request) -> web.Response:
        body = await request.json()
        path = f"{LEASES}/{body['metadata']['name']}"
        if path in self.stored:
            return status_answer(409, "AlreadyExists", "exists")
        return self._store(path, body)

    async def _replace(self, request: web.Request) -> web.Response:
        body = await request.json()
        found = self.stored.get(request.path)
        if found is None:
            return status_answer(404, "NotFound", "no such lease")
        if body["metadata"].get("resourceVersion") != found["metadata"]["resourceVersion"]:
            return status_answer(409, "Conflict", "changed")
        return self._store(request.path, body)

    def _store(self, path: str, body: dict[str, Any]) -> web.Response:
        if self.down:
            return status_answer(503, "", "down")
        self.version += 1
        self.writes.append(body["spec"]["holderIdentity"])
        self.stored[path] = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}
        return web.json_response(self.stored[path])


class Terms:
    def __init__(self) -> None:
        self.told: list[bool] = []

    def leads(self, leads: bool) -> None:
        self.told.append(leads)


class Bench:
    """Elections over one server and one manual clock, whose time passes by what they sleep unless it is held."""

    def __init__(self, server: FakeApiServer, settings: KubeSettings) -> None:
        self.leases = LeaseServer(server)
        self.clock = ManualClock()
        self.terms = Terms()
        self.made: list[LeaderElection] = []
        self._settings = settings

    async def election(self, host: str = "a", follow: str | None = None) -> LeaderElection:
        lease = LeaseSettings("ns", "extender", host, f"{host}_1", LeaseTimes(15, 10.0, 2.0), follow)
        made = LeaderElection(
            lease,
            self._settings,
            observer=CountingObserver(),
            terms=self.terms,
            clock=self.clock,
            chance=SleepAndJitter(sleep=self.sleep, number=lambda: 0.0),
        )
        made.connect(await find_credentials(self._settings, self.clock))
        self.made.append(made)
        return made

    def passed(self, moment: float) -> bool:
        """Whether the steady clock is beyond this."""
        return self.clock.monotonic() > moment

    async def sleep(self, seconds: float) -> None:
        """Time passes for everybody, a little at a time."""
        self.clock.pass_by(seconds)
        await asyncio.sleep(0.001)


@pytest_asyncio.fixture
async def bench(server: FakeApiServer, settings: KubeSettings) -> AsyncIterator[Bench]:
    made = Bench(server, settings)
    yield made
    for each in made.made:
        await each.release()


async def test_the_first_takes_the_lease_and_renews_it(bench: Bench) -> None:
    election = await bench.election()
    assert election.reason() == "this replica stands by, no leader is known"
    await election.win()
    assert election.reason() is None
    assert bench.leases.holder() == "a_1"
    keeping = asyncio.create_task(election.keep())
    began = bench.clock.monotonic()
    await until(lambda: bench.clock.monotonic() > began + 60)
    assert election.reason() is None
    assert set(bench.leases.writes) == {"a_1"}
    keeping.cancel()


async def test_the_second_waits_and_says_for_whom(bench: Bench) -> None:
    bench.leases.put(LEASE, "b_1")
    election = await bench.election()
    winning = asyncio.create_task(election.win())
    await until(lambda: "b_1 leads" in (election.reason() or ""))
    await winning
    assert bench.clock.monotonic() >= 1000.0 + 15
    assert bench.leases.holder() == "a_1"


async def test_jumps_of_the_wall_clock_neither_give_nor_end_a_term(bench: Bench) -> None:
    first, second = await bench.election("a"), await bench.election("b")
    await first.win()
    waiting = asyncio.create_task(second.win())
    keeping = asyncio.create_task(first.keep())
    for jump in (DAY, -3 * DAY, 1000 * DAY):
        bench.clock.time += jump
        began = bench.clock.monotonic()
        await until(partial(bench.passed, began + 30))
        assert first.reason() is None
        assert second.reason() == "this replica stands by, a_1 leads"
    waiting.cancel()
    keeping.cancel()


async def test_a_server_that_is_away_for_long_ends_the_term_and_a_short_outage_does_not(bench: Bench) -> None:
    election = await bench.election()
    await election.win()
    keeping = asyncio.create_task(election.keep())
    bench.leases.down = True
    began = bench.clock.monotonic()
    await until(lambda: bench.clock.monotonic() > began + 5)
    bench.leases.down = False
    await until(lambda: bench.clock.monotonic() > began + 30)
    assert not keeping.done()
    bench.leases.down = True
    await keeping
    assert election.reason() == "this replica has not renewed its lease in time and leads no more"
    assert "503" in (election.last_error or "")
    bench.leases.down = False
    await election.win()
    assert election.reason() is None
    assert bench.terms.told == [True, False, True]


async def test_a_process_that_was_stopped_past_its_deadline_does_not_even_renew(bench: Bench) -> None:
    election = await bench.election()
    await election.win()
    before = list(bench.leases.writes)
    bench.clock.pass_by(10.0)
    assert "leads no more" in (election.reason() or "")
    await election.keep()
    assert bench.leases.writes == before


async def test_a_lease_that_another_has_taken_ends_the_term_at_the_next_renewal(bench: Bench) -> None:
    election = await bench.election()
    await election.win()
    bench.leases.put(LEASE, "b_1")
    await election.keep()
    assert election.reason() == "this replica stands by, b_1 leads"
    assert bench.clock.monotonic() < 1000.0 + 5


async def test_an_edit_or_a_deletion_of_the_lease_does_not_end_the_term(bench: Bench) -> None:
    election = await bench.election()
    await election.win()
    keeping = asyncio.create_task(election.keep())
    bench.leases.version += 1
    bench.leases.stored[LEASE]["metadata"] = {"resourceVersion": str(bench.leases.version), "labels": {"a": "b"}}
    began = bench.clock.monotonic()
    await until(lambda: bench.clock.monotonic() > began + 20)
    del bench.leases.stored[LEASE]
    await until(lambda: bench.clock.monotonic() > began + 40)
    assert election.reason() is None
    assert bench.leases.holder() == "a_1"
    keeping.cancel()


async def test_a_released_lease_is_taken_without_waiting(bench: Bench) -> None:
    first, second = await bench.election("a"), await bench.election("b")
    await first.win()
    await first.release()
    assert (bench.leases.holder(), first.reason() is None) == ("", False)
    await second.win()
    assert bench.clock.monotonic() < 1000.0 + 3
    assert bench.leases.stored[LEASE]["spec"]["leaseTransitions"] == 1


async def test_missing_rights_are_said(server: FakeApiServer, bench: Bench) -> None:
    server.clear_interventions()
    server.intervene("GET", LEASE, lambda _: status_answer(403, "Forbidden", "you may not get leases"), times=10**6)
    election = await bench.election()
    winning = asyncio.create_task(election.win())
    await until(lambda: "you may not get leases" in (election.last_error or ""))
    winning.cancel()


async def test_the_replica_beside_the_leading_scheduler_leads_and_follows_when_that_moves(bench: Bench) -> None:
    here, there = await bench.election("a", "scheduler"), await bench.election("b", "scheduler")
    winners = [asyncio.create_task(each.win()) for each in (here, there)]
    began = bench.clock.monotonic()
    await until(lambda: bench.clock.monotonic() > began + 10)
    assert here.reason() == "this replica stands by, the kube-scheduler that leads is not known"
    bench.leases.put(FOLLOWED, "b_scheduler")
    await winners[1]
    keeping = asyncio.create_task(there.keep())
    began = bench.clock.monotonic()
    await until(lambda: bench.clock.monotonic() > began + 30)
    assert not winners[0].done()
    bench.leases.put(FOLLOWED, "a_scheduler")
    await keeping
    await winners[0]
    assert here.reason() is None
    assert there.reason() is not None


CLAIM = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c"
CHANGE = MetadataChange(uid="u", resource_version="1")


def claim_body() -> bytes:
    return json.dumps({"metadata": {"name": "c", "namespace": "ns", "resourceVersion": "1"}}).encode()


@asynccontextmanager
async def written_with(settings: KubeSettings, write_guard: Callable[[], str | None]) -> AsyncIterator[ApiTransport]:
    """A connection whose writes this guard may stop."""
    clock = ManualClock()
    transport = ApiTransport(settings, clock, CountingObserver(), write_guard)
    transport.connect(await find_credentials(settings, clock))
    try:
        yield transport
    finally:
        await transport.close()


async def test_no_write_is_sent_without_the_permit_and_reads_are(server: FakeApiServer, settings: KubeSettings) -> None:
    server.pages[CLAIM] = json.loads(claim_body())
    async with written_with(settings, lambda: "another replica leads") as transport:
        claims = KubeClaims(transport, settings)
        with pytest.raises(
            ServerUnavailableError, match="patch resourceclaims ns/c: no answer: not sent: another replica leads"
        ):
            await claims.update("ns", "c", CHANGE)
        with pytest.raises(ServerUnavailableError, match="not sent"):
            await KubePods(transport, settings).bind("ns", "p", "u", "n")
        assert await claims.read("ns", "c")
    assert [each.method for each in server.seen] == ["GET"]


async def test_the_permit_is_asked_when_a_write_has_its_connection_not_when_it_begins_to_wait_for_one(
    server: FakeApiServer, settings: KubeSettings
) -> None:
    """More writes than connections: those that were still waiting when the guard stopped them are not sent."""
    settings = replace(settings, timeouts=replace(settings.timeouts, write=600.0))
    refusals: list[str] = []
    release = asyncio.Event()

    async def slow(_: web.Request) -> web.Response:
        await release.wait()
        return web.json_response(json.loads(claim_body()))

    server.intervene("PATCH", CLAIM, slow, times=10**6)
    async with written_with(settings, lambda: refusals[0] if refusals else None) as transport:
        claims = KubeClaims(transport, settings)
        writes = [asyncio.create_task(claims.update("ns", "c", CHANGE)) for _ in range(60)]
        await until(lambda: len(server.requests("PATCH", CLAIM)) == settings.connections)
        refusals.append("the time is over")
        release.set()
        results = await asyncio.gather(*writes, return_exceptions=True)
    refused = [each for each in results if isinstance(each, ServerUnavailableError) and "the time is over" in str(each)]
    assert len(refused) == 60 - settings.connections
    assert len(server.requests("PATCH", CLAIM)) == settings.connections


async def test_a_write_is_not_sent_when_the_guard_refuses_it_after_it_has_its_connection(
    server: FakeApiServer, settings: KubeSettings
) -> None:
    """The process is suspended after the first look at the guard, and goes on when another replica leads."""
    answers = iter([None, "another replica leads"])
    server.intervene("PATCH", CLAIM, lambda _: web.json_response(json.loads(claim_body())), times=10**6)
    async with written_with(settings, lambda: next(answers)) as transport:
        with pytest.raises(ServerUnavailableError, match="not sent: another replica leads"):
            await KubeClaims(transport, settings).update("ns", "c", CHANGE)
    assert server.requests("PATCH", CLAIM) == []
    assert next(answers, "asked twice") == "asked twice"


async def test_a_cluster_with_an_election_is_not_written_to_before_it_is_won_and_after_its_deadline(
    server: FakeApiServer, settings: KubeSettings, bench: Bench
) -> None:
    server.intervene("PATCH", CLAIM, lambda _: web.json_response(json.loads(claim_body())), times=10**6)
    election = await bench.election()
    cluster = KubeCluster(settings, clock=bench.clock, election=election)
    cluster.transport.connect(await find_credentials(settings, bench.clock))
    with pytest.raises(ServerUnavailableError, match="this replica stands by, no leader is known"):
        await cluster.claims.update("ns", "c", CHANGE)
    await election.win()
    assert await cluster.claims.update("ns", "c", CHANGE)
    bench.clock.pass_by(10.0)
    with pytest.raises(ServerUnavailableError, match="leads no more"):
        await cluster.claims.update("ns", "c", CHANGE)
    assert len(server.requests("PATCH", CLAIM)) == 1
    await cluster.stop()
