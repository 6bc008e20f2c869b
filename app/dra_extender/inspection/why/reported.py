"""The reasons in the message of a pod's condition PodScheduled, one by one, as kube-scheduler puts them together (`FitError`)."""

import re
from collections.abc import Iterator
from typing import Final

from dra_extender.allocator.state.rejection import Code
from dra_extender.inspection.why.report import ReasonKind, ReportedReason
from dra_extender.scheduling.evaluation.result import FURTHER_REASONS

_HEAD: Final = re.compile(r"\d+/\d+ nodes are available: ?")
_TAIL: Final = re.compile(r"\.? *preemption: ")
_BEGIN: Final = re.compile(r"(?:^|, )(\d+) (?=\S)")
_MOST_READ: Final = 16_384
_MOST_REASONS: Final = 64
_DIGITS: Final = 9
_KINDS: Final = (
    ("insufficient ", ReasonKind.RESOURCES),
    ("too many pods", ReasonKind.RESOURCES),
    ("untolerated taint", ReasonKind.TAINTS),
    ("anti-affinity rules", ReasonKind.OTHER_PODS),
    ("pod affinity rules", ReasonKind.OTHER_PODS),
    ("topology spread", ReasonKind.OTHER_PODS),
    ("node affinity/selector", ReasonKind.AFFINITY),
    ("scheduler-enforced node affinity", ReasonKind.AFFINITY),
    ("requested node name", ReasonKind.AFFINITY),
    ("were unschedulable", ReasonKind.UNSCHEDULABLE),
    ("free ports", ReasonKind.PORTS),
    ("volume", ReasonKind.VOLUMES),
    ("persistentvolumeclaim", ReasonKind.VOLUMES),
    ("pvc", ReasonKind.VOLUMES),
    ("resourceclaim", ReasonKind.DEVICES),
    ("deviceclass", ReasonKind.DEVICES),
    ("device class", ReasonKind.DEVICES),
    ("cannot allocate all claims", ReasonKind.DEVICES),
)
_OF_DEVICES: Final = (*(each.value.removeprefix("claim ") for each in Code), FURTHER_REASONS)


def reported_reasons(message: str) -> tuple[ReportedReason, ...]:
    """The reasons in a message such as `0/3 nodes are available: 1 Insufficient cpu, 2 Too many pods. preemption: ...`.

    A message of another form is one reason; an empty one has none.  Of a very long message the beginning counts.
    """
    text = message[:_MOST_READ].strip()
    if not text:
        return ()
    head = _HEAD.match(text)
    if head is None:
        return (_reason(0, text),)
    body = _TAIL.split(text[head.end() :], maxsplit=1)[0].strip().removesuffix(".")
    return tuple(_listed(body))[:_MOST_REASONS] or ((_reason(0, body),) if body else ())


def _listed(body: str) -> Iterator[ReportedReason]:
    found = list(_BEGIN.finditer(body))
    if found and found[0].start() > 0:
        yield _reason(0, body[: found[0].start()])
    ends = [*(each.start() for each in found[1:]), len(body)]
    for each, end in zip(found, ends[: len(found)], strict=True):
        yield _reason(int(each.group(1)[:_DIGITS]), body[each.end() : end])


def _reason(nodes: int, text: str) -> ReportedReason:
    return ReportedReason(nodes=nodes, text=text, kind=_kind(text))


def _kind(text: str) -> ReasonKind:
    if any(each in text for each in _OF_DEVICES):
        return ReasonKind.DEVICES
    lower = text.lower()
    return next((kind for mark, kind in _KINDS if mark in lower), ReasonKind.OTHER)
