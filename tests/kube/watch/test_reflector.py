import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from dra_extender.kube.client.backoff import LONGEST, SHORTEST, Backoff, SleepAndJitter
from dra_extender.kube.client.errors import ApiCallError
from dra_extender.kube.client.objects import ResourceKind
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiCall, ApiTransport
from dra_extender.kube.reflector import Reflector, lines
from dra_extender.runtime.clock import SystemClock
from dra_extender.runtime.supervision import running_task
from dra_extender.simulator.apiserver.objects import Key, StoredKind
from hypothesis import given
from hypothesis import strategies as st

from tests.simulation.api_requests import StatusError
from tests.simulation.api_server import ApiServer, Fault
from tests.simulation.faults import ALWAYS, Faults
from tests.support.kube.recording import CountingObserver, ManualClock, RecordingSink, Sleeper
from tests.support.turns import until

LEASES = StoredKind.LEASE
"""A kind whose objects have a namespace and may say anything."""


class Bench:
    """One reflector on a simulated API server."""

    def __init__(self, server: ApiServer, faults: Faults, transport: ApiTransport, settings: KubeSettings) -> None:
        self.server = server
        self.faults = faults
        self.transport = transport
        self.settings = settings
        self.feed = RecordingSink()
        self.observer = CountingObserver()
        self.sleeper = Sleeper()
        self.clock = SystemClock()
        self._changes = 0

    @asynccontextmanager
    async def running(self, *, synced: bool = True) -> AsyncIterator[Reflector]:
        kind = ResourceKind("leases", "coordination.k8s.io/v1")
        chance = SleepAndJitter(sleep=self.sleeper, number=lambda: 0.5)
        reflector = Reflector(
            self.transport, kind, self.feed, self.settings, self.clock, observer=self.observer, chance=chance
        )
        async with running_task(reflector.keep_watching()):
            if synced:
                async with asyncio.timeout(120):
                    await reflector.synced.wait()
                await until(self.watches)
            yield reflector

    def put(self, name: str, uid: str = "", **more: Any) -> None:
        """Create or change an object."""
        key = Key(LEASES, "space", name)
        if self.server.store.find(key) is None:
            metadata = {"name": name, "namespace": "space", "uid": uid or f"uid-{name}"}
            self.server.store.create(LEASES, {"metadata": metadata, **more})
            return
        self._changes += 1
        self.server.store.edit_unchecked(key, lambda stored: stored.update(change=self._changes))

    def delete(self, name: str) -> None:
        self.server.store.delete(Key(LEASES, "space", name))

    def send(self, line: bytes) -> None:
        """Send a line to the watch that is open."""
        self.server.send(LEASES, line + b"\n")

    def bookmark(self, version: int) -> None:
        event = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version)}}}
        self.send(json.dumps(event).encode())

    def fail(self, verb: str, fault: Fault, times: int = 1) -> None:
        self.faults.plan(verb, "leases", fault, times)

    def lists(self) -> list[dict[str, str]]:
        return [each.query for each in self.faults.requests("list", "leases")]

    def watches(self) -> list[dict[str, str]]:
        return [each.query for each in self.faults.requests("watch", "leases")]


def status(code: int, reason: str, **details: Any) -> bytes:
    """A Status as an answer or an event has it."""
    return json.dumps(StatusError(code, reason, "slowly", **details).body).encode()


KIB = 1024


@pytest.fixture
def bench(server: ApiServer, faults: Faults, transport: ApiTransport, settings: KubeSettings) -> Bench:
    return Bench(server, faults, transport, settings)


async def test_a_list_is_read_in_pages_of_one_version(bench: Bench) -> None:
    for number in range(7):
        bench.put(f"t{number}")
    bench.settings = replace(bench.settings, watch=replace(bench.settings.watch, page=3))
    async with bench.running():
        assert bench.feed.told == [f"+t{number}" for number in range(7)]
        assert [sorted(query) for query in bench.lists()] == [["limit"], ["continue", "limit"], ["continue", "limit"]]
        assert bench.feed.lists == 1
        assert bench.observer.of("listed") == [("leases", "7")]


