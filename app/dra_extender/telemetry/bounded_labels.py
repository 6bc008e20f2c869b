from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from dra_extender.telemetry.catalog import DEFINITIONS, OTHER, PREFIX, Definition

M = TypeVar("M", Counter, Gauge, Histogram)


class Bounded(Generic[M]):
    """The children of one metric by label values, resolved once each; combinations beyond the limit share the value `other`."""

    __slots__ = ("_children", "_limit", "_metric", "_others")

    def __init__(self, metric: M, definition: Definition) -> None:
        self._metric: M = metric
        self._limit = definition.limit
        self._others = (OTHER,) * len(definition.labels)
        self._children: dict[tuple[str, ...], M] = {}

    def of(self, *values: str) -> M:
        """The child for these label values, in the order of the definition."""
        child = self._children.get(values)
        if child is None:
            if len(self._children) >= self._limit and values != self._others:
                return self.of(*self._others)
            child = self._children[values] = self._metric.labels(*values)
        return child


class Catalogue:
    """Makes the collectors of the defined metrics in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._definitions = {each.name: each for each in DEFINITIONS}

    def counter(self, name: str) -> Bounded[Counter]:
        """A defined counter with labels."""
        each = self._definitions[name]
        return Bounded(Counter(PREFIX + name, each.meaning, each.labels, registry=self._registry), each)

    def plain_counter(self, name: str) -> Counter:
        """A defined counter without labels."""
        return Counter(PREFIX + name, self._definitions[name].meaning, registry=self._registry)

    def gauge(self, name: str) -> Bounded[Gauge]:
        """A defined gauge with labels."""
        each = self._definitions[name]
        return Bounded(Gauge(PREFIX + name, each.meaning, each.labels, registry=self._registry), each)

    def plain_gauge(self, name: str) -> Gauge:
        """A defined gauge without labels."""
        return Gauge(PREFIX + name, self._definitions[name].meaning, registry=self._registry)

    def histogram(self, name: str) -> Bounded[Histogram]:
        """A defined histogram with labels."""
        each = self._definitions[name]
        metric = Histogram(PREFIX + name, each.meaning, each.labels, registry=self._registry, buckets=each.buckets)
        return Bounded(metric, each)

    def plain_histogram(self, name: str) -> Histogram:
        """A defined histogram without labels."""
        each = self._definitions[name]
        return Histogram(PREFIX + name, each.meaning, registry=self._registry, buckets=each.buckets)
