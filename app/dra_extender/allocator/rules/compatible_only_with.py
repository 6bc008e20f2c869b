"""`compatibleOnlyWith`: a CEL rule of a device about the devices beside which it may be allocated.

The neighbours of a device with a rule are devices, allocated or picked by this search: those of its pool that share a counter set
or a physical device with it; all of its pool if it draws on none or its policy says so; or all that are local to its node.
Two devices are compatible if the rule of each is true for the other, as far as that is a neighbour.  An expression that does not
compile or fails is not true.  A neighbour that is not published any more keeps the rule with which it was allocated, and no rule of
another device is true for it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple

from dra_extender.allocator.demand.selectors import Deadline, SelectionTimeoutError, SelectorError, SelectorList
from dra_extender.allocator.pools.pools import Pool
from dra_extender.allocator.rules.held_devices import held_consumption
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.state.reasons import time_is_up
from dra_extender.allocator.state.trail import Trail
from dra_extender.allocator.state.usage import PoolUsage
from dra_extender.cel.budget import Budget
from dra_extender.cel.errors import CelBudgetError
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.device import NODE, POOL, CounterConsumption, Device, PoolId
from dra_extender.model.resource_slice import ResourceSlice

MAX_NEIGHBOURS: Final = 1024
"""A device that has a rule or is judged by one, and has more neighbours than this, is refused without a comparison."""
COMPARISON_UNITS: Final = 20
"""The price of one neighbour for the call beside the evaluation, in units of at most 50 ns."""

CompileRule = Callable[[str, Deadline | None], SelectorList]
"""(expression, budget for compiling it) -> the compiled expression, which keeps its verdicts."""
HeldConsumption = Callable[[Pool], Iterable[tuple[str, CounterConsumption]]]
"""(device, entry of what it draws) for the held devices of a pool."""


@dataclass(frozen=True, slots=True)
class SlicePosition:
    """The slice that publishes a device, and the position of the device in it."""

    published: ResourceSlice
    position: int

    @property
    def device(self) -> Device:
        return self.published.devices[self.position]


class NeighbourScope(NamedTuple):
    """The scope of neighbours of a device: its pool, its node (None if it is not local to one), and its counter sets."""

    pool_id: PoolId
    node: str | None
    counter_sets: frozenset[str]


class Rule(NamedTuple):
    """An expression, and its scope (`Device.neighbours_on`)."""

    expression: str
    on: str


IsTrue = Callable[[str, SlicePosition], bool]
"""Whether an expression is true for a device; an expression without a value is not true."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A device that is allocated or picked; `slice_position` is None if it is not published any more."""

    name: str
    scope: NeighbourScope
    rules: tuple[Rule, ...]
    slice_position: SlicePosition | None
    allocated: bool


@dataclass(frozen=True, slots=True)
class NeighbourConflict:
    """The reason why a device may not be allocated beside a member.

    The rule `expression`, of the member or else of the device, is not true for the other one; `problem` says why it has no value.
    `neighbour_count` is the number of neighbours if they are too many to be compared, else 0.
    """

    member: Neighbour
    expression: str = ""
    of_member: bool = True
    problem: str = ""
    neighbour_count: int = 0


def is_neighbour(on: str, owner: NeighbourScope, neighbour: NeighbourScope) -> bool:
    """Return whether a rule with the scope `on`, of a device in scope `owner`, concerns a device in scope `neighbour`."""
    if on == NODE:
        return owner.node is not None and owner.node == neighbour.node
    if owner.pool_id != neighbour.pool_id:
        return False
    return on == POOL or not owner.counter_sets or not owner.counter_sets.isdisjoint(neighbour.counter_sets)


def scope_of(published: ResourceSlice, device: Device, counter_sets: Iterable[str] | None = None) -> NeighbourScope:
    """Return the scope of a published device; `counter_sets` are the frozen ones, None means those of the slice."""
    if counter_sets is None:
        counter_sets = (entry.counter_set for entry in device.consumes_counters)
    return NeighbourScope(published.pool_id, published.node_name or device.node_name, frozenset(counter_sets))


