import asyncio
import gc
import json
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from dra_extender.config import service_settings
from dra_extender.config.scheduler_configuration import SchedulerSetup, render
from dra_extender.config.scheduling_settings import SchedulingSettings
from dra_extender.config.service_settings import ClusterSettings, LeaderElectionSettings, ServerSettings
from dra_extender.config.settings import InvalidSettingsError, Settings
from dra_extender.ledger.sinks import EventSink
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION
from dra_extender.scheduling.ports.cluster import ServerUnavailableError
from dra_extender.service.leadership import Leadership
from dra_extender.service.server import listen
from dra_extender.service.wiring import assemble, check_account, serve, with_scheduler
from dra_extender.simulator.apiserver.cluster import MemoryCluster, MemoryPods
from dra_extender.simulator.apiserver.objects import StoredKind
from dra_extender.telemetry.metrics import Metrics

from tests.support.api.tls import NO_AUTHORITY
from tests.support.scheduling.seam import Seam
from tests.support.turns import until_async

LOOPBACK = ServerSettings(host="127.0.0.1", port=0, stop_seconds=10)
PASS_THROUGH = {"Pod": {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}}, "NodeNames": ["a"]}


class SlowPods(MemoryPods):
    """Bindings wait until they are let through."""

    entered: asyncio.Event
    go: asyncio.Event

    async def bind(self, namespace: str, name: str, uid: str, node: str) -> None:
        self.entered.set()
        await self.go.wait()
        await super().bind(namespace, name, uid, node)


class WatchedMemory(MemoryCluster):
    """A cluster in memory that is watched as a real one is, at the pace of the test."""

    def __init__(self) -> None:
        super().__init__()
        self.refuse: Exception | None = None
        self.complete = asyncio.Event()
        self.stopped = False
        self.pods = self.slow = SlowPods(self.store)
        self.slow.entered, self.slow.go = asyncio.Event(), asyncio.Event()
        self.claims: Any = Seam(self.claims)
        self._task: asyncio.Task[None] | None = None

    async def start(self, feeds: Mapping[str, EventSink]) -> None:
        if self.refuse is not None:
            raise self.refuse
        self.watch.attach(feeds)
        self._task = asyncio.create_task(self.watch.keep_delivering())

    async def wait_synced(self) -> None:
        await self.complete.wait()

    async def stop(self) -> None:
        self.stopped = True
        if self._task is not None:
            self._task.cancel()


class Running:
    """A service at work and the means to talk to it."""

    def __init__(self, cluster: WatchedMemory, client: httpx.AsyncClient, stop: asyncio.Event) -> None:
        self.cluster = cluster
        self.client = client
        self.stop = stop
        self.task: asyncio.Task[None]

    async def post(self, verb: str, body: Any) -> Any:
        return (await self.client.post(f"/{verb}", json=body)).json()

    async def ready(self) -> str:
        return (await self.client.get("/readyz?verbose")).text

    async def until_ready(self) -> None:
        self.cluster.complete.set()

        async def is_ready() -> bool:
            return (await self.client.get("/readyz")).status_code == 200

        await until_async(is_ready)


class Elected(Leadership):
    """Leads when the test says so; notes what it is asked for, with what had been done before."""

    def __init__(self) -> None:
        self.leading = asyncio.Event()
        self.lost = asyncio.Event()
        self.caught_up = asyncio.Event()
        self.asked: list[str] = []

    def reason(self) -> str | None:
        return None if self.leading.is_set() else "this replica stands by, b leads"

    async def acquire(self) -> None:
        await self.leading.wait()
        self.asked.append("won")

    async def renew(self) -> None:
        await self.lost.wait()
        self.lost.clear()
        self.leading.clear()

    async def catch_up(self) -> None:
        await self.caught_up.wait()
        self.asked.append("caught up")

    async def keep_publishing(self) -> None:
        self.asked.append("announced")
        await asyncio.Event().wait()

    def notes(self) -> Mapping[str, str]:
        return {"service-route": "no right"}

    async def release(self) -> None:
        self.asked.append("released")


@asynccontextmanager
async def running(leadership: Elected | None = None) -> AsyncIterator[Running]:
    cluster, stop = WatchedMemory(), asyncio.Event()
    service = assemble(Settings(server=LOOPBACK), cluster, Metrics(), leadership=leadership)
    with listen(LOOPBACK.host, LOOPBACK.port) as listener:
        base = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with httpx.AsyncClient(base_url=base, verify=NO_AUTHORITY, timeout=120) as client:
            site = Running(cluster, client, stop)
            site.task = asyncio.create_task(service.serve(stop, listener))
            try:
                yield site
            finally:
                stop.set()
                async with asyncio.timeout(120):
                    await site.task
                assert cluster.stopped


