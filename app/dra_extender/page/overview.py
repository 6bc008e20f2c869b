"""The cluster at a glance: how full it is, what waits, and what is wrong."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from dra_extender.inspection.audit.findings import CheckSeverity
from dra_extender.inspection.lines import age_text
from dra_extender.inspection.objects import UnreadKindsError
from dra_extender.inspection.why.waiting import WaitingCause
from dra_extender.page.devices_view import DeviceState, KindTotal, PoolStates
from dra_extender.page.rendering import Link, counted
from dra_extender.page.states import Reports

MOST_KINDS: Final = 10
"""Drivers on the page, and device classes, those with most devices; the map has all."""
_MOST_SHOWN: Final = 5
"""Nodes, causes, and problems of one kind that are named."""
_SILENT_SECONDS: Final = 180.0
"""A watch hears something of a healthy API server more often."""
_PERCENT: Final = 100
WIDTH: Final = 120
HEIGHT: Final = 24


class Line(NamedTuple):
    """A small line: its corners in a picture of WIDTH x HEIGHT, and what it says in words.  The newest value is the last."""

    corners: Sequence[tuple[float, float]]
    seconds: float
    minimum: float
    maximum: float
    last: float


class Overview(NamedTuple):
    """The content of the first view; `unknown` says why the devices or the pods are not known, empty if they are.

    `kinds` are totals by what they are of, `driver` or `class`.  `whole_devices` are free on `whole_nodes` nodes, `most_whole` has
    the nodes with most of them.  `in_use` and `waiting` are the lines of the last hour, None as long as there are none.
    """

    unknown_devices: str = ""
    kinds: Sequence[tuple[str, KindTotal]] = ()
    more_kinds: int = 0
    whole_devices: int = 0
    whole_nodes: int = 0
    most_whole: Sequence[tuple[str, int]] = ()
    unknown_pods: str = ""
    pods: int = 0
    causes: Sequence[WaitingCause] = ()
    more_causes: int = 0
    problems: Sequence[Link] = ()
    in_use: Line | None = None
    waiting: Line | None = None


def overview(reports: Reports) -> Overview:
    now, history = reports.view.now, reports.history
    result = Overview(
        problems=tuple(_problems(reports)),
        in_use=line([(point.at, point.in_use) for point in history], now, _PERCENT),
        waiting=line([(point.at, point.waiting) for point in history], now),
    )
    try:
        pools, kinds = reports.pools, (*_largest("driver", reports.drivers), *_largest("class", reports.classes))
    except UnreadKindsError as problem:
        result = result._replace(unknown_devices=str(problem))
    else:
        # Whole devices by node; those that several nodes reach are under an empty name.
        whole_devices = Counter[str]()
        for pool_states in sorted(pools, key=lambda states: states.pool.node):
            if pool_states.whole_devices:
                whole_devices[pool_states.pool.node] += pool_states.whole_devices
        result = result._replace(
            kinds=kinds,
            more_kinds=len(reports.drivers) + len(reports.classes) - len(kinds),
            whole_devices=sum(whole_devices.values()),
            whole_nodes=len(whole_devices.keys() - {""}),
            most_whole=[entry for entry in whole_devices.most_common(_MOST_SHOWN + 1) if entry[0]][:_MOST_SHOWN],
        )
    try:
        report = reports.waiting(1)
    except UnreadKindsError as problem:
        return result._replace(unknown_pods=str(problem))
    causes = report.causes
    return result._replace(pods=report.pods, causes=causes[:_MOST_SHOWN], more_causes=max(0, len(causes) - _MOST_SHOWN))


def _largest(kind: str, totals: Sequence[KindTotal]) -> Sequence[tuple[str, KindTotal]]:
    return [(kind, total) for total in sorted(totals, key=lambda total: -total.devices)[:MOST_KINDS]]


def _problems(reports: Reports) -> Iterator[Link]:
    try:
        severities = Counter(finding.severity for finding in reports.audit.findings)
    except UnreadKindsError as problem:
        yield Link(f"The audit is not known: {problem}", "health", part="audit")
    else:
        for severity in CheckSeverity:
            if severities[severity]:
                text = f"{counted(severities[severity], severity.value)} of the audit"
                yield Link(text, "health", part="audit")
    try:
        yield from _problems_of_devices(reports.pools)
    except UnreadKindsError as problem:
        yield Link(f"Devices are not known: {problem}", "health", part="audit")
    for kind, seconds in sorted(reports.contact_ages().items()):
        if seconds > _SILENT_SECONDS:
            yield Link(f"The watch of {kind} has not answered for {age_text(seconds)}", "health", part="watches")
    missing = [*(kind.kind for kind in reports.view.origin.missing if kind.served)]
    if missing:
        yield Link(f"Not read: {', '.join(missing)}", "health", part="facts")
    unread = len(reports.problems) + len(reports.view.unreadable)
    if unread:
        yield Link(f"{counted(unread, 'object')} not followed or not readable", "health", part="facts")


def _problems_of_devices(pools: Sequence[PoolStates]) -> Iterator[Link]:
    stands = [(device, state) for pool_states in pools for device, state in pool_states.devices]
    counts = Counter(state for _, state in stands)
    for state in (DeviceState.ORPHANED, DeviceState.GONE):
        if counts[state]:
            yield Link(f"{counted(counts[state], 'device')}: {state.value}", "map", {"state": state.key})
    reasons = Counter(device.availability_text for device, state in stands if state is DeviceState.UNUSABLE)
    for reason, devices in reasons.most_common(_MOST_SHOWN):
        yield Link(f"{counted(devices, 'device')} {reason}", "map", {"state": DeviceState.UNUSABLE.key})
    incomplete = [pool_states.pool for pool_states in pools if not pool_states.pool.complete]
    for pool in incomplete[:_MOST_SHOWN]:
        text = f"Pool {pool.driver}/{pool.pool} is incomplete: {pool.problem}"
        yield Link(text, "node" if pool.node else "map", {"name": pool.node} if pool.node else {})
    if len(incomplete) > _MOST_SHOWN:
        yield Link(f"{counted(len(incomplete) - _MOST_SHOWN, 'more pool')} incomplete", "health", part="audit")


def line(values: Sequence[tuple[float, float | None]], now: float, top: float = 0.0) -> Line | None:
    """Return the line of values at moments, which stay as they are until the next; None where there are not two.

    Moments are seconds since the epoch, those without a value are left out; the line ends at `now`.  `top` is the greatest value
    that the picture has room for, if none of the values is greater.
    """
    points = [(at, value) for at, value in values if value is not None]
    if len(points) <= 1:
        return None
    begin, numbers = points[0][0], [value for _, value in points]
    width, height = max(1.0, now - begin), max(top, *numbers, 1.0)
    corners = []
    ends = [at for at, _ in points[1:]] + [now]
    for (at, value), end in zip(points, ends, strict=True):
        y = round(HEIGHT - HEIGHT * value / height, 1)
        corners += [(_x(at - begin, width), y), (_x(end - begin, width), y)]
    return Line(corners, now - begin, min(numbers), max(numbers), numbers[-1])


def _x(seconds: float, width: float) -> float:
    return round(min(WIDTH, max(0.0, WIDTH * seconds / width)), 1)