def frozen_rules(holdings: Iterable[DeviceHolding], device: Device | None) -> tuple[Rule, ...]:
    """Return the rules of a held device: those frozen at allocation, or those published now for holdings without a snapshot."""
    rules: dict[Rule, None] = {}
    for holding in holdings:
        if holding.admin:
            continue
        if holding.consumption is not None:
            expression, on = holding.compatible_only_with, holding.neighbours_on
        elif device is not None:
            expression, on = device.compatible_only_with, device.neighbours_on
        else:
            continue
        if expression is not None:
            rules[Rule(expression, on)] = None
    return tuple(rules)


class _Members(NamedTuple):
    """The members in one pool, and those among them that have rules."""

    all: list[Neighbour]
    with_rules: list[Neighbour]


class NeighbourTable:
    """The devices of one node that may be neighbours during one search: those that are held, and those that it picks."""

    __slots__ = ("_compile_rule", "_held_entries", "_members", "_node_view")

    def __init__(self, node_view: NodeView, compile_rule: CompileRule, held_entries: HeldConsumption) -> None:
        self._node_view = node_view
        self._compile_rule = compile_rule
        self._held_entries = held_entries
        self._members: dict[PoolId, _Members] = {}

    def join(self, pool: Pool, slice_position: SlicePosition, trail: Trail) -> bool:
        """Make a device a member; False if it is not compatible with a neighbour (the caller then undoes)."""
        if self.conflict(pool, slice_position) is not None:
            return False
        device = slice_position.device
        scope, rules = scope_of(slice_position.published, device), _published_rules(device)
        member = Neighbour(device.name, scope, rules, slice_position, allocated=False)
        members = self.members(pool)
        trail.append(members.all, member)
        if member.rules:
            trail.append(members.with_rules, member)
        return True

    def conflict(self, pool: Pool, slice_position: SlicePosition) -> NeighbourConflict | None:
        """Return the first neighbour that is not compatible with this device: rules of members come first, then its own."""
        device = slice_position.device
        scope, own_rules = scope_of(slice_position.published, device), _published_rules(device)
        node_view = self._node_view
        pools = node_view.pools_with_rules if node_view.has_node_rules else (pool,)
        members = [self.members(pool) for pool in pools]
        with_rules = [member for of_pool in members for member in of_pool.with_rules]
        candidates = list(chain.from_iterable(of_pool.all for of_pool in members)) if own_rules else ()
        if isinstance(node_view.deadline, Budget):
            node_view.deadline.spend(COMPARISON_UNITS * (len(with_rules) + len(candidates)))
        concerned = [
            (member, rule)
            for member in with_rules
            for rule in member.rules
            if is_neighbour(rule.on, member.scope, scope)
        ]
        if len(concerned) > MAX_NEIGHBOURS:
            return NeighbourConflict(concerned[0][0], neighbour_count=len(concerned))
        for member, rule in concerned:
            problem = self._problem(rule.expression, slice_position)
            if problem is not None:
                return NeighbourConflict(member, rule.expression, of_member=True, problem=problem)
        for rule in own_rules:
            neighbours = [member for member in candidates if is_neighbour(rule.on, scope, member.scope)]
            if len(neighbours) > MAX_NEIGHBOURS:
                return NeighbourConflict(
                    neighbours[0], rule.expression, of_member=False, neighbour_count=len(neighbours)
                )
            for member in neighbours:
                problem = "it is not published any more"
                if member.slice_position is not None:
                    problem = self._problem(rule.expression, member.slice_position)
                if problem is not None:
                    return NeighbourConflict(member, rule.expression, of_member=False, problem=problem)
        return None

    def members(self, pool: Pool) -> _Members:
        """Return what is held of a pool, and what this search has picked of it so far."""
        members = self._members.get(pool.pool_id)
        if members is None:
            held_members = list(_held_members(pool, self._node_view.usage(pool), self._held_entries(pool)))
            members = self._members[pool.pool_id] = _Members(
                held_members, [member for member in held_members if member.rules]
            )
        return members

    def _problem(self, expression: str, slice_position: SlicePosition) -> str | None:
        """Return None if the expression is true for the device, empty if it is false, else why it has no value."""
        deadline = self._node_view.deadline
        try:
            row = self._compile_rule(expression, deadline).row(slice_position.published)
            matches = row.matches(slice_position.published, slice_position.position, deadline)
        except SelectorError as problem:
            return str(problem)
        except (SelectionTimeoutError, CelBudgetError) as problem:
            raise time_is_up("while compatibleOnlyWith was running") from problem
        return None if matches else ""


