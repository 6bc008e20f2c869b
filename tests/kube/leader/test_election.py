import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import pytest
import pytest_asyncio
from dra_extender.kube.claims import KubeClaims
from dra_extender.kube.client.backoff import SleepAndJitter
from dra_extender.kube.client.credentials import find_credentials
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiTransport
from dra_extender.kube.cluster import KubeCluster
from dra_extender.kube.leader_election import LeaderElection, LeaseSettings, LeaseTimes
from dra_extender.kube.pods import KubePods
from dra_extender.model.claim_edits import MetadataChange
from dra_extender.scheduling.ports.cluster import ServerUnavailableError
from dra_extender.simulator.apiserver.objects import Key, StoredKind
from dra_extender.simulator.apiserver.store import Store

from tests.simulation.api_server import ApiServer, Fault, Write
from tests.simulation.faults import ALWAYS, Faults
from tests.support.kube.recording import CountingObserver, ManualClock
from tests.support.turns import until

LEASE = Key(StoredKind.LEASE, "space", "extender")
FOLLOWED = Key(StoredKind.LEASE, "space", "scheduler")
DAY = 86400.0


class Leases:
    """The Leases of a server; `writes` has the holders that replicas wrote."""

    def __init__(self, server: ApiServer, faults: Faults) -> None:
        self.writes: list[str] = []
        self.store = server.store
        self._faults = faults
        server.writes.append(self._note)

    def holder(self) -> str:
        found = self.store.find(LEASE)
        return str(found["spec"]["holderIdentity"]) if found else ""

    def put(self, key: Key, holder: str) -> None:
        """Let somebody else hold the lease, who renews it now."""
        spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": str(self.store.version)}
        if self.store.find(key) is None:
            self.store.create(key.kind, {"metadata": {"name": key.name, "namespace": key.namespace}})
        self.store.edit_unchecked(key, lambda lease: lease.update(spec=spec))

    def down(self) -> None:
        """Let the server refuse every request until `up`."""
        for verb in ("get", "create", "update"):
            self._faults.plan(verb, "leases", Fault(refuse=503), ALWAYS)

    def up(self) -> None:
        self._faults.clear()

    def _note(self, write: Write) -> None:
        if write.user and write.change.key.kind is StoredKind.LEASE:
            self.writes.append(json.loads(write.change.data)["spec"]["holderIdentity"])


