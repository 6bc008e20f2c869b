"""Holds for the members of a gang, according to its plan."""

from collections.abc import Iterable, Mapping, Sequence

from dra_extender.ledger.ledger import Ledger
from dra_extender.model.pod_group import PodGroup
from dra_extender.scheduling.gang.assignment import Assignment
from dra_extender.scheduling.holds import HoldService
from dra_extender.scheduling.permit.members import MemberCandidate


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
            placement = self._holds.with_own_shares(assignments[pods[0]].placements[claim])
            nodes = {assignments[uid].node for uid in pods}
            versions = {name: self._ledger.state.of(name) for name in nodes}
            self._holds.place(unit, claim, pods, dict.fromkeys(nodes, placement), versions)
        for each in candidates:
            for held in each.claims.held if each.pod.uid in assignments else ():
                self._holds.extend(held.record.claim.metadata.uid, each.pod.uid)

    def extend(self, pod_uid: str, assignment: Assignment) -> None:
        """Extend the member's holds: its node is announced now."""
        for claim in assignment.placements:
            self._holds.extend(claim, pod_uid)

    def release(self, pods: Iterable[str]) -> None:
        """End the holds of these members."""
        self._holds.release_pods(*pods)

    def any_of(self, pods: Iterable[str]) -> bool:
        """Whether something is held for one of these members."""
        return any(self._ledger.holds.of_pod(uid) for uid in pods)

    def has(self, pod_uid: str, assignment: Assignment, *, unchanged: bool = False) -> bool:
        """Whether the whole assignment is held for the member; `unchanged`: and its node is as it was at the decision."""
        holds, state = self._ledger.holds, self._ledger.state.of(assignment.node)
        return all(
            (hold := holds.get(uid)) is not None
            and pod_uid in hold.pods
            and assignment.node in hold.placements
            and (not unchanged or hold.versions.get(assignment.node) == state)
            for uid in assignment.placements
        )
