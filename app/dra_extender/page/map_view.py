"""The map: a square for each device, or for each node of a large cluster, in groups."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Final, NamedTuple

from dra_extender.model.node import Node
from dra_extender.page.devices_view import DeviceState, PoolStates, by_class, device_text, narrowed
from dra_extender.page.rendering import ListPart, Query, QueryError, choice, number, part_of
from dra_extender.page.states import Reports

DEVICE_CELLS: Final = 240
"""Nodes on one page with a square for each device."""
NODE_CELLS: Final = 2_000
"""Nodes on one page with a square for each node."""
MOST_SQUARES: Final = 4_000
"""Devices on one page; the view of the node has those that are left out."""
_LEAST_SQUARES: Final = 8
_MOST_TOGETHER: Final = 2_500
"""Up to so many devices have a square each, unless the query says otherwise."""
_LEVELS: Final = 4
_SHORT: Final = 8
"""Characters of a name that stand above a cell whole."""

_FEW_NODES: Final = 24

DEVICES: Final = "devices"
NODES: Final = "nodes"
NAME: Final = "name"
FREE: Final = "free"
BY_DRIVER: Final = "driver"
BY_CLASS: Final = "class"
BY_LABEL: Final = "label:"

_NUMBERED: Final = re.compile(r"([^0-9]*)([0-9]{0,18})")
_HOSTNAME: Final = "kubernetes.io/hostname"
_MOST_VALUES: Final = 64
"""Values of a label by which nodes can be grouped."""
_MOST_KEYS: Final = 50
"""Labels that are offered for grouping."""
_MOST_CLASSES: Final = 20
"""Classes that are groups, those with most devices."""


class Square(NamedTuple):
    """A device: where it is on the view of the node, how it stands, and what a person reads of it."""

    driver: str
    pool: str
    device: str
    state: DeviceState
    text: str


class Cell(NamedTuple):
    """The devices of a node, or of a pool that several nodes reach (then `node` is one of them, empty if there is none).

    `label` is what distinguishes the name from the others.  `shown` devices are in the state that is looked for.  `level` is from
    0 to 4: how full the node is or, where a state is looked for, how many of its devices are in it.  `more` devices have no square.
    """

    node: str
    name: str
    label: str
    total: int
    shown: int
    level: int
    squares: Sequence[Square]
    more: int


class CellGroup(NamedTuple):
    """Cells of one group, and all devices of that group; `shown` of them are in the state that is looked for."""

    name: str
    total: int
    shown: int
    cells: Sequence[Cell]


class MapChoices(NamedTuple):
    """The choices of the query; each has a default."""

    driver: str = ""
    device_class: str = ""
    nodes: str = ""
    group: str = ""
    state: DeviceState | None = None
    sort: str = NAME
    scale: str = ""

    @property
    def query(self) -> Mapping[str, str]:
        """Return the query of an address with the same choices."""
        chosen = self._replace(sort="" if self.sort == NAME else self.sort)._asdict()
        device_class = chosen.pop("device_class")
        return {**chosen, "class": device_class, "state": "" if self.state is None else self.state.key}


class DeviceMap(NamedTuple):
    """One page of the map.  `counts` has the devices of all pages by state, `scale` what a square is.

    A device is in the group of each of its classes, and counts once in `counts`.  `more_classes` have no group.
    """

    choices: MapChoices
    scale: str
    counts: Mapping[DeviceState, int]
    groups: Sequence[CellGroup]
    part: ListPart
    labels: Sequence[str]
    more_classes: int

    @property
    def has_room(self) -> bool:
        """Return whether the squares may be larger."""
        return self.part.total <= _FEW_NODES


class _Entry(NamedTuple):
    group: str
    node: str
    name: str
    pools: Sequence[PoolStates]
    counts: Mapping[DeviceState, int]

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def shown(self, state: DeviceState | None) -> int:
        return self.counts.get(state or DeviceState.USABLE, 0)


def device_map(reports: Reports, query: Query) -> DeviceMap:
    """Return the page of the map that the query asks for.

    Raises:
        QueryError: the query names what is not there.
    """
    labels = group_labels(reports.view.ledger.nodes.values())
    states = {state.key: state for state in DeviceState}
    choices = MapChoices(
        query.get("driver", ""),
        choice(query, "class", ("", *reports.view.ledger.classes)),
        query.get("nodes", ""),
        choice(query, "group", ("", BY_DRIVER, BY_CLASS, *(BY_LABEL + label for label in labels))),
        states.get(choice(query, "state", ("", *states))),
        choice(query, "sort", ("", NAME, FREE)) or NAME,
        choice(query, "scale", ("", DEVICES, NODES)),
    )
    pools = _chosen_pools(reports, choices)
    counts: Counter[DeviceState] = Counter()
    for pool_states in pools:
        counts.update(pool_states.counts)
    entries = _entries(reports, pools, choices)
    scale = choices.scale or (DEVICES if counts.total() <= _MOST_TOGETHER else NODES)
    part = part_of(len(entries), DEVICE_CELLS if scale == DEVICES else NODE_CELLS, number(query, "page"))
    more_classes = _ungrouped_classes(reports) if choices.group == BY_CLASS else 0
    groups = _groups(reports, entries, part, choices, scale)
    return DeviceMap(choices, scale, counts, groups, part, labels, more_classes)


def group_labels(nodes: Iterable[Node]) -> Sequence[str]:
    """Return the keys of labels that at least two nodes have, with few values."""
    values: defaultdict[str, set[str]] = defaultdict(set)
    having: Counter[str] = Counter()
    for node in nodes:
        having.update(node.labels.keys())
        for key, value in node.labels.items():
            values[key].add(value)
    offered = (key for key, count in having.items() if count > 1 and len(values[key]) <= _MOST_VALUES)
    return sorted(set(offered) - {_HOSTNAME})[:_MOST_KEYS]


def _chosen_pools(reports: Reports, choices: MapChoices) -> Sequence[PoolStates]:
    """Return the pools that are asked for, with the devices that are asked for.

    Raises:
        QueryError: it is not known which devices the class means.
    """
    pools: Iterable[PoolStates] = reports.pools
    if choices.device_class:
        meant = reports.class_devices.of_class(choices.device_class)
        if meant is None:
            raise QueryError(f"class: devices of too many kinds to say which class {choices.device_class} means")
        pools = (
            pool_states
            for pool_states in (narrowed(pool_states, meant) for pool_states in pools)
            if pool_states.devices
        )
    return [
        pool_states
        for pool_states in pools
        if choices.driver in ("", pool_states.pool.driver) and choices.nodes in pool_states.pool.node
    ]


def _entries(reports: Reports, pools: Iterable[PoolStates], choices: MapChoices) -> Sequence[_Entry]:
    """Return pools by group and node, in order."""
    in_groups = _grouping(reports, choices.group)
    pools_by_place: defaultdict[tuple[str, str, str], list[PoolStates]] = defaultdict(list)
    for pool_states in pools:
        pool = pool_states.pool
        for group, states_in_group in in_groups(pool_states):
            pools_by_place[group, pool.node, "" if pool.node else pool.pool].append(states_in_group)
    entries = [
        _Entry(group, node, node or pool, pools, sum((Counter(pool_states.counts) for pool_states in pools), Counter()))
        for (group, node, pool), pools in pools_by_place.items()
    ]
    entries.sort(key=lambda entry: natural(entry.name))
    if choices.sort == FREE:
        entries.sort(key=lambda entry: -entry.shown(choices.state))
    return sorted(entries, key=lambda entry: natural(entry.group))


def _grouping(reports: Reports, group: str) -> Callable[[PoolStates], Iterable[tuple[str, PoolStates]]]:
    """Return what tells the groups of a pool, each with the devices that are in it."""
    if group == BY_CLASS:
        largest = sorted(reports.classes, key=lambda total: -total.devices)[:_MOST_CLASSES]
        classes = {total.name: reports.class_devices.of_class(total.name) or frozenset() for total in largest}
        return partial(by_class, classes=classes)
    if group == BY_DRIVER:
        return lambda pool_states: [(pool_states.pool.driver, pool_states)]
    nodes, key = reports.view.ledger.nodes, group.removeprefix(BY_LABEL)
    if not group:
        return lambda pool_states: [("", pool_states)]
    return lambda pool_states: [
        (nodes[pool_states.pool.node].labels.get(key, "") if pool_states.pool.node in nodes else "", pool_states)
    ]


def _ungrouped_classes(reports: Reports) -> int:
    """Return how many classes may mean devices and are no groups: there are too many, or their devices are not known."""
    classes = reports.view.ledger.classes
    return max(0, len(reports.classes) - _MOST_CLASSES) + sum(
        reports.class_devices.of_class(name) is None for name in classes
    )


def _groups(
    reports: Reports, entries: Sequence[_Entry], part: ListPart, choices: MapChoices, scale: str
) -> Sequence[CellGroup]:
    on_page = part.entries_of(entries)
    square_limit = max(_LEAST_SQUARES, MOST_SQUARES // max(1, len(on_page))) if scale == DEVICES else 0
    label_of = shortening([entry.name for entry in on_page])
    totals: Counter[str] = Counter()
    shown: Counter[str] = Counter()
    for entry in entries:
        totals[entry.group] += entry.total
        shown[entry.group] += entry.shown(choices.state)
    return [
        CellGroup(
            name,
            totals[name],
            shown[name],
            [_cell(reports, entry, choices.state, label_of, square_limit) for entry in group_entries],
        )
        for name, group_entries in groupby(on_page, key=lambda entry: entry.group)
    ]


def _cell(
    reports: Reports, entry: _Entry, state: DeviceState | None, label_of: Callable[[str], str], square_limit: int
) -> Cell:
    shown, total = entry.shown(state), entry.total
    node = entry.node
    if not node:
        # A node that may use a pool of several nodes; empty if none may.
        ledger, pool = reports.view.ledger, entry.pools[0].pool
        reaching = ledger.slices.nodes_of((pool.driver, pool.pool))
        node = next(iter(reports.nodes), "") if reaching is None else min(reaching & ledger.nodes.keys(), default="")
    dark = total - shown if state is None else shown
    now = reports.view.origin.taken_at
    squares = [
        Square(pool_states.pool.driver, pool_states.pool.pool, device.name, stands, device_text(device, stands, now))
        for pool_states in entry.pools
        for device, stands in pool_states.devices[:square_limit]
    ][:square_limit]
    return Cell(
        node=node,
        name=entry.name,
        label=label_of(entry.name),
        total=total,
        shown=shown,
        level=-(-_LEVELS * dark // total) if total else 0,
        squares=squares,
        more=total - len(squares) if square_limit else 0,
    )


def shortening(names: Sequence[str]) -> Callable[[str], str]:
    """Return what cuts off the words with which all of several names begin and end, so that the rest distinguishes them."""
    if len(names) < 2 or max(map(len, names)) <= _SHORT:  # noqa: PLR2004 - one name has nothing in common with others
        return lambda name: name
    head = _common_start(names).rstrip("0123456789")
    tail = _common_start([name[len(head) :][::-1] for name in names])[::-1]
    tail = tail[tail.index(".") :] if "." in tail else ""
    return lambda name: name[len(head) : len(name) - len(tail)] or name


def natural(name: str) -> list[tuple[str, int]]:
    """Return what sorts `node-2` before `node-10`."""
    return [(text, int(number or 0)) for text, number in _NUMBERED.findall(name)]


def _common_start(names: Sequence[str]) -> str:
    first, last = min(names), max(names)
    return first[: next((place for place, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))]
