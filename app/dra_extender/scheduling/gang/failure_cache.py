"""Plans of gangs that failed, kept until a fact changes that they depend on."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from dra_extender.allocator.state.rejection import Rejection
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.device import DeviceId
from dra_extender.model.pod_group import PodGroup
from dra_extender.runtime.caches import LruCache
from dra_extender.scheduling.evaluation.backoff import DeviceBackoff
from dra_extender.scheduling.ports.cluster import Clock

_MOST_GANGS: Final = 1_000
_LIMIT_SECONDS: Final = 10.0


class _Facts(NamedTuple):
    """The versions of everything that a plan reads.

    `offers`: the revision of what the gang's members were offered.  `backoffs`: the devices and nodes in backoff, by member.
    """

    group: PodGroup
    offers: int
    state: int
    held: int
    nodes: int
    claims: int
    classes: int
    by_claims: bool
    backoffs: frozenset[tuple[str, frozenset[DeviceId], frozenset[str]]]


@dataclass(slots=True)
class _Failure:
    """Why no member gets an assignment (`whole_gang`), or why single `pods` do not; valid while the facts last, and until `end`.

    `end` is monotonic.
    """

    facts: _Facts
    whole_gang: Rejection | None
    pods: dict[str, Rejection]
    end: float


class GangFailures:
    """Failed plans by gang: on the same facts, each further member of the gang gets the same answer without a search.

    A search that was stopped at its limit is repeated after a while: a slow machine may have been the reason.
    """

    def __init__(self, ledger: Ledger, device_backoff: DeviceBackoff, clock: Clock) -> None:
        self._ledger = ledger
        self._device_backoff = device_backoff
        self._clock = clock
        self._failures: LruCache[tuple[str, str], _Failure] = LruCache(_MOST_GANGS)

    def find(self, group: PodGroup, pod_uid: str, offers: int) -> Rejection | None:
        """Return why the pod gets no assignment, if no fact has changed; `offers`: the revision of what members were offered."""
        failure = self._failures.get(group.metadata.key)
        if failure is None or self._clock.monotonic() >= failure.end:
            return None
        if failure.facts != self._facts(group, offers):
            return None
        return failure.whole_gang or failure.pods.get(pod_uid)

    def record(
        self, group: PodGroup, pod_uid: str, offers: int, why: Rejection, *, whole_gang: bool, limited: bool
    ) -> None:
        """Record that the pod gets no assignment, and with `whole_gang` no other member; `limited` if that is not certain."""
        facts, end = self._facts(group, offers), self._clock.monotonic() + _LIMIT_SECONDS
        failure = self._failures.get(group.metadata.key)
        if failure is None or failure.facts != facts or failure.whole_gang:
            failure = _Failure(facts, None, {}, float("inf"))
        self._failures[group.metadata.key] = failure
        failure.pods[pod_uid] = why
        failure.whole_gang = why if whole_gang else None
        failure.end = end if limited else failure.end

    def _facts(self, group: PodGroup, offers: int) -> _Facts:
        ledger = self._ledger
        return _Facts(
            group,
            offers,
            ledger.state.since(-1)[1],
            ledger.held.since(-1)[1],
            ledger.node_changes.since(-1)[1],
            ledger.changes.claims,
            ledger.changes.classes,
            ledger.serves_extended_resources,
            self._backoffs(group),
        )

    def _backoffs(self, group: PodGroup) -> frozenset[tuple[str, frozenset[DeviceId], frozenset[str]]]:
        backoff, pods = self._device_backoff, self._ledger.pods
        members = []
        for uid in backoff.pods:
            pod = pods.by_uid(uid)
            if pod is not None and (pod.namespace, pod.pod_group) == group.metadata.key:
                members.append((uid, backoff.of(uid), backoff.nodes.of(uid)))
        return frozenset(member for member in members if member[1] or member[2])
