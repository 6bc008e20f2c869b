"""The answer to `what-if` as a table for a terminal of 80 columns; lines are wrapped and never cut."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from textwrap import wrap
from typing import Final

from dra_extender.cel.explain.values import quantity_text
from dra_extender.inspection.devices import NO_NODE
from dra_extender.inspection.holders import held_lines
from dra_extender.inspection.lines import INDENT, Part, as_text, beside_labels, paragraph, paragraphs
from dra_extender.inspection.text.why import branch_parts, gang_parts, labelled
from dra_extender.inspection.what_if.report import (
    Fate,
    Fill,
    OutcomeKind,
    PodOutcome,
    PodRow,
    ReasonCount,
    Stranded,
    WaitingGang,
    WhatIfReport,
)
from dra_extender.model.api_json import listed, number_of
from dra_extender.model.device import device_id_of

_MOST_NODES: Final = 8
_MOST_DEVICES: Final = 3
_MOST_PODS: Final = 5
_WIDEST: Final = 30
_FATES: Final = {
    Fate.KEPT: "by name: keeps its allocation, which others use",
    Fate.RELEASED: "by name: released, and allocated anew where the pod lands",
    Fate.DELETED: "deleted with the pod",
    Fate.GENERATED: "from a template: made anew",
}


@as_text
def table(report: WhatIfReport) -> Iterator[Part]:
    after = _counts(pod.after for pod in report.pods)
    if report.changes:
        summary = f"with the changes {after}; without them {_counts(pod.before for pod in report.pods)}"
    else:
        summary = f"next {after}" if report.pods else "no pod waits for devices"
    yield paragraph(summary)
    yield from paragraphs(report.changes, INDENT)

    shown = [row for row in report.pods if (row.differs if report.changes else not row.plain)]
    if shown:
        yield ""
        header = ("POD", "BEFORE", "AFTER") if report.changes else ("POD", "NOW", "NEXT")
        rows = ((row.pod, outcome_text(row.before), outcome_text(row.after)) for row in shown)
        yield partial(three_columns, (header, *rows))
    same = len(report.pods) - len(shown)
    if same and report.changes:
        yield f"{same} {'pod stands' if same == 1 else 'pods stand'} as without the changes"
    elif same:
        plain = _counts(pod.after for pod in report.pods if pod.plain)
        yield f"of those that ask for no devices {plain}"
    explained = {gang.gang.pod_group for gang in report.gangs}
    yield from _waiting([row for row in shown if row.after.kind is OutcomeKind.WAITS and row.gang not in explained])
    for gang in report.gangs:
        yield ""
        yield from _waiting_gang(gang, report.origin.taken_at)
    yield from unjudged_lines(shown)
    for row in shown:
        if row.after.conditions:
            yield ""
            yield paragraph(f"{row.pod} is bound once {', '.join(row.after.conditions)} is reported")
    yield from fate_lines([row for row in shown if row.evicted])
    if report.fill is not None:
        yield ""
        yield from _fill(report.fill)
    if report.held:
        yield ""
        yield partial(held_lines, report.held)
    yield from note_parts(report.verified, report.notes)


def note_parts(verified: str, notes: Sequence[str]) -> Iterator[Part]:
    """Yield the notes of an answer, first that node fit was not judged, if it was not."""
    all_notes = [*([f"{verified}: node fit was not judged"] if verified else []), *notes]
    if all_notes:
        yield ""
    yield from paragraphs(f"note: {note}" for note in all_notes)


def _counts(outcomes: Iterable[PodOutcome]) -> str:
    all_outcomes = tuple(outcomes)
    kinds = Counter(outcome.kind for outcome in all_outcomes)
    landing, waiting = kinds[OutcomeKind.LANDS], kinds[OutcomeKind.WAITS]
    unsure = sum(outcome.kind is OutcomeKind.LANDS and bool(outcome.unjudged) for outcome in all_outcomes)
    may = f" ({unsure} as far as devices go)" if unsure else ""
    lands = f"{landing} {'pod lands' if landing == 1 else 'pods land'}{may}"
    return f"{lands} and {waiting} {'waits' if waiting == 1 else 'wait'}"


def outcome_text(outcome: PodOutcome) -> str:
    match outcome.kind:
        case OutcomeKind.RUNS | OutcomeKind.LANDS:
            devices_of = map(device_id_of, outcome.devices)
            # The pool is named where it is not the node.
            names = [name if pool == outcome.node else f"{pool}/{name}" for _, pool, name in devices_of]
            devices = f" ({listed(names, _MOST_DEVICES)})" if names else ""
            lands = "may land on" if outcome.unjudged else "lands on"
            return f"{'on' if outcome.kind is OutcomeKind.RUNS else lands} {outcome.node}{devices}"
        case OutcomeKind.ABSENT:
            return "-"
        case _:
            return str(outcome.kind)


def three_columns(rows: Sequence[tuple[str, str, str]], width: int) -> Iterator[str]:
    first = min(max(len(row[0]) for row in rows), _WIDEST)
    remaining = width - first - 4
    second = min(max(len(row[1]) for row in rows), remaining // 2)
    widths = (first, second, remaining - second)
    for row in rows:
        cells = [wrap(text, size) or [""] for text, size in zip(row, widths, strict=True)]
        for number in range(max(map(len, cells))):
            parts = [cell[number] if number < len(cell) else "" for cell in cells]
            yield INDENT.join(f"{part:<{size}}" for part, size in zip(parts, widths, strict=True)).rstrip()


def _waiting(rows: Sequence[PodRow]) -> Iterator[Part]:
    """Yield why pods wait, once for all pods with the same reasons."""
    by_reasons: dict[tuple[ReasonCount, ...], list[str]] = defaultdict(list)
    for row in rows:
        if row.after.reasons:
            by_reasons[row.after.reasons].append(row.pod)
    for reasons, pods in by_reasons.items():
        yield ""
        yield paragraph(f"{listed(pods, _MOST_PODS)} {'waits' if len(pods) == 1 else 'wait'}")
        yield from reason_lines(reasons)


def _waiting_gang(waiting: WaitingGang, now: float) -> Iterator[Part]:
    """Yield why a gang waits; `now` is when the objects were read, seconds since the epoch."""
    yield paragraph(waiting.summary)
    yield from labelled(waiting.beside, now)
    yield from gang_parts(waiting.gang)
    yield from branch_parts(waiting.branches, now)
    yield from paragraphs((f"note: {note}" for note in waiting.notes), INDENT)


def unjudged_lines(rows: Sequence[PodRow]) -> Iterator[Part]:
    """Say of pods that land what was not looked at, once for all pods with the same marks."""
    by_marks: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for row in rows:
        if row.after.kind is OutcomeKind.LANDS and row.after.unjudged:
            by_marks[row.after.unjudged].append(row.pod)
    for marks, pods in by_marks.items():
        yield ""
        verb = "lands" if len(pods) == 1 else "land"
        yield paragraph(f"{listed(pods, _MOST_PODS)} {verb} as far as devices go; not looked at:")
        yield from paragraphs(marks, INDENT)


def fate_lines(rows: Sequence[PodRow]) -> Iterator[Part]:
    """Yield what becomes of the claims of evicted pods, once for all of one fate."""
    by_fate: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        for claim in row.claims:
            users = f": {', '.join(claim.users[:_MOST_DEVICES])}" if claim.users else ""
            by_fate[_FATES[claim.fate] + users].append(f"{row.pod.partition('/')[0]}/{claim.claim}")
    for fate, claims in by_fate.items():
        yield ""
        yield paragraph(f"{'claim' if len(claims) == 1 else 'claims'} {listed(claims, _MOST_PODS)}")
        yield paragraph(fate, INDENT)


def reason_lines(reasons: Iterable[ReasonCount], indent: str = INDENT) -> Iterator[Part]:
    rows = [(number_of(reason.nodes, "node") if reason.nodes else "", [reason.text]) for reason in reasons]
    return beside_labels(rows, indent, INDENT if any(label for label, _ in rows) else "")


def _fill(fill: Fill) -> Iterator[Part]:
    at_least = "at least " if fill.bounded else ""
    copies = f"{fill.copies} {'copy' if fill.copies == 1 else 'copies'}"
    yield paragraph(f"fill with {fill.subject}: {at_least}{copies} more {'fits' if fill.copies == 1 else 'fit'}")
    if fill.nodes:
        listed = [f"{node.node} {node.copies}" for node in fill.nodes[:_MOST_NODES]]
        more = len(fill.nodes) - _MOST_NODES
        text = ", ".join(listed) + (f" and {number_of(more, 'node')} more" if more > 0 else "")
        yield paragraph(f"on {text}", INDENT)
    if fill.unjudged:
        yield paragraph(f"as far as devices go; not looked at: {'; '.join(fill.unjudged)}", INDENT)
    if fill.bounded:
        yield paragraph("the count ends at this bound", INDENT)
        return
    yield f"{INDENT}no more, because"
    yield from reason_lines(fill.reasons, INDENT * 2)
    yield from _stranded(fill.stranded)
    if fill.stranded_in_part:
        text = "not all nodes were looked at for what is stranded: the selectors take too long"
        yield paragraph(text, INDENT)


def _stranded(stranded: Sequence[Stranded]) -> Iterator[Part]:
    if not stranded:
        yield f"{INDENT}stranded: nothing"
        return
    yield f"{INDENT}stranded, by reason"
    ordered = sorted(stranded, key=lambda place: (place.text, place.node))
    for text, group in groupby(ordered, key=lambda place: place.text):
        places = list(group)
        nodes = [place.node for place in places if place.node != NO_NODE]
        where = number_of(len(nodes), "node") if nodes else "pools of several nodes"
        yield paragraph(f"{where}: {text}", INDENT * 2)
        amounts = _amounts(places)
        if amounts:
            yield paragraph(amounts, INDENT * 4)
        examples = ", ".join(nodes[:_MOST_DEVICES])
        if examples:
            yield paragraph(f"e.g. {examples}" if len(nodes) > _MOST_DEVICES else f"on {examples}", INDENT * 4)


def _amounts(places: Iterable[Stranded]) -> str:
    """Return what is left in all, e.g. `3 devices; sm 28 of 196 in 2 counter sets`."""
    devices = 0
    amounts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for place in places:
        devices += len(place.devices)
        for counter in place.counters:
            sums = amounts[counter.counter]
            sums[0], sums[1], sums[2] = sums[0] + counter.left, sums[1] + counter.total, sums[2] + 1
    parts = [number_of(devices, "device")] if devices else []
    parts += [
        f"{name} {quantity_text(amount)} of {quantity_text(total)} left in {number_of(count, 'counter set')}"
        for name, (amount, total, count) in sorted(amounts.items())
    ]
    return "; ".join(parts)
