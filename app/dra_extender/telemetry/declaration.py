"""How a metric is declared: as an attribute of a group.

    class CallMetrics(MetricGroup):
        requests = counter("Calls of kube-scheduler by verb", "verb")

    metrics.requests.labels(verb).inc()

Every instance has its own collectors, those of the Prometheus client; `Bounded` limits the values of their labels.  A group has
methods for what is counted by more than one metric.  `declared` finds the metrics of a class, for the documents and their tests.

A metric that kube-scheduler or kube-controller-manager has, too, is declared under their name, with an empty prefix.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Generic, Literal, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

PREFIX: Final = "dra_extender_"
OTHER: Final = "other"
"""The label value that stands for all values beyond a metric's limit."""
MOST_NAMESPACES: Final = 50
"""The most namespaces with a value of their own."""
QUIET_SECONDS: Final = 3600.0
"""A namespace that was not counted for so long gives its place to another one."""
_LIMIT: Final = 40

M = TypeVar("M", Counter, Gauge, Histogram)
C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Definition:
    """One metric: name without prefix and without the suffix `_total`, labels, meaning.

    `limit` bounds the combinations of label values; further ones are counted under `other`.
    """

    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    labels: tuple[str, ...] = ()
    limit: int = _LIMIT
    buckets: tuple[float, ...] = ()
    prefix: str = PREFIX
    name: str = ""

    @property
    def base_name(self) -> str:
        """The name with its prefix, without the suffix."""
        return f"{self.prefix}{self.name}"

    @property
    def suffix(self) -> str:
        """Return what a scrape appends to the names of this kind of metric."""
        return "_total" if self.kind == "counter" else ""

    @property
    def full_name(self) -> str:
        return self.base_name + self.suffix


class Bounded(Generic[M]):
    """The children of one metric by label values, resolved once each; combinations beyond the limit share the value `other`."""

    __slots__ = ("_children", "_limit", "_metric", "_overflow")

    def __init__(self, metric: M, definition: Definition) -> None:
        self._metric: M = metric
        self._limit = definition.limit
        self._overflow = (OTHER,) * len(definition.labels)
        self._children: dict[tuple[str, ...], M] = {}

    def labels(self, *values: str) -> M:
        """Return the child for these label values, in the order of the definition."""
        child = self._children.get(values)
        if child is None:
            if len(self._children) >= self._limit and values != self._overflow:
                return self.labels(*self._overflow)
            child = self._children[values] = self._metric.labels(*values)
        return child

    def keep(self, values: Collection[tuple[str, ...]]) -> None:
        """Drop the children of all other label values."""
        for labels in self._children.keys() - set(values):
            del self._children[labels]
            self._metric.remove(*labels)


class Declared(Generic[C]):
    """A metric in the body of a MetricGroup, with the name of its attribute; in an instance, the attribute is the collector."""

    __slots__ = ("_make", "definition")

    def __init__(self, definition: Definition, make: Callable[[Definition, CollectorRegistry], C]) -> None:
        self.definition = definition
        self._make = make

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.definition = replace(self.definition, name=attribute.removeprefix("_"))

    def __get__(self, group: object, owner: type | None = None) -> C:
        """Tell type checkers the type; the attribute of an instance hides this one."""
        raise AttributeError(f"metric {self.definition.name} belongs to instances")

    def collector(self, registry: CollectorRegistry) -> C:
        return self._make(self.definition, registry)


class MetricGroup:
    """Base of the classes that declare metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        for attribute, metric in declared(type(self)):
            if attribute in vars(self):
                raise TypeError(f"two metrics of {type(self).__name__} have the attribute {attribute}")
            setattr(self, attribute, metric.collector(registry))


def declared(group: type[MetricGroup]) -> Iterator[tuple[str, Declared[Any]]]:
    """Yield the metrics of a group and its bases, by attribute."""
    for base in reversed(group.__mro__):
        for attribute, value in vars(base).items():
            if isinstance(value, Declared):
                yield attribute, value


def counter(meaning: str, *labels: str, limit: int = _LIMIT, prefix: str = PREFIX) -> Declared[Bounded[Counter]]:
    return _bounded(Counter, Definition("counter", meaning, labels, limit, prefix=prefix))


def plain_counter(meaning: str) -> Declared[Counter]:
    return Declared(Definition("counter", meaning), partial(_collector, Counter))


def gauge(meaning: str, *labels: str, limit: int = _LIMIT, prefix: str = PREFIX) -> Declared[Bounded[Gauge]]:
    return _bounded(Gauge, Definition("gauge", meaning, labels, limit, prefix=prefix))


def plain_gauge(meaning: str) -> Declared[Gauge]:
    return Declared(Definition("gauge", meaning), partial(_collector, Gauge))


def histogram(
    meaning: str,
    *labels: str,
    buckets: tuple[float, ...],
    limit: int = _LIMIT,
    prefix: str = PREFIX,
) -> Declared[Bounded[Histogram]]:
    return _bounded(Histogram, Definition("histogram", meaning, labels, limit, buckets, prefix))


def plain_histogram(meaning: str, *, buckets: tuple[float, ...]) -> Declared[Histogram]:
    return Declared(Definition("histogram", meaning, buckets=buckets), partial(_collector, Histogram))


def _collector(kind: type[M], definition: Definition, registry: CollectorRegistry) -> M:
    options: dict[str, Any] = {"buckets": definition.buckets} if definition.buckets else {}
    return kind(definition.base_name, definition.meaning, definition.labels, registry=registry, **options)


def _bounded(kind: type[M], definition: Definition) -> Declared[Bounded[M]]:
    return Declared(definition, lambda named, registry: Bounded(_collector(kind, named, registry), named))


class CounterByNamespace:
    """Counts for at most MOST_NAMESPACES namespaces; further ones are counted as `other`, until one of these is quiet.

    Tenants may create namespaces, so each may bring another label value.  Prometheus keeps every series that it has seen once for
    as long as its data, so that not only the number of series at a time is bounded, but also how many new ones an hour may bring.
    """

    __slots__ = ("_last", "_metric", "_monotonic")

    def __init__(self, metric: Counter, monotonic: Callable[[], float] = time.monotonic) -> None:
        """`metric` has the one label `pod_namespace`; `monotonic`: seconds."""
        self._metric = metric
        self._monotonic = monotonic
        # Namespace -> when it was counted last; the quietest comes first.
        self._last: OrderedDict[str, float] = OrderedDict()

    def inc(self, namespace: str) -> None:
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

    def make(named: Definition, registry: CollectorRegistry) -> CounterByNamespace:
        return CounterByNamespace(Counter(named.base_name, meaning, named.labels, registry=registry))

    return Declared(definition, make)