async def test_while_loading_probes_are_answered_and_verbs_in_words() -> None:
    async with running() as site:
        assert (await site.client.get("/livez")).status_code == 200
        not_ready = await site.client.get("/readyz")
        assert not_ready.status_code == 503
        assert "[-]service failed: the extender is starting" in not_ready.text
        assert "caches are not complete" in (await site.post("filter", PASS_THROUGH))["Error"]


async def test_once_the_caches_are_complete_the_verbs_are_answered() -> None:
    async with running() as site:
        await site.until_ready()
        assert await site.ready() == "[+]ping ok\n[+]service ok\n[+]memory ok\nreadyz check passed\n"
        assert await site.post("filter", PASS_THROUGH) == {"NodeNames": ["a"]}


async def test_a_service_is_not_ready_before_it_has_written_what_comes_before_the_first_decision() -> None:
    """It takes the snapshot off a claim without allocation; the verbs are not answered meanwhile, and `/readyz` says so."""
    async with running() as site:
        metadata = {"name": "c", "namespace": "ns", "annotations": {SNAPSHOT_ANNOTATION: "{}"}}
        site.cluster.store.create(StoredKind.CLAIM, {"metadata": metadata, "spec": {}})
        begun, go = asyncio.Event(), asyncio.Event()

        async def wait_to_go() -> None:
            begun.set()
            await go.wait()

        site.cluster.claims.before("update", wait_to_go)
        site.cluster.complete.set()
        async with asyncio.timeout(120):
            await begun.wait()
        assert "[-]service failed: the extender is starting" in await site.ready()
        assert "the extender is starting" in (await site.post("filter", PASS_THROUGH))["Error"]
        go.set()
        await site.until_ready()
        assert await site.post("filter", PASS_THROUGH) == {"NodeNames": ["a"]}


async def test_a_stop_answers_waiting_binds_and_lets_the_write_in_flight_end() -> None:
    """The caller has its answer at once; the process stays until the write has ended."""
    async with running() as site:
        uid = create_pod(site.cluster, claim="c")
        await site.until_ready()
        body = {"PodName": "p", "PodNamespace": "ns", "PodUID": uid, "Node": "a"}
        bind = asyncio.create_task(site.post("bind", body))
        async with asyncio.timeout(120):
            await site.cluster.slow.entered.wait()
            site.stop.set()
            assert "stopping" in (await bind)["Error"]
            assert not site.task.done()
            assert "stopping" in (await site.post("filter", PASS_THROUGH))["Error"]
            assert "[-]service failed: the extender is stopping" in await site.ready()
            site.cluster.slow.go.set()
            await site.task
    assert (await site.cluster.pods.read("ns", "p")).node_name == "a"


async def test_a_standby_is_warm_but_not_ready_and_a_leader_is_ready_once_it_has_caught_up() -> None:
    elected = Elected()
    async with running(elected) as site:
        site.cluster.complete.set()
        await until_said(site, "[-]leader failed: this replica stands by, b leads")
        assert (await site.client.get("/readyz?exclude=leader")).status_code == 200
        answer = await site.client.post("/filter", json=PASS_THROUGH)
        assert answer.json() == {"Error": "filter: this replica stands by, b leads"}
        assert answer.headers["Connection"] == "close"
        assert "dra_extender_leader 0.0" in (await site.client.get("/metrics")).text
        elected.leading.set()
        await until_said(site, "[-]leader failed: this replica has just become the leader")
        assert "being brought up to date" in (await site.post("filter", PASS_THROUGH))["Error"]
        elected.caught_up.set()
        await site.until_ready()
        assert await site.post("filter", PASS_THROUGH) == {"NodeNames": ["a"]}
        assert "[i]service-route: no right" in await site.ready()
        assert "dra_extender_leader 1.0" in (await site.client.get("/metrics")).text
    assert elected.asked == ["won", "caught up", "announced", "released"]


async def test_a_leader_that_loses_the_lease_answers_waiting_binds_and_can_lead_again() -> None:
    elected = Elected()
    elected.leading.set()
    elected.caught_up.set()
    async with running(elected) as site:
        uid = create_pod(site.cluster, claim="c")
        await site.until_ready()
        body = {"PodName": "p", "PodNamespace": "ns", "PodUID": uid, "Node": "a"}
        bind = asyncio.create_task(site.post("bind", body))
        async with asyncio.timeout(120):
            await site.cluster.slow.entered.wait()
            elected.lost.set()
            assert "this replica stands by, b leads; the next bind of the pod carries on" in (await bind)["Error"]
        site.cluster.slow.go.set()
        await until_said(site, "this replica stands by, b leads")
        elected.leading.set()
        await site.until_ready()
        assert await site.post("bind", body) == {"Error": ""}
    assert elected.asked.count("won") == 2


