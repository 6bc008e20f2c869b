"""The answers to `why` as lines for a terminal of 80 columns; lines are wrapped and never cut."""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import msgspec

from dra_extender.allocator.state.reasons import Code
from dra_extender.cel.explain.values import quantity_text
from dra_extender.inspection.holders import holder_text
from dra_extender.inspection.lines import (
    INDENT,
    Part,
    age_text,
    as_text,
    beside_label,
    beside_labels,
    clock_text,
    paragraph,
    paragraphs,
    unknown_parts,
)
from dra_extender.inspection.why.node import NodeDevicesReport
from dra_extender.inspection.why.report import (
    DEVICES_ONLY,
    AwaitedDevice,
    Branch,
    CapacityNeed,
    Cause,
    CounterNeed,
    EndedPod,
    GangReport,
    HolderShare,
    NearestDevice,
    NextStep,
    NodeReason,
    NodeScore,
    PodDevice,
    PoolGap,
    PreferredAttribute,
    ReasonKind,
    UnmetSelector,
    WhyReport,
)
from dra_extender.inspection.why.waiting import WaitingCause, WaitingReport
from dra_extender.model.api_json import listed, number_of

_IN_SECONDS: Final = 600


@as_text
def tree(report: WhyReport) -> Iterator[Part]:
    yield from unknown_parts(report.origin)
    waits = not (report.node or report.awaited or report.cause in (Cause.FINISHED, Cause.DELETING))
    waiting = f"Pending {age_text(report.age)}, " if waits and report.age is not None else ""
    scheduler = f"{report.scheduler}, " if report.scheduler and not report.awaited else ""
    yield paragraph(f"{report.pod}  {waiting}{scheduler}{report.summary}")
    yield from _reported(report)
    if report.scheduler_absent:
        yield paragraph(report.scheduler_absent, INDENT)
    for event in report.events:
        age = "" if event.age is None else f"{age_text(event.age)} ago, "
        yield paragraph(f"Event {age}{event.subject}: {event.reason}: {event.message}", INDENT)
    if report.usable:
        nodes = listed(report.usable)
        unbound = f"; not bound yet: {'; '.join(report.unbound)}" if report.unbound else ""
        fits = (report.unbound or report.scheduler_absent) and not report.unjudged
        yield paragraph(f"{'fits' if fits else 'has its devices on'} {nodes}{unbound}", INDENT)
        if report.unjudged and not report.reported:
            unjudged = ", ".join(unjudged.text for unjudged in report.unjudged)
            yield paragraph(f"kube-scheduler also looks at {unjudged}, which is not judged here", INDENT)
    yield from labelled(report.beside, report.origin.taken_at)
    if report.gang is not None:
        yield from gang_parts(report.gang)
    for device in report.devices:
        yield from _allocated(device, report.origin.taken_at)
    yield from paragraphs(map(_preferred_text, report.preferred), INDENT)
    if report.scores:
        yield paragraph(_scores_text(report.scores), INDENT)
    yield from paragraphs((f"its kubelet would not start it: {refused}" for refused in report.refused), INDENT)
    for awaited in report.awaited:
        yield from _awaited(awaited, report)
    yield from branch_parts(report.branches, report.origin.taken_at)
    for step in report.next:
        yield from _step(step, in_gang=report.gang is not None)
    yield from paragraphs((f"note: {note}" for note in report.notes), INDENT)


def branch_parts(branches: Sequence[Branch], now: float) -> Iterator[Part]:
    """Yield the reasons by claim and request; `now` is when the objects were read, seconds since the epoch."""
    for branch in branches:
        if branch.claim:
            option_text = f" ({branch.wanted})" if branch.wanted else ""
            yield paragraph(f"└ {subject_text(branch.subject, branch.claim, branch.request)}{option_text}")
        yield from labelled((*branch.reasons, *branch.after_correction), now)


def subject_text(subject: str, claim: str, request: str) -> str:
    """Return what asks for devices: `claim gpu, request gpu`, or the subject where the pod's spec has no such claim."""
    return subject or (f"claim {claim}, request {request}" if request else f"claim {claim}")


