"""kube-scheduler's message about a pod that fits no node (`FitError`), reason by reason.

Such as `0/3 nodes are available: 1 Insufficient cpu, 2 Too many pods. preemption: 0/3 nodes are available: ...`.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final

from dra_extender.allocator.state.reasons import Code
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
_OF_DEVICES: Final = (*(code.value.removeprefix("claim ") for code in Code), FURTHER_REASONS)


def reported_reasons(message: str) -> tuple[ReportedReason, ...]:
    """Return the reasons in a message; one of another form is one reason, and an empty one has none.

    Of a very long message the beginning counts.
    """
    text = message[:_MOST_READ].strip()
    head = _HEAD.match(text)
    if head is None:
        return (_reason(0, text),) if text else ()
    body = _TAIL.split(text[head.end() :], maxsplit=1)[0].strip().removesuffix(".")
    return tuple(_listed(body))[:_MOST_REASONS] or ((_reason(0, body),) if body else ())


def reworded(message: str, reworded_reason: Callable[[str], str]) -> str:
    """Return the message with other words in the place of its reasons, without what it says of preemption."""
    head = _HEAD.match(message[:_MOST_READ].strip())
    told = (f"{reason.nodes or ''} {reworded_reason(reason.text)}".strip() for reason in reported_reasons(message))
    return f"{'' if head is None else head.group()}{', '.join(told)}{'' if head is None else '.'}"


def mark_of(reason: str) -> tuple[str, ReasonKind]:
    """Return the words by which the kind of a reason is told, and the kind; no words if it is of no known kind."""
    for text in _OF_DEVICES:
        if text in reason:
            return text, ReasonKind.DEVICES
    lower = reason.lower()
    return next(((mark, kind) for mark, kind in _KINDS if mark in lower), ("", ReasonKind.OTHER))


def _listed(body: str) -> Iterator[ReportedReason]:
    found = list(_BEGIN.finditer(body))
    if found and found[0].start() > 0:
        yield _reason(0, body[: found[0].start()])
    ends = [*(begin.start() for begin in found[1:]), len(body)]
    for begin, end in zip(found, ends[: len(found)], strict=True):
        yield _reason(int(begin.group(1)[:_DIGITS]), body[begin.end() : end])


def _reason(nodes: int, text: str) -> ReportedReason:
    return ReportedReason(nodes=nodes, text=text, kind=mark_of(text)[1])
