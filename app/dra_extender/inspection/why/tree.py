"""The answer to `why POD` as a tree of lines for a terminal of 80 columns; lines are wrapped and never cut."""

from collections.abc import Iterator, Sequence
from typing import Final

from dra_extender.inspection.lines import (
    INDENT,
    WIDTH,
    age_text,
    beside_label,
    clock_text,
    number_of,
    unknown_lines,
    wrapped,
)
from dra_extender.inspection.unread import JUDGED
from dra_extender.inspection.why.device_lines import device_lines, gap_line, place_of
from dra_extender.inspection.why.report import (
    DEVICES_ONLY,
    AwaitedDevice,
    Branch,
    GangReport,
    NextStep,
    NodeReason,
    ReasonKind,
    WhyReport,
)
from dra_extender.model.api_json import listed, printable

_IN_SECONDS: Final = 600


def tree(report: WhyReport, width: int = WIDTH) -> str:
    """The whole answer; ends with a line break."""
    return "\n".join(map(printable, _lines(report, width))) + "\n"


def _lines(report: WhyReport, width: int) -> Iterator[str]:
    yield from unknown_lines(report.origin, JUDGED, None, width)
    waiting = "" if report.age is None or report.node or report.awaited else f"Pending {age_text(report.age)}, "
    scheduler = f"{report.scheduler}, " if report.scheduler and not report.awaited else ""
    yield from wrapped(f"{report.pod}  {waiting}{scheduler}{report.summary}", "", width)
    yield from _reported(report, width)
    if report.scheduler_absent:
        yield from wrapped(report.scheduler_absent, INDENT, width)
    for event in report.events:
        age = "" if event.age is None else f"{age_text(event.age)} ago, "
        yield from wrapped(f"Event {age}{event.subject}: {event.reason}: {event.message}", INDENT, width)
    if report.usable:
        nodes = listed(report.usable, _MOST_NAMES)
        unbound = f"; not bound yet: {'; '.join(report.unbound)}" if report.unbound else ""
        fits = report.unbound or report.scheduler_absent
        yield from wrapped(f"{'fits' if fits else 'has its devices on'} {nodes}{unbound}", INDENT, width)
    yield from labelled(report.beside, report.origin.taken_at, width)
    if report.gang is not None:
        yield from _gang(report.gang, width)
    for awaited in report.awaited:
        yield from _awaited(awaited, report, width)
    for branch in report.branches:
        yield from _branch(branch, report, width)
    for step in report.next:
        yield from step_lines(step, INDENT, width, in_gang=report.gang is not None)
    for note in report.notes:
        yield from wrapped(f"note: {note}", INDENT, width)


def subject_text(subject: str, claim: str, request: str) -> str:
    """What asks for devices: `claim gpu, request gpu`, or the subject where the pod's spec has no such claim."""
    return subject or (f"claim {claim}, request {request}" if request else f"claim {claim}")


def _reported(report: WhyReport, width: int) -> Iterator[str]:
    """What kube-scheduler reports, unless it is about devices alone: the branches say more of that."""
    about = [each for each in report.reported if each.kind is not ReasonKind.DEVICES or not report.branches]
    if not about or any(event.message == report.said for event in report.events):
        return
    texts = [f"{each.nodes} {each.text}" if each.nodes else each.text for each in about]
    yield from wrapped(f"kube-scheduler reports: {', '.join(texts)}", INDENT, width)


def _branch(branch: Branch, report: WhyReport, width: int) -> Iterator[str]:
    if branch.claim:
        wanted = f" ({branch.wanted})" if branch.wanted else ""
        yield from wrapped(f"└ {subject_text(branch.subject, branch.claim, branch.request)}{wanted}", "", width)
    yield from labelled(branch.reasons, report.origin.taken_at, width)


def labelled(reasons: Sequence[NodeReason], now: float, width: int) -> Iterator[str]:
    """Reasons with their numbers of nodes; `now` is when the objects were read, seconds since the epoch."""
    labels = [number_of(each.nodes, "node") for each in reasons]
    column = max(map(len, labels), default=0)
    for label, reason in zip(labels, reasons, strict=True):
        yield from beside_label(f"{INDENT}{label:<{column}}  ", list(_reason(reason, now)), width)