def _reported(report: WhyReport) -> Iterator[Part]:
    """Yield what kube-scheduler reports, unless it is only about devices: the branches say more of that."""
    about = [reason for reason in report.reported if reason.kind is not ReasonKind.DEVICES or not report.branches]
    if not about or any(event.message == report.said for event in report.events):
        return
    texts = [f"{reason.nodes} {reason.text}" if reason.nodes else reason.text for reason in about]
    yield paragraph(f"kube-scheduler reports: {', '.join(texts)}", INDENT)


def labelled(reasons: Sequence[NodeReason], now: float) -> Iterator[Part]:
    """Yield reasons with their numbers of nodes; `now` is when the objects were read, seconds since the epoch."""
    return beside_labels([(number_of(reason.nodes, "node"), list(_reason(reason, now))) for reason in reasons])


def _reason(reason: NodeReason, now: float) -> Iterator[str]:
    nearest = reason.nearest
    groups = f" [{', '.join(nearest.declared)}]" if nearest is not None and nearest.declared else ""
    yield reason.text if nearest is None else f"{reason.text}; nearest {place_of(nearest)}{groups}"
    if reason.count is not None:
        count = reason.count
        matching = f", which has {count.meant} that match" if 0 < count.meant < count.wanted else ""
        yield f"{min(count.available, count.wanted)} of {count.wanted} devices on {count.node}{matching}"
    if nearest is not None:
        yield from device_lines(nearest, now)
    if reason.constraint is not None:
        constraint = reason.constraint
        counts = [f"{count} with {value or 'no value'}" for value, count in constraint.values]
        yield f"{constraint.constraint} on {constraint.node}: {', '.join(counts) or 'no device is free'}"
    if reason.pool is not None:
        yield gap_line(reason.pool)
    yield from reason.further


def gang_parts(gang: GangReport) -> Iterator[Part]:
    """Yield the members of a gang by state."""
    states = [member.state.value for member in gang.members]
    names = [_names(member.names) for member in gang.members]
    columns = max(map(len, states), default=0), min(_NAMES_COLUMN, max(map(len, names), default=0))
    for place, (member, state, name) in enumerate(zip(gang.members, states, names, strict=True)):
        mark = "└" if place == len(gang.members) - 1 else "├"
        where = f"on {_names(tuple(dict.fromkeys(member.nodes)))}" if member.nodes else ""
        until = "" if member.until is None else f"until {clock_text(member.until)}"
        text = " ".join(part for part in (member.text, where, until) if part)
        yield partial(beside_label, f"{mark} {state:<{columns[0]}}  {name:<{columns[1]}}  ", [text])


def _names(names: Sequence[str]) -> str:
    """`train-0..4` of names that differ only in a number and count on; else the first names and how many more there are."""
    if len(names) > 1:
        stem = names[0].rstrip("0123456789")
        numbers = [name.removeprefix(stem) for name in names]
        if all(name.startswith(stem) for name in names) and all(number.isdecimal() for number in numbers):
            first = int(numbers[0])
            if [int(number) for number in numbers] == list(range(first, first + len(names))):
                return f"{names[0]}..{numbers[-1]}"
    return listed(names)


_NAMES_COLUMN: Final = 16


def _awaited(awaited: AwaitedDevice, report: WhyReport) -> Iterator[Part]:
    subject = subject_text(awaited.subject, awaited.claim, awaited.request)
    yield paragraph(f"└ {subject}: {awaited.device}")
    names = ", ".join(awaited.conditions)
    seconds = awaited.limit - report.origin.taken_at
    shown = f"{int(seconds)}s" if seconds < _IN_SECONDS else age_text(seconds)
    assumed = awaited.assumed_timeout
    doubt = "" if assumed is None else f" if the binding timeout is {assumed:g}s, the default"
    limit = f"; limit in {shown}{doubt}" if seconds > 0 else f"; the limit has passed{doubt}"
    text = {
        "failed": f"reports {names}{': ' + awaited.message if awaited.message else ''}",
        "timed out": f"waits for {names}, not reported in time{doubt}",
    }.get(awaited.state, f"waits for {names}, not reported yet{limit}")
    yield paragraph(text, INDENT)


