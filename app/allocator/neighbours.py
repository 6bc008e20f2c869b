"""`compatibleOnlyWith`: devices that say in CEL beside which others they may be allocated.

Neighbours are devices of one pool, allocated or chosen by this attempt, that share a counter set or a physical device.  Two
neighbours go together when each of them that has an expression finds it true for the other one.  An expression that does not
compile or fails is not true.  A neighbour that is not published any more keeps the expression it was allocated with, and no
other device's expression can be true for it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from app.allocator.outcome import Fatal
from app.allocator.pools import Pool
from app.allocator.selectors import Deadline, SelectionTimeoutError, SelectorError, SelectorList
from app.allocator.state import PoolUsage
from app.allocator.undo import Trail
from app.model.allocation import DeviceHolding
from app.model.device import CounterConsumption, Device
from app.model.rejection import Code, Rejection
from app.model.resource_slice import ResourceSlice

Judge = Callable[[str], SelectorList]
"""Expression -> the compiled expression, with its verdicts remembered."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where a device is published: its slice and its place in it."""

    published: ResourceSlice
    position: int

    @property
    def device(self) -> Device:
        """The device."""
        return self.published.devices[self.position]


@dataclass(frozen=True, slots=True)
class Member:
    """A device that is allocated or chosen; `site` is None when it is not published any more."""

    name: str
    counter_sets: frozenset[str]
    expressions: tuple[str, ...]
    site: Site | None
    allocated: bool


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why a device may not join a member: whose expression is not true for the other one, and what went wrong if it failed."""

    member: Member
    expression: str
    of_member: bool
    problem: str = ""


def matter(pool: Pool, usage: PoolUsage) -> bool:
    """Whether any device of the pool has an expression, published or frozen with an allocation."""
    return pool.choosy or any(holding.compatible_only_with is not None for held in usage.values() for holding in held)


class NeighbourTable:
    """The members of one pool during one search."""

    __slots__ = ("_deadline", "_judge", "_members")

    def __init__(
        self,
        pool: Pool,
        usage: PoolUsage,
        held: Iterable[tuple[str, CounterConsumption]],
        judge: Judge,
        deadline: Deadline | None,
    ) -> None:
        """Begin with what is held: `held` tells what each held device draws on."""
        self._judge = judge
        self._deadline = deadline
        drawn: dict[str, set[str]] = {}
        for name, entry in held:
            drawn.setdefault(name, set()).add(entry.counter_set)
        sites = _sites(pool, drawn)
        self._members: list[Member] = []
        for name, sets in drawn.items():
            site = sites.get(name)
            expressions = _frozen_expressions(usage.get(name, ()), site)
            self._members.append(Member(name, frozenset(sets), expressions, site, allocated=True))

    def join(self, site: Site, trail: Trail) -> bool:
        """Make a device a member, unless it and a neighbour do not go together (the caller then undoes)."""
        if self.refusal(site) is not None:
            return False
        device = site.device
        expressions = () if device.compatible_only_with is None else (device.compatible_only_with,)
        member = Member(device.name, _counter_sets(device), expressions, site, allocated=False)
        trail.append(self._members, member)
        return True

    def refusal(self, site: Site) -> Conflict | None:
        """The first neighbour that does not go together with this device."""
        sets = _counter_sets(site.device)
        for member in self._members:
            if not sets.isdisjoint(member.counter_sets):
                for conflict in self._conflicts(site, member):
                    return conflict
        return None

    def _conflicts(self, site: Site, member: Member) -> Iterator[Conflict]:
        for expression in member.expressions:
            problem = self._problem(expression, site)
            if problem is not None:
                yield Conflict(member, expression, of_member=True, problem=problem)
        own = site.device.compatible_only_with
        if own is not None:
            problem = "it is not published any more" if member.site is None else self._problem(own, member.site)
            if problem is not None:
                yield Conflict(member, own, of_member=False, problem=problem)

    def _problem(self, expression: str, site: Site) -> str | None:
        """None if the expression is true for the device; empty if it is false, else why it has no value."""
        try:
            matches = self._judge(expression).row(site.published).matches(site.published, site.position, self._deadline)
        except SelectorError as problem:
            return str(problem)
        except SelectionTimeoutError as problem:
            detail = "time was up while compatibleOnlyWith was running"
            raise Fatal(Rejection(code=Code.SEARCH_LIMIT, detail=detail)) from problem
        return None if matches else ""


def conflict_words(device: Device, conflict: Conflict) -> str:
    """E.g. `gpu-0-mig-0 is compatible only with device.x == 1, which is false for gpu-0-vgpu-0 (allocated)`."""
    member = conflict.member
    other = f"{member.name} ({'allocated' if member.allocated else 'for the same pod'})"
    owner, about = (other, device.name) if conflict.of_member else (device.name, other)
    verdict = (
        f"which cannot be judged for {about}: {conflict.problem}" if conflict.problem else f"which is false for {about}"
    )
    return f"{owner} is compatible only with {conflict.expression!r}, {verdict}"


def _counter_sets(device: Device) -> frozenset[str]:
    return frozenset(entry.counter_set for entry in device.consumes_counters)


def _sites(pool: Pool, names: Iterable[str]) -> dict[str, Site]:
    wanted = set(names)
    found: dict[str, Site] = {}
    for published in pool.published if wanted else ():
        for position, device in enumerate(published.devices):
            if device.name in wanted and device.name not in found:
                found[device.name] = Site(published, position)
    return found


def _frozen_expressions(holdings: Iterable[DeviceHolding], site: Site | None) -> tuple[str, ...]:
    """What was frozen at allocation; what is published now where nothing was."""
    found: dict[str, None] = {}
    for holding in holdings:
        if holding.admin:
            continue
        published = None if site is None else site.device.compatible_only_with
        expression = published if holding.consumption is None else holding.compatible_only_with
        if expression is not None:
            found[expression] = None
    return tuple(found)
