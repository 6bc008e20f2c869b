"""The answers to `why` without a pod, and about the devices of one node, as lines for a terminal of 80 columns."""

from collections.abc import Iterator

from dra_extender.allocator.state.rejection import Code
from dra_extender.inspection.lines import INDENT, WIDTH, age_text, beside_label, number_of, unknown_lines, wrapped
from dra_extender.inspection.unread import JUDGED
from dra_extender.inspection.why.device_lines import device_lines, gap_line
from dra_extender.inspection.why.node import DeviceVerdictReport, NodeDevicesReport, RequestReport
from dra_extender.inspection.why.tree import step_lines, subject_text
from dra_extender.inspection.why.waiting import WaitingCause, WaitingReport
from dra_extender.model.api_json import printable


def waiting_tree(report: WaitingReport, width: int = WIDTH) -> str:
    """The whole answer; ends with a line break."""
    return "\n".join(map(printable, _waiting_lines(report, width))) + "\n"


def _waiting_lines(report: WaitingReport, width: int) -> Iterator[str]:
    count = "no pod waits" if not report.pods else f"{report.pods} {'pod waits' if report.pods == 1 else 'pods wait'}"
    yield from unknown_lines(report.origin, JUDGED, None, width)
    place = f" in namespace {report.namespace}" if report.namespace else ""
    nodes = "" if report.nodes is None else f"; {number_of(report.nodes, 'node')}"
    yield from wrapped(f"{count}{place}{nodes}", "", width)
    labels = [number_of(each.pods, "pod") for each in report.causes]
    column = max(map(len, labels), default=0)
    for label, each in zip(labels, report.causes, strict=True):
        yield from _cause(f"{label:>{column}}  ", each, width)
    for note in report.notes:
        yield from wrapped(f"note: {note}", INDENT, width)


def _cause(label: str, row: WaitingCause, width: int) -> Iterator[str]:
    below = " " * len(label)
    wanted = f" ({row.wanted})" if row.wanted else ""
    lines = [f"{row.cause}: {row.text}{wanted}"]
    age = "" if row.age is None else f" {age_text(row.age)}"
    detail = f": {row.detail}" if row.detail else ""
    lines.append(f"{'oldest' if row.pods > 1 else 'pod'} {row.oldest}{age}{detail}")
    for number, line in enumerate(lines):
        for part in wrapped(line, "", width - len(label)):
            yield (label if number == 0 else below) + part
            label = below
    for step in row.next:
        yield from (below + each for each in step_lines(step, "", width - len(below)))


def node_tree(report: NodeDevicesReport, width: int = WIDTH) -> str:
    """The whole answer; ends with a line break."""
    return "\n".join(map(printable, _node_lines(report, width))) + "\n"


def _node_lines(report: NodeDevicesReport, width: int) -> Iterator[str]:
    suffices = "does not fit" if report.beside else "devices would suffice"
    verdict = suffices if report.fits else report.text or "does not fit"
    yield from wrapped(f"{report.pod} on {report.node}  {verdict}", "", width)
    if report.beside:
        yield from wrapped(f"beside devices: {', '.join(report.beside)}", INDENT, width)
    for pool in report.pools:
        yield from wrapped(f"incomplete: {gap_line(pool)}", INDENT, width)
    for request in report.requests:
        yield from _request(request, report.origin.taken_at, width)
    for note in report.notes:
        yield from wrapped(f"note: {note}", INDENT, width)


def _request(request: RequestReport, now: float, width: int) -> Iterator[str]:
    subject = subject_text(request.subject, request.claim, request.request)
    head = f"└ {subject} ({request.wanted}): {request.free} free by themselves"
    yield from wrapped(head, "", width)
    names = ["/".join(each.device.device.split("/")[1:]) for each in request.devices]
    column = max(map(len, names), default=0)
    for name, each in zip(names, request.devices, strict=True):
        yield from beside_label(f"{INDENT}{name:<{column}}  ", list(_device(each, now)), width)
    if not request.devices:
        yield f"{INDENT}no devices"


def _device(verdict: DeviceVerdictReport, now: float) -> Iterator[str]:
    groups = f" [{', '.join(verdict.device.declared)}]" if verdict.device.declared else ""
    lines = list(device_lines(verdict.device, now))
    if verdict.code != Code.NO_MATCH.name or not lines:
        yield (verdict.text or "ok") + groups
    yield from lines
