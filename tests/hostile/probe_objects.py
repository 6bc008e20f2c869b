"""Probes of what objects cost that are taken in: CPU for each, bytes kept for bytes given, and what remains of deleted ones."""

import gc
import importlib
import tracemalloc
from collections.abc import Iterator
from time import thread_time
from typing import Any, Final

from dra_extender.kube.reflector import EventDispatcher, read_meta
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.sinks import sinks_of
from dra_extender.telemetry.observer import Observer

from tests.hostile.large_objects import NAME, VERSION
from tests.hostile.measuring import resident

_GIVEN: Final = 4 * 2**20
_LEAST: Final = 3
_LARGE: Final = 100 * 1024
_OF_LARGE: Final = 1.2
_OF_SMALL: Final = 2.0
"""Bytes that may be kept for each byte given, of objects from 100 KiB on and of smaller ones."""
_FIXED: Final = 2_048
"""Bytes that may be kept for each object whatever its size."""


def kept(job: dict[str, Any]) -> dict[str, Any]:
    """Deliver copies of an object, each twice, and then delete them."""
    template = job["object"].encode(errors="surrogatepass")
    count = max(_LEAST, int(job.get("given", _GIVEN)) // len(template))
    longest = _longest(job["plural"], template)
    ledger = Ledger()
    gc.collect()
    gc.freeze()
    tracemalloc.start()
    delivery = EventDispatcher(job["plural"], sinks_of(ledger)[job["plural"]], Observer())
    before, given = _traced(), 0
    for data in copies(template, count):
        given += len(data)
        delivery.deliver(read_meta(data), data)
        del data
    given //= 2
    held = _traced() - before
    unreadable = delivery.unreadable()
    for data in copies(template, count):
        delivery.removed(read_meta(data))
        del data
    left = _traced() - before
    tracemalloc.stop()
    if unreadable:
        return {"values": {"stall": longest}, "note": unreadable[:200]}
    allowed = given * (_OF_LARGE if len(template) >= _LARGE else _OF_SMALL) + count * _FIXED
    values = {"stall": longest, "kept": held / allowed, "left": left / given, "ratio": held / given}
    note = f"{count} objects of {len(template)} bytes keep {held / given:.2f} of each byte, {left / given:.3f} when deleted"
    return {"values": values, "note": note}


def flood(job: dict[str, Any]) -> dict[str, Any]:
    """How many bytes a fresh process has more for this many objects."""
    template = job["object"].encode(errors="surrogatepass")
    _longest(job["plural"], template)
    gc.collect()
    before = resident()
    delivery = EventDispatcher(job["plural"], sinks_of(Ledger())[job["plural"]], Observer())
    for data in copies(template, job["count"], versions=1):
        delivery.deliver(read_meta(data), data)
    gc.collect()
    return {
        "values": {"resident": float(resident() - before)},
        "note": f"{job['count']} objects of {len(template)} bytes",
    }


def loops(job: dict[str, Any]) -> dict[str, Any]:
    """See `probe_filled`; a process that measures bytes is kept small by not having a service in it."""
    answer: dict[str, Any] = importlib.import_module("tests.hostile.probe_filled").loops(job)
    return answer


def copies(template: bytes, count: int, *, versions: int = 2) -> Iterator[bytes]:
    """Objects of different names, in so many versions of each."""
    name, version = NAME.encode(), VERSION.encode()
    for turn in range(versions):
        for place in range(count):
            numbered = template.replace(name, b"evil-%d" % place)
            yield numbered.replace(version, b"%d" % (1_000_000 + turn * count + place))


def _longest(kind: str, template: bytes) -> float:
    """The most CPU that taking in one of a few copies needed."""
    delivery = EventDispatcher(kind, sinks_of(Ledger())[kind], Observer())
    longest = 0.0
    for data in copies(template, _LEAST):
        begun = thread_time()
        delivery.deliver(read_meta(data), data)
        longest = max(longest, thread_time() - begun)
    return longest


def _traced() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
