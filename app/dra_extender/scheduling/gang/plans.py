"""The plan of one gang, its diagnosis, and the plans that failed."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from dra_extender.allocator.state.reasons import Rejection
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import PodGroup
from dra_extender.runtime.caches import LruCache
from dra_extender.scheduling.evaluation.backoff import DeviceBackoff
from dra_extender.scheduling.gang.search import Assignment


class GangPhase(StrEnum):
    """The progress of the plan of a gang.  A phase may return to an earlier one."""

    NEW = "new"
    """No member has an assignment."""
    PLANNED = "planned"
    """Members have assignments, which are held; kube-scheduler knows none of them, so that all may change."""
    ANNOUNCED = "announced"
    """kube-scheduler knows the assignments of some members: these change only if the gang does not fit with them."""


@dataclass(slots=True)
class GangPlan:
    """The assignments of one gang by pod UID; those of the `announced` members are known to kube-scheduler.

    `replanned`: members whose announced assignment became invalid and whose call is not answered yet.
    """

    group_uid: str
    assignments: dict[str, Assignment] = field(default_factory=dict)
    announced: set[str] = field(default_factory=set)
    replanned: set[str] = field(default_factory=set)

    @property
    def phase(self) -> GangPhase:
        if self.announced:
            return GangPhase.ANNOUNCED
        return GangPhase.PLANNED if self.assignments else GangPhase.NEW

    @property
    def unannounced(self) -> Sequence[str]:
        """UIDs of the members whose assignments may change."""
        return [uid for uid in self.assignments if uid not in self.announced]

    def revoke(self, pod_uid: str) -> None:
        self.announced.discard(pod_uid)
        self.assignments.pop(pod_uid, None)

    def restart(self) -> None:
        """Remove all assignments: the phase is NEW."""
        self.announced.clear()
        self.assignments.clear()


class PlacedMember(NamedTuple):
    """A member that gets its devices on a node."""

    pod: Pod
    node: str


class GangDiagnosis(NamedTuple):
    """The members of a gang by state, each in the order of their names.

    `decided` run, or have all their claims allocated or held.  `placed` get devices at once, and the first of `waiting` gets none
    with them.  `unready` members cannot be placed now: their claims are not ready, or kube-scheduler finds no node for them.
    `needed`: so many of `placed` and `waiting` must get devices.
    `limit` says why nothing was planned, or that a plan was not searched to its end.
    """

    group: PodGroup
    needed: int
    decided: tuple[Pod, ...] = ()
    placed: tuple[PlacedMember, ...] = ()
    waiting: tuple[Pod, ...] = ()
    unready: tuple[tuple[Pod, Rejection], ...] = ()
    limit: str = ""

    @property
    def cannot_start(self) -> bool:
        """True if the `unready` members leave fewer than the gang needs, so that nothing is planned."""
        return bool(self.unready) and self.needed > len(self.placed) + len(self.waiting)


_MOST_GANGS: Final = 1_000
_WHOLE_GANG: Final = ""


class GangFailures:
    """Failed plans by gang: on the same facts, each further member of the gang gets the same answer without a search."""

    def __init__(self, ledger: Ledger, device_backoff: DeviceBackoff) -> None:
        self._ledger = ledger
        self._device_backoff = device_backoff
        # By PodGroup, the facts and the reasons by pod UID; under _WHOLE_GANG the reason why no member gets an assignment.
        self._failures: LruCache[tuple[str, str], tuple[object, dict[str, Rejection]]] = LruCache(_MOST_GANGS)

    def find(self, group: PodGroup, pod_uid: str, offers: int) -> Rejection | None:
        """Return why the pod gets no assignment, if no fact has changed; `offers`: the revision of what members were offered."""
        failure = self._failures.get(group.metadata.key)
        if failure is None or failure[0] != self._facts(group, offers):
            return None
        return failure[1].get(_WHOLE_GANG) or failure[1].get(pod_uid)

    def record(self, group: PodGroup, pod_uid: str, offers: int, why: Rejection, *, whole_gang: bool) -> None:
        """Record that the pod gets no assignment, and with `whole_gang` no other member."""
        facts = self._facts(group, offers)
        known_facts, reasons = self._failures.get(group.metadata.key) or (None, {})
        if known_facts != facts or whole_gang or _WHOLE_GANG in reasons:
            reasons = {}
        self._failures[group.metadata.key] = facts, reasons
        reasons[_WHOLE_GANG if whole_gang else pod_uid] = why

    def _facts(self, group: PodGroup, offers: int) -> tuple[object, ...]:
        """Return the versions of everything that a plan reads, and what is in backoff for members."""
        ledger, backoff = self._ledger, self._device_backoff
        members = [
            (uid, backoff.devices_of(uid), backoff.nodes_of(uid))
            for uid in backoff.pods
            if (pod := ledger.pods.by_uid(uid)) is not None and (pod.namespace, pod.pod_group) == group.metadata.key
        ]
        return (
            group,
            offers,
            ledger.state.place,
            ledger.hold_versions.place,
            ledger.node_changes.place,
            ledger.changes.claims,
            ledger.changes.classes,
            ledger.serves_extended_resources,
            frozenset(member for member in members if member[1] or member[2]),
        )
