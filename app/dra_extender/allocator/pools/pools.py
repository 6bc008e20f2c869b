"""The pools that a node can use, gathered from slices: current generations, complete and valid or marked with their problem."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

from dra_extender.allocator.state.features import OWN, Features, ReleaseBehaviour
from dra_extender.allocator.state.reasons import Code
from dra_extender.model.api_json import ModelError
from dra_extender.model.device import NODE, Device, PoolId
from dra_extender.model.node import Node
from dra_extender.model.resource_slice import ResourceSlice

UNREACHABLE: Final = 0
REACHABLE: Final = 1
MALFORMED: Final = 2


def reaches(where: Device | ResourceSlice, node: Node) -> bool:
    """Return whether a slice or device names this node: by node name, else by all nodes, else by its node selector.

    A malformed node selector is a ModelError.
    """
    if where.node_name:
        return where.node_name == node.name
    if where.all_nodes:
        return True
    return where.node_selector is not None and where.node_selector.matches(node.name, node.labels)


def is_relevant(published: ResourceSlice, node: Node, *, partitionable: bool) -> bool:
    """Return whether a slice or one of its devices names the node; without `partitionable`, none that needs the feature does."""
    if not partitionable and (published.per_device_node_selection is not None or published.counter_sets):
        return False
    if published.node_name or published.all_nodes or published.node_selector is not None:
        return reaches(published, node)
    if published.per_device_node_selection:
        return any(reaches(device, node) for device in published.devices)
    return False


def _reachable(published: ResourceSlice, node: Node) -> bytes | None:
    if not published.per_device_node_selection:
        return None
    return bytes(_reach(device, node) for device in published.devices)


def _reach(device: Device, node: Node) -> int:
    """Return REACHABLE, UNREACHABLE or MALFORMED: a malformed node selector is an error only once a search needs to know."""
    try:
        return REACHABLE if reaches(device, node) else UNREACHABLE
    except ModelError:
        return MALFORMED


CounterTotals = Mapping[str, Mapping[str, int]]
"""Counter set -> counter -> declared total in nano-units."""


class InvalidPoolError(Exception):
    """The slices of a pool contradict each other; the message says how."""


@dataclass(frozen=True, slots=True)
class KnownSlices:
    """The slices of one pool in its current generation, as seen from one node.

    `relevant` are usable from the node (sorted by name).  `elsewhere` are the others, known only when the relevant ones
    alone are not the whole pool.  A pool of which not all `expected` slices are `found` offers nothing; `ignored` are the names of
    those that do not count.
    """

    relevant: tuple[ResourceSlice, ...]
    found: int
    expected: int
    elsewhere: tuple[ResourceSlice, ...] = ()
    ignored: tuple[str, ...] = ()


def latest_generation(relevant: Sequence[ResourceSlice]) -> list[ResourceSlice]:
    """Return the slices of the highest generation among the relevant slices of one pool, in the given order."""
    newest = max(published.generation for published in relevant)
    return [published for published in relevant if published.generation == newest]


def current_slices(
    relevant: Sequence[ResourceSlice], whole_pool: Callable[[], Iterable[ResourceSlice]], *, ignores_grouped: bool
) -> KnownSlices | None:
    """Return the slices of a pool from its relevant slices of one generation and, if needed, from all its slices on any node.

    The first relevant slice declares the number of slices, which must match exactly: the relevant slices alone, or else all slices
    of that generation; with `ignores_grouped`, those without groups.  None if the relevant slices alone are incomplete and a newer
    generation exists elsewhere: the pool is then ignored.
    """
    generation, expected = relevant[0].generation, relevant[0].slice_count
    in_order = tuple(sorted(relevant, key=lambda published: published.name))
    if len(relevant) == expected:
        return KnownSlices(relevant=in_order, found=expected, expected=expected)
    pool = tuple(whole_pool())
    if any(published.generation > generation for published in pool):
        return None
    current = [published for published in pool if published.generation == generation]
    same = [published for published in current if not (ignores_grouped and _has_groups(published))]
    names = {published.name for published in relevant}
    return KnownSlices(
        relevant=in_order,
        elsewhere=tuple(published for published in same if published.name not in names),
        found=len(same),
        expected=expected,
        ignored=tuple(published.name for published in current if ignores_grouped and _has_groups(published)),
    )


def check_device_names(slices: Sequence[ResourceSlice]) -> None:
    """Refuse a pool in which two of these devices have one name."""
    names: set[str] = set()
    for published in slices:
        for device in published.devices:
            if device.name in names:
                raise InvalidPoolError(f"device {device.name} is published twice")
            names.add(device.name)


def counter_totals(slices: Iterable[ResourceSlice]) -> CounterTotals:
    """Return the counter sets that these slices declare; two of one name are refused."""
    totals: dict[str, dict[str, int]] = {}
    for published in slices:
        for counter_set in published.counter_sets:
            if counter_set.name in totals:
                raise InvalidPoolError(f"counter set {counter_set.name} is declared twice")
            totals[counter_set.name] = dict(counter_set.counters)
    return totals


def check_consumption(devices: Iterable[Device], totals: CounterTotals) -> None:
    """Refuse a pool with a device that draws on a counter that the pool does not declare; synthetic counter sets are exempt."""
    for device in devices:
        for entry in device.consumes_counters:
            if entry.synthetic:
                continue
            name, declared = entry.counter_set, totals.get(entry.counter_set)
            if declared is None:
                raise InvalidPoolError(f"device {device.name} draws on unknown counter set {name}")
            for counter, _ in entry.counters:
                if counter not in declared:
                    raise InvalidPoolError(
                        f"device {device.name} draws on unknown counter {counter} of counter set {name}"
                    )


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """One pool as seen from one node.

    `published` are its device slices of the current generation: those usable from the node by name, then the others in the
    order given.  A pool with a `problem` (POOL_INCOMPLETE, POOL_INVALID, GROUPS_OFF; `detail` describes it) offers no devices;
    `hidden` counts those of its slices for this node, `withheld` are its slices on any node.  An incomplete pool has `found`
    of the `expected` slices of this `generation`.
    `has_compatibility_rules`: a device of the pool has `compatibleOnlyWith`.  `has_node_rules`: such a rule concerns the devices of
    the whole node.
    """

    pool_id: PoolId
    published: tuple[ResourceSlice, ...] = ()
    totals: CounterTotals = field(default_factory=dict)
    problem: Code | None = None
    detail: str = ""
    has_compatibility_rules: bool = False
    has_node_rules: bool = False
    hidden: int = 0
    withheld: tuple[ResourceSlice, ...] = ()
    generation: int = 0
    found: int = 0
    expected: int = 0

    @property
    def label(self) -> str:
        """driver/pool, for messages."""
        return f"{self.pool_id[0]}/{self.pool_id[1]}"


@dataclass(frozen=True, slots=True, eq=False)
class SliceView:
    """A slice that offers devices to a node; device i of it has location `base` + i.

    `reachable` has one byte for each device: REACHABLE, UNREACHABLE or MALFORMED; it is None when the slice as a whole decides.
    """

    pool: Pool
    published: ResourceSlice
    base: int
    reachable: bytes | None


class IgnoredSlices(NamedTuple):
    """Slices of a pool that are treated as if they did not exist: why, and how many devices they have."""

    detail: str
    hidden: int
    withheld: tuple[ResourceSlice, ...]


class DeviceOrder(NamedTuple):
    """An order of the locations, and the rank of each location in it."""

    locations: tuple[int, ...]
    ranks: tuple[int, ...]

    @classmethod
    def from_locations(cls, locations: Sequence[int]) -> "DeviceOrder":
        ranks = [0] * len(locations)
        for rank, location in enumerate(locations):
            ranks[location] = rank
        return cls(tuple(locations), tuple(ranks))

    def ranked(self, mask: int) -> int:
        """Return the ranks of a set of locations; both have one bit each."""
        bits = f"{mask:0{len(self.locations)}b}"[::-1]
        return int("".join(bits[location] for location in reversed(self.locations)), 2)


def ready_first(pools: Sequence[Sequence[Device]]) -> DeviceOrder | None:
    """Return the order with the devices of each pool that have no binding conditions first (KEP-5007); None if it changes nothing.

    The pools stay in the order of their locations.
    """
    locations: list[int] = []
    for devices in pools:
        start = len(locations)
        ready = [start + place for place, device in enumerate(devices) if not device.binding_conditions]
        waiting = [start + place for place, device in enumerate(devices) if device.binding_conditions]
        locations += ready
        locations += waiting
    if all(rank == location for rank, location in enumerate(locations)):
        return None
    return DeviceOrder.from_locations(locations)


@dataclass(frozen=True, slots=True, eq=False)
class NodePools:
    """The pools of one node in order of preference, and their devices flat in location order.

    A location is an index into `devices` and `views`; the search prefers low locations.  Only complete, valid pools have devices.
    `features` and `release` are the rules by which the pools were built and are searched.
    `ignored` has the slices that are left out of pools that are complete without them.  `ready_first` is an order of the
    locations, in each pool the devices without binding conditions first; None where that is the order of the locations.
    """

    node: str
    pools: tuple[Pool, ...]
    devices: tuple[Device, ...]
    views: tuple[SliceView, ...]
    features: Features
    release: ReleaseBehaviour
    ignored: tuple[IgnoredSlices, ...] = ()
    ready_first: DeviceOrder | None = None

    @property
    def unusable(self) -> tuple[Pool, ...]:
        """Pools that are incomplete or invalid."""
        return tuple(pool for pool in self.pools if pool.problem is not None)

    @property
    def hidden(self) -> int:
        """The number of devices that are not offered because their pool has a problem or their slice is ignored."""
        return sum(pool.hidden for pool in self.unusable) + sum(slices.hidden for slices in self.ignored)


def node_pools(
    node: Node,
    local: Sequence[ResourceSlice],
    shared: Sequence[ResourceSlice],
    pool_slices: Callable[[PoolId], Sequence[ResourceSlice]],
    features: Features,
    release: ReleaseBehaviour = OWN,
) -> NodePools:
    """Return the pools that a node can use: current generations, complete or marked, valid or marked, in order of preference.

    `local` are the slices pinned to this node, `shared` those without a node name, both in a fixed order; `pool_slices`
    returns all slices of a pool on any node and of any generation.  A malformed node selector is a ModelError.
    """
    ignores_grouped = release.as_upstream and not features.compatibility_groups
    partitionable = features.partitionable_devices
    by_pool: dict[PoolId, list[ResourceSlice]] = {}
    ignored: dict[PoolId, list[ResourceSlice]] = {}
    for published in chain(local, shared):
        if ignores_grouped and _has_groups(published):
            if _may_concern(published, node, partitionable=partitionable):
                ignored.setdefault(published.pool_id, []).append(published)
        elif is_relevant(published, node, partitionable=partitionable):
            by_pool.setdefault(published.pool_id, []).append(published)
    built: list[_BuiltPool] = []
    for pool_id, relevant in by_pool.items():
        current = current_slices(
            latest_generation(relevant), partial(pool_slices, pool_id), ignores_grouped=ignores_grouped
        )
        if current is not None:
            built.append(_build(pool_id, current, partitionable=partitionable, release=release))
    built.sort(key=lambda item: (item.has_binding_conditions, item.pool.pool_id))
    devices: list[Device] = []
    views: list[SliceView] = []
    for _, pool, offering in built:
        for published in offering:
            reachable = _reachable(published, node)
            view = SliceView(pool=pool, published=published, base=len(devices), reachable=reachable)
            devices.extend(published.devices)
            views.extend([view] * len(published.devices))
    order: DeviceOrder | None = None
    if any(pool.has_binding_conditions for pool in built):
        order = ready_first([[device for published in pool.offering for device in published.devices] for pool in built])
    ignored_slices: tuple[IgnoredSlices, ...] = ()
    if ignored:
        # The ignored slices of the pools that have no problem of their own.
        problematic = {item.pool.pool_id for item in built if item.pool.problem is not None}
        candidates = (
            _ignored(pool_id, slices, by_pool.get(pool_id, ()))
            for pool_id, slices in sorted(ignored.items())
            if pool_id not in problematic
        )
        ignored_slices = tuple(slices for slices in candidates if slices is not None)
    return NodePools(
        node=node.name,
        pools=tuple(item.pool for item in built),
        devices=tuple(devices),
        views=tuple(views),
        features=features,
        release=release,
        ignored=ignored_slices,
        ready_first=order,
    )


def why_pool_is_unusable(
    pool_id: PoolId, relevant: Sequence[ResourceSlice], pool_slices: Callable[[PoolId], Sequence[ResourceSlice]]
) -> str:
    """Return why a pool offers nothing to a node for which these of its slices are, as a clause that names it; empty if it does."""
    slices = current_slices(latest_generation(relevant), partial(pool_slices, pool_id), ignores_grouped=False)
    return "" if slices is None else _build(pool_id, slices, partitionable=True, release=OWN).pool.detail


class _BuiltPool(NamedTuple):
    """A pool, whether any of its devices has binding conditions, and the slices that offer devices to the node."""

    has_binding_conditions: bool
    pool: Pool
    offering: tuple[ResourceSlice, ...] = ()


def _build(pool_id: PoolId, slices: KnownSlices, *, partitionable: bool, release: ReleaseBehaviour) -> _BuiltPool:
    if slices.found != slices.expected:
        detail = f"pool {pool_id[0]}/{pool_id[1]} has {slices.found} of {slices.expected} slices"
        if slices.ignored and slices.found + len(slices.ignored) == slices.expected:
            return _problematic(pool_id, slices, Code.GROUPS_OFF, f"{detail}; {_ignored_message(slices.ignored)}")
        return _problematic(pool_id, slices, Code.POOL_INCOMPLETE, detail)
    totals: CounterTotals = {}
    offering, elsewhere = slices.relevant, slices.elsewhere
    try:
        if partitionable:
            # A slice with counter sets is a slice of only these, unless a release has devices beside them.
            offering, elsewhere = (
                tuple(
                    [
                        published
                        for published in known
                        if not published.counter_sets or (release.devices_beside_counters and published.devices)
                    ]
                )
                for known in (offering, elsewhere)
            )
        check_device_names(offering)
        if partitionable:
            totals = counter_totals((*slices.relevant, *slices.elsewhere))
            check_consumption(chain.from_iterable(published.devices for published in (*offering, *elsewhere)), totals)
    except InvalidPoolError as problem:
        return _problematic(pool_id, slices, Code.POOL_INVALID, f"pool {pool_id[0]}/{pool_id[1]}: {problem}")
    device_slices = offering + elsewhere
    devices = list(chain.from_iterable(published.devices for published in device_slices))
    has_rules = any(device.compatible_only_with is not None for device in devices)
    pool = Pool(
        pool_id=pool_id,
        published=device_slices,
        totals=totals,
        has_compatibility_rules=has_rules,
        has_node_rules=has_rules and any(device.neighbours_on == NODE for device in devices),
    )
    offered = chain.from_iterable(published.devices for published in offering)
    has_conditions = any(device.binding_conditions is not None for device in offered)
    return _BuiltPool(has_conditions, pool, offering)


def _problematic(pool_id: PoolId, slices: KnownSlices, problem: Code, detail: str) -> _BuiltPool:
    pool = Pool(
        pool_id=pool_id,
        problem=problem,
        detail=detail,
        hidden=sum(len(published.devices) for published in slices.relevant),
        withheld=(*slices.relevant, *slices.elsewhere),
        generation=slices.relevant[0].generation,
        found=slices.found,
        expected=slices.expected,
    )
    return _BuiltPool(has_binding_conditions=False, pool=pool)


def _ignored(
    pool_id: PoolId, ignored: Sequence[ResourceSlice], relevant: Sequence[ResourceSlice]
) -> IgnoredSlices | None:
    """Return the ignored slices of the newest generation; None without any, as older ones would not count anyway."""
    newest = max(published.generation for published in (*ignored, *relevant))
    current = [published for published in ignored if published.generation == newest]
    if not current:
        return None
    detail = f"pool {pool_id[0]}/{pool_id[1]}: {_ignored_message([published.name for published in current])}"
    return IgnoredSlices(detail, sum(len(published.devices) for published in current), tuple(current))


def _ignored_message(names: Sequence[str]) -> str:
    which = f"slice {names[0]}" if len(names) == 1 else f"slice {names[0]} and {len(names) - 1} more"
    return f"ignored for compatibility groups: {which}; CompatibilityGroups is off"


def _may_concern(published: ResourceSlice, node: Node, *, partitionable: bool) -> bool:
    """Return whether an ignored slice is for the node; a malformed node selector of an ignored slice is no error."""
    try:
        return is_relevant(published, node, partitionable=partitionable)
    except ModelError:
        return False


def _has_groups(published: ResourceSlice) -> bool:
    return any(entry.compatibility_groups for device in published.devices for entry in device.consumes_counters)
