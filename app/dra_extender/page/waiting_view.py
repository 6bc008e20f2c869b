"""The pods that wait, by cause, and what is under way: devices that are not ready, and gangs."""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from dra_extender.inspection.holders import Holder
from dra_extender.inspection.text.why import place_of, tree
from dra_extender.inspection.why.cause import awaited_devices
from dra_extender.inspection.why.report import (
    AwaitedDevice,
    ConstraintValues,
    DeviceCount,
    EndedPod,
    GangMembers,
    GangReport,
    NearestDevice,
    NextStep,
    NodeReason,
    NodeScore,
    WhyReport,
)
from dra_extender.inspection.why.waiting import WaitingCause, WaitingReport
from dra_extender.model.api_json import printable
from dra_extender.model.device import device_id_of
from dra_extender.model.metadata import split_key
from dra_extender.model.pod import Pod
from dra_extender.page.rendering import Link, ListPart, device_anchor, part_of
from dra_extender.page.states import Reports

STEP_SECONDS: Final = 0.15
"""CPU time of an answer, the tree of a pod included, after which it looks for no further steps; the next answer goes on."""
ROWS: Final = 100
"""Causes on one page."""
_STEPS: Final = 2

Key = tuple[str, str]


class PendingRow(NamedTuple):
    """Pods with one cause.  `next` is what would help the oldest, which may be `in_gang`; None as long as it was not looked for.

    `opened` is the pod among them whose tree is shown.
    """

    cause: WaitingCause
    next: tuple[NextStep, ...] | None
    in_gang: bool
    opened: str


class PendingPods(NamedTuple):
    """A page of all causes.  `tree` has the lines of the opened pod; it stands by itself if no row names that pod (`alone`)."""

    report: WaitingReport
    rows: tuple[PendingRow, ...]
    part: ListPart
    notes: tuple[str, ...]
    pod: str
    tree: Sequence[Sequence[str | Link]]
    command: str
    alone: bool
    round: int
    more: int

    @property
    def unfinished(self) -> bool:
        return any(row.next is None for row in self.rows)


def pending_pods(
    reports: Reports,
    pod: Key | None,
    round_number: int,
    page: int,
    command: Callable[[str, str], str],
    *,
    cpu_time: Callable[[], float] = time.thread_time,
) -> PendingPods:
    """Return a page of the causes after so many rounds of looking at pods; the tree of a pod, and the command that prints it.

    Raises:
        UnknownObjectError: there is no such pod.
        QueryError: there is no such page.
    """
    end = cpu_time() + STEP_SECONDS
    opened = "" if pod is None else "/".join(pod)
    lines = () if pod is None else linked_tree(reports.why(*pod))
    report = reports.waiting(round_number)
    part = part_of(len(report.causes), ROWS, page)
    rows = []
    for cause in part.entries_of(report.causes):
        key = split_key(cause.oldest)
        answer = reports.why(*key) if reports.knows_why(*key) or cpu_time() < end else None
        rows.append(
            PendingRow(
                cause,
                None if answer is None else answer.next[:_STEPS],
                answer is not None and answer.gang is not None,
                opened if opened in cause.names else "",
            )
        )
    return PendingPods(
        report=report,
        rows=tuple(rows),
        part=part,
        # The first notes are about objects that cannot be read: every view has those at its end.
        notes=report.notes[len(reports.view.unreadable) :],
        pod=opened,
        tree=lines,
        command="" if pod is None else command(*pod),
        alone=bool(opened) and not any(row.opened for row in rows),
        round=round_number,
        more=round_number + 1 if report.unasked else 0,
    )


GANG_SECONDS: Final = 0.15
"""CPU time after which one answer plans no further gangs; the next answer goes on where it ended."""
GANG_ROWS: Final = 100
"""Gangs on one page, and pods whose devices are awaited; a page has both."""


class GangRow(NamedTuple):
    """A PodGroup with members that wait: how many members it needs at once (0: no gang), how many run, who waits.

    `report` is its plan, None until it is `planned`, and where there is no plan.
    """

    name: str
    min_count: int
    running: int
    waiting: tuple[str, ...]
    report: GangReport | None
    planned: bool


class PodsUnderWay(NamedTuple):
    """One page of the gangs, and of the pods whose devices are awaited with these devices."""

    awaited: Sequence[tuple[str, Sequence[AwaitedDevice]]]
    gangs: Sequence[GangRow]
    part: ListPart

    @property
    def unfinished(self) -> bool:
        return not all(gang.planned for gang in self.gangs)


