"""`compatibleOnlyWith`: devices that say in CEL beside which others they may be allocated.

Neighbours are devices, allocated or chosen by this attempt, that the rule of one of them is about: those of its pool that share a
counter set or a physical device with it; all of its pool where it draws on none, or its policy says so; or all that are local to
its node.  Two devices go together when each of them that has an expression finds it true for the other one, if that is a neighbour.
An expression that does not compile or fails is not true.  A neighbour that is not published any more keeps the expression it was
allocated with, and no other device's expression can be true for it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple

from dra_extender.allocator.demand.selectors import Deadline, SelectionTimeoutError, SelectorError, SelectorList
from dra_extender.allocator.pools.pools import Pool
from dra_extender.allocator.rules.held_consumption import held_consumption
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.state.result import SearchEndedError
from dra_extender.allocator.state.trail import Trail
from dra_extender.allocator.state.usage import PoolUsage
from dra_extender.cel.runtime.budget import Budget
from dra_extender.cel.support.errors import CelBudgetError
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.device import NODE, POOL, CounterConsumption, Device, PoolId
from dra_extender.model.rejection import Code, Rejection
from dra_extender.model.resource_slice import ResourceSlice

MAX_NEIGHBOURS: Final = 1024
"""Neighbours that one device may have; with more of them a device for which a rule counts is refused."""
COMPARISON_UNITS: Final = 20
"""What looking at one neighbour costs the call beside the evaluation, in units of at most 50 ns."""

Judge = Callable[[str, Deadline | None], SelectorList]
"""Expression, and the budget that pays if it has to be compiled -> the compiled expression, with its verdicts remembered."""
Held = Callable[[Pool], Iterable[tuple[str, CounterConsumption]]]
"""What each held device of a pool draws on."""


@dataclass(frozen=True, slots=True)
class DeviceLocation:
    """Where a device is published: its slice and its place in it."""

    published: ResourceSlice
    position: int

    @property
    def device(self) -> Device:
        """The device."""
        return self.published.devices[self.position]


class NeighbourScope(NamedTuple):
    """What makes devices neighbours: the pool, the node it is local to (None: of several), and what it draws on."""

    pool_id: PoolId
    node: str | None
    counter_sets: frozenset[str]


class Rule(NamedTuple):
    """An expression, and which neighbours it is about (`Device.neighbours_on`)."""

    expression: str
    on: str


IsTrue = Callable[[str, DeviceLocation], bool]
"""Whether an expression is true for a device; one without a value is not."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A device that is allocated or chosen; `site` is None when it is not published any more."""

    name: str
    spot: NeighbourScope
    rules: tuple[Rule, ...]
    site: DeviceLocation | None
    allocated: bool


@dataclass(frozen=True, slots=True)
class NeighbourConflict:
    """Why a device may not join a member: whose expression is not true for the other one, and what went wrong if it failed.

    `crowd` is the number of neighbours when there are too many of them to be compared.
    """

    member: Neighbour
    expression: str = ""
    of_member: bool = True
    problem: str = ""
    crowd: int = 0


def is_neighbour(on: str, one: NeighbourScope, other: NeighbourScope) -> bool:
    """Whether a rule about `on`, of a device at the first spot, concerns one at the other."""
    if on == NODE:
        return one.node is not None and one.node == other.node
    if one.pool_id != other.pool_id:
        return False
    return on == POOL or not one.counter_sets or not one.counter_sets.isdisjoint(other.counter_sets)


def spot_of(published: ResourceSlice, device: Device, counter_sets: Iterable[str] | None = None) -> NeighbourScope:
    """Where a published device is; `counter_sets` are those that were frozen, without them those that the slice has."""
    if counter_sets is None:
        counter_sets = (entry.counter_set for entry in device.consumes_counters)
    return NeighbourScope(published.pool_id, published.node_name or device.node_name, frozenset(counter_sets))


