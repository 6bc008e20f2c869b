"""Plans a gang: a node for each member, so that all of them have their devices at once.

A search over members with backtracking.  A member is assigned after the members of its node.  If nothing is left for it there, the
allocator is asked for all members of that node together, so that it finds the devices with which they share the node.  If that
fails, the next node is tried.  For devices that one node reaches the search is complete: it finds a plan if there is one.  A device
that several nodes reach goes to the first member that it suits.  If the search fails with that, it is repeated, and members try to
leave such a device to others; that costs more, and has a limit of its own.

Three rules keep the search short: members of one kind are assigned in the order of nodes (symmetry breaking), only one node of a
symmetry class in the same state is tried, and no state that failed (nogood) is entered again.
"""

from collections import Counter, deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dra_extender.model.allocation import ClaimPlacement, DeviceHolding
from dra_extender.model.device import DeviceId
from dra_extender.scheduling.gang.members import GangMember
from dra_extender.scheduling.gang.placements import MAX_STEPS, Pausable, PlacementOracle

MAX_EXCHANGES: Final = 2_000
_POLL: Final = 31
_MOST_COMPARED: Final = 100_000
_SKIPPED: Final = -1
_NO_DEVICES: Final = frozenset[DeviceId]()


class Assignment(NamedTuple):
    """The node of a member, and what each of its claims gets there."""

    node: str
    placements: Mapping[str, ClaimPlacement]


class AssignedMember(NamedTuple):
    """An assignment and what undoes it: the placements on the node before it, and those of devices that several nodes reach.

    `joined`: how many claims of the member had been decided on other nodes.  `added_devices`: devices that several nodes reach and
    that the members of the node got with this assignment.
    """

    member: GangMember
    node: str
    placements_before: Mapping[str, ClaimPlacement]
    multi_node_before: Sequence[DeviceHolding]
    joined: int
    added_devices: Sequence[DeviceId]


