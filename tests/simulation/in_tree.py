"""kube-scheduler's own filters over what a view has seen, where what has not changed is neither read nor judged again."""

from typing import Any, Final, NamedTuple

import msgspec
from dra_extender.model.device_class import device_class_from
from dra_extender.nodefit.node_facts import UNLISTED, FitNode, fit_node_from, reported
from dra_extender.nodefit.node_fit import NodeFit
from dra_extender.nodefit.pod_needs import pod_needs_from
from dra_extender.simulator.apiserver.objects import Json, StoredKind

from tests.simulation.views import View

_MOST: Final = 50_000
"""Verdicts that are kept; all are forgotten when there are more."""


class _Verdict(NamedTuple):
    """Why a pod may not go to a node, and what that was said of: versions of the node and of the pods on it, and classes."""

    state: tuple[Any, ...]
    reasons: tuple[str, ...]


class InTreeFilters:
    """Judges as `dra_extender.simulator.scheduler.loop.judged` does with `classes_serve`."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._nodes: dict[str, tuple[str, FitNode]] = {}
        self._verdicts: dict[tuple[bytes, str], _Verdict] = {}

    def judge(self, pod: Json) -> tuple[list[str], dict[str, tuple[str, ...]]]:
        """Return the nodes that the pod may go to, and the reasons against each other one."""
        needs = pod_needs_from(pod)
        # Pods that need the same share their verdicts.
        alike = msgspec.json.encode(msgspec.structs.replace(needs, key=""))
        served = frozenset(
            name for each in self._view.all(StoredKind.CLASS) for name in device_class_from(each).extended_resources
        )
        bound: dict[str, list[Json]] = {}
        for other in self._view.all(StoredKind.POD):
            if other["spec"].get("nodeName"):
                bound.setdefault(other["spec"]["nodeName"], []).append(other)
        fitting, reasons = [], {}
        for node in self._view.all(StoredKind.NODE):
            name = node["metadata"]["name"]
            beside = bound.get(name, ())
            state = (_version(node), served, *map(_version, beside))
            known = self._verdicts.get((alike, name))
            if known is None or known.state != state:
                fit = NodeFit([self._fit_node(node)], map(pod_needs_from, beside), served)
                known = _Verdict(state, tuple(reported(fit.refusals(needs, name))))
                self._keep((alike, name), known)
            if known.reasons:
                reasons[name] = known.reasons
            else:
                fitting.append(name)
        return fitting, reasons

    def _fit_node(self, node: Json) -> FitNode:
        name, version = node["metadata"]["name"], _version(node)
        known = self._nodes.get(name)
        if known is None or known[0] != version:
            known = self._nodes[name] = (version, fit_node_from(node, UNLISTED))
        return known[1]

    def _keep(self, place: tuple[bytes, str], verdict: _Verdict) -> None:
        if len(self._verdicts) >= _MOST:
            self._verdicts.clear()
        self._verdicts[place] = verdict


def _version(thing: Json) -> str:
    return str(thing["metadata"]["resourceVersion"])
