import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
from dra_extender.kube.client.backoff import SleepAndJitter
from dra_extender.kube.client.credentials import ConfigurationError
from dra_extender.kube.client.objects import WATCHED
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.cluster import KubeCluster
from dra_extender.model.pod import Pod
from dra_extender.scheduling.ports.cluster import Cluster, RequestRejectedError, ServerUnavailableError
from dra_extender.simulator.apiserver.objects import StoredKind

from tests.simulation.api_discovery import Release
from tests.simulation.api_server import ApiServer, Fault
from tests.simulation.faults import ALWAYS, Faults
from tests.support.kube.recording import CountingObserver, ManualClock, RecordingSink, Sleeper
from tests.support.turns import until

Make = Callable[..., KubeCluster]


@pytest.fixture
def sleeper() -> Sleeper:
    return Sleeper(limit=50)


@pytest_asyncio.fixture
async def make(settings: KubeSettings, observer: CountingObserver, sleeper: Sleeper) -> AsyncIterator[Make]:
    made: list[KubeCluster] = []

    def build(**more: Any) -> KubeCluster:
        arguments: dict[str, Any] = {
            "settings": settings,
            "observer": observer,
            "chance": SleepAndJitter(sleep=sleeper),
        }
        made.append(KubeCluster(**{**arguments, **more}))
        return made[-1]

    yield build
    for cluster in made:
        await cluster.stop()


async def test_every_kind_reaches_its_own_feed(server: ApiServer, make: Make) -> None:
    feeds = {plural: RecordingSink() for plural in WATCHED}
    for plural in WATCHED:
        server.store.create(StoredKind(plural), {"metadata": {"name": f"a-{plural}"}, "spec": {}})
    cluster = make()
    contract: Cluster = cluster
    assert contract.health() == {"api-server": "not connected yet"}
    await cluster.start(feeds)
    await cluster.wait_synced()
    assert {plural: feed.told for plural, feed in feeds.items()} == {plural: [f"+a-{plural}"] for plural in WATCHED}
    assert contract.health() == {f"watch-{plural}": None for plural in WATCHED}
    assert contract.notes()["api-server"] == "v1.37.1, behaves as 1.37"
    assert cluster.contact_ages().keys() == WATCHED.keys()


async def test_health_names_what_is_not_listed_and_why(faults: Faults, make: Make) -> None:
    faults.plan("list", "resourceclaims", Fault(refuse=403, message="you may not list"), ALWAYS)
    cluster = make()
    await cluster.start({"resourceclaims": RecordingSink(), "pods": RecordingSink()})
    await until(lambda: cluster.health()["watch-pods"] is None)
    await until(lambda: "you may not" in (cluster.health()["watch-resourceclaims"] or ""))
    assert cluster.health()["watch-resourceclaims"] == (
        "resourceclaims are not listed yet (list resourceclaims: 403 Forbidden: you may not list)"
    )


@pytest.mark.parametrize("release", [Release(without=frozenset({StoredKind.POD_GROUP, StoredKind.TAINT_RULE}))])
async def test_a_kind_that_is_not_served_is_told_absent_and_noted(make: Make) -> None:
    feeds = {"podgroups": RecordingSink(), "devicetaintrules": RecordingSink()}
    cluster = make()
    await cluster.start(feeds)
    await cluster.wait_synced()
    assert [feed.told for feed in feeds.values()] == [["absent"], ["absent"]]
    assert {"pod-groups", "device-taint-rules"} <= cluster.notes().keys()


@pytest.mark.parametrize(("minor", "expected"), [("34", True), ("34+", True), ("35", False), ("37", False)])
async def test_release_tells_whether_slices_have_devices_beside_counters(
    faults: Faults, make: Make, minor: str, *, expected: bool
) -> None:
    version = {"major": "1", "minor": "37", "emulationMinor": minor, "gitVersion": "v1.37.1"}
    faults.plan("get", "/version", Fault(answer=(200, json.dumps(version).encode())))
    cluster = make()
    assert not cluster.has_devices_beside_counters
    await cluster.start({})
    assert cluster.has_devices_beside_counters is expected


async def test_a_kind_nobody_knows_is_refused(make: Make) -> None:
    with pytest.raises(ValueError, match=r"cannot watch secrets: known are resourceslices, .*devicetaintrules"):
        await make().start({"secrets": RecordingSink()})


async def test_a_refresh_returns_when_everything_stored_before_is_known(
    server: ApiServer, faults: Faults, make: Make
) -> None:
    feed = RecordingSink()
    cluster = make()
    await cluster.start({"resourceclaims": feed})
    await cluster.wait_synced()
    faults.plan("watch", "resourceclaims", Fault(refuse=503), ALWAYS)
    server.cut_watches()
    server.store.create(StoredKind.CLAIM, {"metadata": {"name": "missed"}, "spec": {}})
    await cluster.refresh()
    assert (feed.told, feed.lists) == (["+missed"], 2)


async def test_a_start_waits_for_a_server_that_is_not_up_yet(faults: Faults, make: Make, sleeper: Sleeper) -> None:
    faults.plan("get", "/version", Fault(refuse=503), times=3)
    await make().start({})
    assert len(sleeper.pauses) >= 3


