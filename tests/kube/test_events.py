import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from app.kube.event_series import NOTE_LIMIT, shorten
from app.kube.events import BURST, POD_BURST, QUEUE, KubeEvents
from app.kube.settings import KubeSettings
from app.kube.transport import Transport
from app.model.pod import Pod
from tests.kube.fake_api_server import FakeApiServer, Seen, status_answer
from tests.kube.recording import CountingObserver, ManualClock

EVENTS = "/apis/events.k8s.io/v1/namespaces/space/events"
POD = Pod(namespace="space", name="pod", uid="uid-pod")


def pod(number: int) -> Pod:
    return Pod(namespace="space", name=f"pod-{number}", uid=f"uid-{number}")


class Desk:
    """An event writer on a fake server, with a clock that stands still unless moved."""

    def __init__(self, server: FakeApiServer, transport: Transport, settings: KubeSettings) -> None:
        self.server = server
        self.clock = ManualClock()
        self.observer = CountingObserver()
        self.events = KubeEvents(transport, settings, self.clock, self.observer)

    def say(self, message: str = "no device fits", about: Pod = POD) -> None:
        self.events.about_pod(about, warning=True, reason="NoDevice", message=message)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.events.run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def written(self) -> list[Seen]:
        """What was sent for what was said so far."""
        async with asyncio.timeout(10):
            await self.events.flush()
        return self.server.seen

    def outcomes(self) -> list[str]:
        return [outcome for (outcome,) in self.observer.of("pod_event")]


@pytest.fixture
def desk(server: FakeApiServer, transport: Transport, settings: KubeSettings) -> Desk:
    def accept(request: web.Request) -> web.Response:
        return web.json_response({}, status=201)

    server.intervene("POST", EVENTS, accept, times=10_000)
    return Desk(server, transport, settings)


def body(seen: Seen) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(seen.body)
    return decoded


def accept_patches(desk: Desk, of: Seen) -> str:
    name: str = body(of)["metadata"]["name"]
    desk.server.intervene("PATCH", f"{EVENTS}/{name}", lambda _: web.json_response({}), times=100)
    return name


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
        name = accept_patches(desk, (await desk.written())[0])
        desk.clock.pass_by(599)
        desk.say()
        _, patch = await desk.written()
        assert (patch.method, patch.path) == ("PATCH", f"{EVENTS}/{name}")
        assert patch.headers["Content-Type"] == "application/merge-patch+json"
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


async def test_all_pods_together_are_limited(desk: Desk) -> None:
    async with desk.writing():
        for number in range(200):
            desk.say(about=pod(number))
        assert len(await desk.written()) == BURST
        desk.clock.pass_by(1)
        for number in range(200, 400):
            desk.say(about=pod(number))
        assert len(await desk.written()) == BURST + 10


async def test_a_full_queue_drops_and_does_not_wait(desk: Desk) -> None:
    for number in range(QUEUE + 50):
        desk.clock.pass_by(1)
        desk.say(about=pod(number))
    assert desk.outcomes() == ["overflowed"] * 50


async def test_a_refusal_is_counted_and_told_and_the_next_text_is_tried_again(desk: Desk) -> None:
    desk.server._interventions.clear()
    desk.server.intervene("POST", EVENTS, lambda _: status_answer(403, "Forbidden", "you may not"))
    desk.server.intervene("POST", EVENTS, lambda _: web.json_response({}))
    async with desk.writing():
        desk.say()
        await desk.written()
        assert (desk.events.trouble or "").endswith("403 Forbidden: you may not")
        desk.say()
        await desk.written()
        assert desk.events.trouble is None
        assert desk.outcomes() == ["failed", "written"]


async def test_an_object_that_expired_is_made_again_with_its_count(desk: Desk) -> None:
    async with desk.writing():
        desk.say()
        await desk.written()
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


@given(st.text(max_size=3000))
def test_a_note_is_a_beginning_of_the_text_and_fits(text: str) -> None:
    note = shorten(text)
    assert len(note.encode()) <= NOTE_LIMIT
    if len(text.encode(errors="replace")) <= NOTE_LIMIT:
        assert note == text.encode(errors="replace").decode()
    else:
        assert note.endswith("…")
        assert text.encode(errors="replace").decode().startswith(note[:-1])
        assert len(note.encode()) > NOTE_LIMIT - 8
