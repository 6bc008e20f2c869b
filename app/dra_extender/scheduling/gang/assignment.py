"""The partial assignment of a gang during the search: the node of each assigned member, and what the claims get there."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from dra_extender.model.allocation import ClaimPlacement, DeviceHolding
from dra_extender.model.device import DeviceId
from dra_extender.scheduling.permit.members import GangMember


class Assignment(NamedTuple):
    """Where a member goes, and what each of its claims gets there."""

    node: str
    placements: Mapping[str, ClaimPlacement]


class PlacementOracle(Protocol):
    """What a plan asks about nodes and devices."""

    @property
    def undecided(self) -> bool:
        """Whether some question could not be decided in the time there was, so that a None may be wrong."""
        ...

    def ask(
        self, claims: Sequence[str], node: str, kept: Sequence[DeviceHolding], without: frozenset[DeviceId]
    ) -> Mapping[str, ClaimPlacement] | None:
        """A placement for each claim on this node, beside what the plan keeps and without these devices; None if there is none."""
        ...

    def allowed(self, member: GangMember, node: str) -> bool:
        """Whether the member may be on the node at all: what it was offered, decided claims, extended resources."""
        ...

    def usable(self, placement: ClaimPlacement, node: str) -> bool:
        """Whether a pod on the node can use the devices of this placement."""
        ...

    def reach(self, holding: DeviceHolding) -> Hashable | None:
        """None for a device of one node; else equal for devices that are the same to every claim and node."""
        ...

    def symmetry_class(self, node: str) -> Hashable | None:
        """Equal for nodes that answer every question equally; None for a node that has no equal."""
        ...

    def capacity(self, members: Sequence[GangMember], node: str) -> int | None:
        """How many of these members, which are of one kind and share no claims, fit on this node at most; None if not known."""
        ...

    def out_of_time(self) -> bool:
        """Whether the time for planning is up."""
        ...

    def pause_due(self) -> bool:
        """Whether the plan is to stop where it can go on.  A question may also raise Paused, and is asked again then."""
        ...


class AssignedMember(NamedTuple):
    """An assigned member, the state before, and devices that members of the node got with it and that other nodes reach."""

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
        """No member is assigned."""
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

        Nobody on the node gets one of the devices `without` for it.
        """
        before = self._placements.get(node, {})
        elsewhere = [shared for uid in member.claims if (shared := self._decided.get(uid)) and shared[0] != node]
        if not all(self._oracle.usable(placement, node) for _, placement in elsewhere):
            return None
        new = [uid for uid in member.claims if uid not in self._decided]
        after = before
        if new:
            found = self._beside(before, new, node, without)
            if found is None:
                self._note_full(member, node, without)
                return None
            if not self._still_usable(before, found, node):
                return None
            after = found
        wide = [each for one in after.values() for each in one.holdings if self._oracle.reach(each) is not None]
        self.reached_further |= bool(wide)
        had = {(each.driver, each.pool, each.device) for each in self._wide.get(node, ())}
        further = [key for each in wide if (key := (each.driver, each.pool, each.device)) not in had]
        assigned = AssignedMember(member, node, before, self._wide.get(node, ()), len(elsewhere), further)
        self._on_node.setdefault(node, []).append(member)
        self._set(node, after, wide)
        self._joined += assigned.joined
        return assigned

    def unassign(self, assigned: AssignedMember) -> None:
        """Undo an `enter`; the last one first."""
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
        """Whether it is known that there is nothing for the member beside the members of the node."""
        full = self._full.get(node)
        return full is not None and self._question(member) in full

    def assignments(self) -> Mapping[str, Assignment]:
        """The assignments of all members."""
        return {
            member.uid: Assignment(node, {uid: self._decided[uid][1] for uid in member.claims})
            for node, members in self._on_node.items()
            for member in members
        }

    def states(self) -> Mapping[str, Hashable]:
        """The state of each node that has members."""
        return {node: self.state_of(node) for node, members in self._on_node.items() if members}

    def state_of(self, node: str) -> Hashable | None:
        """Which kinds of members are assigned to it and which devices they have that other nodes reach; None if it has none."""
        members = self._on_node.get(node)
        if not members:
            return None
        state = self._states.get(node)
        if state is None:
            kinds = Counter(member.kind for member in members)
            wide = Counter(self._oracle.reach(each) for each in self._wide.get(node, ()))
            shared = frozenset(uid for each in members for uid in each.shared if self._decided[uid][0] == node)
            state = self._states[node] = frozenset(kinds.items()), frozenset(wide.items()), shared
        return state

    def _beside(
        self, before: Mapping[str, ClaimPlacement], new: Sequence[str], node: str, without: frozenset[DeviceId]
    ) -> Mapping[str, ClaimPlacement] | None:
        """Placements for all claims on the node: those that are there as they are, if that is possible."""
        others = [holding for other, held in self._wide.items() if other != node for holding in held]
        here = [holding for placement in before.values() for holding in placement.holdings]
        found = self._oracle.ask(new, node, [*others, *here], without)
        if found is not None:
            return {**before, **found}
        return self._oracle.ask([*before, *new], node, others, without) if before else None

    def _question(self, member: GangMember) -> Hashable:
        """What the member needs on a node that it does not share with members elsewhere."""
        return tuple(ask for uid, ask in zip(member.claims, member.asks, strict=True) if uid not in self._decided)

    def _note_full(self, member: GangMember, node: str, without: Iterable[DeviceId]) -> None:
        """Remember the answer as long as the present members stay, unless it is due to what is held elsewhere."""
        if without or any(self._wide.values()):
            return
        self._full.setdefault(node, {})[self._question(member)] = len(self._on_node.get(node, ()))

    def _set(self, node: str, placements: Mapping[str, ClaimPlacement], wide: Sequence[DeviceHolding]) -> None:
        self._placements[node], self._wide[node] = placements, wide
        self._states.pop(node, None)
        for uid, placement in placements.items():
            self._decided[uid] = (node, placement)

    def _still_usable(
        self, before: Mapping[str, ClaimPlacement], after: Mapping[str, ClaimPlacement], node: str
    ) -> bool:
        """Whether members on other nodes can use what their shared claims would get now."""
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
