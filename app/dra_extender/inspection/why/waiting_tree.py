"""The answer to `why` without a pod as lines for a terminal of 80 columns, one cause after the other."""

from collections.abc import Iterator
from typing import Final

from dra_extender.inspection.holders import age_text, printable
from dra_extender.inspection.why.tree import WIDTH, step_lines, wrapped
from dra_extender.inspection.why.waiting import WaitingCause, WaitingReport

_INDENT: Final = "  "


def waiting_tree(report: WaitingReport, width: int = WIDTH) -> str:
    """The whole answer; ends with a line break."""
    return "\n".join(map(printable, _lines(report, width))) + "\n"


def _lines(report: WaitingReport, width: int) -> Iterator[str]:
    count = "no pod waits" if not report.pods else f"{report.pods} {'pod waits' if report.pods == 1 else 'pods wait'}"
    yield from wrapped(f"{count}; {report.nodes} {'node' if report.nodes == 1 else 'nodes'}", "", width)
    labels = [f"{each.pods} {'pod' if each.pods == 1 else 'pods'}" for each in report.causes]
    column = max(map(len, labels), default=0)
    for label, each in zip(labels, report.causes, strict=True):
        yield from _cause(f"{label:>{column}}  ", each, width)
    for note in report.notes:
        yield from wrapped(f"note: {note}", _INDENT, width)


def _cause(label: str, row: WaitingCause, width: int) -> Iterator[str]:
    below = " " * len(label)
    wanted = f" ({row.wanted})" if row.wanted else ""
    lines = [f"{row.cause}: {row.text}{wanted}"]
    age = "" if row.age is None else f" {age_text(row.age)}"
    lines.append(f"{'oldest' if row.pods > 1 else 'pod'} {row.oldest}{age}")
    for number, line in enumerate(lines):
        for part in wrapped(line, "", width - len(label)):
            yield (label if number == 0 else below) + part
            label = below
    for step in row.next:
        yield from (below + each for each in step_lines(step, "", width - len(below)))
