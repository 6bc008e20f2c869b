"""A failure put into each task in turn: it is counted under its name, the task starts again, and the service goes on."""

import asyncio
from collections.abc import Callable
from types import ModuleType
from typing import Any

import httpx
import pytest
from dra_extender.kube.client.credentials import Credentials
from dra_extender.kube.events import KubeEvents
from dra_extender.kube.reflector import Reflector
from dra_extender.ledger import sinks
from dra_extender.ledger.sinks import sinks_of
from dra_extender.runtime import supervision
from dra_extender.runtime.supervision import UNREADY_AFTER, BackgroundTask
from dra_extender.scheduling.binding.bind import BindSession
from dra_extender.scheduling.binding.guards import GuardClaims, GuardReservations
from dra_extender.scheduling.binding.reports import ConflictMonitor
from dra_extender.scheduling.claims.group_entries import GroupEntryWatch
from dra_extender.scheduling.claims.writer import ClaimWriter
from dra_extender.scheduling.evaluation.evaluator import Prefetch
from dra_extender.scheduling.podgroup_claims.controller import PodGroupClaimController
from dra_extender.scheduling.reclaim.controller import ReclaimController
from dra_extender.scheduling.requeue.waker import Waker
from dra_extender.service import service
from dra_extender.service.audit_task import AuditTask
from dra_extender.service.certificates import Certificates
from dra_extender.service.device_count import DeviceCountTask
from dra_extender.service.policy_reloader import PolicyReloader

from tests.kube.conftest import observer, release, server, settings  # noqa: F401 - fixtures
from tests.kube.test_kube_cluster import Make, make, sleeper  # noqa: F401 - fixtures
from tests.scheduling.claims.test_reserver import bind_all, shared
from tests.service.test_service import Elected, Running, create_pod, running
from tests.support.kube.recording import CountingObserver, RecordingSink
from tests.support.turns import turns, until

# Where the work of each task is done.  A new task needs a place here, or the last test fails.
OF_SERVICE: dict[BackgroundTask, tuple[type | ModuleType, str]] = {
    BackgroundTask.WAKE_UP: (Waker, "keep_waking"),
    BackgroundTask.RECLAIM: (ReclaimController, "keep_reclaiming"),
    BackgroundTask.GROUP_CLAIMS: (PodGroupClaimController, "keep_reconciling"),
    BackgroundTask.GROUP_TRIALS: (GroupEntryWatch, "keep_looking"),
    BackgroundTask.FOREIGN_ALLOCATIONS: (ConflictMonitor, "keep_reporting"),
    BackgroundTask.GUARD_CLAIMS: (GuardClaims, "keep_guards"),
    BackgroundTask.GUARD_RESERVATIONS: (GuardReservations, "keep_ending"),
    BackgroundTask.POLICY: (PolicyReloader, "keep_reloading"),
    BackgroundTask.CERTIFICATES: (Certificates, "keep_reloading"),
    BackgroundTask.AUDIT: (AuditTask, "keep_auditing"),
    BackgroundTask.DEVICE_COUNT: (DeviceCountTask, "keep_counting"),
    BackgroundTask.COLLECTOR: (service, "keep_collecting"),
    BackgroundTask.SERVICE_ROUTE: (Elected, "keep_publishing"),
}
OF_CLUSTER: dict[BackgroundTask, tuple[type | ModuleType, str]] = {
    BackgroundTask.WATCH: (Reflector, "keep_watching"),
    BackgroundTask.EVENTS: (KubeEvents, "keep_writing"),
    BackgroundTask.CREDENTIALS: (Credentials, "keep_fresh"),
}
Failing = Callable[[type | ModuleType, str, int], list[int]]


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Failing:
    """Makes a coroutine method raise at its first calls; returns the list that counts its calls."""
    monkeypatch.setattr(supervision, "_FIRST_PAUSE", 0.001)

    def prepare(owner: type | ModuleType, name: str, times: int) -> list[int]:
        original, calls = getattr(owner, name), [0]

        async def instead(*arguments: Any) -> Any:
            calls[0] += 1
            if calls[0] <= times:
                raise RecursionError("put in by a test")
            return await original(*arguments)

        monkeypatch.setattr(owner, name, instead)
        return calls

    return prepare


async def failures(site: Running, task: str) -> int:
    text = (await site.client.get("/metrics")).text
    found = [
        line
        for line in text.splitlines()
        if line.startswith(f'dra_extender_background_failures_total{{task="{task}"}}')
    ]
    return int(float(found[0].split()[-1])) if found else 0


async def elected(site: Running, leadership: Elected) -> None:
    leadership.leading.set()
    leadership.caught_up.set()
    await site.until_ready()


@pytest.mark.parametrize(("task", "place"), OF_SERVICE.items(), ids=OF_SERVICE)
async def test_a_task_of_the_service_starts_again(
    task: BackgroundTask, place: tuple[type | ModuleType, str], failing: Failing
) -> None:
    calls = failing(*place, UNREADY_AFTER - 1)
    leadership = Elected()
    async with running(leadership) as site:
        await elected(site, leadership)
        await until(lambda: calls[0] == UNREADY_AFTER)
        assert await failures(site, task) == UNREADY_AFTER - 1
        page = await site.ready()
        assert f"[i]failed-{task}: RecursionError: put in by a test" in page
        assert "readyz check passed" in page