async def test_a_page_of_objects_that_are_larger_than_those_before_is_not_read_whole(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant's small objects come before its large ones: no number of objects suits both."""
    monkeypatch.setattr("dra_extender.kube.reflector.PAGE_BYTES", KIB * 64)
    monkeypatch.setattr("dra_extender.kube.reflector.MOST_BYTES", KIB * 512, raising=False)
    for number in range(600):
        bench.put(f"a{number:03}")
    for number in range(80):
        bench.put(f"b{number:03}", data="x" * KIB * 64)
    read = 0
    send = bench.transport.send

    async def counted(call: ApiCall) -> bytes:
        nonlocal read
        answer = await send(call)
        read = max(read, len(answer))
        return answer

    bench.transport.send = counted  # type: ignore[method-assign]
    async with bench.running():
        assert len(bench.feed.told) == 680
        assert len(set(bench.feed.told)) == 680
        assert 0 < read <= KIB * 512
        assert bench.feed.lists == 1


async def test_a_watch_asks_for_bookmarks_and_for_an_end_and_begins_at_the_version_of_the_list(bench: Bench) -> None:
    bench.put("a")
    async with bench.running():
        assert bench.watches() == [
            {
                "watch": "true",
                "allowWatchBookmarks": "true",
                "resourceVersion": str(bench.server.store.version),
                "timeoutSeconds": "360",
            }
        ]


async def test_changes_and_deletions_arrive_in_order(bench: Bench) -> None:
    bench.put("a")
    async with bench.running():
        bench.put("b")
        bench.put("a")
        bench.delete("a")
        await until(lambda: len(bench.feed.told) == 4)
        assert bench.feed.told == ["+a", "+b", "+a", "-space/a uid-a"]
        assert bench.observer.of("watch_event") == [("leases", kind) for kind in ("ADDED", "MODIFIED", "DELETED")]


async def test_a_bookmark_moves_the_version_from_which_a_watch_resumes(bench: Bench) -> None:
    bench.put("a")
    async with bench.running():
        bench.bookmark(17)
        await until(lambda: ("leases", "BOOKMARK") in bench.observer.of("watch_event"))
        bench.server.end_watches(LEASES)
        await until(lambda: len(bench.watches()) == 2)
        assert bench.watches()[1]["resourceVersion"] == "17"
        assert (len(bench.lists()), bench.feed.told, bench.sleeper.pauses) == (1, ["+a"], [])


@pytest.mark.parametrize("as_event", [False, True], ids=["as an answer", "as an event"])
async def test_a_forgotten_version_leads_to_a_new_list_of_which_only_differences_are_told(
    bench: Bench, as_event: bool
) -> None:
    for name in ("same", "changed", "gone", "again"):
        bench.put(name)
    async with bench.running():
        bench.feed.take()
        bench.fail("watch", Fault(refuse=503), ALWAYS)
        bench.server.cut_watches()
        await until(lambda: len(bench.watches()) > 1)
        bench.put("new")
        bench.put("changed")
        bench.delete("gone")
        bench.delete("again")
        bench.put("again", "another")
        bench.server.compact()
        bench.faults.clear()
        if not as_event:
            bench.fail("watch", Fault(refuse=410))
        await until(lambda: bench.feed.lists == 2)
        expected = ["+again", "+changed", "+new", "-space/again uid-again", "-space/gone uid-gone"]
        assert sorted(bench.feed.take()) == expected
        assert ("leases", "gone") in bench.observer.of("relisting")
        bench.put("later")
        await until(lambda: bench.feed.told == ["+later"])


async def test_a_recreated_object_is_deleted_before_it_is_added(bench: Bench) -> None:
    bench.put("a")
    async with bench.running():
        bench.server.cut_watches()
        bench.delete("a")
        bench.put("a", "second")
        bench.server.compact()
        await until(lambda: bench.feed.lists == 2)
        assert bench.feed.told == ["+a", "-space/a uid-a", "+a"]


async def test_a_list_asked_for_tells_nothing_that_is_known(bench: Bench) -> None:
    bench.put("a")
    async with bench.running() as reflector:
        reflector.relist()
        assert reflector.health() == "leases are not listed yet"
        await reflector.synced.wait()
        assert (bench.feed.told, bench.feed.lists, len(bench.lists())) == (["+a"], 2, 2)
        bench.put("b")
        await until(lambda: bench.feed.told == ["+a", "+b"])
        assert reflector.health() is None
        assert bench.sleeper.pauses == []


async def test_a_list_that_lasts_longer_than_its_version_is_made_in_one_page(bench: Bench) -> None:
    for number in range(5):
        bench.put(f"t{number}")
    bench.settings = replace(bench.settings, watch=replace(bench.settings.watch, page=2))

    def compact() -> None:
        bench.server.store.create(StoredKind.NODE, {"metadata": {"name": "other"}})
        bench.server.compact()

    bench.faults.plan("list", "leases", Fault())
    bench.faults.plan("list", "leases", compact)
    async with bench.running():
        assert [sorted(query) for query in bench.lists()] == [["limit"], ["continue", "limit"], []]
        assert sorted(bench.feed.told) == [f"+t{number}" for number in range(5)]


@pytest.mark.parametrize("before", [0, 6])
async def test_forbidden_watches_are_retried_within_two_seconds_at_first_however_long_the_outage_was(
    bench: Bench, before: int
) -> None:
    """An API server that was restarted loads its roles after it answers."""
    bench.sleeper = Sleeper(limit=before + 35)
    bench.fail("watch", Fault(refuse=500), before)
    bench.fail("watch", Fault(refuse=403), ALWAYS)
    async with bench.running() as reflector:
        await until(lambda: len(bench.sleeper.pauses) == before + 35)
        forbidden = bench.sleeper.pauses[before:]
        assert forbidden[:6] == pytest.approx([0.2, 0.3, 0.6, 1.2, 2.0, 2.0])
        assert max(forbidden[:30]) == 2.0
        assert forbidden[30:] == pytest.approx([22.5] * 5)
        assert reflector.refusals == 35


@pytest.mark.parametrize("code", [429, 500])
async def test_refused_watches_are_retried_ever_more_slowly(bench: Bench, code: int) -> None:
    bench.sleeper = Sleeper(limit=10)
    bench.fail("watch", Fault(refuse=code), ALWAYS)
    async with bench.running() as reflector:
        await until(lambda: len(bench.sleeper.pauses) == 10)
        assert len(bench.watches()) == 10
        # A jitter of one half takes a quarter away, except where the shortest pause is reached.
        assert bench.sleeper.pauses == pytest.approx([0.2, 0.3, 0.6, 1.2, 2.4, 4.8, 9.6, 19.2, 22.5, 22.5])
        assert (len(bench.lists()), bench.observer.of("watch_failed")[0]) == (1, ("leases", str(code)))
        assert reflector.last_error is not None
        assert f"watch leases: {code}" in reflector.last_error


async def test_the_server_decides_how_long_to_wait_at_least(bench: Bench) -> None:
    bench.sleeper = Sleeper(limit=2)
    bench.fail("list", Fault(refuse=429, retry_after=7))
    async with bench.running(synced=False) as reflector:
        await reflector.synced.wait()
        assert bench.sleeper.pauses == [7.0]
        await until(bench.watches)
        bench.send(b'{"type":"ERROR","object":%b}' % status(429, "TooManyRequests", retry_after=11))
        await until(lambda: len(bench.sleeper.pauses) == 2)
        assert bench.sleeper.pauses[1] == 11.0


async def test_watches_that_end_at_once_do_not_become_a_busy_loop(bench: Bench) -> None:
    bench.sleeper = Sleeper(limit=6)
    bench.fail("watch", Fault(answer=(200, b"")), ALWAYS)
    async with bench.running():
        await until(lambda: len(bench.sleeper.pauses) == 6)
        assert (len(bench.watches()), len(bench.lists())) == (6, 1)
        assert set(bench.observer.of("watch_failed")) == {("leases", "closed")}


async def test_a_version_that_is_always_gone_is_listed_ever_more_slowly(bench: Bench) -> None:
    bench.sleeper = Sleeper(limit=6)
    bench.fail("watch", Fault(refuse=410), ALWAYS)
    async with bench.running():
        await until(lambda: len(bench.sleeper.pauses) == 6)
        assert (len(bench.watches()), len(bench.lists())) == (6, 6)
        assert bench.sleeper.pauses[-1] > 2.0


async def test_success_makes_the_next_pause_short_again(bench: Bench) -> None:
    bench.fail("watch", Fault(refuse=500), 4)
    async with bench.running():
        await until(lambda: len(bench.sleeper.pauses) == 4)
        bench.put("a")
        await until(lambda: bench.feed.told)
        bench.fail("watch", Fault(refuse=500))
        bench.server.end_watches(LEASES)
        await until(lambda: len(bench.sleeper.pauses) == 5)
        assert bench.sleeper.pauses[4] < bench.sleeper.pauses[3]


async def test_a_silent_watch_is_made_anew(bench: Bench) -> None:
    bench.settings = replace(bench.settings, watch=replace(bench.settings.watch, stall=0.05))
    async with bench.running():
        await until(lambda: len(bench.watches()) >= 3)
        bench.put("a")
        await until(lambda: bench.feed.told == ["+a"])
        assert (len(bench.lists()), bench.sleeper.pauses, bench.observer.of("watch_failed")) == (1, [], [])


async def test_a_quiet_kind_is_healthy_as_long_as_its_watches_are_accepted(bench: Bench) -> None:
    """API servers do not promise bookmarks: for a quiet kind none may come."""
    clock = ManualClock()
    bench.clock = clock  # type: ignore[assignment]
    bench.settings = replace(bench.settings, watch=replace(bench.settings.watch, stall=0.05))
    async with bench.running() as reflector:
        for number in range(2, 6):
            clock.pass_by(100)
            await until(partial(lambda wanted: len(bench.watches()) >= wanted, number))
            await until(lambda: reflector.last_contact == clock.steady)
        assert reflector.health() is None


async def test_a_watch_that_is_not_even_accepted_is_a_failure(bench: Bench) -> None:
    bench.settings = replace(bench.settings, watch=replace(bench.settings.watch, stall=0.05))
    bench.fail("watch", Fault(delay=3600))
    async with bench.running() as reflector:
        await until(lambda: bench.sleeper.pauses)
        assert bench.observer.of("watch_failed") == [("leases", "stalled")]
        bench.put("a")
        await until(lambda: bench.feed.told == ["+a"])
        assert reflector.last_error is None


async def test_silence_becomes_a_sentence_in_health(bench: Bench) -> None:
    clock = ManualClock()
    bench.clock = clock  # type: ignore[assignment]
    async with bench.running() as reflector:
        assert reflector.health() is None
        clock.pass_by(200)
        assert reflector.health() == "nothing was heard of leases for 200 s"
        bench.bookmark(17)
        await until(lambda: reflector.health() is None)


async def test_one_bad_object_does_not_stop_the_others(bench: Bench) -> None:
    bench.feed.unreadable = {"bad"}
    bench.feed.broken = {"bug"}
    for name in ("a", "bad", "bug", "b"):
        bench.put(name)
    async with bench.running() as reflector:
        bench.send(b"<html>no event</html>")
        bench.send(b'{"type":"ADDED","object":{"metadata":{"name":17}}}')
        bench.put("c")
        await until(lambda: bench.feed.told == ["+a", "+b", "+c"])
        assert len(bench.observer.of("unreadable")) == 4
        assert reflector.notes() == {
            "unreadable-leases": "4 of the leases cannot be read, such as space/bug: RuntimeError: a fault at bug"
        }
        assert reflector.health() is None
        bench.feed.unreadable.clear()
        bench.put("bad")
        bench.delete("bug")
        await until(lambda: bench.feed.told[-1] == "-space/bug uid-bug")
        assert "+bad" in bench.feed.told
        reflector.relist()
        await reflector.synced.wait()
        assert reflector.notes() == {}


@pytest.mark.parametrize("watched", [False, True], ids=["listed", "watched"])
async def test_others_get_a_turn_after_every_object(bench: Bench, watched: bool) -> None:
    """A crowd of objects that arrives at once does not hold up requests."""
    turns = 0
    seen: list[int] = []

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def changed(data: bytes) -> None:
        seen.append(turns)

    bench.feed.changed = changed  # type: ignore[method-assign]
    if not watched:
        for number in range(50):
            bench.put(f"t{number}")
    task = asyncio.create_task(other())
    async with bench.running():
        if watched:
            for number in range(50):
                bench.put(f"t{number}")
        await until(lambda: len(seen) == 50)
    task.cancel()
    assert len(set(seen)) == 50


async def test_a_server_whose_versions_went_back_is_listed_again(bench: Bench) -> None:
    bench.put("a")
    async with bench.running():
        bench.put("b")
        await until(lambda: len(bench.feed.told) == 2)
        bench.bookmark(1)
        await until(lambda: bench.feed.lists == 2)
        assert bench.observer.of("relisting") == [("leases", "gone")]


async def test_a_version_that_the_server_has_not_reached_leads_to_a_new_list(bench: Bench) -> None:
    async with bench.running():
        causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
        bench.fail("watch", Fault(answer=(504, status(504, "Timeout", causes=causes))))
        bench.server.cut_watches()
        await until(lambda: bench.feed.lists == 2)


async def test_a_server_that_is_away_costs_pauses_and_nothing_is_lost(bench: Bench) -> None:
    """The connection breaks in the middle of an event; the whole event comes with the next watch."""
    async with bench.running():
        bench.server.send(LEASES, b'{"type":"ADDED","object":{"metadata":{"na')
        bench.server.cut_watches()
        bench.put("a")
        await until(lambda: bench.feed.told == ["+a"])
        assert ("leases", "connection") in bench.observer.of("watch_failed")


async def stream(pieces: list[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=20))
async def test_lines_do_not_depend_on_where_the_stream_is_cut(data: bytes, cuts: list[int]) -> None:
    """What follows the last line break never comes out, and empty lines neither."""
    places = [0, *sorted(cuts), len(data)]
    pieces = [data[start:end] for start, end in pairwise(places)]
    whole = [line for line in data.split(b"\n")[:-1] if line and not line.isspace()]
    assert [line async for line in lines(stream(pieces))] == whole


async def test_a_line_without_end_is_refused_before_it_fills_the_memory() -> None:
    with pytest.raises(ApiCallError, match="longer than 100 bytes"):
        [line async for line in lines(stream([b"x" * 30] * 4), longest=100)]
    assert [line async for line in lines(stream([b"x" * 30, b"\n"] * 4), longest=100)] == [b"x" * 30] * 4


@given(st.floats(0, 1, exclude_max=True), st.integers(0, 2000), st.floats(0, 100))
def test_a_pause_is_within_its_limits_and_never_shorter_than_asked_for(
    chance: float, failed: int, asked: float
) -> None:
    backoff = Backoff(lambda: chance)
    backoff.failures = failed
    pause = backoff.next(asked)
    assert max(asked, SHORTEST) <= pause <= max(asked, LONGEST)