def _published_rules(device: Device) -> tuple[Rule, ...]:
    expression = device.compatible_only_with
    return () if expression is None else (Rule(expression, device.neighbours_on),)


def _held_members(
    pool: Pool, usage: PoolUsage, drawing: Iterable[tuple[str, CounterConsumption]]
) -> Iterator[Neighbour]:
    """Yield the held devices of a pool; `drawing` has (device, entry of what it draws)."""
    drawn: dict[str, set[str]] = {}
    for name, entry in drawing:
        drawn.setdefault(name, set()).add(entry.counter_set)
    names = {
        name: None
        for name, holdings in usage.items()
        if any(not holding.admin and not holding.in_backoff for holding in holdings)
    }
    slice_positions: dict[str, SlicePosition] = {}
    for published in pool.published if names else ():
        for position, device in enumerate(published.devices):
            if device.name in names and device.name not in slice_positions:
                slice_positions[device.name] = SlicePosition(published, position)
    nodes = {published.node_name for published in pool.published}
    home = nodes.pop() if len(nodes) == 1 else None
    for name in names:
        slice_position, counter_sets = slice_positions.get(name), drawn.get(name, ())
        if slice_position is None:
            scope = NeighbourScope(pool.pool_id, home, frozenset(counter_sets))
            yield Neighbour(name, scope, frozen_rules(usage[name], None), None, allocated=True)
        else:
            device = slice_position.device
            scope = scope_of(slice_position.published, device, counter_sets)
            yield Neighbour(name, scope, frozen_rules(usage[name], device), slice_position, allocated=True)


def first_incompatible(pool: Pool, usage: PoolUsage, addition: Sequence[DeviceHolding], is_true: IsTrue) -> str | None:
    """Return the first device of the addition that is not compatible with a neighbour of its pool; None without one.

    A further share of a device adds no member.  Rules count as they are frozen with the holdings.
    """
    joining: dict[str, tuple[DeviceHolding, ...]] = {}
    for holding in addition:
        if not holding.admin and all(holding_in_use.admin for holding_in_use in usage.get(holding.device, ())):
            joining[holding.device] = (*joining.get(holding.device, ()), holding)
    members = list(_held_members(pool, usage, held_consumption(pool.published, usage)))
    for new in _held_members(pool, joining, held_consumption(pool.published, joining)):
        if not all(_accepts(new, member, is_true) and _accepts(member, new, is_true) for member in members):
            return new.name
        members.append(new)
    return None


def _accepts(owner: Neighbour, neighbour: Neighbour, is_true: IsTrue) -> bool:
    """Return whether every rule of the owner that concerns the neighbour is true for it."""
    return all(
        neighbour.slice_position is not None and is_true(rule.expression, neighbour.slice_position)
        for rule in owner.rules
        if is_neighbour(rule.on, owner.scope, neighbour.scope)
    )


def conflict_message(device: Device, conflict: NeighbourConflict) -> str:
    """Return for example `gpu-0-mig-0 is compatible only with device.x == 1, which is false for gpu-0-vgpu-0 (in use)`."""
    member = conflict.member
    neighbour = f"{member.name} ({'in use' if member.allocated else 'for the same pod'})"
    count = conflict.neighbour_count
    if count:
        return f"{device.name} has {count} neighbours with compatibleOnlyWith, at most {MAX_NEIGHBOURS} are compared"
    owner, about = (neighbour, device.name) if conflict.of_member else (device.name, neighbour)
    verdict = (
        f"which cannot be judged for {about}: {conflict.problem}" if conflict.problem else f"which is false for {about}"
    )
    return f"{owner} is compatible only with {conflict.expression!r}, {verdict}"
