"""The partial assignment of a gang during the search: the nodes of the assigned members, and what their claims get there."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, Protocol

from dra_extender.model.allocation import ClaimPlacement, DeviceHolding
from dra_extender.model.device import DeviceId
from dra_extender.scheduling.permit.members import GangMember


class Assignment(NamedTuple):
    """The node of a member, and what each of its claims gets there."""

    node: str
    placements: Mapping[str, ClaimPlacement]


class PlacementOracle(Protocol):
    """Answers the questions of a search about nodes and devices."""

    @property
    def undecided(self) -> bool:
        """True if some question was not decided for lack of time, so that a None may be wrong."""
        ...

    def ask(
        self, claims: Sequence[str], node: str, kept: Sequence[DeviceHolding], without: frozenset[DeviceId]
    ) -> Mapping[str, ClaimPlacement] | None:
        """Return a placement for each claim on this node besides the `kept` holdings and `without` these devices; or None."""
        ...

    def allowed(self, member: GangMember, node: str) -> bool:
        """Return whether the offer, the allocated claims and the extended resources of the member permit the node."""
        ...

    def usable(self, placement: ClaimPlacement, node: str) -> bool:
        """Return whether a pod on the node can use the devices of the placement."""
        ...

    def reach(self, holding: DeviceHolding) -> Hashable | None:
        """None for a device that one node reaches; else equal for devices that are equivalent to every claim and node."""
        ...

    def symmetry_class(self, node: str) -> Hashable | None:
        """Return a value that is equal for equivalent nodes, for which every answer is the same; None without an equivalent."""
        ...

    def capacity(self, members: Sequence[GangMember], node: str) -> int | None:
        """Return how many of these members, all of one kind and without shared claims, fit on this node; None if not known."""
        ...

    def out_of_time(self) -> bool:
        """Return whether the time for planning is up."""
        ...

    def pause_due(self) -> bool:
        """Return whether the search has to pause now.  A question may also raise SearchPaused; it is asked again then."""
        ...


class AssignedMember(NamedTuple):
    """An assignment and what undoes it: the placements and shared devices of the node before it.

    `joined`: how many claims of the member had been decided on other nodes.  `further`: devices that other nodes reach and that the
    members of the node got with this assignment.
    """

    member: GangMember
    node: str
    before: Mapping[str, ClaimPlacement]
    wide: Sequence[DeviceHolding]
    joined: int
    further: Sequence[DeviceId]


class PartialAssignment:
    """The nodes of the assigned members, and what their claims get."""

    def __init__(self, oracle: PlacementOracle) -> None:
        self._oracle = oracle
        self.reached_further = False
        self.clear()

    def clear(self) -> None:
        """Unassign all members."""
        self._on_node: dict[str, list[GangMember]] = {}
        self._placements: dict[str, Mapping[str, ClaimPlacement]] = {}
        self._decided: dict[str, tuple[str, ClaimPlacement]] = {}
        self._wide: dict[str, Sequence[DeviceHolding]] = {}
        self._states: dict[str, Hashable] = {}
        self._full: dict[str, dict[Hashable, int]] = {}
        self._joined = 0

    def assign(
        self, member: GangMember, node: str, without: frozenset[DeviceId] = frozenset()
    ) -> AssignedMember | None:
        """Assign the member, moving devices between the members of this node if necessary; None if that is impossible.

        No member of the node gets one of the devices `without`.  `unassign` undoes it.
        """
        before = self._placements.get(node, {})
        elsewhere = [shared for uid in member.claims if (shared := self._decided.get(uid)) and shared[0] != node]
        if not all(self._oracle.usable(placement, node) for _, placement in elsewhere):
            return None
        after = before
        if new := [uid for uid in member.claims if uid not in self._decided]:
            placed = self._place(new, node, before, without)
            if placed is None:
                # Valid as long as the present members stay, unless devices of other nodes are the reason.
                if not (without or any(self._wide.values())):
                    self._full.setdefault(node, {})[self._question(member)] = len(self._on_node.get(node, ()))
                return None
            after = placed
            if not self._still_usable(before, after, node):
                return None
        wide = [held for one in after.values() for held in one.holdings if self._oracle.reach(held) is not None]
        self.reached_further |= bool(wide)
        had = {(held.driver, held.pool, held.device) for held in self._wide.get(node, ())}
        further = [key for held in wide if (key := (held.driver, held.pool, held.device)) not in had]
        assigned = AssignedMember(member, node, before, self._wide.get(node, ()), len(elsewhere), further)
        self._on_node.setdefault(node, []).append(member)
        self._set(node, after, wide)
        self._joined += assigned.joined
        return assigned

    def unassign(self, assigned: AssignedMember) -> None:
        """Undo an `assign`; the last one first."""
        node = assigned.node
        self._joined -= assigned.joined
        left = self._on_node[node]
        left.pop()
        for uid in self._placements[node].keys() - assigned.before.keys():
            del self._decided[uid]
        self._set(node, assigned.before, assigned.wide)
        full = self._full.get(node)
        if full:
            self._full[node] = {
                question: assignments for question, assignments in full.items() if assignments <= len(left)
            }

    def is_full(self, member: GangMember, node: str) -> bool:
        """Return whether it is known that nothing is left for the member next to the members of the node."""
        full = self._full.get(node)
        return full is not None and self._question(member) in full

    def assignments(self) -> Mapping[str, Assignment]:
        """Return the assignments of all members."""
        return {
            member.uid: Assignment(node, {uid: self._decided[uid][1] for uid in member.claims})
            for node, members in self._on_node.items()
            for member in members
        }

    def states(self) -> Mapping[str, Hashable]:
        """Return the state of each node that has members."""
        return {node: self.state_of(node) for node, members in self._on_node.items() if members}

    def state_of(self, node: str) -> Hashable | None:
        """Return the kinds of members on the node, and their devices that other nodes reach; None for a node without members."""
        members = self._on_node.get(node)
        if not members:
            return None
        state = self._states.get(node)
        if state is None:
            kinds = Counter(member.kind for member in members)
            wide = Counter(self._oracle.reach(held) for held in self._wide.get(node, ()))
            shared = frozenset(uid for member in members for uid in member.shared if self._decided[uid][0] == node)
            state = self._states[node] = frozenset(kinds.items()), frozenset(wide.items()), shared
        return state

    def _place(
        self, new: Sequence[str], node: str, before: Mapping[str, ClaimPlacement], without: frozenset[DeviceId]
    ) -> Mapping[str, ClaimPlacement] | None:
        """Return placements for all claims on the node; those that are there stay as they are if that is possible."""
        others = [holding for other, held in self._wide.items() if other != node for holding in held]
        here = [holding for placement in before.values() for holding in placement.holdings]
        placed = self._oracle.ask(new, node, [*others, *here], without)
        if placed is not None:
            return {**before, **placed}
        return self._oracle.ask([*before, *new], node, others, without) if before else None

    def _question(self, member: GangMember) -> Hashable:
        """Return what the member asks for on a node, without the claims that are decided already."""
        return tuple(ask for uid, ask in zip(member.claims, member.asks, strict=True) if uid not in self._decided)

    def _set(self, node: str, placements: Mapping[str, ClaimPlacement], wide: Sequence[DeviceHolding]) -> None:
        self._placements[node], self._wide[node] = placements, wide
        self._states.pop(node, None)
        for uid, placement in placements.items():
            self._decided[uid] = (node, placement)

    def _still_usable(
        self, before: Mapping[str, ClaimPlacement], after: Mapping[str, ClaimPlacement], node: str
    ) -> bool:
        """Return whether members on other nodes can use the new placements of the claims that they share."""
        moved = {uid for uid, placement in before.items() if after[uid] != placement}
        return (
            not moved
            or not self._joined
            or all(
                self._oracle.usable(after[uid], other)
                for other, members in self._on_node.items()
                if other != node
                for member in members
                for uid in moved.intersection(member.claims)
            )
        )
