"""Traces of calls and of what they write and wait for.  With tracing off nothing is wrapped, and OpenTelemetry is not imported."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

from dra_extender.api.verbs import Verbs
from dra_extender.config.service_settings import TracingSettings
from dra_extender.config.settings import InvalidSettingsError
from dra_extender.model.pod import RequestPod
from dra_extender.scheduling.ports.errors import FilterResponse
from dra_extender.service.watched_cluster import WatchedCluster
from dra_extender.telemetry.spans import NO_SPANS, Spans

STOP_SECONDS: Final = 6.0
"""So long the process waits at its end for what is left to be sent."""
_PORTS: Final = ("claims", "pods", "claim_templates", "pod_groups")


class Tracing:
    """What tracing puts around verbs and cluster; `spans` is for the use cases.  Without spans it returns what it gets."""

    def __init__(self, spans: Spans = NO_SPANS, stop: Callable[[], None] = lambda: None) -> None:
        """`stop` is called at the end, in a thread."""
        self.spans = spans
        self._stop = stop

    def verbs(self, verbs: Verbs) -> Verbs:
        """Return the verbs, each call in a span."""
        return verbs if self.spans is NO_SPANS else TracedVerbs(verbs, self.spans)

    def cluster(self, cluster: WatchedCluster) -> WatchedCluster:
        """Return the cluster, each request in a span."""
        if self.spans is NO_SPANS:
            return cluster
        traced: Any = TracedCluster(cluster, self.spans)
        result: WatchedCluster = traced
        return result

    async def stop(self) -> None:
        """Send what is left, for some seconds at most."""
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.to_thread(self._stop), STOP_SECONDS)


def tracing_of(settings: TracingSettings) -> Tracing:
    """Make what the settings ask for.

    Raises:
        InvalidSettingsError: tracing is on, and OpenTelemetry is not installed.
    """
    if not settings.enabled:
        return Tracing()
    try:
        module = import_module("dra_extender.telemetry.otlp")
    except ModuleNotFoundError as missing:
        raise InvalidSettingsError(
            f"setting tracing.enabled (DRA_EXTENDER_TRACING__ENABLED): {missing.name} is not installed; "
            "expected the extra `tracing` of the package: pip install 'dra-extender[tracing]'"
        ) from missing
    spans = module.OtlpSpans(settings.endpoint)
    return Tracing(spans, spans.stop)


class TracedVerbs:
    """Implements Verbs over others."""

    def __init__(self, verbs: Verbs, spans: Spans) -> None:
        self._verbs = verbs
        self._spans = spans

    async def filter(self, pod: RequestPod, nodes: Sequence[str]) -> FilterResponse:
        """See Verbs."""
        with self._spans.call("filter", pod.uid, **_named(pod)):
            return await self._verbs.filter(pod, nodes)

    async def prioritize(self, pod: RequestPod, nodes: Sequence[str]) -> Sequence[tuple[str, int]]:
        """See Verbs."""
        with self._spans.call("prioritize", pod.uid, **_named(pod), nodes=len(nodes)):
            return await self._verbs.prioritize(pod, nodes)

    async def bind(self, namespace: str, name: str, uid: str, node: str, disconnected: asyncio.Event, /) -> None:
        """See Verbs."""
        named = {"k8s.namespace.name": namespace, "k8s.pod.name": name, "k8s.node.name": node}
        with self._spans.call("bind", uid, **named):
            await self._verbs.bind(namespace, name, uid, node, disconnected)

    async def preempt(self, pod: RequestPod, victims: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[str]]:
        """See Verbs."""
        with self._spans.call("preempt", pod.uid, **_named(pod), nodes=len(victims)):
            return await self._verbs.preempt(pod, victims)


class TracedCluster:
    """A WatchedCluster over another one: each request of its ports is a span, and all else is that of the other one."""

    def __init__(self, cluster: WatchedCluster, spans: Spans) -> None:
        self._cluster = cluster
        for name in _PORTS:
            setattr(self, name, _TracedPort(name, getattr(cluster, name), spans))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)


class _TracedPort:
    """Methods that are awaited run in a span; attributes are those of the port."""

    def __init__(self, name: str, port: object, spans: Spans) -> None:
        self._name = name
        self._port = port
        self._spans = spans

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if not inspect.iscoroutinefunction(found):
            return found
        traced = self._traced(f"{self._name}.{name}", found)
        setattr(self, name, traced)
        return traced

    def _traced(self, name: str, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def run(*arguments: Any, **options: Any) -> Any:
            with self._spans.step(name):
                return await method(*arguments, **options)

        return run


def _named(pod: RequestPod) -> dict[str, str]:
    return {"k8s.namespace.name": pod.namespace, "k8s.pod.name": pod.name}