@pytest.mark.parametrize(("task", "place"), OF_SERVICE.items(), ids=OF_SERVICE)
async def test_a_task_of_the_service_that_goes_on_failing_makes_it_unready_and_at_last_dead(
    task: BackgroundTask, place: tuple[type | ModuleType, str], failing: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "_LONGEST_PAUSE", 0.001)
    calls = failing(*place, 10**6)
    leadership = Elected()
    async with running(leadership) as site:
        leadership.leading.set()
        leadership.caught_up.set()
        site.cluster.complete.set()
        await until(lambda: calls[0] > supervision.DEAD_AFTER)
        for probe in ("readyz", "livez"):
            answer = await site.client.get(f"/{probe}?verbose")
            assert answer.status_code != httpx.codes.OK
            assert f"[-]task-{task} failed: the background task {task} has failed" in answer.text


@pytest.mark.parametrize(("task", "place"), OF_CLUSTER.items(), ids=OF_CLUSTER)
async def test_a_task_of_the_cluster_starts_again(
    task: BackgroundTask,
    place: tuple[type | ModuleType, str],
    failing: Failing,
    make: Make,  # noqa: F811 - a fixture
    observer: CountingObserver,  # noqa: F811
) -> None:
    calls = failing(*place, UNREADY_AFTER - 1)
    cluster = make()
    await cluster.start({"nodes": RecordingSink()})
    await until(lambda: calls[0] == UNREADY_AFTER)
    name = f"{task}-nodes" if task is BackgroundTask.WATCH else str(task)
    assert observer.of("background_failed") == [(name,)] * (UNREADY_AFTER - 1)
    assert f"failed-{name}" in cluster.notes()
    await cluster.wait_synced()
    assert not any(cluster.health().values())


async def test_a_lease_that_cannot_be_kept_ends_the_term_and_the_next_begins(failing: Failing) -> None:
    calls = failing(Elected, "renew", 1)
    leadership = Elected()
    async with running(leadership) as site:
        await elected(site, leadership)
        await until(lambda: calls[0] == 2)
        assert await failures(site, "lease") == 1
        await site.until_ready()


async def test_a_bind_that_fails_is_answered_counted_and_can_be_repeated(failing: Failing) -> None:
    failing(BindSession, "bind", 1)
    async with running() as site:
        uid = create_pod(site.cluster, "c")
        site.cluster.slow.go.set()
        await site.until_ready()
        body = {"PodName": "p", "PodNamespace": "ns", "PodUID": uid, "Node": "a"}
        assert "RecursionError" in (await site.post("bind", body))["Error"] or await failures(site, "bind")
        assert (await site.post("bind", body)).get("Error", "") == ""


async def test_reservations_that_fail_are_answered_to_each_bind(failing: Failing) -> None:
    failing(ClaimWriter, "reserve", 1)
    world, _ = shared(5)
    async with asyncio.timeout(120):
        outcomes = await bind_all(world, range(5))
    assert any(isinstance(outcome, RecursionError) for outcome in outcomes)


async def test_a_callback_that_fails_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Prefetch, "_step", fail)
    async with running() as site:
        await site.until_ready()
        asyncio.get_running_loop().call_soon(fail)
        await turns()
        assert await failures(site, "callback") == 1


@pytest.mark.parametrize(
    "name", [name for name in vars(sinks) if name.endswith("Sink") and name not in ("EventSink", "_LedgerSink")]
)
@pytest.mark.parametrize("problem", [RecursionError, MemoryError, KeyError])
async def test_a_handler_that_fails_costs_one_object(
    name: str, problem: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same for what takes in each kind: the object is counted and named, those after it are taken in."""
    from dra_extender.kube.reflector import EventDispatcher, read_meta  # noqa: PLC0415 - used here alone
    from dra_extender.ledger.ledger import Ledger  # noqa: PLC0415

    counted = CountingObserver()
    ledger = Ledger()
    kind, feed = next((kind, feed) for kind, feed in sinks_of(ledger).items() if type(feed).__name__ == name)
    original, seen = feed.changed, []

    def changed(data: bytes) -> None:
        seen.append(data)
        if len(seen) == 1:
            raise problem("put in by a test")
        original(data)

    monkeypatch.setattr(feed, "changed", changed)
    delivery = EventDispatcher(kind, feed, counted)
    spec = b'{"driver":"d","pool":{"name":"p"},"taint":{"key":"k","effect":"e"}}'
    for index in range(2):
        data = b'{"metadata":{"name":"o%d","namespace":"ns","uid":"u%d","resourceVersion":"1"},"spec":%b}' % (
            index,
            index,
            spec,
        )
        delivery.deliver(read_meta(data), data)
    assert counted.of("unreadable") == [(kind,)]
    assert f"1 of the {kind} cannot be read, such as ns/o0: {problem.__name__}" in str(delivery.unreadable())
    assert len(seen) == 2
