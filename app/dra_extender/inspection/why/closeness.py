"""The one order in which `why` speaks of nodes that do not fit: those that come closest first, then those of the most nodes.

Reasons about devices come in the order of `CLOSEST_FIRST`.  A node that the pod may not use for its own state is farther than all
others that have devices of the kind; one that the pod's node selector excludes is farthest: devices there would not help.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from dra_extender.allocator.state.rejection import Code
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.why.report import ReasonKind, ReportedReason
from dra_extender.model.pod import Pod
from dra_extender.nodefit.node_facts import CLOSED, NodeFilter, NodeRefusal
from dra_extender.scheduling.evaluation.result import FilterResult, RejectionGroup

_FILTERS: Final = (
    NodeFilter.RESOURCES,
    NodeFilter.PORTS,
    NodeFilter.UNSCHEDULABLE,
    NodeFilter.TAINTS,
    NodeFilter.AFFINITY,
    NodeFilter.DELETING,
)
"""The filter that is easiest to pass first; a node selector says which nodes were meant."""
_KINDS: Final = (
    ReasonKind.RESOURCES,
    ReasonKind.PORTS,
    ReasonKind.VOLUMES,
    ReasonKind.OTHER_PODS,
    ReasonKind.OTHER,
    ReasonKind.UNSCHEDULABLE,
    ReasonKind.TAINTS,
    ReasonKind.AFFINITY,
    ReasonKind.DEVICES,
)
_OPEN, _CLOSED, _WITHOUT_DEVICES, _EXCLUDED = range(4)
"""How far a node is: first that which nothing but devices keeps the pod from."""
_NO_DEVICES: Final = frozenset({Code.NO_MATCH, Code.OTHER_NODE, Code.NO_DEVICES})

Distance = tuple[int, int, float]


def rejections_by_closeness(view: ClusterView, pod: Pod, result: FilterResult) -> Sequence[RejectionGroup]:
    """Return the rejected nodes by reason, the closest first."""
    groups, fit = result.why(), view.node_fit
    needs = None if fit is None else fit.needs(pod.key)
    if fit is None or needs is None or len(groups) <= 1:
        return groups
    ranks: dict[str, int] = {}
    for node, text in result.texts.items():
        if ranks.get(text) != _OPEN:
            filters = {each.filter for each in fit.refusals(needs, node)}
            rank = _EXCLUDED if NodeFilter.AFFINITY in filters else _CLOSED if filters & CLOSED else _OPEN
            ranks[text] = min(rank, ranks.get(text, rank))

    def rank_of(group: RejectionGroup) -> int:
        without = _WITHOUT_DEVICES if group.rejection.code in _NO_DEVICES else _OPEN
        return max(ranks.get(group.rejection.summary, _OPEN), without)

    return sorted(groups, key=rank_of)


def distance(refusals: Sequence[NodeRefusal]) -> Distance:
    """Return how far a node is from letting the pod in beside devices: the hardest filter, their number, the amounts lacking."""
    hardest = max((_FILTERS.index(each.filter) for each in refusals), default=-1)
    lacking = sum((each.needed - each.left) / each.needed for each in refusals if each.needed)
    return hardest, len(refusals), lacking


def refused_by_closeness(refusals: Mapping[str, Sequence[NodeRefusal]]) -> Sequence[str]:
    """Return the nodes, the closest first; of equally close ones the first by name."""
    return sorted(refusals, key=lambda name: (*distance(refusals[name]), name))


def reported_by_closeness(reported: Sequence[ReportedReason]) -> Sequence[ReportedReason]:
    """Return the reasons that kube-scheduler reports, those of the closest nodes first."""
    return sorted(reported, key=lambda reason: (_KINDS.index(reason.kind), -reason.nodes))
