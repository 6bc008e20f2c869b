"""Whatever one object does to the decoder costs that object alone."""

from dataclasses import dataclass

import pytest
from aiohttp import web

from app.kube.delivery import read_meta
from app.kube.settings import KubeSettings
from app.kube.transport import Transport
from tests.kube.fake_api_server import FakeApiServer
from tests.kube.recording import RecordingFeed, until
from tests.kube.test_reflector import THINGS, Bench

ODD = {
    "deep": b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
    "half a pair": rb'"\ud800"',
}


@dataclass
class NamesFeed(RecordingFeed):
    """Reads names alone."""

    def changed(self, data: bytes) -> None:
        meta = read_meta(data)
        assert meta is not None
        self.told.append(f"+{meta.name}")
        self.raw.append(data)


@pytest.fixture
def bench(server: FakeApiServer, transport: Transport, settings: KubeSettings) -> Bench:
    made = Bench(server, transport, settings)
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
        bench.server.version += 1
        text = thing("odd", bench.server.version, parameters)
        bench.server.line(THINGS, b'{"type":"ADDED","object":' + text + b"}")
        bench.server.put(THINGS, "next")
        await until(lambda: "+next" in bench.feed.told)
        assert (bench.feed.told, bench.feed.raw[0]) == (["+odd", "+next"], text)
        assert (reflector.health(), reflector.notes(), bench.sleeper.pauses) == (None, {}, [])


@pytest.mark.parametrize("parameters", ODD.values(), ids=ODD)
async def test_a_list_with_an_object_that_the_decoder_does_not_get_through_is_complete(
    bench: Bench, parameters: bytes
) -> None:
    items = [thing("a", 1), thing("odd", 2, parameters), thing("z", 3)]
    page = b'{"metadata":{"resourceVersion":"100"},"items":[' + b",".join(items) + b"]}"
    bench.server.intervene(
        "GET", THINGS, lambda _: web.Response(body=page, content_type="application/json"), watch=False
    )
    async with bench.running() as reflector:
        assert (bench.feed.told, bench.feed.raw) == (["+a", "+odd", "+z"], items)
        assert (reflector.health(), reflector.notes(), bench.sleeper.pauses) == (None, {}, [])
