"""The answer to `why` as a tree of lines for a terminal of 80 columns; lines are wrapped and never cut."""

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Final

from dra_extender.cel.explain.values import quantity_text
from dra_extender.inspection.holders import age_text, holder_text, printable
from dra_extender.inspection.objects import Origin
from dra_extender.inspection.why.report import (
    DEVICES_ONLY,
    AwaitedDevice,
    Branch,
    HolderShare,
    NearestDevice,
    NextStep,
    NodeReason,
    WhyReport,
)

WIDTH: Final = 80
"""Columns of the terminal for which the tree is laid out."""
_INDENT: Final = "  "
_MOST_HOLDERS: Final = 4


def tree(report: WhyReport, width: int = WIDTH) -> str:
    """The whole answer; ends with a line break."""
    return "\n".join(map(printable, _lines(report, width))) + "\n"


def _lines(report: WhyReport, width: int) -> Iterator[str]:
    waiting = "" if report.age is None or report.node else f"Pending {age_text(report.age)}, "
    scheduler = f"{report.scheduler}, " if report.scheduler else ""
    yield from wrapped(f"{report.pod}  {waiting}{scheduler}{report.summary}", "", width)
    for awaited in report.awaited:
        yield from _awaited(awaited, report, width)
    for branch in report.branches:
        yield from _branch(branch, report, width)
    for step in report.next:
        yield from step_lines(step, _INDENT, width)
    if report.said and not report.branches:
        yield from wrapped(f"kube-scheduler says: {report.said}", _INDENT, width)
    yield from partial_note(report.origin, width)
    for note in report.notes:
        yield from wrapped(f"note: {note}", _INDENT, width)


def _branch(branch: Branch, report: WhyReport, width: int) -> Iterator[str]:
    if branch.claim:
        request = f", request {branch.request}" if branch.request else ""
        wanted = f" ({branch.wanted})" if branch.wanted else ""
        yield from wrapped(f"└ claim {branch.claim}{request}{wanted}", "", width)
    labels = [f"{each.nodes} {'node' if each.nodes == 1 else 'nodes'}" for each in branch.reasons]
    column = max(map(len, labels), default=0)
    for label, reason in zip(labels, branch.reasons, strict=True):
        yield from _reason(f"{_INDENT}{label:<{column}}  ", reason, report.origin.taken_at, width)


def _reason(label: str, reason: NodeReason, now: float, width: int) -> Iterator[str]:
    nearest = reason.nearest
    text = reason.text if nearest is None else f"{reason.text}; nearest {_place(nearest)}"
    below = " " * len(label)
    lines = [text]
    if nearest is not None:
        lines += _nearest(nearest, now)
    for index, line in enumerate(lines):
        for number, part in enumerate(wrap(line, width - len(label), break_long_words=False) or [""]):
            yield (label if index == 0 and number == 0 else below) + part


def _place(nearest: NearestDevice) -> str:
    """`node-3/gpu-0`; the pool is named where it is not the node."""
    _, pool, device = nearest.device.split("/", 2)
    return f"{nearest.node}/{device}" if pool == nearest.node else f"{nearest.node}/{pool}/{device}"


def _nearest(nearest: NearestDevice, now: float) -> Iterator[str]:
    short = nearest.shortage
    if short is not None:
        left, total = quantity_text(short.left), quantity_text(short.total)
        yield f"{short.counter_set} {short.counter}: needs {quantity_text(short.needed)}, {left} of {total} left"
    elif nearest.detail:
        yield nearest.detail
    holders = nearest.holders
    if holders:
        more = f" and {len(holders) - _MOST_HOLDERS} more" if len(holders) > _MOST_HOLDERS else ""
        counter = None if short is None else short.counter
        yield "held by " + ", ".join(_share(each, counter, now) for each in holders[:_MOST_HOLDERS]) + more


def _share(share: HolderShare, counter: str | None, now: float) -> str:
    amount = dict(share.counters).get(counter) if counter is not None else None
    text = holder_text(share.holder, now)
    return text if amount is None else f"{text} {quantity_text(amount)}"


def _awaited(awaited: AwaitedDevice, report: WhyReport, width: int) -> Iterator[str]:
    yield from wrapped(f"└ claim {awaited.claim}: {awaited.device}", "", width)
    names = ", ".join(awaited.conditions)
    left = awaited.limit - report.origin.taken_at
    limit = f"; limit in {age_text(left)}" if left > 0 else "; the limit has passed"
    text = {
        "failed": f"reports {names}{': ' + awaited.message if awaited.message else ''}",
        "timed out": f"waits for {names}, not reported in time",
    }.get(awaited.state, f"waits for {names}, not reported yet{limit}")
    yield from wrapped(text, _INDENT, width)


def step_lines(step: NextStep, indent: str, width: int) -> Sequence[str]:
    """A next step, and where it was found to help."""
    where = f"  ok on {', '.join(step.nodes)}" if step.nodes else ""
    doubt = f" ({DEVICES_ONLY})" if step.verified == DEVICES_ONLY and step.nodes else ""
    return wrapped(f"next  {step.text}{where}{doubt}", indent, width)


def partial_note(origin: Origin, width: int) -> Sequence[str]:
    """Which kinds could not be read, if any."""
    if not origin.partial:
        return ()
    kinds = ", ".join(each.kind for each in origin.missing if each.served)
    return wrapped(f"partial: {kinds} could not be read", _INDENT, width)


def wrapped(text: str, indent: str, width: int) -> Sequence[str]:
    """The text in lines of that many columns."""
    return wrap(text, width, initial_indent=indent, subsequent_indent=indent + _INDENT * 2, break_long_words=False)