def pods_under_way(
    reports: Reports, page: int = 1, *, cpu_time: Callable[[], float] = time.thread_time
) -> PodsUnderWay:
    """Return what is under way in this state.

    Raises:
        QueryError: there is no such page.
    """
    pods = sorted(filter(waits_for_devices, reports.view.ledger.pods.all()), key=lambda pod: pod.key)
    groups: dict[tuple[str, str], list[Pod]] = {}
    awaited = []
    for pod in pods:
        devices = awaited_devices(reports.view, pod)
        if devices:
            awaited.append((pod.key, devices))
        if pod.pod_group is not None:
            groups.setdefault((pod.namespace, pod.pod_group), []).append(pod)
    part = part_of(max(len(groups), len(awaited)), GANG_ROWS, page)
    end = cpu_time() + GANG_SECONDS
    gangs = [_gang(reports, key, groups[key], lambda: cpu_time() < end) for key in part.entries_of(sorted(groups))]
    return PodsUnderWay(part.entries_of(awaited), gangs, part)


def _gang(reports: Reports, key: tuple[str, str], waiting: list[Pod], may_ask: Callable[[], bool]) -> GangRow:
    ledger, first = reports.view.ledger, waiting[0]
    group = ledger.pod_groups.get(*key)
    members = ledger.pods.members(*key)
    pod = (first.namespace, first.name)
    can_plan = reports.knows_why(*pod) or may_ask()
    return GangRow(
        name="/".join(key),
        min_count=0 if group is None else group.min_count or 0,
        running=sum(1 for member in members if member.node_name and not member.finished),
        waiting=tuple(pod.key for pod in waiting),
        report=reports.why(*pod).gang if can_plan else None,
        planned=can_plan,
    )


def waits_for_devices(pod: Pod) -> bool:
    return pod.needs_devices and pod.waits_for_node


_WIDTH: Final = 100
_MOST_LINKS: Final = 500


def linked_tree(report: WhyReport) -> Sequence[Sequence[str | Link]]:
    """Return the lines that `why` prints, each in parts: text, and links."""
    links: dict[str, Link] = {}
    for link in islice(_links(report), _MOST_LINKS):
        if link.text and link.query != {"pod": report.pod}:
            links.setdefault(printable(link.text), link)
    lines = tree(report, _WIDTH).rstrip("\n").split("\n")
    if not links:
        return [[line] for line in lines]
    names = "|".join(re.escape(name) for name in sorted(links, key=len, reverse=True))
    # A name is no part of a longer one.
    name = re.compile(rf"(?<![\w./-])({names})(?![\w/-]|\.\w)")
    return [[links[part] if place % 2 else part for place, part in enumerate(name.split(line))] for line in lines]


def node_link(name: str) -> Link:
    return Link(name, "node", {"name": name})


def device_link(text: str, node: str, device: str) -> Link:
    """Return a link to a device (`driver/pool/device`) on the view of a node."""
    return Link(text, "node", {"name": node}, device_anchor(*device_id_of(device)))


def pod_link(name: str) -> Link:
    """Return a link to the tree of a pod (`namespace/name`)."""
    return Link(name, "pending", {"pod": name}, "pod")


def _links(report: WhyReport) -> Iterator[Link]:
    yield from map(node_link, (report.node, *report.usable))
    for device in report.devices:
        yield device_link(device.device, report.node, device.device)
    namespace = report.pod.partition("/")[0]
    for value in _structs(report):
        match value:
            case NodeReason(examples=nodes) | NextStep(nodes=nodes):
                yield from map(node_link, nodes)
            case NearestDevice():
                yield device_link(place_of(value), value.node, value.device)
            case DeviceCount(node=node) | ConstraintValues(node=node) | NodeScore(node=node):
                yield node_link(node)
            case Holder(consumers=consumers):
                yield from (pod_link(name) for name in consumers if " " not in name)
            case EndedPod(pod=pod):
                yield pod_link(pod)
            case GangMembers(names=names, nodes=nodes):
                yield from map(node_link, nodes)
                yield from (pod_link(f"{namespace}/{name}")._replace(text=name) for name in names)


def _structs(value: Any) -> Iterator[msgspec.Struct]:
    if isinstance(value, msgspec.Struct):
        yield value
        value = tuple(getattr(value, name) for name in value.__struct_fields__)
    if isinstance(value, tuple):
        for part in value:
            yield from _structs(part)
