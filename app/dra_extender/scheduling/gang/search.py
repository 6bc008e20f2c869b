"""Planning a gang: a node for each member, so that all of them have their devices at once.

A search over members with backtracking.  A member is assigned beside the members of its node; if nothing is left for it there, the
allocator is asked for all members of that node together, so that it finds the devices that let them share the node; if that fails,
the next node is tried.  For devices that one node reaches the search is complete: a gang that fits is planned.  A device that
several nodes reach goes to the first member that it suits; when a plan fails with that, the search is repeated, and members try to
leave such a device to others.  That costs more, and has a limit of its own.

What keeps the search short: members that want the same are assigned in the order of nodes, of equivalent nodes one is tried, and
neither a state that failed nor a question that a node answered with no is tried again.
"""

from collections import Counter, deque
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, TypeVar

from dra_extender.allocator.state.result import SearchPaused
from dra_extender.model.device import DeviceId
from dra_extender.scheduling.gang.assignment import (
    AssignedMember,
    Assignment,
    PartialAssignment,
    PlacementOracle,
)
from dra_extender.scheduling.permit.members import GangMember

MAX_STEPS: Final = 50_000
MAX_EXCHANGES: Final = 2_000
_POLL: Final = 31
_MOST_COMPARED: Final = 100_000
_SKIPPED: Final = -1
_NOTHING: Final = frozenset[DeviceId]()


T = TypeVar("T")
_Going = Generator[None, None, T]


class PlanLimitError(Exception):
    """The search was stopped at its limit; it is not known whether the gang fits."""


class _Choice(NamedTuple):
    """A node by its place, and devices that several nodes reach and that are left to others."""

    node: int
    without: frozenset[DeviceId] = _NOTHING


@dataclass(slots=True)
class _Level:
    """A member, the choices left for it, and its present one; `others` are choices to come back to at last."""

    choices: Iterator[_Choice]
    spare: int
    node: int = 0
    assigned: AssignedMember | None = None
    others: deque[_Choice] = field(default_factory=deque)
    known: set[_Choice] = field(default_factory=set)


