"""The nodes that kube-scheduler's own filters allow a pod, kept while pods are placed one after the other."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.model.api_json import ModelError
from dra_extender.model.pod import Pod
from dra_extender.nodefit.node_fit import NodeFit
from dra_extender.nodefit.pod_needs import PodNeeds, read_pod_needs
from dra_extender.runtime.caches import LruCache

_MOST_KINDS: Final = 64
"""Pods with different needs whose candidates are kept."""


class Candidates(NamedTuple):
    """Nodes by name that a pod may go to, and the words of kube-scheduler's filters for the others."""

    nodes: Sequence[str]
    refused: Mapping[str, str]


class _Kind(NamedTuple):
    needs: PodNeeds
    refused: dict[str, str]


class CandidateNodes:
    """Candidates by what a pod needs; when a pod takes a node, that node alone is judged anew.

    Where nodes or pods could not be read, every node is a candidate.
    """

    def __init__(self, view: ClusterView) -> None:
        self._names = sorted(view.ledger.nodes)
        self._fit: NodeFit | None = view.node_fit
        self._kinds: LruCache[bytes, _Kind] = LruCache(_MOST_KINDS)

    @property
    def is_known(self) -> bool:
        """Whether nodes are judged."""
        return self._fit is not None

    def of(self, pod: Pod) -> Candidates:
        """The candidates of this pod."""
        needs = None if self._fit is None else self._fit.needs(pod.key)
        if needs is None:
            return Candidates(self._names, {})
        anonymous = msgspec.structs.replace(needs, key="", node="")
        kind = self._kinds.use(key := msgspec.json.encode(anonymous))
        if kind is None:
            kind = self._kinds[key] = _Kind(anonymous, {})
            for name in self._names:
                self._judge(kind, name)
        refused = kind.refused
        names = self._names if not refused else [name for name in self._names if name not in refused]
        return Candidates(names, refused)

    def add(self, data: bytes) -> None:
        """A pod is there, or has a node now (API JSON)."""
        if self._fit is None:
            return
        with suppress(ModelError):
            needs = read_pod_needs(data)
            self._fit.add(needs)
            if needs.node:
                for kind in self._kinds.values():
                    self._judge(kind, needs.node)

    def move(self, pod: Pod, node: str) -> None:
        """Count the pod on this node; with an empty name, take it off the node that it has."""
        needs = None if self._fit is None else self._fit.needs(pod.key)
        if self._fit is not None and needs is not None and needs.node != node:
            self._fit.add(msgspec.structs.replace(needs, node=node))
            for kind in self._kinds.values():
                self._judge(kind, node or needs.node)

    def _judge(self, kind: _Kind, node: str) -> None:
        found = () if self._fit is None else self._fit.refusals(kind.needs, node)
        if found:
            kind.refused[node] = found[0].said
        else:
            kind.refused.pop(node, None)