async def test_the_patience_of_a_start_ends(faults: Faults, make: Make) -> None:
    clock = ManualClock()

    async def sleep(seconds: float) -> None:
        clock.pass_by(seconds)

    faults.plan("get", "/version", Fault(refuse=503, message="starting"), ALWAYS)
    with pytest.raises(ServerUnavailableError, match="get /version: 503 ServiceUnavailable: starting"):
        await make(clock=clock, chance=SleepAndJitter(sleep=sleep)).start({})
    assert 5 < len(faults.requests("get", "/version")) < 20


async def test_a_start_without_rights_or_configuration_fails_at_once(
    server: ApiServer, make: Make, settings: KubeSettings
) -> None:
    server.access.users.clear()
    with pytest.raises(RequestRejectedError, match="401"):
        await make().start({})
    assert settings.kubeconfig is not None
    missing = replace(settings, kubeconfig=settings.kubeconfig.with_name("missing"))
    with pytest.raises(ConfigurationError, match="does not exist"):
        await make(settings=missing).start({})


ROLES = "User cannot get path: RBAC is loading"
RIGHTS = [("get", "/version"), ("get", "/apis/resource.k8s.io"), ("list", "resourceclaims")]


async def started(cluster: KubeCluster, *plurals: str) -> None:
    await cluster.start({plural: RecordingSink() for plural in plurals})
    await cluster.wait_synced()


@pytest.mark.parametrize(("verb", "what"), RIGHTS)
async def test_a_start_waits_for_rights_that_are_loaded_late(
    faults: Faults, make: Make, sleeper: Sleeper, verb: str, what: str
) -> None:
    faults.plan(verb, what, Fault(refuse=403, message=ROLES), times=6)
    cluster = make()
    await started(cluster, "resourceclaims")
    # Others sleep for a minute.
    assert len([pause for pause in sleeper.pauses if pause <= 2]) >= 6
    assert {pause for pause in sleeper.pauses if pause > 2} <= {60.0}
    assert cluster.health() == {"watch-resourceclaims": None}


@pytest.mark.parametrize(("verb", "what"), RIGHTS)
async def test_a_start_without_a_right_ends_with_the_patience_and_names_verb_and_resource(
    faults: Faults, make: Make, settings: KubeSettings, verb: str, what: str
) -> None:
    right = f"{verb} {what}"
    clock = ManualClock()

    async def sleep(seconds: float) -> None:
        clock.pass_by(seconds)
        await asyncio.sleep(0)

    faults.plan(verb, what, Fault(refuse=403, message=ROLES), ALWAYS)
    with pytest.raises(
        RequestRejectedError, match=f"^the account lacks a right, for 60 s at least: {right}: 403 Forbidden: {ROLES}$"
    ):
        await started(make(clock=clock, chance=SleepAndJitter(sleep=sleep)), "resourceclaims")
    with pytest.raises(RequestRejectedError, match=f"for 0 s at least: {right}"):
        await started(make(settings=replace(settings, startup_timeout=0.0)), "resourceclaims")


async def test_optional_kinds_that_may_not_be_listed_do_not_delay_a_start_and_are_noted(
    server: ApiServer, faults: Faults, make: Make
) -> None:
    server.store.create(StoredKind.TAINT_RULE, {"metadata": {"name": "late"}, "spec": {}})
    faults.plan("list", "devicetaintrules", Fault(refuse=403, message="no list for you"), ALWAYS)
    feeds = {"resourceclaims": RecordingSink(), "devicetaintrules": RecordingSink()}
    cluster = make(chance=SleepAndJitter())
    await cluster.start(feeds)
    await cluster.wait_synced()
    assert feeds["devicetaintrules"].told == ["absent"]
    assert cluster.health() == {"watch-resourceclaims": None, "watch-devicetaintrules": None}
    assert cluster.notes()["forbidden-devicetaintrules"] == (
        "list devicetaintrules: 403 Forbidden: no list for you: only taints in slices count"
    )
    await cluster.refresh()
    faults.clear()
    await until(lambda: feeds["devicetaintrules"].told == ["absent", "+late"])
    await until(lambda: "forbidden-devicetaintrules" not in cluster.notes())


async def test_waiting_events_are_written_before_the_end_and_calls_after_it_are_unavailable(
    server: ApiServer, make: Make
) -> None:
    cluster = make()
    await cluster.start({})
    cluster.events.about_pod(Pod(namespace="space", name="p", uid="u"), warning=False, reason="R", message="m")
    await cluster.stop()
    assert [event["note"] for event in server.store.all(StoredKind.EVENT)] == ["m"]
    with pytest.raises(ServerUnavailableError):
        await cluster.claims.read("space", "claim")


async def test_troubles_with_which_the_service_goes_on_are_notes(make: Make) -> None:
    cluster = make()
    await cluster.start({})
    cluster.events.about_pod(Pod(namespace="none", name="p", uid="u"), warning=False, reason="R", message="m")
    await cluster.waker.wake()
    await cluster.events.flush()
    assert "does not exist" in cluster.notes()["wake-up"]
    assert "404" in cluster.notes()["events"]
    assert all(problem is None for problem in cluster.health().values())