class Bench:
    """Elections over one server and one manual clock, whose time passes by what they sleep unless it is held."""

    def __init__(self, server: ApiServer, faults: Faults, settings: KubeSettings) -> None:
        self.leases = Leases(server, faults)
        self.clock = ManualClock()
        self.terms: list[bool] = []
        self.made: list[LeaderElection] = []
        self._settings = settings

    async def election(self, host: str = "a", follow: str | None = None) -> LeaderElection:
        lease = LeaseSettings("space", "extender", host, f"{host}_1", LeaseTimes(15, 10.0, 2.0), follow)
        made = LeaderElection(
            lease,
            self._settings,
            observer=CountingObserver(),
            on_term=self.terms.append,
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
async def bench(server: ApiServer, faults: Faults, settings: KubeSettings) -> AsyncIterator[Bench]:
    made = Bench(server, faults, settings)
    yield made
    for each in made.made:
        await each.release()


async def test_the_first_takes_the_lease_and_renews_it(bench: Bench) -> None:
    election = await bench.election()
    assert election.reason() == "this replica stands by, no leader is known"
    await election.acquire()
    assert election.reason() is None
    assert bench.leases.holder() == "a_1"
    keeping = asyncio.create_task(election.renew())
    began = bench.clock.monotonic()
    await until(lambda: bench.clock.monotonic() > began + 60)
    assert election.reason() is None
    assert set(bench.leases.writes) == {"a_1"}
    keeping.cancel()


async def test_the_second_waits_and_says_for_whom(bench: Bench) -> None:
    bench.leases.put(LEASE, "b_1")
    election = await bench.election()
    winning = asyncio.create_task(election.acquire())
    await until(lambda: "b_1 leads" in (election.reason() or ""))
    await winning
    assert bench.clock.monotonic() >= 1000.0 + 15
    assert bench.leases.holder() == "a_1"


async def test_jumps_of_the_wall_clock_neither_give_nor_end_a_term(bench: Bench) -> None:
    first, second = await bench.election("a"), await bench.election("b")
    await first.acquire()
    waiting = asyncio.create_task(second.acquire())
    keeping = asyncio.create_task(first.renew())
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
    await election.acquire()
    keeping = asyncio.create_task(election.renew())
    bench.leases.down()
    began = bench.clock.monotonic()
    await until(lambda: bench.clock.monotonic() > began + 5)
    bench.leases.up()
    await until(lambda: bench.clock.monotonic() > began + 30)
    assert not keeping.done()
    bench.leases.down()
    await keeping
    assert election.reason() == "this replica has not renewed its lease in time and leads no more"
    assert "503" in (election.last_error or "")
    bench.leases.up()
    await election.acquire()
    assert election.reason() is None
    assert bench.terms == [True, False, True]


async def test_a_process_that_was_stopped_past_its_deadline_does_not_even_renew(bench: Bench) -> None:
    election = await bench.election()
    await election.acquire()
    before = list(bench.leases.writes)
    bench.clock.pass_by(10.0)
    assert "leads no more" in (election.reason() or "")
    await election.renew()
    assert bench.leases.writes == before


async def test_a_lease_that_another_has_taken_ends_the_term_at_the_next_renewal(bench: Bench) -> None:
    election = await bench.election()
    await election.acquire()
    bench.leases.put(LEASE, "b_1")
    await election.renew()
    assert election.reason() == "this replica stands by, b_1 leads"
    assert bench.clock.monotonic() < 1000.0 + 5


async def test_an_edit_or_a_deletion_of_the_lease_does_not_end_the_term(bench: Bench) -> None:
    election = await bench.election()
    await election.acquire()
    keeping = asyncio.create_task(election.renew())
    bench.leases.store.edit_unchecked(LEASE, lambda lease: lease["metadata"].update(labels={"a": "b"}))
    began = bench.clock.monotonic()
    await until(lambda: bench.clock.monotonic() > began + 20)
    bench.leases.store.delete(LEASE)
    await until(lambda: bench.clock.monotonic() > began + 40)
    assert election.reason() is None
    assert bench.leases.holder() == "a_1"
    keeping.cancel()


async def test_a_released_lease_is_taken_without_waiting(bench: Bench) -> None:
    first, second = await bench.election("a"), await bench.election("b")
    await first.acquire()
    await first.release()
    assert (bench.leases.holder(), first.reason() is None) == ("", False)
    await second.acquire()
    assert bench.clock.monotonic() < 1000.0 + 3
    assert bench.leases.store.get(LEASE)["spec"]["leaseTransitions"] == 1


async def test_missing_rights_are_said(faults: Faults, bench: Bench) -> None:
    faults.plan("get", "leases", Fault(refuse=403, message="you may not get leases"), ALWAYS)
    election = await bench.election()
    winning = asyncio.create_task(election.acquire())
    await until(lambda: "you may not get leases" in (election.last_error or ""))
    winning.cancel()


async def test_the_replica_beside_the_leading_scheduler_leads_and_follows_when_that_moves(bench: Bench) -> None:
    here, there = await bench.election("a", "scheduler"), await bench.election("b", "scheduler")
    winners = [asyncio.create_task(each.acquire()) for each in (here, there)]
    began = bench.clock.monotonic()
    await until(lambda: bench.clock.monotonic() > began + 10)
    assert here.reason() == "this replica stands by, the kube-scheduler that leads is not known"
    bench.leases.put(FOLLOWED, "b_scheduler")
    await winners[1]
    keeping = asyncio.create_task(there.renew())
    began = bench.clock.monotonic()
    await until(lambda: bench.clock.monotonic() > began + 30)
    assert not winners[0].done()
    bench.leases.put(FOLLOWED, "a_scheduler")
    await keeping
    await winners[0]
    assert here.reason() is None
    assert there.reason() is not None


def stored_claim(store: Store) -> MetadataChange:
    """Store a claim `c`; return a change of it that changes nothing."""
    made = store.create(StoredKind.CLAIM, {"metadata": {"name": "c", "namespace": "space"}, "spec": {}})
    return MetadataChange(uid=made["metadata"]["uid"], resource_version=made["metadata"]["resourceVersion"])


@asynccontextmanager
async def written_with(settings: KubeSettings, write_fence: Callable[[], str | None]) -> AsyncIterator[ApiTransport]:
    """A connection whose writes this guard may stop."""
    clock = ManualClock()
    transport = ApiTransport(settings, clock, CountingObserver(), write_fence)
    transport.connect(await find_credentials(settings, clock))
    try:
        yield transport
    finally:
        await transport.close()


async def test_no_write_is_sent_without_the_permit_and_reads_are(
    server: ApiServer, faults: Faults, settings: KubeSettings
) -> None:
    change = stored_claim(server.store)
    async with written_with(settings, lambda: "another replica leads") as transport:
        claims = KubeClaims(transport, settings)
        with pytest.raises(
            ServerUnavailableError, match="patch resourceclaims space/c: no answer: not sent: another replica leads"
        ):
            await claims.update("space", "c", change)
        with pytest.raises(ServerUnavailableError, match="not sent"):
            await KubePods(transport, settings).bind("space", "p", "u", "n")
        assert await claims.read("space", "c")
    assert [each.method for each in faults.seen] == ["GET"]


async def test_the_permit_is_asked_when_a_write_has_its_connection_not_when_it_begins_to_wait_for_one(
    server: ApiServer, faults: Faults, settings: KubeSettings
) -> None:
    """More writes than connections: those that were still waiting when the guard stopped them are not sent."""
    settings = replace(settings, timeouts=replace(settings.timeouts, write=600.0))
    refusals: list[str] = []
    change = stored_claim(server.store)
    faults.plan("patch", "resourceclaims", Fault(delay=0.05), ALWAYS)
    async with written_with(settings, lambda: refusals[0] if refusals else None) as transport:
        claims = KubeClaims(transport, settings)
        writes = [asyncio.create_task(claims.update("space", "c", change)) for _ in range(60)]
        await until(lambda: len(faults.requests("patch", "resourceclaims")) == settings.connections)
        refusals.append("the time is over")
        results = await asyncio.gather(*writes, return_exceptions=True)
    refused = [each for each in results if isinstance(each, ServerUnavailableError) and "the time is over" in str(each)]
    assert len(refused) == 60 - settings.connections
    assert len(faults.requests("patch", "resourceclaims")) == settings.connections


async def test_a_write_is_not_sent_when_the_guard_refuses_it_after_it_has_its_connection(
    server: ApiServer, faults: Faults, settings: KubeSettings
) -> None:
    """The process is suspended after the first look at the guard, and goes on when another replica leads."""
    answers = iter([None, "another replica leads"])
    change = stored_claim(server.store)
    async with written_with(settings, lambda: next(answers)) as transport:
        with pytest.raises(ServerUnavailableError, match="not sent: another replica leads"):
            await KubeClaims(transport, settings).update("space", "c", change)
    assert faults.requests("patch", "resourceclaims") == []
    assert next(answers, "asked twice") == "asked twice"


async def test_a_cluster_with_an_election_is_not_written_to_before_it_is_won_and_after_its_deadline(
    server: ApiServer, faults: Faults, settings: KubeSettings, bench: Bench
) -> None:
    change = stored_claim(server.store)
    election = await bench.election()
    cluster = KubeCluster(settings, clock=bench.clock, election=election)
    cluster.transport.connect(await find_credentials(settings, bench.clock))
    with pytest.raises(ServerUnavailableError, match="this replica stands by, no leader is known"):
        await cluster.claims.update("space", "c", change)
    await election.acquire()
    assert await cluster.claims.update("space", "c", change)
    bench.clock.pass_by(10.0)
    with pytest.raises(ServerUnavailableError, match="leads no more"):
        await cluster.claims.update("space", "c", change)
    assert len(faults.requests("patch", "resourceclaims")) == 1
    await cluster.stop()
