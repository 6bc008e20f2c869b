"""Planning a gang: a node for each member, so that all of them have their devices at once.

A search over members with backtracking.  All members on one node are asked for together, so that the allocator itself finds the
devices that let them live side by side; over nodes this search tries the next node when that fails.  For devices that belong to
one node each, it is complete: a gang that fits is planned.  A device that several nodes reach is given to the first member that
it suits and is not exchanged between nodes afterwards.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from app.model.allocation import ClaimPlacement, DeviceHolding

MAX_STEPS: Final = 50_000
_POLL: Final = 15
_SKIPPED: Final = -1


@dataclass(frozen=True, slots=True)
class Member:
    """A pod of the gang.

    `claims` are the UIDs of its claims that have no allocation yet, shared ones included.  Members with equal `kind` want the
    same, each of its own; a member that shares a claim with another one has a kind of its own.
    """

    uid: str
    claims: tuple[str, ...]
    kind: Hashable


class Seat(NamedTuple):
    """Where a member goes, and what each of its claims gets there."""

    node: str
    placements: Mapping[str, ClaimPlacement]


Ask = Callable[[Sequence[str], str, Sequence[DeviceHolding]], Mapping[str, ClaimPlacement] | None]
"""(claims, node, what the plan holds on other nodes) -> a placement for each claim, None if they do not fit there together."""
Allowed = Callable[[Member, str], bool]
"""Whether the member may be on the node at all: decided claims, extended resources."""
Usable = Callable[[ClaimPlacement, str], bool]
"""Whether a pod on the node can use the devices of this placement."""


Wide = Callable[[DeviceHolding], bool]
"""Whether other nodes can reach the device, too."""


class PlanLimitError(Exception):
    """The search was stopped at its limit; it is not known whether the gang fits."""


class GangPlan:
    """One search; `seats` once."""

    def __init__(
        self,
        members: Sequence[Member],
        nodes: Sequence[str],
        ask: Ask,
        allowed: Allowed,
        usable: Usable,
        wide: Wide,
        out_of_time: Callable[[], bool],
        max_steps: int = MAX_STEPS,
    ) -> None:
        """Members of one kind are best given in a row."""
        self._members = members
        self._nodes = nodes
        self._allowed = allowed
        self._out_of_time = out_of_time
        self._max_steps = max_steps
        self._board = _Board(ask, usable, wide)
        self._steps = 0
        self._failed: set[Hashable] = set()

    def seats(self, needed: int) -> Mapping[str, Seat] | None:
        """Seats by member UID, for all members if that is possible, else for at least `needed` of them; None if it is not.

        Raises:
            PlanLimitError: the time or the number of steps was used up.
        """
        total = len(self._members)
        for spare in (0, total - needed) if total > needed else (0,):
            self._failed.clear()
            seated = self._search(spare)
            if seated is not None:
                return seated
        return None

    def _search(self, spare: int) -> Mapping[str, Seat] | None:
        """Depth first, without recursion: one iterator over the choices of each member that has been looked at."""
        levels: list[_Level] = [_Level(self._choices(0, 0, spare), spare)]
        while levels:
            level = levels[-1]
            if level.seated is not None:
                self._board.leave(level.seated)
                level.seated = None
            choice = next(level.choices, None)
            if choice is None:
                levels.pop()
                self._remember_failure(len(levels), level.spare)
                continue
            position = len(levels) - 1
            left = level.spare
            if choice == _SKIPPED:
                left -= 1
                level.node = len(self._nodes)
            else:
                seated = self._board.enter(self._members[position], self._nodes[choice])
                if seated is None:
                    continue
                level.seated, level.node = seated, choice
            if position + 1 == len(self._members):
                return self._board.seats()
            if self._is_known_failure(position + 1, left):
                continue
            levels.append(_Level(self._choices(position + 1, level.node, left), left))
        return None

    def _choices(self, position: int, previous: int, spare: int) -> Iterator[int]:
        """Indexes of nodes to try, in order, and last to go without; members of one kind are seated in the order of nodes."""
        member = self._members[position]
        alike = position > 0 and self._members[position - 1].kind == member.kind
        for index in range(previous if alike else 0, len(self._nodes)):
            self._count_step()
            if self._allowed(member, self._nodes[index]):
                yield index
        if spare:
            yield _SKIPPED

    def _state(self, position: int, spare: int) -> Hashable:
        return position, spare, self._board.state()

    def _is_known_failure(self, position: int, spare: int) -> bool:
        return bool(self._failed) and self._board.local and self._state(position, spare) in self._failed

    def _remember_failure(self, position: int, spare: int) -> None:
        if position and self._board.local:
            self._failed.add(self._state(position, spare))

    def _count_step(self) -> None:
        self._steps += 1
        if self._steps > self._max_steps or (not self._steps & _POLL and self._out_of_time()):
            raise PlanLimitError


@dataclass(slots=True)
class _Level:
    """A member, the choices left for it, and its present one."""

    choices: Iterator[int]
    spare: int
    node: int = 0
    seated: "_Seated | None" = None


class _Seated(NamedTuple):
    """A member that took a seat, and what was so before."""

    member: Member
    node: str
    before: Mapping[str, ClaimPlacement]
    wide: Sequence[DeviceHolding]
    joined: int


class _Board:
    """Who sits where, and what everybody's claims get."""

    def __init__(self, ask: Ask, usable: Usable, wide: Wide) -> None:
        self._ask = ask
        self._usable = usable
        self._is_wide = wide
        self._on_node: dict[str, list[Member]] = {}
        self._placements: dict[str, Mapping[str, ClaimPlacement]] = {}
        self._decided: dict[str, tuple[str, ClaimPlacement]] = {}
        self._wide: dict[str, Sequence[DeviceHolding]] = {}
        self._joined = 0

    def enter(self, member: Member, node: str) -> _Seated | None:
        """Seat the member, moving devices between the members of this node as necessary; None if that is impossible."""
        before = self._placements.get(node, {})
        elsewhere = [shared for uid in member.claims if (shared := self._decided.get(uid)) and shared[0] != node]
        if not all(self._usable(placement, node) for _, placement in elsewhere):
            return None
        new = [uid for uid in member.claims if uid not in self._decided]
        after = before
        if new:
            others = [holding for other, held in self._wide.items() if other != node for holding in held]
            found = self._ask([*before, *new], node, others)
            if found is None or not self._still_usable(before, found, node):
                return None
            after = found
        seated = _Seated(member, node, before, self._wide.get(node, ()), len(elsewhere))
        self._on_node.setdefault(node, []).append(member)
        self._set(node, after, [each for one in after.values() for each in one.holdings if self._is_wide(each)])
        self._joined += seated.joined
        return seated

    def leave(self, seated: _Seated) -> None:
        """Undo an `enter`; the last one first."""
        self._joined -= seated.joined
        self._on_node[seated.node].pop()
        for uid in self._placements[seated.node].keys() - seated.before.keys():
            del self._decided[uid]
        self._set(seated.node, seated.before, seated.wide)

    def seats(self) -> Mapping[str, Seat]:
        """The seats of all members."""
        return {
            member.uid: Seat(node, {uid: self._decided[uid][1] for uid in member.claims})
            for node, members in self._on_node.items()
            for member in members
        }

    @property
    def local(self) -> bool:
        """Whether nothing is shared between nodes so far, so that who sits where says all about the board."""
        return not self._joined and not any(self._wide.values())

    def state(self) -> Hashable:
        """Which kinds of members sit where."""
        return frozenset(
            (node, frozenset(Counter(member.kind for member in members).items()))
            for node, members in self._on_node.items()
            if members
        )

    def _set(self, node: str, placements: Mapping[str, ClaimPlacement], wide: Sequence[DeviceHolding]) -> None:
        self._placements[node], self._wide[node] = placements, wide
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
                self._usable(after[uid], other)
                for other, members in self._on_node.items()
                if other != node
                for member in members
                for uid in moved.intersection(member.claims)
            )
        )
