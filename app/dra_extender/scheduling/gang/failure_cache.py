from dataclasses import dataclass
from typing import Final, NamedTuple

from dra_extender.ledger.ledger import Ledger
from dra_extender.model.device import DeviceId
from dra_extender.model.pod_group import PodGroup
from dra_extender.model.rejection import Rejection
from dra_extender.runtime.caches import LruCache
from dra_extender.scheduling.evaluation.backoff import DeviceBackoff
from dra_extender.scheduling.ports.cluster import Clock

_REMEMBERED: Final = 1_000
_LIMIT_SECONDS: Final = 10.0


class _Facts(NamedTuple):
    """The versions of everything that a plan reads.

    `offers`: the revision of what the gang's members were offered.  `backoffs`: the devices and nodes that members leave alone.
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
    """Why no member gets an assignment (`everybody`), or those pods that were left out; until when that counts (monotonic)."""

    facts: _Facts
    everybody: Rejection | None
    pods: dict[str, Rejection]
    until: float


class GangFailures:
    """Plans that failed: each of many members asks, and on the same facts the answer is the same.

    A search that was stopped at its limit is begun again after a while, for it may have been the machine that was slow.
    """

    def __init__(self, ledger: Ledger, cool_downs: DeviceBackoff, clock: Clock) -> None:
        self._ledger = ledger
        self._cool_downs = cool_downs
        self._clock = clock
        self._known: LruCache[tuple[str, str], _Failure] = LruCache(_REMEMBERED)

    def known(self, group: PodGroup, pod_uid: str, offers: int) -> Rejection | None:
        """Why the pod gets no assignment, if no fact has changed since; `offers`: the revision of what members were offered."""
        failure = self._known.get(group.metadata.key)
        if failure is None or self._clock.monotonic() >= failure.until:
            return None
        if failure.facts != self._facts(group, offers):
            return None
        return failure.everybody or failure.pods.get(pod_uid)

    def note(
        self, group: PodGroup, pod_uid: str, offers: int, why: Rejection, *, everybody: bool, limited: bool
    ) -> None:
        """The pod gets no assignment, and neither does any other member if `everybody`; `limited` if that is not certain."""
        facts, end = self._facts(group, offers), self._clock.monotonic() + _LIMIT_SECONDS
        failure = self._known.get(group.metadata.key)
        if failure is None or failure.facts != facts or failure.everybody:
            failure = _Failure(facts, None, {}, float("inf"))
        self._known[group.metadata.key] = failure
        failure.pods[pod_uid] = why
        failure.everybody = why if everybody else None
        failure.until = end if limited else failure.until

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
        backoff, pods = self._cool_downs, self._ledger.pods
        if not backoff.pods:
            return frozenset()
        members = (
            uid
            for uid in backoff.pods
            if (pod := pods.by_uid(uid)) is not None and (pod.namespace, pod.pod_group) == group.metadata.key
        )
        found = ((uid, backoff.of(uid), backoff.nodes.of(uid)) for uid in members)
        return frozenset(each for each in found if each[1] or each[2])
