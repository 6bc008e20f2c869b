"""Whatever one object does to the decoder costs that object alone."""

from dataclasses import dataclass

import pytest
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiTransport
from dra_extender.kube.reflector import next_size, read_meta

from tests.kube.watch.test_reflector import Bench
from tests.simulation.api_server import ApiServer, Fault
from tests.simulation.faults import Faults
from tests.support.kube.recording import RecordingSink
from tests.support.turns import until

ODD = {
    "deep": b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
    "half a pair": rb'"\ud800"',
}


@dataclass
class NamesFeed(RecordingSink):
    """Reads names alone."""

    def changed(self, data: bytes) -> None:
        meta = read_meta(data)
        assert meta is not None
        self.told.append(f"+{meta.name}")
        self.raw.append(data)


@pytest.fixture
def bench(server: ApiServer, faults: Faults, transport: ApiTransport, settings: KubeSettings) -> Bench:
    made = Bench(server, faults, transport, settings)
    made.feed = NamesFeed()
    return made


def thing(name: str, version: int, parameters: bytes = b"{}") -> bytes:
    return b'{"metadata":{"name":"%b","uid":"u-%b","resourceVersion":"%d"},"spec":{"parameters":%b}}' % (
        name.encode(),
        name.encode(),
        version,
        parameters,
    )


@pytest.mark.parametrize("parameters", ODD.values(), ids=ODD)
async def test_an_event_that_the_decoder_does_not_get_through_is_delivered_byte_by_byte(
    bench: Bench, parameters: bytes
) -> None:
    async with bench.running() as reflector:
        text = thing("odd", bench.server.store.version, parameters)
        bench.send(b'{"type":"ADDED","object":' + text + b"}")
        bench.put("next")
        await until(lambda: "+next" in bench.feed.told)
        assert (bench.feed.told, bench.feed.raw[0]) == (["+odd", "+next"], text)
        assert (reflector.health(), reflector.notes(), bench.sleeper.pauses) == (None, {}, [])


@pytest.mark.parametrize("parameters", ODD.values(), ids=ODD)
async def test_a_list_with_an_object_that_the_decoder_does_not_get_through_is_complete(
    bench: Bench, parameters: bytes
) -> None:
    items = [thing("a", 1), thing("odd", 2, parameters), thing("z", 3)]
    page = b'{"metadata":{"resourceVersion":"100"},"items":[' + b",".join(items) + b"]}"
    bench.fail("list", Fault(answer=(200, page)))
    async with bench.running() as reflector:
        assert (bench.feed.told, bench.feed.raw) == (["+a", "+odd", "+z"], items)
        assert (reflector.health(), reflector.notes(), bench.sleeper.pauses) == (None, {}, [])


async def test_a_list_is_paged_by_the_sizes_of_its_objects(bench: Bench) -> None:
    """A page of large objects makes the next one smaller, one of small objects larger, up to the limit."""
    for number in range(60):
        bench.put(f"t{number:03}", text="x" * (2**20 if number < 30 else 1))
    async with bench.running():
        sizes = [int(query["limit"]) for query in bench.lists()]
        assert len(bench.feed.told) == 60
        assert sizes[:3] == [16, 3, 3]
        assert 3 < max(sizes) <= 250
        assert bench.lists()[0] == {"limit": "16"}


@pytest.mark.parametrize(
    ("size", "objects", "read", "expected"),
    [(16, 16, 16_000, 64), (400, 400, 400_000, 500), (16, 16, 2**30, 1), (64, 64, 2**23, 32), (16, 0, 100, 1)],
)
def test_the_next_page_follows_from_the_one_before(size: int, objects: int, read: int, expected: int) -> None:
    assert next_size(size, objects, read, 500) == expected


async def test_a_reflector_that_stumbles_again_and_again_says_so_and_lists_anew(bench: Bench) -> None:
    async with bench.running() as reflector:
        broken = 0

        def stumble(kind: str, event: str) -> None:
            nonlocal broken
            broken += 1
            if broken <= 4:
                raise MemoryError
            healthy.append(reflector.health())

        healthy: list[str | None] = []
        bench.observer.watch_event = stumble  # type: ignore[method-assign]
        bench.put("a")
        await until(lambda: "+a" in bench.feed.told)
        assert len(bench.lists()) == 2
        assert bench.observer.of("background_failed") == [("watch-leases",)] * 3
        await until(lambda: reflector.health() is None)


async def test_a_deletion_that_fails_is_named_and_tried_again(bench: Bench) -> None:
    class Stubborn(NamesFeed):
        fails = 1

        def deleted(self, namespace: str, name: str, uid: str) -> None:
            if self.fails:
                self.fails -= 1
                raise KeyError(uid)
            super().deleted(namespace, name, uid)

    bench.feed = Stubborn()
    bench.put("a")
    async with bench.running() as reflector:
        bench.delete("a")
        await until(reflector.notes)
        assert "its deletion could not be taken in: KeyError" in reflector.notes()["unreadable-leases"]
        assert bench.observer.of("unreadable") == [("leases",)]
        reflector.relist()
        await until(lambda: bench.feed.told == ["+a", "-space/a uid-a"])
        assert reflector.notes() == {}
