"""The answer to `defrag` for a terminal of 80 columns; lines are wrapped and never cut."""

import shlex
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from dra_extender.inspection.defrag.report import DefragReport, Finding
from dra_extender.inspection.lines import INDENT, Part, as_text, paragraph
from dra_extender.inspection.pod_facts import without_controller_text
from dra_extender.inspection.text.what_if import (
    fate_lines,
    note_parts,
    outcome_text,
    reason_lines,
    three_columns,
    unjudged_lines,
)
from dra_extender.inspection.what_if.report import OutcomeKind, PodOutcome, PodRow
from dra_extender.model.api_json import listed, number_of

_MOST_PODS: Final = 5
_PROGRAM: Final = ("kubectl", "dra", "what-if")


@as_text
def text(report: DefragReport) -> Iterator[Part]:
    yield paragraph(_summary(report))
    moved = [
        PodRow(pod=move.pod, before=move.before, after=move.after, evicted=True, claims=move.claims)
        for move in report.moves
    ]
    if moved:
        yield ""
        header = ("POD", "FROM", "TO")
        rows = [(row.pod, outcome_text(row.before), outcome_text(row.after)) for row in moved]
        yield partial(three_columns, [header, *rows])
    if report.lands is not None:
        yield ""
        yield paragraph(f"{report.pod} {outcome_text(report.lands)}")
    lost = [move.pod for move in report.moves if not move.controller]
    if lost:
        yield ""
        yield paragraph(without_controller_text(lost, _MOST_PODS))
    subject = [] if report.lands is None else [PodRow(pod=report.pod, before=_ABSENT, after=report.lands)]
    yield from unjudged_lines([*moved, *subject])
    yield from fate_lines(moved)
    if report.finding is Finding.NONE:
        yield from _hindrances(report)
    if report.moves:
        yield ""
        yield "played by"
        yield partial(_command, (*_PROGRAM, *report.what_if))
    yield from note_parts(report.verified, report.notes)


_ABSENT: Final = PodOutcome(kind=OutcomeKind.ABSENT)


def _summary(report: DefragReport) -> str:
    if report.finding is Finding.MET:
        return f"{report.goal} without a move"
    if report.finding is Finding.NONE:
        why = report.bound or "all that may help was tried"
        return f"no moves were found after which {report.goal}: {why}"
    fewest = "no fewer are enough" if report.fewest else f"whether fewer are enough is not known: {report.bound}"
    return f"{report.goal} after {number_of(len(report.moves), 'move')}; {fewest}"


def _hindrances(report: DefragReport) -> Iterator[Part]:
    """Yield what stands in the way: reasons that no move changes, and pods that may not be moved."""
    if report.reasons:
        yield ""
        yield paragraph(f"{report.pod} fits nowhere, though all pods that may be moved have ended")
        yield from reason_lines(report.reasons)
    if report.staying:
        yield ""
        yield "pods that stay"
    for staying in report.staying:
        yield paragraph(f"{listed(staying.pods, _MOST_PODS)}: {staying.reason}", INDENT)


def _command(words: Sequence[str], width: int) -> Iterator[str]:
    """Yield the command for a shell, each line but the last with a backslash at its end."""
    line = INDENT.removesuffix(" ")
    for word in map(shlex.quote, words):
        if len(line) + len(word) + 3 > width:
            yield f"{line} \\"
            line = INDENT + INDENT.removesuffix(" ")
        line += f" {word}"
    yield line
