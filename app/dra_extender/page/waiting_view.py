"""What is under way: pods whose devices are not ready yet, with clocks, and gangs that are not complete, with what blocks them."""

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from dra_extender.inspection.why.cause import awaited_devices
from dra_extender.inspection.why.report import AwaitedDevice, GangReport
from dra_extender.model.pod import Pod
from dra_extender.page.query import ListPart, part_of
from dra_extender.page.reports import Reports

GANG_SECONDS: Final = 0.15
"""CPU time after which one answer plans no further gangs; the next answer goes on where it ended."""
ROWS: Final = 100
"""Gangs on one page, and pods whose devices are awaited; a page has both."""


class AwaitedPod(NamedTuple):
    """A pod whose allocated devices are not ready."""

    pod: str
    devices: tuple[AwaitedDevice, ...]


class GangRow(NamedTuple):
    """A PodGroup with members that wait: how many members it needs at once (0: no gang), how many run, who waits.

    `report` is its plan, None as long as it was not `asked` for, and where there is none.
    """

    name: str
    min_count: int
    running: int
    waiting: tuple[str, ...]
    report: GangReport | None
    asked: bool


class PodsUnderWay(NamedTuple):
    """One page of the gangs and of the pods whose devices are awaited; `unfinished`: the next answer will say more."""

    awaited: tuple[AwaitedPod, ...]
    gangs: tuple[GangRow, ...]
    part: ListPart
    unfinished: bool


def pods_under_way(
    reports: Reports, page: int = 1, *, cpu_time: Callable[[], float] = time.thread_time
) -> PodsUnderWay:
    """What is under way in this state.

    Raises:
        QueryError: there is no such page.
    """
    pods = sorted(filter(_waits, reports.view.ledger.pods.all()), key=lambda each: each.key)
    groups: dict[tuple[str, str], list[Pod]] = {}
    awaited = []
    for pod in pods:
        devices = awaited_devices(reports.view, pod)
        if devices:
            awaited.append(AwaitedPod(pod.key, devices))
        if pod.pod_group is not None:
            groups.setdefault((pod.namespace, pod.pod_group), []).append(pod)
    part = part_of(max(len(groups), len(awaited)), ROWS, page)
    end = cpu_time() + GANG_SECONDS
    gangs = tuple(_gang(reports, key, groups[key], lambda: cpu_time() < end) for key in part.of(sorted(groups)))
    return PodsUnderWay(
        awaited=tuple(part.of(awaited)),
        gangs=gangs,
        part=part,
        unfinished=not all(each.asked for each in gangs),
    )


def _gang(reports: Reports, key: tuple[str, str], waiting: list[Pod], may_ask: Callable[[], bool]) -> GangRow:
    ledger, first = reports.view.ledger, waiting[0]
    group = ledger.pod_groups.get(*key)
    members = ledger.pods.members(*key)
    pod = (first.namespace, first.name)
    asks = reports.knows_why(*pod) or may_ask()
    return GangRow(
        name="/".join(key),
        min_count=0 if group is None else group.min_count or 0,
        running=sum(1 for each in members if each.node_name and not each.finished),
        waiting=tuple(each.key for each in waiting),
        report=reports.why(*pod).gang if asks else None,
        asked=asks,
    )


def _waits(pod: Pod) -> bool:
    return pod.needs_devices and not (pod.node_name or pod.finished or pod.deleting)