def _allocated(device: PodDevice, now: float) -> Iterator[Part]:
    age = "" if device.since is None else f", allocated {age_text(max(0.0, now - device.since))} ago"
    asks = f"└ {device.subject} ({device.claim}), request {device.request}: {device.device}{age}"
    yield paragraph(asks)
    for condition in device.conditions:
        details = "".join(f": {text}" for text in (condition.reason, condition.message) if text)
        yield paragraph(f"driver reports {condition.type} {condition.status}{details}", INDENT)


def _preferred_text(preferred: PreferredAttribute) -> str:
    """E.g. `claim gpu prefers devices that agree in example.com/numa: they do not (1 x 0, 1 x 1)`."""
    values = ", ".join(f"{count} x {value or 'without it'}" for value, count in preferred.values)
    agree = "they do" if preferred.agree else "they do not"
    return f"claim {preferred.claim} prefers devices that agree in {preferred.attribute}: {agree} ({values})"


def _scores_text(scores: Sequence[NodeScore]) -> str:
    """E.g. `why n1: prioritize gives it 10 (1 of 1 counter set in use) of 10 now, the best other node, n2, 5`."""
    own, *other_scores = scores
    if not other_scores:
        return f"why {own.node}: its devices fit on no other node now"
    if not any(score.score for score in scores):
        return f"why {own.node}: prioritize rates it no better than {other_scores[0].node} now: kube-scheduler's own scores decide"
    texts = []
    for score in scores:
        terms = [f"{number_of(score.alternatives, 'point')} for early alternatives"] if score.alternatives else []
        terms += ["waits for binding conditions"] if score.waits else []
        if score.preferences:
            preferred = number_of(score.preferences, "preferred attribute")
            terms.append(f"devices agree in {score.aligned} of {preferred}")
        if score.loss is not None:
            terms.append(f"costs the expected pods {score.loss:.3f} devices")
        elif score.counter_sets:
            terms.append(f"{score.joined} of {number_of(score.counter_sets, 'counter set')} in use")
        texts.append(f"{score.score}" + (f" ({', '.join(terms)})" if terms else ""))
    return f"why {own.node}: prioritize gives it {texts[0]} of 10 now, the best other node, {other_scores[0].node}, {texts[1]}"


def _step(step: NextStep, *, in_gang: bool) -> Iterator[Part]:
    """Yield a next step, its effect, and the price of each pod that it ends."""
    effect = effect_text(step, in_gang=in_gang)
    yield paragraph(f"next  {step.text}{effect and f'  {effect}'}", INDENT)
    yield from paragraphs(ended_texts(step), _BELOW_NEXT)


def effect_text(step: NextStep, *, in_gang: bool) -> str:
    """Return where a step helps, or that it helps a gang, and in brackets what it was not tried with; empty if it was not tried."""
    if not step.nodes:
        return ""
    effect = "ok, the gang fits" if in_gang else f"ok on {', '.join(step.nodes)}"
    if step.verified != DEVICES_ONLY:
        return effect
    untried = [_ELSE if kind is ReasonKind.OTHER else kind.value for kind in step.untried]
    return f"{effect} (not tried: {', '.join(untried)})" if untried else f"{effect} ({DEVICES_ONLY})"


def ended_texts(step: NextStep) -> Sequence[str]:
    """Return each of the first pods that a step ends with its price, and how many more there are."""
    texts = [f"{end.pod}: {_price_text(end)}" for end in step.ends[:_MOST_ENDED]]
    more = len(step.ends) - _MOST_ENDED
    return [*texts, f"and {more} more pods"] if more > 0 else texts


