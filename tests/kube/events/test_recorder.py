import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiTransport
from dra_extender.kube.events import (
    BURST,
    MOST_SERIES,
    MOST_SERIES_OF_NAMESPACE,
    NAMESPACE_BURST,
    NAMESPACE_RATE,
    POD_BURST,
    QUEUE,
    KubeEvents,
    RecentSeries,
)
from dra_extender.model.pod import Pod
from dra_extender.runtime.supervision import running_task
from dra_extender.simulator.apiserver.objects import Key, StoredKind

from tests.simulation.api_server import ApiServer, Fault
from tests.simulation.faults import Faults
from tests.simulation.http_server import HttpRequest
from tests.support.kube.recording import CountingObserver, ManualClock
from tests.support.turns import until

POD = Pod(namespace="space", name="pod", uid="uid-pod")


def pod(number: int, namespace: str = "space") -> Pod:
    return Pod(namespace=namespace, name=f"pod-{number}", uid=f"uid-{namespace}-{number}")


class Desk:
    """An event writer on a simulated API server, with a clock that stands still unless moved."""

    def __init__(self, server: ApiServer, faults: Faults, transport: ApiTransport, settings: KubeSettings) -> None:
        self.store = server.store
        self.faults = faults
        self.clock = ManualClock()
        self.observer = CountingObserver()
        self.events = KubeEvents(transport, settings, self.clock, self.observer)

    def say(self, message: str = "no device fits", about: Pod = POD) -> None:
        self.events.about_pod(about, warning=True, reason="NoDevice", message=message)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        async with running_task(self.events.keep_writing()):
            yield

    async def written(self) -> list[HttpRequest]:
        """What was sent for what was said so far."""
        async with asyncio.timeout(120):
            await self.events.flush()
        return self.faults.seen

    def outcomes(self) -> list[str]:
        return [outcome for (outcome,) in self.observer.of("pod_event")]


@pytest.fixture
def desk(server: ApiServer, faults: Faults, transport: ApiTransport, settings: KubeSettings) -> Desk:
    return Desk(server, faults, transport, settings)


def body(seen: HttpRequest) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(seen.body)
    return decoded


def make_namespaces(desk: Desk, *names: str) -> None:
    for name in names:
        desk.store.create(StoredKind.NAMESPACE, {"metadata": {"name": name}})


async def written_when(desk: Desk, enough: Callable[[list[HttpRequest]], bool]) -> list[HttpRequest]:
    await until(lambda: enough(desk.faults.seen))
    return desk.faults.seen


async def test_an_event_regards_the_pod_and_says_who_reports(desk: Desk) -> None:
    async with desk.writing():
        desk.say()
        (seen,) = await desk.written()
    event = body(seen)
    assert event.pop("metadata") == {"namespace": "space", "name": "pod.60a24181e4000.1"}
    assert event == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "eventTime": "2023-11-14T22:13:20.000000Z",
        "type": "Warning",
        "reason": "NoDevice",
        "note": "no device fits",
        "action": "Scheduling",
        "reportingController": "dra-extender",
        "reportingInstance": "replica-0",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": "space", "name": "pod", "uid": "uid-pod"},
    }


async def test_the_same_text_within_ten_minutes_raises_the_count_of_one_object(desk: Desk) -> None:
    async with desk.writing():
        desk.say()
        (created,) = await desk.written()
        desk.clock.pass_by(599)
        desk.say()
        _, patch = await desk.written()
        assert (patch.method, patch.path) == ("PATCH", f"{created.path}/{body(created)['metadata']['name']}")
        assert patch.headers["content-type"] == "application/merge-patch+json"
        assert body(patch) == {"series": {"count": 2, "lastObservedTime": "2023-11-14T22:23:19.000000Z"}}
        desk.clock.pass_by(601)
        desk.say()
        assert [seen.method for seen in await desk.written()] == ["POST", "PATCH", "POST"]


async def test_another_pod_reason_or_text_is_another_object(desk: Desk) -> None:
    async with desk.writing():
        desk.say()
        desk.say("something else")
        desk.say(about=pod(1))
        desk.events.about_pod(POD, warning=True, reason="Other", message="no device fits")
        desk.events.about_pod(POD, warning=False, reason="NoDevice", message="no device fits")
        written = await desk.written()
        assert [seen.method for seen in written] == ["POST"] * 5
        assert len({body(seen)["metadata"]["name"] for seen in written}) == 5


async def test_repetitions_before_the_first_write_are_one_write(desk: Desk) -> None:
    for _ in range(1000):
        desk.say()
    async with desk.writing():
        (seen,) = await desk.written()
        assert body(seen)["series"]["count"] == 1000


