"""Links in the tree of a pod: nodes, devices and pods that its report names and of which the page has a view."""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from dra_extender.inspection.holders import Holder
from dra_extender.inspection.text.why import place_of, tree
from dra_extender.inspection.why.report import (
    ConstraintValues,
    DeviceCount,
    EndedPod,
    GangMembers,
    NearestDevice,
    NextStep,
    NodeReason,
    NodeScore,
    WhyReport,
)
from dra_extender.model.api_json import printable
from dra_extender.model.device import device_id_of
from dra_extender.page.rendering import Link, device_anchor

_WIDTH: Final = 100
_MOST_LINKS: Final = 500


def linked_tree(report: WhyReport) -> Sequence[Sequence[str | Link]]:
    """Return the lines that `why` prints, each in parts: text, and links."""
    links: dict[str, Link] = {}
    for link in islice(_links(report), _MOST_LINKS):
        if link.text and link.query != {"pod": report.pod}:
            links.setdefault(printable(link.text), link)
    lines = tree(report, _WIDTH).rstrip("\n").split("\n")
    if not links:
        return [[line] for line in lines]
    names = "|".join(re.escape(name) for name in sorted(links, key=len, reverse=True))
    # A name is no part of a longer one.
    name = re.compile(rf"(?<![\w./-])({names})(?![\w/-]|\.\w)")
    return [[links[part] if place % 2 else part for place, part in enumerate(name.split(line))] for line in lines]


def node_link(name: str) -> Link:
    return Link(name, "node", {"name": name})


def device_link(text: str, node: str, device: str) -> Link:
    """Return a link to a device (`driver/pool/device`) on the view of a node."""
    return Link(text, "node", {"name": node}, device_anchor(*device_id_of(device)))


def pod_link(name: str) -> Link:
    """Return a link to the tree of a pod (`namespace/name`)."""
    return Link(name, "pending", {"pod": name}, "pod")


def _links(report: WhyReport) -> Iterator[Link]:
    yield from map(node_link, (report.node, *report.usable))
    for device in report.devices:
        yield device_link(device.device, report.node, device.device)
    namespace = report.pod.partition("/")[0]
    for value in _structs(report):
        match value:
            case NodeReason(examples=nodes) | NextStep(nodes=nodes):
                yield from map(node_link, nodes)
            case NearestDevice():
                yield device_link(place_of(value), value.node, value.device)
            case DeviceCount(node=node) | ConstraintValues(node=node) | NodeScore(node=node):
                yield node_link(node)
            case Holder(consumers=consumers):
                yield from (pod_link(name) for name in consumers if " " not in name)
            case EndedPod(pod=pod):
                yield pod_link(pod)
            case GangMembers(names=names, nodes=nodes):
                yield from map(node_link, nodes)
                yield from (pod_link(f"{namespace}/{name}")._replace(text=name) for name in names)


def _structs(value: Any) -> Iterator[msgspec.Struct]:
    """Yield all structs within a struct or a tuple."""
    if isinstance(value, msgspec.Struct):
        yield value
        value = tuple(getattr(value, name) for name in value.__struct_fields__)
    if isinstance(value, tuple):
        for part in value:
            yield from _structs(part)
