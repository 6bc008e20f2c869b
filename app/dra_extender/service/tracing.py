"""Traces of calls.  With tracing off nothing is wrapped, and OpenTelemetry is not imported."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Final

from dra_extender.api.verbs import Verbs
from dra_extender.config.service_settings import TracingSettings
from dra_extender.config.settings import InvalidSettingsError
from dra_extender.model.pod import RequestPod
from dra_extender.scheduling.ports.filter_response import FilterResponse
from dra_extender.telemetry.spans import NO_SPANS, Spans

STOP_SECONDS: Final = 6.0
"""So long the process waits at its end for what is left to be sent."""


def spans_of(settings: TracingSettings) -> Spans:
    """Return where the settings want spans to go.

    Raises:
        InvalidSettingsError: tracing is on, and OpenTelemetry is not installed.
    """
    if not settings.enabled:
        return NO_SPANS
    try:
        module = import_module("dra_extender.telemetry.otlp")
    except ModuleNotFoundError as missing:
        raise InvalidSettingsError(
            f"setting tracing.enabled (DRA_EXTENDER_TRACING__ENABLED): {missing.name} is not installed; "
            "expected the extra `tracing` of the package: pip install 'dra-extender[tracing]'"
        ) from missing
    spans: Spans = module.OtlpSpans(settings.endpoint)
    return spans


async def stop_tracing(spans: Spans) -> None:
    """Send what is left, for some seconds at most."""
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.to_thread(spans.stop), STOP_SECONDS)


def traced(verbs: Verbs, spans: Spans) -> Verbs:
    return verbs if spans is NO_SPANS else TracedVerbs(verbs, spans)


@dataclass(frozen=True)
class TracedVerbs:
    """Implements Verbs over others."""

    verbs: Verbs
    spans: Spans

    async def filter(self, pod: RequestPod, nodes: Sequence[str]) -> FilterResponse:
        with self.spans.call("filter", pod.uid, **_named(pod)):
            return await self.verbs.filter(pod, nodes)

    async def prioritize(self, pod: RequestPod, nodes: Sequence[str]) -> Sequence[tuple[str, int]]:
        with self.spans.call("prioritize", pod.uid, **_named(pod), nodes=len(nodes)):
            return await self.verbs.prioritize(pod, nodes)

    async def bind(self, namespace: str, name: str, uid: str, node: str, disconnected: asyncio.Event, /) -> None:
        named = {"k8s.namespace.name": namespace, "k8s.pod.name": name, "k8s.node.name": node}
        with self.spans.call("bind", uid, **named):
            await self.verbs.bind(namespace, name, uid, node, disconnected)

    async def preempt(self, pod: RequestPod, victims: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[str]]:
        with self.spans.call("preempt", pod.uid, **_named(pod), nodes=len(victims)):
            return await self.verbs.preempt(pod, victims)


def _named(pod: RequestPod) -> dict[str, str]:
    return {"k8s.namespace.name": pod.namespace, "k8s.pod.name": pod.name}