def frozen_rules(holdings: Iterable[DeviceHolding], device: Device | None) -> tuple[Rule, ...]:
    """The rules of a held device: what was frozen at allocation; what is published now where nothing was."""
    found: dict[Rule, None] = {}
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
            found[Rule(expression, on)] = None
    return tuple(found)


class _Members(NamedTuple):
    """The members in one pool, and those among them that have rules."""

    all: list[Neighbour]
    ruling: list[Neighbour]


class NeighbourTable:
    """The members that matter to each other on one node during one search."""

    __slots__ = ("_facts", "_held", "_judge", "_members")

    def __init__(self, facts: NodeView, judge: Judge, held: Held) -> None:
        self._facts = facts
        self._judge = judge
        self._held = held
        self._members: dict[PoolId, _Members] = {}

    def join(self, pool: Pool, site: DeviceLocation, trail: Trail) -> bool:
        """Make a device a member, unless it and a neighbour do not go together (the caller then undoes)."""
        if self.refusal(pool, site) is not None:
            return False
        device = site.device
        member = Neighbour(device.name, spot_of(site.published, device), _rules(device), site, allocated=False)
        members = self.members(pool)
        trail.append(members.all, member)
        if member.rules:
            trail.append(members.ruling, member)
        return True

    def refusal(self, pool: Pool, site: DeviceLocation) -> NeighbourConflict | None:
        """The first neighbour that does not go together with this device."""
        spot, rules = spot_of(site.published, site.device), _rules(site.device)
        pools = [self.members(each) for each in (self._facts.choosy if self._facts.judges_node else (pool,))]
        ruling = [each for found in pools for each in found.ruling]
        others = list(chain.from_iterable(found.all for found in pools)) if rules else ()
        self._charge(len(ruling) + len(others))
        return self._ruled(spot, site, ruling) or self._ruling(spot, rules, others)

    def _ruled(
        self, spot: NeighbourScope, site: DeviceLocation, members: Sequence[Neighbour]
    ) -> NeighbourConflict | None:
        """The first member of which a rule is not true for this device."""
        near = [(each, rule) for each in members for rule in each.rules if is_neighbour(rule.on, each.spot, spot)]
        if len(near) > MAX_NEIGHBOURS:
            return NeighbourConflict(near[0][0], crowd=len(near))
        for member, rule in near:
            problem = self._problem(rule.expression, site)
            if problem is not None:
                return NeighbourConflict(member, rule.expression, of_member=True, problem=problem)
        return None

    def _ruling(
        self, spot: NeighbourScope, rules: Sequence[Rule], members: Sequence[Neighbour]
    ) -> NeighbourConflict | None:
        """The first member for which a rule of this device is not true."""
        for rule in rules:
            near = [each for each in members if is_neighbour(rule.on, spot, each.spot)]
            if len(near) > MAX_NEIGHBOURS:
                return NeighbourConflict(near[0], rule.expression, of_member=False, crowd=len(near))
            for member in near:
                problem: str | None = "it is not published any more"
                if member.site is not None:
                    problem = self._problem(rule.expression, member.site)
                if problem is not None:
                    return NeighbourConflict(member, rule.expression, of_member=False, problem=problem)
        return None

    def members(self, pool: Pool) -> _Members:
        """What is held of a pool, and what this attempt has picked of it so far."""
        found = self._members.get(pool.pool_id)
        if found is None:
            held = list(_held_members(pool, self._facts.usage(pool), self._held(pool)))
            found = self._members[pool.pool_id] = _Members(held, [each for each in held if each.rules])
        return found

    def _charge(self, neighbours: int) -> None:
        budget = self._facts.deadline
        if isinstance(budget, Budget):
            budget.spend(COMPARISON_UNITS * neighbours)

    def _problem(self, expression: str, site: DeviceLocation) -> str | None:
        """None if the expression is true for the device; empty if it is false, else why it has no value."""
        deadline = self._facts.deadline
        try:
            row = self._judge(expression, deadline).row(site.published)
            matches = row.matches(site.published, site.position, deadline)
        except SelectorError as problem:
            return str(problem)
        except (SelectionTimeoutError, CelBudgetError) as problem:
            detail = "time was up while compatibleOnlyWith was running"
            raise SearchEndedError(Rejection(code=Code.SEARCH_LIMIT, detail=detail)) from problem
        return None if matches else ""