class PartialAssignment:
    """The nodes of the assigned members, and what their claims get."""

    def __init__(self, oracle: PlacementOracle) -> None:
        self._oracle = oracle
        self.uses_multi_node_devices = False
        self.clear()

    def clear(self) -> None:
        self._on_node: dict[str, list[GangMember]] = {}
        self._placements: dict[str, Mapping[str, ClaimPlacement]] = {}
        self._decided: dict[str, tuple[str, ClaimPlacement]] = {}
        self._multi_node: dict[str, Sequence[DeviceHolding]] = {}
        self._states: dict[str, Hashable] = {}
        self._full: dict[str, dict[Hashable, int]] = {}
        self._joined = 0

    def assign(
        self, member: GangMember, node: str, excluded: frozenset[DeviceId] = frozenset()
    ) -> Pausable[AssignedMember | None]:
        """Assign the member, moving devices between the members of this node if necessary; None if that is impossible.

        No member of the node gets one of the devices `excluded`.  `unassign` undoes it.
        """
        before = self._placements.get(node, {})
        decided = [self._decided[uid] for uid in member.claims if uid in self._decided]
        elsewhere = [placement for other_node, placement in decided if other_node != node]
        if not all(self._oracle.usable(placement, node) for placement in elsewhere):
            return None
        after = before
        if new := [uid for uid in member.claims if uid not in self._decided]:
            on_other_nodes = [
                holding
                for other_node, holdings in self._multi_node.items()
                if other_node != node
                for holding in holdings
            ]
            on_node = [holding for placement in before.values() for holding in placement.holdings]
            placed = yield from self._oracle.ask(new, node, [*on_other_nodes, *on_node], excluded)
            if placed is not None:
                placed = {**before, **placed}
            elif before:
                placed = yield from self._oracle.ask([*before, *new], node, on_other_nodes, excluded)
            if placed is None:
                # Valid as long as the present members stay, unless devices of other nodes are the reason.
                if not (excluded or any(self._multi_node.values())):
                    self._full.setdefault(node, {})[self._question(member)] = len(self._on_node.get(node, ()))
                return None
            after = placed
            if not self._still_usable(before, after, node):
                return None
        multi_node = [
            holding
            for placement in after.values()
            for holding in placement.holdings
            if self._oracle.reach(holding) is not None
        ]
        self.uses_multi_node_devices |= bool(multi_node)
        multi_node_before = self._multi_node.get(node, ())
        devices_before = {holding.device_id for holding in multi_node_before}
        assigned = AssignedMember(
            member=member,
            node=node,
            placements_before=before,
            multi_node_before=multi_node_before,
            joined=len(elsewhere),
            added_devices=[holding.device_id for holding in multi_node if holding.device_id not in devices_before],
        )
        self._on_node.setdefault(node, []).append(member)
        self._set(node, after, multi_node)
        self._joined += assigned.joined
        return assigned

    def unassign(self, assigned: AssignedMember) -> None:
        """Undo an `assign`; the last one first."""
        node = assigned.node
        self._joined -= assigned.joined
        members = self._on_node[node]
        members.pop()
        for uid in self._placements[node].keys() - assigned.placements_before.keys():
            del self._decided[uid]
        self._set(node, assigned.placements_before, assigned.multi_node_before)
        full = self._full.get(node)
        if full:
            self._full[node] = {
                question: assignments for question, assignments in full.items() if assignments <= len(members)
            }

    def is_full(self, member: GangMember, node: str) -> bool:
        """Return whether it is known that nothing is left for the member next to the members of the node."""
        full = self._full.get(node)
        return full is not None and self._question(member) in full

    def assignments(self) -> Mapping[str, Assignment]:
        return {
            member.uid: Assignment(node, {uid: self._decided[uid][1] for uid in member.claims})
            for node, members in self._on_node.items()
            for member in members
        }

    def states(self) -> Mapping[str, Hashable]:
        return {node: self.state_of(node) for node, members in self._on_node.items() if members}

    def state_of(self, node: str) -> Hashable | None:
        """Return the kinds of members on the node, and their devices that other nodes reach; None for a node without members."""
        members = self._on_node.get(node)
        if not members:
            return None
        state = self._states.get(node)
        if state is None:
            kinds = Counter(member.kind for member in members)
            multi_node = Counter(self._oracle.reach(holding) for holding in self._multi_node.get(node, ()))
            shared = frozenset(uid for member in members for uid in member.shared if self._decided[uid][0] == node)
            state = self._states[node] = frozenset(kinds.items()), frozenset(multi_node.items()), shared
        return state

    def _question(self, member: GangMember) -> Hashable:
        """Return what the member asks for on a node, without the claims that are decided already."""
        return tuple(
            claim_kind
            for uid, claim_kind in zip(member.claims, member.claim_kinds, strict=True)
            if uid not in self._decided
        )

    def _set(self, node: str, placements: Mapping[str, ClaimPlacement], multi_node: Sequence[DeviceHolding]) -> None:
        self._placements[node], self._multi_node[node] = placements, multi_node
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
                self._oracle.usable(after[uid], other_node)
                for other_node, members in self._on_node.items()
                if other_node != node
                for member in members
                for uid in moved.intersection(member.claims)
            )
        )


class _Choice(NamedTuple):
    """The index of a node, and devices that several nodes reach and that are left to other members."""

    node: int
    excluded: frozenset[DeviceId] = _NO_DEVICES


_PAUSE: Final = _Choice(-2)
"""Nothing to try: the search pauses, and the choices go on afterwards."""


@dataclass(slots=True)
class _Level:
    """A decision level: the member at this position, its present choice and those not tried yet.

    `spare`: how many members from this one on may stay without a node.  `exchanges`: choices without some devices, which are tried
    last; `earlier_exchanges`: all that were ever among them.
    """

    choices: Iterator[_Choice]
    spare: int
    node: int = 0
    assigned: AssignedMember | None = None
    exchanges: deque[_Choice] = field(default_factory=deque)
    earlier_exchanges: set[_Choice] = field(default_factory=set)

    def add_exchanges(self, choice: _Choice) -> None:
        """Add one choice of the same node per device that other nodes reach and that it gave to members: without this device."""
        for device in () if self.assigned is None else self.assigned.added_devices:
            exchange = _Choice(choice.node, choice.excluded | {device})
            if exchange not in self.earlier_exchanges:
                self.earlier_exchanges.add(exchange)
                self.exchanges.append(exchange)


