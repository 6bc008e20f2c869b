"""The plan of one gang and its phases: NEW, PLANNED, ANNOUNCED, and BOUND once a member is bound."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from dra_extender.scheduling.gang.assignment import Assignment


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

    def assign(self, assignments: Mapping[str, Assignment]) -> None:
        """Add these assignments: NEW becomes PLANNED.  `revoke` undoes it."""
        self.assignments.update(assignments)

    def announce(self, pod_uid: str) -> None:
        """The answer to kube-scheduler names the member's assignment: PLANNED becomes ANNOUNCED."""
        self.announced.add(pod_uid)

    def revoke(self, pod_uid: str) -> None:
        """Remove the member's assignment, announced or not."""
        self.announced.discard(pod_uid)
        self.assignments.pop(pod_uid, None)

    def restart(self) -> None:
        """Remove all assignments: the phase is NEW."""
        self.announced.clear()
        self.assignments.clear()