def _price_text(ended: EndedPod) -> str:
    """E.g. `Job train-1, priority 0, 3h old; kube-scheduler preempts no pod for devices`."""
    age = "" if ended.age is None else f", {age_text(ended.age)} old"
    gang = f"; member of gang {ended.gang}" if ended.gang else ""
    budget = f"; PodDisruptionBudget {ended.budget} forbids its eviction now" if ended.budget else ""
    preemption = f"; {ended.preemption}" if ended.preemption else ""
    return f"{ended.owner or 'no owner'}, priority {ended.priority}{age}{gang}{budget}{preemption}"


_MOST_HOLDERS: Final = 4
_MOST_ENDED: Final = 4
_ELSE: Final = "what else kube-scheduler reports"
_BELOW_NEXT: Final = INDENT + " " * len("next  ")


def place_of(nearest: NearestDevice) -> str:
    """`node-3/gpu-0`; the pool is named where it is not the node."""
    _, pool, device = nearest.device_id
    return f"{nearest.node}/{device}" if pool == nearest.node else f"{nearest.node}/{pool}/{device}"


def device_lines(nearest: NearestDevice, now: float) -> Iterator[str]:
    """Yield what keeps the device away; `now` is when the objects were read, seconds since the epoch."""
    if nearest.shortage is not None:
        yield from _counter_lines(nearest.shortage, nearest.holders, now)
    elif nearest.counter_set:
        yield from _group_lines(nearest, now)
    elif nearest.capacity is not None:
        for lacking in (nearest.capacity, *nearest.further_capacities):
            yield f"{lacking.capacity}: {_need_text(lacking)}"
            yield from _held_lines(nearest.holders, lacking.capacity, now)
    else:
        if nearest.detail:
            yield _short(nearest, nearest.detail) + _selector_text(nearest.selector)
        for selector in nearest.further_selectors:
            yield _short(nearest, selector.detail) + _selector_text(selector)
        yield from _held_lines(nearest.holders, None, now)


def _counter_lines(need: CounterNeed, holders: Sequence[HolderShare], now: float) -> Iterator[str]:
    yield f"{need.counter_set} {need.counter}: {_need_text(need)}"
    yield from _held_lines(holders, need.counter, now)


def _need_text(need: CounterNeed | CapacityNeed) -> str:
    return f"needs {quantity_text(need.needed)}, {quantity_text(need.left)} of {quantity_text(need.total)} left"


def gap_line(pool: PoolGap) -> str:
    """E.g. `gpu.example.com/node-3: 1 of 2 slices of generation 4`."""
    return f"{pool.driver}/{pool.pool}: {pool.slices} of {pool.expected} slices of generation {pool.generation}"


def _selector_text(selector: UnmetSelector | None) -> str:
    return "" if selector is None else f" ({selector.origin} selector {selector.number})"


def _short(nearest: NearestDevice, text: str) -> str:
    """Return a detail with the names of only the device's own attributes and capacities."""
    driver = re.escape(nearest.device.partition("/")[0])
    # A hint says where something else is.
    return re.sub(rf'(?<!did you mean )device\.(?:attributes|capacity)\["{driver}"\]\.', "", text)


def _group_lines(nearest: NearestDevice, now: float) -> Iterator[str]:
    """Yield whose groups are in force, and whether the counters would suffice for the device."""
    in_force = nearest.in_force
    state = (
        "is used without groups"
        if in_force is None
        else f"is in [{', '.join(in_force)}]"
        if in_force
        else "has holders whose groups contradict each other"
    )
    owners = [_owner_text(holder, now) for holder in nearest.holders[:_MOST_HOLDERS]]
    more = len(nearest.holders) - _MOST_HOLDERS
    yield f"{nearest.counter_set} {state}: {'; '.join(owners)}{f' and {more} more' if more > 0 else ''}"
    if nearest.sufficient:
        remaining = [
            f"{need.counter} {quantity_text(need.left)} of {quantity_text(need.total)} left"
            for need in nearest.sufficient
        ]
        yield f"counters would suffice: {', '.join(remaining)}"
    if nearest.insufficient is not None:
        also, *held = _counter_lines(nearest.insufficient, nearest.drawing, now)
        yield from (f"also {also}", *held)