async def test_a_verb_that_arrives_after_the_deadline_is_turned_away_before_anybody_noticed() -> None:
    elected = Elected()
    elected.leading.set()
    elected.caught_up.set()
    async with running(elected) as site:
        await site.until_ready()
        elected.leading.clear()
        assert await site.post("filter", PASS_THROUGH) == {"Error": "filter: this replica stands by, b leads"}


async def test_a_stop_while_standing_by_ends_the_service() -> None:
    elected = Elected()
    async with running(elected) as site:
        site.cluster.complete.set()
        await until_said(site, "stands by")
    assert elected.asked == ["released"]


async def until_said(site: Running, words: str) -> None:
    """Waits until the readiness page has these words."""

    async def is_said() -> bool:
        return words in await site.ready()

    await until_async(is_said)


async def test_a_cluster_that_refuses_ends_the_service_with_its_sentence() -> None:
    cluster = WatchedMemory()
    cluster.refuse = ServerUnavailableError("the API server does not answer")
    service = assemble(Settings(server=LOOPBACK), cluster, Metrics())
    with (
        listen(LOOPBACK.host, LOOPBACK.port) as listener,
        pytest.raises(ServerUnavailableError, match="does not answer"),
    ):
        await service.serve(asyncio.Event(), listener)
    assert cluster.stopped


async def test_the_garbage_collector_is_as_before_when_the_service_has_ended() -> None:
    assert gc.isenabled()
    async with running() as site:
        await site.until_ready()
        assert not gc.isenabled()
        assert gc.get_freeze_count() > 0
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def create_pod(cluster: WatchedMemory, claim: str = "") -> str:
    """A node and a pod, which uses a claim for no devices if one is named; returns the pod's UID."""
    store = cluster.store
    store.create(StoredKind.NODE, {"metadata": {"name": "a"}})
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}]}
    if claim:
        store.create(StoredKind.CLAIM, {"metadata": {"name": claim, "namespace": "ns"}, "spec": {}})
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": claim}]
    pod = store.create(StoredKind.POD, {"metadata": {"name": "p", "namespace": "ns"}, "spec": spec})
    uid: str = pod["metadata"]["uid"]
    return uid


async def test_leader_election_outside_a_pod_needs_a_namespace() -> None:
    settings = Settings(
        server=ServerSettings(host="127.0.0.1", port=0), leader_election=LeaderElectionSettings(enabled=True)
    )
    with pytest.raises(
        InvalidSettingsError, match=r"setting leader_election.namespace .*: expected the namespace of the Lease"
    ):
        await serve(settings)


def test_pods_are_taken_from_the_profiles_of_the_kube_scheduler_that_calls(tmp_path: Path) -> None:
    file = tmp_path / "kube-scheduler.yaml"
    file.write_text(json.dumps(render(SchedulerSetup(scheduler_name="mine"))))
    given = Settings(scheduling=SchedulingSettings(scheduler_config=file))
    assert with_scheduler(given).scheduling.scheduler_names == ("mine",)
    named = Settings(scheduling=SchedulingSettings(scheduler_config=file, scheduler_names=("other",)))
    assert with_scheduler(named).scheduling.scheduler_names == ("other",)
    assert with_scheduler(Settings()).scheduling.options().scheduler_names == ()


def test_a_pod_whose_account_the_admission_policy_does_not_name_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As kustomize's `namePrefix:` leaves it: the policy would refuse every bind."""
    monkeypatch.setattr(service_settings, "_ACCOUNT", tmp_path)
    account = "system:serviceaccount:dra-extender:my-dra-extender"
    payload = urlsafe_b64encode(json.dumps({"sub": account}).encode()).decode().rstrip("=")
    (tmp_path / "token").write_text(f"e30.{payload}.c2ln")
    moved = ClusterSettings(expected_account=account.replace("my-", ""))
    with pytest.raises(
        InvalidSettingsError, match=f"expected {account}, the account of this pod, got .*:dra-extender; "
    ):
        check_account(moved)
    check_account(ClusterSettings(expected_account=account))
    check_account(ClusterSettings())
    check_account(moved.model_copy(update={"kubeconfig": tmp_path / "kubeconfig"}))
    (tmp_path / "token").write_text("no token")
    check_account(moved)