def _held_members(
    pool: Pool, usage: PoolUsage, drawing: Iterable[tuple[str, CounterConsumption]]
) -> Iterator[Neighbour]:
    """The devices of a pool of which something is held; `drawing` says what each draws on."""
    drawn: dict[str, set[str]] = {}
    for name, entry in drawing:
        drawn.setdefault(name, set()).add(entry.counter_set)
    names = [name for name, held in usage.items() if any(not each.admin and not each.set_aside for each in held)]
    sites = _sites(pool, names)
    nodes = {each.node_name for each in pool.published}
    home = nodes.pop() if len(nodes) == 1 else None
    for name in names:
        site, counter_sets = sites.get(name), drawn.get(name, ())
        device = None if site is None else site.device
        if site is None or device is None:
            spot = NeighbourScope(pool.pool_id, home, frozenset(counter_sets))
        else:
            spot = spot_of(site.published, device, counter_sets)
        yield Neighbour(name, spot, frozen_rules(usage[name], device), site, allocated=True)


def unsuited(pool: Pool, usage: PoolUsage, addition: Sequence[DeviceHolding], is_true: IsTrue) -> str | None:
    """The first device that the addition brings into its pool beside a neighbour of that pool with which it does not go together.

    A further share of a device brings none.  Rules count as they are frozen with the holdings.
    """
    joining: dict[str, tuple[DeviceHolding, ...]] = {}
    for each in addition:
        if not each.admin and all(held.admin for held in usage.get(each.device, ())):
            joining[each.device] = (*joining.get(each.device, ()), each)
    members = list(_held_members(pool, usage, held_consumption(pool.published, usage)))
    for new in _held_members(pool, joining, held_consumption(pool.published, joining)):
        if not all(_suits(new, each, is_true) and _suits(each, new, is_true) for each in members):
            return new.name
        members.append(new)
    return None


def _suits(one: Neighbour, other: Neighbour, is_true: IsTrue) -> bool:
    """Whether every rule of the first is true for the second, as far as that is a neighbour."""
    return all(
        other.site is not None and is_true(rule.expression, other.site)
        for rule in one.rules
        if is_neighbour(rule.on, one.spot, other.spot)
    )


def conflict_words(device: Device, conflict: NeighbourConflict) -> str:
    """E.g. `gpu-0-mig-0 is compatible only with device.x == 1, which is false for gpu-0-vgpu-0 (allocated)`."""
    member = conflict.member
    other = f"{member.name} ({'allocated' if member.allocated else 'for the same pod'})"
    if conflict.crowd:
        return f"{device.name} has {conflict.crowd} neighbours with compatibleOnlyWith, at most {MAX_NEIGHBOURS} are compared"
    owner, about = (other, device.name) if conflict.of_member else (device.name, other)
    verdict = (
        f"which cannot be judged for {about}: {conflict.problem}" if conflict.problem else f"which is false for {about}"
    )
    return f"{owner} is compatible only with {conflict.expression!r}, {verdict}"


def _rules(device: Device) -> tuple[Rule, ...]:
    if device.compatible_only_with is None:
        return ()
    return (Rule(device.compatible_only_with, device.neighbours_on),)


def _sites(pool: Pool, names: Iterable[str]) -> dict[str, DeviceLocation]:
    wanted = set(names)
    found: dict[str, DeviceLocation] = {}
    for published in pool.published if wanted else ():
        for position, device in enumerate(published.devices):
            if device.name in wanted and device.name not in found:
                found[device.name] = DeviceLocation(published, position)
    return found
