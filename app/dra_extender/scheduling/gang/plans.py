"""The plan of one gang and the holds that it consists of, and the plans that failed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from dra_extender.allocator.state.reasons import Rejection
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.device import DeviceId
from dra_extender.model.pod_group import PodGroup
from dra_extender.runtime.caches import LruCache
from dra_extender.scheduling.evaluation.backoff import DeviceBackoff
from dra_extender.scheduling.gang.search import Assignment
from dra_extender.scheduling.holds.service import HoldService, with_own_shares
from dra_extender.scheduling.permit.gang_members import MemberCandidate
from dra_extender.scheduling.ports.cluster import Clock


class GangPhase(StrEnum):
    """How far a gang has come.  A phase may return to an earlier one until a member is bound."""

    NEW = "new"
    """No member has an assignment."""
    PLANNED = "planned"
    """Members have assignments, which are held; kube-scheduler knows none of them, so that all may change."""
    ANNOUNCED = "announced"
    """kube-scheduler knows the assignments of some members: these change only if the gang does not fit with them."""
    BOUND = "bound"
    """A member is bound: the others follow one by one."""


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
        """The phase as far as the plan tells, which does not know who is bound."""
        if self.announced:
            return GangPhase.ANNOUNCED
        return GangPhase.PLANNED if self.assignments else GangPhase.NEW

    @property
    def unannounced(self) -> Sequence[str]:
        """UIDs of the members whose assignments may change."""
        return [uid for uid in self.assignments if uid not in self.announced]

    def revoke(self, pod_uid: str) -> None:
        """Remove the member's assignment, announced or not."""
        self.announced.discard(pod_uid)
        self.assignments.pop(pod_uid, None)

    def restart(self) -> None:
        """Remove all assignments: the phase is NEW."""
        self.announced.clear()
        self.assignments.clear()


class GangHolds:
    """Places, extends and releases the holds of gang members."""

    def __init__(self, ledger: Ledger, holds: HoldService) -> None:
        self._ledger = ledger
        self._holds = holds

    def place(
        self, group: PodGroup, assignments: Mapping[str, Assignment], candidates: Sequence[MemberCandidate]
    ) -> None:
        """Hold each claim on the nodes of the members that use it.  `release` undoes it."""
        unit = self._holds.unit(group.metadata.namespace, group.metadata.uid)
        users: dict[str, list[str]] = {}
        for uid, assignment in assignments.items():
            for claim in assignment.placements:
                users.setdefault(claim, []).append(uid)
        for claim, pods in users.items():
            placement = with_own_shares(assignments[pods[0]].placements[claim])
            nodes = {assignments[uid].node for uid in pods}
            versions = {name: self._ledger.state.version(name) for name in nodes}
            self._holds.place(unit, claim, pods, dict.fromkeys(nodes, placement), versions)
        for candidate in candidates:
            for held in candidate.claims.held if candidate.pod.uid in assignments else ():
                self._holds.extend(held.uid, candidate.pod.uid)

    def extend(self, pod_uid: str, assignment: Assignment) -> None:
        """Extend the member's holds: its node is announced now."""
        for claim in assignment.placements:
            self._holds.extend(claim, pod_uid)

    def release(self, pods: Iterable[str]) -> None:
        """End the holds of these members."""
        self._holds.release_pods(*pods)

    def exist_for(self, pods: Iterable[str]) -> bool:
        """Return whether something is held for one of these members."""
        return any(self._ledger.holds.of_pod(uid) for uid in pods)

    def cover(self, pod_uid: str, assignment: Assignment, *, unchanged: bool = False) -> bool:
        """Return whether the whole assignment is held for the member; `unchanged`: and its node is as it was at the decision."""
        holds, state = self._ledger.holds, self._ledger.state.version(assignment.node)
        return all(
            (hold := holds.get(uid)) is not None
            and pod_uid in hold.pods
            and assignment.node in hold.placements
            and (not unchanged or hold.versions.get(assignment.node) == state)
            for uid in assignment.placements
        )


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
                members.append((uid, backoff.devices_of(uid), backoff.nodes_of(uid)))
        return frozenset(member for member in members if member[1] or member[2])
