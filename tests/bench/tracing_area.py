"""What tracing costs a scheduling attempt (filter and bind in memory): while it is off, and while it is on."""

import asyncio
import time
from pathlib import Path
from statistics import median
from typing import Final

import msgspec
from dra_extender.config.service_settings import TracingSettings
from dra_extender.model.pod import RequestPod
from dra_extender.scheduling.extender import Extender
from dra_extender.service.tracing import spans_of, stop_tracing, traced
from dra_extender.telemetry.spans import NO_SPANS, Spans

from tests.bench.rows import BenchError, Goal, Row, compare
from tests.bench.scale import Scale
from tests.support.observe.otlp_receiver import otlp_receiver
from tests.support.scheduling.world import InMemoryExtender

AREA: Final = "tracing"
_STEPS: Final = 5
_REPEATED: Final = 20_000
_FREE: Final = Goal("<=", 0.01)


async def measure(scale: Scale, workdir: Path) -> list[Row]:
    """A row for tracing that is off, and one for tracing that is on; CPU time of the thread that decides."""
    off, on, nothing = [], [], []
    for _ in range(scale.filter_rounds):
        off.append(await _attempts(NO_SPANS, scale.attempts))
        nothing.append(_steps_of_nobody())
        with otlp_receiver() as receiver:
            spans = spans_of(TracingSettings(enabled=True, endpoint=receiver.endpoint))
            on.append(await _attempts(spans, scale.attempts))
            await stop_tracing(spans)
            if len(receiver.spans) < 2 * scale.attempts:
                raise BenchError(f"{len(receiver.spans)} spans were received for {scale.attempts} attempts")
    return [
        compare(
            AREA,
            "off: the places of spans in an attempt",
            "us of CPU",
            list(zip(nothing, off, strict=True)),
            "the whole attempt",
            goal=_FREE,
        ),
        compare(
            AREA,
            "on: an attempt",
            "us of CPU",
            list(zip(on, off, strict=True)),
            "off",
            details={"spans an attempt": 7.0, "added us": median(on) - median(off)},
        ),
    ]


def _steps_of_nobody() -> float:
    """Microseconds of the steps of one bind that nobody collects."""
    began = time.thread_time()
    for _ in range(_REPEATED):
        for _ in range(_STEPS):
            with NO_SPANS.step("decide"):
                pass
    return (time.thread_time() - began) / _REPEATED * 1e6


async def _attempts(spans: Spans, count: int) -> float:
    """Microseconds of filter and bind of one pod, on average."""
    world = InMemoryExtender()
    world.node("n1")
    world.gpus("n1", count)
    world.device_class()
    for index in range(count):
        world.add_claim(f"c{index}")
        world.add_pod(f"p{index}", f"c{index}")
    extender = Extender(world.ledger, world.cluster, world.metrics, world.options, world.features, spans=spans)
    verbs = traced(extender, spans)
    pods = [world.pod(f"p{index}") for index in range(count)]
    sent = [RequestPod(_json(pod)) for pod in pods]
    async with world.watching():
        began = time.thread_time()
        for pod in sent:
            await verbs.filter(pod, ["n1"])
            await verbs.bind("default", pod.name, pod.uid, "n1", asyncio.Event())
        return (time.thread_time() - began) / count * 1e6


def _json(pod: object) -> bytes:
    return msgspec.json.encode(pod)