async def test_one_pod_cannot_take_the_place_of_others(desk: Desk) -> None:
    async with desk.writing():
        for number in range(20):
            desk.say(f"text {number}")
        assert len(await desk.written()) == POD_BURST
        assert desk.outcomes().count("limited") == 20 - POD_BURST
        desk.say(about=pod(1))
        assert len(await desk.written()) == POD_BURST + 1
        desk.clock.pass_by(30)
        desk.say("text 19")
        last = (await desk.written())[-1]
        assert (body(last)["note"], body(last)["series"]["count"]) == ("text 19", 2)


async def test_the_pods_of_a_namespace_together_are_limited(desk: Desk) -> None:
    async with desk.writing():
        for number in range(200):
            desk.say(about=pod(number))
        assert len(await desk.written()) == NAMESPACE_BURST
        desk.clock.pass_by(1)
        for number in range(200, 400):
            desk.say(about=pod(number))
        assert len(await desk.written()) == NAMESPACE_BURST + NAMESPACE_RATE


async def test_all_namespaces_together_are_limited_and_nothing_within_their_own_limits_is_lost(desk: Desk) -> None:
    make_namespaces(desk, "a", "b", "c")
    for each in ("a", "b", "c"):
        for number in range(int(NAMESPACE_BURST)):
            desk.say(about=pod(number, each))
    async with desk.writing():
        await written_when(desk, lambda seen: len(seen) == BURST)
        desk.clock.pass_by(100)
        assert len(await desk.written()) == 3 * NAMESPACE_BURST


async def test_twenty_namespaces_that_flood_do_not_silence_another(desk: Desk) -> None:
    """The namespace gets all through that it would get through alone, and waits for no more than its share of the others."""
    floods = [f"flood-{number}" for number in range(20)]
    make_namespaces(desk, "victim", *floods)
    for number in range(200):
        for each in floods:
            desk.say(about=pod(number, each))
    for number in range(40):
        desk.say(about=pod(number, "victim"))
    async with desk.writing():
        before = 0
        while before < 40 * (len(floods) + 1):
            desk.clock.pass_by(1)
            await asyncio.sleep(0.001)
            seen = [each.path for each in desk.faults.seen]
            if sum("/victim/" in path for path in seen) == 40:
                break
            before = len(seen)
        else:
            raise AssertionError("the victim's Events had to wait for more than its share")
    assert not [outcome for outcome in desk.outcomes() if outcome == "failed"]


async def test_a_full_queue_drops_and_does_not_wait(desk: Desk) -> None:
    for number in range(QUEUE + 50):
        desk.clock.pass_by(1)
        desk.say(about=pod(number))
    assert desk.outcomes() == ["overflowed"] * 50


async def test_a_full_queue_drops_what_the_longest_namespace_said_last(desk: Desk) -> None:
    make_namespaces(desk, "victim")
    for number in range(QUEUE):
        desk.clock.pass_by(1)
        desk.say(about=pod(number))
    for number in range(20):
        desk.say(about=pod(number, "victim"))
    assert desk.outcomes() == ["overflowed"] * 20
    async with desk.writing():
        seen = await written_when(desk, lambda seen: sum("/victim/" in each.path for each in seen) == 20)
        places = [place for place, each in enumerate(seen, 1) if "/victim/" in each.path]
    assert places[-1] <= 41


def test_a_namespace_that_says_much_makes_no_other_forgotten() -> None:
    recent = RecentSeries(600.0, MOST_SERIES, MOST_SERIES_OF_NAMESPACE)
    recent.record(pod(0, "victim"), "Warning", "R", "text", 0.0)
    for number in range(2 * MOST_SERIES):
        recent.record(pod(number, f"flood-{number % 20}"), "Warning", "R", "text", 1.0)
        assert len(recent) <= MOST_SERIES
    assert recent.record(pod(0, "victim"), "Warning", "R", "text", 2.0).count == 2


async def test_a_refusal_is_counted_and_told_and_the_next_text_is_tried_again(desk: Desk) -> None:
    desk.faults.plan("create", "events", Fault(refuse=403, message="you may not"))
    async with desk.writing():
        desk.say()
        await desk.written()
        assert (desk.events.last_error or "").endswith("403 Forbidden: you may not")
        desk.say()
        await desk.written()
        assert desk.events.last_error is None
        assert desk.outcomes() == ["failed", "written"]


async def test_an_object_that_expired_is_made_again_with_its_count(desk: Desk) -> None:
    async with desk.writing():
        desk.say()
        (created,) = await desk.written()
        desk.store.delete(Key(StoredKind.EVENT, "space", body(created)["metadata"]["name"]))
        desk.say()
        seen = await desk.written()
        assert [each.method for each in seen] == ["POST", "PATCH", "POST"]
        assert body(seen[2])["series"]["count"] == 2
        assert body(seen[2])["metadata"] == body(seen[0])["metadata"]


async def test_an_odd_pod_or_text_raises_nothing(desk: Desk) -> None:
    async with desk.writing():
        desk.say("lone \ud800 surrogate")
        desk.say(about=Pod(namespace="", name="", uid=""))
        desk.say()
        await desk.written()
        assert desk.outcomes() == ["written", "failed", "written"]