def _owner_text(share: HolderShare, now: float) -> str:
    """`claim desk-gpu, pod vdi/desk-4, 3h`."""
    holder = share.holder
    parts = [f"claim {holder.claim.partition('/')[2]}"]
    parts += [consumer if " " in consumer else f"pod {consumer}" for consumer in holder.consumers]
    parts += ["claim deleted"] if holder.orphaned else [holder.leaving] if holder.leaving else []
    parts += ["being allocated"] if holder.pending else []
    if holder.since is not None:
        parts.append(age_text(max(0.0, now - holder.since)))
    return ", ".join(parts)


def _held_lines(holders: Sequence[HolderShare], counter: str | None, now: float) -> Iterator[str]:
    if not holders:
        return
    yield f"held by {listed([_share_text(holder, counter, now) for holder in holders], _MOST_HOLDERS)}"


def _share_text(share: HolderShare, counter: str | None, now: float) -> str:
    amount = dict(share.counters).get(counter) if counter is not None else None
    if amount is None:
        return holder_text(share.holder, now)
    without_age = holder_text(msgspec.structs.replace(share.holder, since=None), now)
    since = share.holder.since
    age = "" if since is None else f" for {age_text(max(0.0, now - since))}"
    return f"{without_age} {quantity_text(amount)}{age}"


@as_text
def waiting_tree(report: WaitingReport) -> Iterator[Part]:
    count = "no pod waits" if not report.pods else f"{report.pods} {'pod waits' if report.pods == 1 else 'pods wait'}"
    yield from unknown_parts(report.origin)
    place = f" in namespace {report.namespace}" if report.namespace else ""
    nodes = "" if report.nodes is None else f"; {number_of(report.nodes, 'node')}"
    yield paragraph(f"{count}{place}{nodes}")
    labels = [number_of(cause.pods, "pod") for cause in report.causes]
    column = max(map(len, labels), default=0)
    for label, cause in zip(labels, report.causes, strict=True):
        yield from _cause_lines(f"{label:>{column}}  ", cause)
    yield from paragraphs((f"note: {note}" for note in report.notes), INDENT)


def _cause_lines(label: str, row: WaitingCause) -> Iterator[Part]:
    option_text = f" ({row.wanted})" if row.wanted else ""
    age = "" if row.age is None else f" {age_text(row.age)}"
    detail = f": {row.detail}" if row.detail else ""
    oldest = f"{'oldest' if row.pods > 1 else 'pod'} {row.oldest}{age}{detail}"
    yield partial(beside_label, label, [f"{row.cause}: {row.text}{option_text}", oldest])


@as_text
def node_tree(report: NodeDevicesReport) -> Iterator[Part]:
    suffices = "does not fit" if report.beside else "devices would suffice"
    verdict = suffices if report.fits else report.text or "does not fit"
    yield paragraph(f"{report.pod} on {report.node}  {verdict}")
    if report.beside:
        yield paragraph(f"beside devices: {', '.join(report.beside)}", INDENT)
    for pool in report.pools:
        yield paragraph(f"incomplete: {gap_line(pool)}", INDENT)
    for request in report.requests:
        subject = subject_text(request.subject, request.claim, request.request)
        yield paragraph(f"└ {subject} ({request.wanted}): {request.free} free by themselves")
        rows: list[tuple[str, list[str]]] = []
        for row in request.devices:
            groups = f" [{', '.join(row.device.declared)}]" if row.device.declared else ""
            lines = list(device_lines(row.device, report.origin.taken_at))
            if row.code != Code.NO_MATCH.name or not lines:
                lines.insert(0, (row.text or "ok") + groups)
            rows.append((row.device.device.partition("/")[2], lines))
        yield from beside_labels(rows)
        if not request.devices:
            yield f"{INDENT}no devices"
    yield from paragraphs((f"note: {note}" for note in report.notes), INDENT)