def _reason(reason: NodeReason, now: float) -> Iterator[str]:
    nearest = reason.nearest
    groups = f" [{', '.join(nearest.declared)}]" if nearest is not None and nearest.declared else ""
    yield reason.text if nearest is None else f"{reason.text}; nearest {place_of(nearest)}{groups}"
    if reason.count is not None:
        found = reason.count
        few = f", which has {found.meant} that match" if 0 < found.meant < found.wanted else ""
        yield f"{found.available} of {found.wanted} devices on {found.node}{few}"
    if nearest is not None:
        yield from device_lines(nearest, now)
    if reason.constraint is not None:
        found_values = reason.constraint
        counts = [f"{count} with {value or 'no value'}" for value, count in found_values.values]
        yield f"{found_values.constraint} on {found_values.node}: {', '.join(counts) or 'no device is free'}"
    if reason.pool is not None:
        yield gap_line(reason.pool)


def _gang(gang: GangReport, width: int) -> Iterator[str]:
    states = [each.state.value for each in gang.members]
    names = [_names(each.names) for each in gang.members]
    columns = max(map(len, states), default=0), min(_NAMES_COLUMN, max(map(len, names), default=0))
    for place, (each, state, name) in enumerate(zip(gang.members, states, names, strict=True)):
        mark = "└" if place == len(gang.members) - 1 else "├"
        where = f"on {_names(tuple(dict.fromkeys(each.nodes)))}" if each.nodes else ""
        until = "" if each.until is None else f"until {clock_text(each.until)}"
        text = " ".join(part for part in (each.text, where, until) if part)
        yield from beside_label(f"{mark} {state:<{columns[0]}}  {name:<{columns[1]}}  ", [text], width)


def _names(names: Sequence[str]) -> str:
    """`train-0..4` of names that differ in a number alone and count on; else the first names and how many more there are."""
    if len(names) > 1:
        stem = names[0].rstrip("0123456789")
        numbers = [each.removeprefix(stem) for each in names]
        if all(each.startswith(stem) for each in names) and all(each.isdecimal() for each in numbers):
            first = int(numbers[0])
            if [int(each) for each in numbers] == list(range(first, first + len(names))):
                return f"{names[0]}..{numbers[-1]}"
    return listed(names, _MOST_NAMES)


_MOST_NAMES: Final = 3
_NAMES_COLUMN: Final = 16


def _awaited(awaited: AwaitedDevice, report: WhyReport, width: int) -> Iterator[str]:
    subject = subject_text(awaited.subject, awaited.claim, awaited.request)
    yield from wrapped(f"└ {subject}: {awaited.device}", "", width)
    names = ", ".join(awaited.conditions)
    left = awaited.limit - report.origin.taken_at
    shown = f"{int(left)}s" if left < _IN_SECONDS else age_text(left)
    assumed = awaited.assumed_timeout
    doubt = "" if assumed is None else f" if the binding timeout is {assumed:g}s, the default"
    limit = f"; limit in {shown}{doubt}" if left > 0 else f"; the limit has passed{doubt}"
    text = {
        "failed": f"reports {names}{': ' + awaited.message if awaited.message else ''}",
        "timed out": f"waits for {names}, not reported in time{doubt}",
    }.get(awaited.state, f"waits for {names}, not reported yet{limit}")
    yield from wrapped(text, INDENT, width)


def step_lines(step: NextStep, indent: str, width: int, *, in_gang: bool = False) -> Sequence[str]:
    """A next step, and where it was found to help; or that it helps a gang."""
    where = (
        "  ok, the gang fits" if in_gang and step.nodes else f"  ok on {', '.join(step.nodes)}" if step.nodes else ""
    )
    doubt = f" ({DEVICES_ONLY})" if step.verified == DEVICES_ONLY and step.nodes else ""
    return wrapped(f"next  {step.text}{where}{doubt}", indent, width)
