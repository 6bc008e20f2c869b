"""A counter by namespace that stays small whatever namespaces there are.

Tenants may create namespaces, so each may bring another label value.  Prometheus keeps every series that it has seen once for as
long as its data, so that not only the number of series at a time is bounded, but also how many new ones there may be in an hour.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter

from dra_extender.telemetry.declaration import OTHER, Declared, Definition

MOST_NAMESPACES: Final = 50
"""The most namespaces with a value of their own."""
QUIET_SECONDS: Final = 3600.0
"""A namespace that was not counted for so long gives its place to another one."""


class CounterByNamespace:
    """Counts for at most MOST_NAMESPACES namespaces; further ones are counted as `other`, until one of these is quiet."""

    __slots__ = ("_last", "_metric", "_monotonic")

    def __init__(self, metric: Counter, monotonic: Callable[[], float] = time.monotonic) -> None:
        """`metric` has the one label `pod_namespace`; `monotonic`: seconds."""
        self._metric = metric
        self._monotonic = monotonic
        # Namespace -> when it was counted last; the quietest comes first.
        self._last: OrderedDict[str, float] = OrderedDict()

    def inc(self, namespace: str) -> None:
        """Count one more."""
        now = self._monotonic()
        if namespace not in self._last and not self._has_room(now):
            self._metric.labels(OTHER).inc()
            return
        self._last[namespace] = now
        self._last.move_to_end(namespace)
        self._metric.labels(namespace).inc()

    def _has_room(self, now: float) -> bool:
        if len(self._last) < MOST_NAMESPACES:
            return True
        quietest, since = next(iter(self._last.items()))
        if now - since < QUIET_SECONDS:
            return False
        del self._last[quietest]
        self._metric.remove(quietest)
        return True


def counter_by_namespace(meaning: str) -> Declared[CounterByNamespace]:
    """Declare a counter with the label `pod_namespace`; `namespace` would collide with the label of the scraped target."""
    definition = Definition("counter", meaning, ("pod_namespace",), MOST_NAMESPACES + 1)

    def make(made: Definition, registry: CollectorRegistry) -> CounterByNamespace:
        return CounterByNamespace(Counter(made.base_name, meaning, made.labels, registry=registry))

    return Declared(definition, make)
