"""The pods that wait, by cause; the tree of one of them, and what would help as far as there is time to find out."""

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from dra_extender.inspection.why.report import NextStep
from dra_extender.inspection.why.tree import tree
from dra_extender.inspection.why.waiting import WaitingCause, WaitingReport
from dra_extender.model.metadata import split_key
from dra_extender.page.query import ListPart, part_of
from dra_extender.page.reports import Reports

STEP_SECONDS: Final = 0.15
"""CPU time of an answer, the tree of a pod included, after which it looks for no further steps; the next answer goes on."""
ROWS: Final = 100
"""Causes on one page."""
_STEPS: Final = 2
_WIDTH: Final = 100

Key = tuple[str, str]


class PendingRow(NamedTuple):
    """Pods with one cause.  `next` is what would help the oldest, None as long as it was not looked for.

    `opened` is the pod among them whose tree is shown.
    """

    cause: WaitingCause
    next: tuple[NextStep, ...] | None
    opened: str


class PendingPods(NamedTuple):
    """A page of all causes.  `tree` has the lines of the opened pod; it stands by itself if no row names that pod (`alone`)."""

    report: WaitingReport
    rows: tuple[PendingRow, ...]
    part: ListPart
    notes: tuple[str, ...]
    pod: str
    tree: str
    command: str
    alone: bool
    round: int
    more: int

    @property
    def unfinished(self) -> bool:
        """Whether the next answer will say more."""
        return any(each.next is None for each in self.rows)


def pending_pods(
    reports: Reports,
    pod: Key | None,
    round_number: int,
    page: int,
    command: Callable[[str, str], str],
    *,
    cpu_time: Callable[[], float] = time.thread_time,
) -> PendingPods:
    """A page of the causes after so many rounds of looking at pods; the tree of a pod, and the command that prints it.

    Raises:
        UnknownPodError: there is no such pod.
        QueryError: there is no such page.
    """
    end = cpu_time() + STEP_SECONDS
    opened = "" if pod is None else "/".join(pod)
    lines = "" if pod is None else tree(reports.why(*pod), _WIDTH)
    report = reports.waiting(round_number)
    part = part_of(len(report.causes), ROWS, page)
    rows = []
    for cause in part.of(report.causes):
        key = split_key(cause.oldest)
        if reports.knows_why(*key) or cpu_time() < end:
            found: tuple[NextStep, ...] | None = reports.why(*key).next[:_STEPS]
        else:
            found = None
        rows.append(PendingRow(cause, found, opened if opened in cause.names else ""))
    return PendingPods(
        report=report,
        rows=tuple(rows),
        part=part,
        # The first notes are about objects that cannot be read: every view has those at its end.
        notes=report.notes[len(reports.view.unreadable) :],
        pod=opened,
        tree=lines,
        command="" if pod is None else command(*pod),
        alone=bool(opened) and not any(each.opened for each in rows),
        round=round_number,
        more=round_number + 1 if report.unasked else 0,
    )
