"""The answer to `why POD --node NODE` as lines for a terminal of 80 columns: every device by claim and request."""

from collections.abc import Iterator
from typing import Final

from dra_extender.allocator.state.rejection import Code
from dra_extender.inspection.holders import printable
from dra_extender.inspection.why.device_lines import device_lines, gap_line
from dra_extender.inspection.why.node import DeviceVerdictReport, NodeDevicesReport, RequestReport
from dra_extender.inspection.why.tree import WIDTH, beside_label, wrapped

_INDENT: Final = "  "


def node_tree(report: NodeDevicesReport, width: int = WIDTH) -> str:
    """The whole answer; ends with a line break."""
    return "\n".join(map(printable, _lines(report, width))) + "\n"


def _lines(report: NodeDevicesReport, width: int) -> Iterator[str]:
    verdict = "fits" if report.fits else report.text or "does not fit"
    yield from wrapped(f"{report.pod} on {report.node}  {verdict}", "", width)
    if report.beside:
        yield from wrapped(f"beside devices: {', '.join(report.beside)}", _INDENT, width)
    for pool in report.pools:
        yield from wrapped(f"incomplete: {gap_line(pool)}", _INDENT, width)
    for request in report.requests:
        yield from _request(request, report.origin.taken_at, width)
    for note in report.notes:
        yield from wrapped(f"note: {note}", _INDENT, width)


def _request(request: RequestReport, now: float, width: int) -> Iterator[str]:
    head = f"└ claim {request.claim}, request {request.request} ({request.wanted}): {request.free} free by themselves"
    yield from wrapped(head, "", width)
    names = ["/".join(each.device.device.split("/")[1:]) for each in request.devices]
    column = max(map(len, names), default=0)
    for name, each in zip(names, request.devices, strict=True):
        yield from beside_label(f"{_INDENT}{name:<{column}}  ", list(_device(each, now)), width)
    if not request.devices:
        yield f"{_INDENT}no devices"


def _device(verdict: DeviceVerdictReport, now: float) -> Iterator[str]:
    groups = f" [{', '.join(verdict.device.declared)}]" if verdict.device.declared else ""
    lines = list(device_lines(verdict.device, now))
    if verdict.code != Code.NO_MATCH.name or not lines:
        yield (verdict.text or "ok") + groups
    yield from lines
