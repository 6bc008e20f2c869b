"""kube-scheduler's own filters in the embedded scheduler: objects that have not changed are neither read nor judged again."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec

from dra_extender.model.api_json import ModelError
from dra_extender.model.device_class import device_class_from
from dra_extender.nodefit.node_facts import UNLISTED, FitNode, fit_node_from, reported
from dra_extender.nodefit.node_fit import NodeFit
from dra_extender.nodefit.pod_needs import PodNeeds, pod_needs_from
from dra_extender.simulator.apiserver.objects import Json, StoredKind

_MOST_VERDICTS: Final = 50_000


class InTree(NamedTuple):
    """The nodes that kube-scheduler's own filters let the pod on, and the reasons against each other node."""

    fitting: list[str]
    reasons: Mapping[str, Sequence[str]]


class _Verdict(NamedTuple):
    """The reasons against a node, and the versions from which they follow: of the node, its pods and the classes."""

    versions: tuple[Any, ...]
    reasons: tuple[str, ...]


class InTreeFilters:
    """Judges the nodes of a cluster by the filters of `nodefit`."""

    def __init__(self, objects: Callable[[StoredKind], Sequence[Json]], *, classes_serve: bool) -> None:
        """`objects`: the objects of a kind, as the scheduler has seen them.

        `classes_serve`: extended resources that a device class backs are left to others where the node has none.
        """
        self._objects = objects
        self._classes_serve = classes_serve
        self._nodes: dict[str, tuple[str, FitNode | None]] = {}
        self._needs: dict[str, tuple[str, PodNeeds | None]] = {}
        self._verdicts: dict[tuple[bytes, str], _Verdict] = {}

    def judge(self, pod: Json) -> InTree:
        """Judge all nodes.

        Raises:
            ModelError: the pod cannot be read; the message names the field.
        """
        needs = pod_needs_from(pod)
        # Pods with the same needs share their verdicts.
        kind_of_pod = msgspec.json.encode(msgspec.structs.replace(needs, key=""))
        served = self._served()
        bound: dict[str, list[Json]] = {}
        for other in self._objects(StoredKind.POD):
            if node_name := other["spec"].get("nodeName"):
                bound.setdefault(node_name, []).append(other)
        result = InTree([], reasons := {})
        for node in self._objects(StoredKind.NODE):
            name = node["metadata"]["name"]
            pods = bound.get(name, ())
            versions = (_version(node), served, *map(_version, pods))
            verdict = self._verdicts.get((kind_of_pod, name))
            if verdict is None or verdict.versions != versions:
                verdict = _Verdict(versions, self._reasons(needs, node, pods, served))
                if len(self._verdicts) >= _MOST_VERDICTS:
                    self._verdicts.clear()
                self._verdicts[kind_of_pod, name] = verdict
            if verdict.reasons:
                reasons[name] = verdict.reasons
            else:
                result.fitting.append(name)
        return result

    def _served(self) -> frozenset[str]:
        classes = self._objects(StoredKind.CLASS) if self._classes_serve else ()
        return frozenset(name for each in classes for name in device_class_from(each).extended_resources)

    def _reasons(self, needs: PodNeeds, node: Json, pods: Sequence[Json], served: frozenset[str]) -> tuple[str, ...]:
        fit_node = self._fit_node(node)
        beside = (pod_needs for pod in pods if (pod_needs := self._pod_needs(pod)) is not None)
        fit = NodeFit(() if fit_node is None else (fit_node,), beside, served)
        return tuple(reported(fit.refusals(needs, node["metadata"]["name"])))

    def _fit_node(self, node: Json) -> FitNode | None:
        """Return None for a node that cannot be read.

        No kubelet reports what a node has, and stories are about devices: of what a manifest does not list there is plenty.
        """
        name, version = node["metadata"]["name"], _version(node)
        known = self._nodes.get(name)
        if known is None or known[0] != version:
            fit_node = None
            with suppress(ModelError):
                fit_node = fit_node_from(node, UNLISTED)
            known = self._nodes[name] = (version, fit_node)
        return known[1]

    def _pod_needs(self, pod: Json) -> PodNeeds | None:
        """Return None for a pod that cannot be read."""
        uid, version = pod["metadata"]["uid"], _version(pod)
        known = self._needs.get(uid)
        if known is None or known[0] != version or known[1] is None or known[1].node != pod["spec"].get("nodeName"):
            needs = None
            with suppress(ModelError):
                needs = pod_needs_from(pod)
            if len(self._needs) >= _MOST_VERDICTS:
                self._needs.clear()
            known = self._needs[uid] = (version, needs)
        return known[1]


def _version(thing: Json) -> str:
    """Return the version of an object; a copy of another cluster may hold objects that people wrote, without a version."""
    return str(thing["metadata"].get("resourceVersion"))
