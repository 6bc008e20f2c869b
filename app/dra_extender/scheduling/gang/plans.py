"""The plan of one gang, and its diagnosis."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from dra_extender.allocator.state.reasons import Rejection
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import PodGroup
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

    `group`: namespace and name of the PodGroup.
    `replanned`: members whose announced assignment became invalid and whose call is not answered yet.  `lost_members`: members were
    deleted, and the others have not been planned without them yet.
    """

    group: tuple[str, str]
    assignments: dict[str, Assignment] = field(default_factory=dict)
    announced: set[str] = field(default_factory=set)
    replanned: set[str] = field(default_factory=set)
    lost_members: bool = False

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