class GangSearch:
    """One search, which `solve` begins.

    When it has ended, `unplaceable` are members, one of each kind, that no node could take if they were alone.  `limited`: the time
    or the number of steps was used up, or `oracle` could not decide in the time it had; it is not known whether the gang fits.
    """

    def __init__(
        self, members: Sequence[GangMember], nodes: Sequence[str], oracle: PlacementOracle, max_steps: int = MAX_STEPS
    ) -> None:
        """`members` of one kind are best in a row.  Each question to `oracle` for an assignment counts towards `max_steps`."""
        self._members = members
        self._nodes = nodes
        self._oracle = oracle
        self._max_steps = max_steps
        self._index = {name: index for index, name in enumerate(nodes)}
        self._polls = 0
        self._partial = PartialAssignment(oracle)
        self._nogoods: set[Hashable] = set()
        self._kinds = {member.kind: member for member in members}
        self.unplaceable: list[GangMember] = []
        self.limited = False
        self._allowed: dict[tuple[Hashable, int], bool] = {}
        # By node: what is equal for nodes that are equivalent to every member; None for a node without an equivalent.
        self._classes: dict[int, tuple[Hashable, tuple[bool, ...]] | None] = {}
        self._comparable = len(self._kinds) * len(nodes) <= _MOST_COMPARED

    def solve(self, needed: int) -> Pausable[Mapping[str, Assignment] | None]:
        """Return assignments by member UID, for all members if possible, else for at least `needed`; None if there are none."""
        unplaceable = yield from self._count_unplaceable()
        spare = max(len(self._members) - needed, 0)
        if self.limited or unplaceable > spare:
            return None
        assignments, steps = None, self._max_steps
        if spare:
            steps = self._max_steps // 2
            if not unplaceable:
                assignments = yield from self._search(steps, 0)
                self.limited = False
        assignments = assignments or (yield from self._search(steps, spare))
        self.limited = assignments is None and (self.limited or self._oracle.undecided)
        return assignments

    def _count_unplaceable(self) -> Pausable[int]:
        """Count the members of each kind beyond the capacity of all nodes together: at least so many get no node."""
        if not self._comparable:
            return 0
        unplaceable = 0
        for kind, member in self._kinds.items():
            if member.shared:
                continue
            members = [candidate for candidate in self._members if candidate.kind == kind]
            beyond = len(members)
            for index in range(len(self._nodes)):
                if not beyond:
                    break
                if self._is_out_of_time():
                    return 0
                if self._oracle.pause_due():
                    yield
                if self._is_allowed(members[-1], index):
                    if index not in self._classes:
                        yield from self._classify(index)
                    node_class = self._classes[index]
                    symmetry_class = None if node_class is None else node_class[0]
                    capacity = yield from self._oracle.capacity(members, self._nodes[index], symmetry_class)
                    # Nothing is known of a kind if one capacity is not.
                    beyond = 0 if capacity is None else max(beyond - capacity, 0)
            if beyond == len(members):
                self.unplaceable.append(members[0])
            unplaceable += beyond
        return unplaceable

    def _search(self, steps: int, spare: int, *, exchanging: bool = False) -> Pausable[Mapping[str, Assignment] | None]:
        """Search depth-first with so many steps, and once more with exchanges of devices between nodes if there are any.

        The stack has a decision level for each member up to the present one.
        """
        self._partial.clear()
        self._nogoods.clear()
        levels = [_Level(self._choices(0, 0, spare), spare)]
        while levels:
            if self._oracle.pause_due():
                yield
            level, position = levels[-1], len(levels) - 1
            if level.assigned is not None:
                self._partial.unassign(level.assigned)
                level.assigned = None
            choice = next(level.choices, None) or (level.exchanges.popleft() if level.exchanges else None)
            if self.limited:
                return None
            if choice is _PAUSE:
                yield
                continue
            if choice is None:
                levels.pop()
                if levels:
                    self._nogoods.add(self._state(len(levels), level.spare))
                continue
            spare_left = level.spare
            if choice.node == _SKIPPED:
                level.node, spare_left = len(self._nodes), spare_left - 1
            else:
                steps -= 1
                if steps < 0:
                    self.limited = True
                    return None
                member, node = self._members[position], self._nodes[choice.node]
                level.assigned = yield from self._partial.assign(member, node, choice.excluded)
                if level.assigned is None:
                    continue
                level.node = choice.node
                if exchanging:
                    level.add_exchanges(choice)
            if position + 1 == len(self._members):
                return self._partial.assignments()
            if not self._nogoods or self._state(position + 1, spare_left) not in self._nogoods:
                levels.append(_Level(self._choices(position + 1, level.node, spare_left), spare_left))
        if exchanging or not self._partial.uses_multi_node_devices:
            return None
        return (yield from self._search(min(steps, MAX_EXCHANGES), spare, exchanging=True))

    def _choices(self, position: int, previous: int, spare: int) -> Iterator[_Choice]:
        """Yield the nodes to try in order, and then no node; a member of the same kind as the one before begins at its node.

        Yields _PAUSE where the search has to pause.
        """
        member = self._members[position]
        states: set[Hashable] = set()
        for index in range(previous if self._follows_equal_member(position) else 0, len(self._nodes)):
            if self._is_out_of_time():
                return
            if self._oracle.pause_due():
                yield _PAUSE
            if not self._is_allowed(member, index) or self._partial.is_full(member, self._nodes[index]):
                continue
            if self._comparable and index not in self._classes:
                for _ in self._classify(index):
                    yield _PAUSE
            node_class = self._classes.get(index)
            if node_class is not None:
                state = node_class, self._partial.state_of(self._nodes[index])
                if state in states:
                    continue
                states.add(state)
            yield _Choice(index)
        if spare:
            yield _Choice(_SKIPPED)

    def _follows_equal_member(self, position: int) -> bool:
        """Return whether the member is of the same kind as the one before."""
        return 0 < position < len(self._members) and self._members[position - 1].kind == self._members[position].kind

    def _is_allowed(self, member: GangMember, index: int) -> bool:
        key = member.kind, index
        is_allowed = self._allowed.get(key)
        if is_allowed is None:
            is_allowed = self._allowed[key] = self._oracle.allowed(member, self._nodes[index])
        return is_allowed

    def _classify(self, index: int) -> Pausable[None]:
        """Find the class of a node: its symmetry class, and the kinds of members that may go there."""
        symmetry_class = self._oracle.symmetry_class(self._nodes[index])
        allowed = []
        for member in self._kinds.values() if symmetry_class is not None else ():
            # A question may take 0.1 ms, and there may be many kinds.
            if self._oracle.pause_due():
                yield
            allowed.append(self._is_allowed(member, index))
        self._classes[index] = None if symmetry_class is None else (symmetry_class, tuple(allowed))

    def _state(self, position: int, spare: int) -> Hashable:
        """Return a value that is equal where the members from this position on have the same choices, by symmetry class.

        Between members of one kind the order of nodes restricts the next one, so there a node stands for itself.
        """
        states = self._partial.states()
        if self._follows_equal_member(position):
            return position, spare, frozenset(states.items())
        assignments: Counter[Hashable] = Counter()
        for name, state in states.items():
            node_class = self._classes.get(self._index[name])
            assignments[name if node_class is None else node_class, state] += 1
        return position, spare, frozenset(assignments.items())

    def _is_out_of_time(self) -> bool:
        """Look at the clock now and then; when the time is up, the search is `limited`."""
        self._polls += 1
        self.limited = self.limited or (not self._polls & _POLL and self._oracle.out_of_time())
        return self.limited