class GangSearch:
    """One search; call `solve` once."""

    def __init__(
        self, members: Sequence[GangMember], nodes: Sequence[str], oracle: PlacementOracle, max_steps: int = MAX_STEPS
    ) -> None:
        """Members of one kind are best given in a row; each question to `oracle` for an assignment is a step."""
        self._members = members
        self._nodes = nodes
        self._oracle = oracle
        self._max_steps = self._left = max_steps
        self._index = {name: index for index, name in enumerate(nodes)}
        self._looks = 0
        self._going_on: _Going[Mapping[str, Assignment] | None] | None = None
        self._partial = PartialAssignment(oracle)
        self._exchanging = False
        self._failed: set[Hashable] = set()
        self._kinds = {member.kind: member for member in members}
        self._allowed: dict[tuple[Hashable, int], bool] = {}
        self._classes: dict[int, Hashable] = {}
        self._comparable = len(self._kinds) * len(nodes) <= _MOST_COMPARED

    def solve(self, needed: int) -> Mapping[str, Assignment] | None:
        """Assignments by member UID, for all members if that is possible, else for at least `needed` of them; None if it is not.

        Raises:
            SearchPaused: `oracle` wanted a pause; the same call again goes on.
            PlanLimitError: the time or the number of steps was used up, or `oracle` could not decide in the time it had.
        """
        if self._going_on is None:
            self._going_on = self._planning(needed)
        try:
            next(self._going_on)
        except StopIteration as end:
            found: Mapping[str, Assignment] | None = end.value
            return found
        raise SearchPaused

    def _planning(self, needed: int) -> _Going[Mapping[str, Assignment] | None]:
        """Every stop is a pause."""
        too_many = yield from self._too_many()
        spare = len(self._members) - needed
        if too_many > max(spare, 0):
            return None
        if spare <= 0:
            return self._decided((yield from self._within(self._max_steps, 0)))
        found = None
        if not too_many:
            with suppress(PlanLimitError):
                found = yield from self._within(self._max_steps // 2, 0)
        return found or self._decided((yield from self._within(self._max_steps // 2, spare)))

    def _too_many(self) -> _Going[int]:
        """How many members at least find no assignment, found out by counting for each kind what nodes have room for."""
        if not self._comparable:
            return 0
        too_many = 0
        for kind, first in self._kinds.items():
            members = [member for member in self._members if member.kind == kind]
            left: int | None = None if first.shared else len(members)
            for index, node in enumerate(self._nodes):
                if not left:
                    break
                self._look()
                if self._is_allowed(first, index):
                    room = yield from self._asked(partial(self._oracle.capacity, members, node))
                    left = None if room is None else max(left - room, 0)
            too_many += left or 0
        return too_many

    def _decided(self, found: Mapping[str, Assignment] | None) -> Mapping[str, Assignment] | None:
        if found is None and self._oracle.undecided:
            raise PlanLimitError
        return found

    def _asked(self, question: Callable[[], T]) -> _Going[T]:
        """The answer, after as many pauses as the question takes."""
        while True:
            try:
                return question()
            except SearchPaused:
                yield

    def _within(self, steps: int, spare: int) -> _Going[Mapping[str, Assignment] | None]:
        """A search with so many steps, and another one that exchanges devices between nodes if there are any to exchange."""
        self._exchanging, self._left = False, steps
        found = yield from self._search(spare)
        if found is None and self._partial.reached_further:
            self._exchanging, self._left = True, min(self._left, MAX_EXCHANGES)
            found = yield from self._search(spare)
        return found

    def _search(self, spare: int) -> _Going[Mapping[str, Assignment] | None]:
        """Depth first, without recursion: one iterator over the choices of each member that has been looked at."""
        self._partial.clear()
        self._failed.clear()
        levels = [_Level(self._choices(0, 0, spare), spare)]
        while levels:
            if self._oracle.pause_due():
                yield
            level, position = levels[-1], len(levels) - 1
            if level.assigned is not None:
                self._partial.unassign(level.assigned)
                level.assigned = None
            choice = next(level.choices, None) or (level.others.popleft() if level.others else None)
            if choice is None:
                levels.pop()
                if position:
                    self._failed.add(self._state(position, level.spare))
                continue
            left = level.spare
            if choice.node == _SKIPPED:
                left -= 1
                level.node = len(self._nodes)
            else:
                self._count_step()
                if not (yield from self._asked(partial(self._try_assign, level, self._members[position], choice))):
                    continue
            if position + 1 == len(self._members):
                return self._partial.assignments()
            if self._failed and self._state(position + 1, left) in self._failed:
                continue
            levels.append(_Level(self._choices(position + 1, level.node, left), left))
        return None

    def _try_assign(self, level: _Level, member: GangMember, choice: _Choice) -> bool:
        """Whether the member can have this assignment, and then it has it."""
        assigned = self._partial.assign(member, self._nodes[choice.node], choice.without)
        if assigned is None:
            return False
        level.assigned, level.node = assigned, choice.node
        if self._exchanging:
            for device in assigned.further:
                other = _Choice(choice.node, choice.without | {device})
                if other not in level.known:
                    level.known.add(other)
                    level.others.append(other)
        return True

    def _choices(self, position: int, previous: int, spare: int) -> Iterator[_Choice]:
        """The nodes to try, in order, and last to go without; members of one kind are assigned in the order of nodes."""
        member, board = self._members[position], self._partial
        seen: set[Hashable] = set()
        for index in range(previous if self._follows_equal_member(position) else 0, len(self._nodes)):
            self._look()
            if not self._is_allowed(member, index) or board.is_full(member, self._nodes[index]):
                continue
            symmetry_class = self._class_of(index)
            if symmetry_class is not None:
                state = symmetry_class, board.state_of(self._nodes[index])
                if state in seen:
                    continue
                seen.add(state)
            yield _Choice(index)
        if spare:
            yield _Choice(_SKIPPED)

    def _follows_equal_member(self, position: int) -> bool:
        """Whether the member wants the same as the one before."""
        return 0 < position < len(self._members) and self._members[position - 1].kind == self._members[position].kind

    def _is_allowed(self, member: GangMember, index: int) -> bool:
        key = member.kind, index
        known = self._allowed.get(key)
        if known is None:
            known = self._allowed[key] = self._oracle.allowed(member, self._nodes[index])
        return known

    def _class_of(self, index: int) -> Hashable | None:
        """Equal for nodes that are the same to every member; None for one that is like no other."""
        if not self._comparable:
            return None
        try:
            return self._classes[index]
        except KeyError:
            symmetry_class = self._oracle.symmetry_class(self._nodes[index])
            if symmetry_class is not None:
                symmetry_class = (
                    symmetry_class,
                    tuple(self._is_allowed(member, index) for member in self._kinds.values()),
                )
            self._classes[index] = symmetry_class
            return symmetry_class

    def _state(self, position: int, spare: int) -> Hashable:
        """What decides whether the members from this one on can be assigned: what is taken where.

        Between members that want the same it also matters which nodes are left for the next one, so there nodes stay themselves.
        """
        states = self._partial.states()
        if self._follows_equal_member(position):
            return position, spare, frozenset(states.items())
        assignments: Counter[Hashable] = Counter()
        for name, state in states.items():
            symmetry_class = self._class_of(self._index[name])
            assignments[name if symmetry_class is None else symmetry_class, state] += 1
        return position, spare, frozenset(assignments.items())

    def _count_step(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise PlanLimitError

    def _look(self) -> None:
        self._looks += 1
        if not self._looks & _POLL and self._oracle.out_of_time():
            raise PlanLimitError
