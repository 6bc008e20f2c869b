"""What a pod, the Events about it and its owners, and the budgets for its eviction say for people."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Final

import msgspec

from dra_extender.model.api_json import ModelError, Value, decode, listed
from dra_extender.model.metadata import OwnerReference, seconds_of
from dra_extender.model.objects import DisruptionBudget, EventObject, EventSeries, PodSelector
from dra_extender.model.pod import PodObject

SCHEDULING_GATED: Final = "SchedulingGated"
"""The reason in the condition PodScheduled that the API server gives, and no scheduler."""
PENDING: Final = "Pending"
"""The phase of a pod until its containers have started."""
_SCHEDULED: Final = "PodScheduled"


class PodFacts(Value, frozen=True, rename=None):
    """Times are seconds since the epoch, None where the pod does not tell.

    `reason` and `message` are those of the condition PodScheduled while it is not true.
    """

    key: tuple[str, str]
    phase: str = ""
    created: float | None = None
    gates: tuple[str, ...] = ()
    reason: str = ""
    message: str = ""
    uid: str = ""
    owners: tuple[OwnerReference, ...] = ()
    labels: Mapping[str, str] = MappingProxyType({})
    deleting: bool = False

    @property
    def controller(self) -> str:
        """Return `Kind name` of the pod's controller; empty if it has none."""
        return next((f"{owner.kind} {owner.name}" for owner in self.owners if owner.controller), "")


def without_controller_text(pods: Sequence[str], most_pods: int) -> str:
    """Say what becomes of evicted pods (`namespace/name`) that nothing makes again."""
    sentence = "has no controller: create it again" if len(pods) == 1 else "have no controller: create them again"
    return f"{listed(pods, most_pods)} {sentence} after the end"


_POD_DECODER: Final = msgspec.json.Decoder(PodObject)


def read_pod_facts(data: bytes) -> PodFacts:
    """Read the facts in a pod (API JSON).

    Raises:
        ModelError: not a Pod; the message names the field.
    """
    pod = decode("Pod", _POD_DECODER, data)
    scheduled = (condition for condition in pod.status.conditions or () if condition.type == _SCHEDULED)
    waiting = next((condition for condition in scheduled if condition.status != "True"), None)
    return PodFacts(
        key=pod.metadata.key,
        phase=pod.status.phase or "",
        created=seconds_of(pod.metadata.creation_timestamp),
        gates=tuple(gate.name for gate in pod.spec.scheduling_gates or ()),
        reason="" if waiting is None else waiting.reason,
        message="" if waiting is None else waiting.message,
        uid=pod.metadata.uid,
        owners=pod.metadata.owner_references,
        labels=pod.metadata.labels,
        deleting=pod.metadata.deletion_timestamp is not None,
    )


FAILED_SCHEDULING: Final = "FailedScheduling"
"""The reason of the Events in which schedulers say why a pod is not placed."""
_LONGEST: Final = 2_048
_EVENT_DECODER: Final = msgspec.json.Decoder(EventObject)


class ObjectEvent(Value, frozen=True, rename=None):
    """What `reporter` said of an object, at last at `last` (seconds since the epoch)."""

    kind: str
    namespace: str
    name: str
    uid: str
    reason: str
    message: str = ""
    reporter: str = ""
    last: float | None = None


def _read_event(data: bytes) -> ObjectEvent:
    """Raises ModelError."""
    event = decode("Event", _EVENT_DECODER, data)
    about, series = event.involved_object, event.series or EventSeries()
    times = (series.last_observed_time, event.last_timestamp, event.event_time, event.first_timestamp)
    return ObjectEvent(
        kind=about.kind,
        namespace=about.namespace,
        name=about.name,
        uid=about.uid,
        reason=event.reason,
        message=event.message[:_LONGEST].strip(),
        reporter=event.reporting_component or event.source.component,
        last=next((seconds for time in times if (seconds := seconds_of(time)) is not None), None),
    )


class ObjectEvents:
    """Events by the object that they are about."""

    def __init__(self, objects: Iterable[bytes]) -> None:
        """Read the Events (API JSON, core v1); those that cannot be read count as absent."""
        self._by_object: defaultdict[tuple[str, str, str], list[ObjectEvent]] = defaultdict(list)
        for data in objects:
            with suppress(ModelError):
                event = _read_event(data)
                self._by_object[event.kind, event.namespace, event.name].append(event)

    def about(self, kind: str, namespace: str, name: str, uid: str = "") -> Sequence[ObjectEvent]:
        """Return the Events about an object, the newest first; with `uid`, none about an earlier object of the name."""
        about_object = self._by_object.get((kind, namespace, name), ())
        own = [event for event in about_object if not uid or event.uid in ("", uid)]
        return sorted(own, key=lambda event: -(event.last or 0.0))

    def reporters(self, reason: str) -> frozenset[str]:
        return frozenset(
            event.reporter for events in self._by_object.values() for event in events if event.reason == reason
        )


_UNGUARDED: Final = frozenset({PENDING, "Succeeded", "Failed"})
"""The phases of pods that the API server evicts whatever budgets say."""
_BUDGET_DECODER: Final = msgspec.json.Decoder(DisruptionBudget)


class DisruptionBudgets:
    """PodDisruptionBudgets, as they stood when they were read."""

    def __init__(self, objects: Iterable[bytes]) -> None:
        """Read the budgets (API JSON, policy/v1); those that cannot be read or have a malformed selector count as absent."""
        self._by_namespace: defaultdict[str, list[tuple[PodSelector, DisruptionBudget]]] = defaultdict(list)
        for data in objects:
            with suppress(ModelError):
                budget = decode("PodDisruptionBudget", _BUDGET_DECODER, data)
                if budget.spec.selector is not None:
                    budget.spec.selector.check()
                    self._by_namespace[budget.metadata.namespace].append((budget.spec.selector, budget))

    def forbidding(self, pods: Iterable[PodFacts]) -> Mapping[tuple[str, str], str]:
        """Return, by (namespace, name), the pods that may not be evicted after those before them, each with the budget's name.

        The API server evicts no pod that has several budgets; such a pod has `a beside b`.
        """
        remaining: dict[tuple[str, str], int] = {}
        forbidden: dict[tuple[str, str], str] = {}
        for pod in pods:
            if pod.deleting or pod.phase in _UNGUARDED:
                continue
            of_namespace = self._by_namespace.get(pod.key[0], ())
            budgets = [budget for selector, budget in of_namespace if selector.matches(pod.labels)]
            if len(budgets) > 1:
                forbidden[pod.key] = " beside ".join(budget.metadata.name for budget in budgets[:2])
            elif budgets:
                key = budgets[0].metadata.key
                if remaining.setdefault(key, budgets[0].status.disruptions_allowed) > 0:
                    remaining[key] -= 1
                else:
                    forbidden[pod.key] = budgets[0].metadata.name
        return forbidden
