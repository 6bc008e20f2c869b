"""kube-scheduler's own filters in the embedded scheduler: objects that have not changed are neither read nor judged again."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from dra_extender.model.api_json import ModelError
from dra_extender.model.device_class import device_class_from
from dra_extender.nodefit.node_fit import UNLISTED, NodeFit, fit_node_from, reported
from dra_extender.nodefit.pod_needs import pod_needs_from
from dra_extender.simulator.apiserver.objects import Json, StoredKind, part

T = TypeVar("T")

_MOST_VERDICTS: Final = 50_000
"""Verdicts that are kept; all are forgotten when there are more."""
_FEW: Final = 100
"""So many objects that are gone are kept in any case."""


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
        # No kubelet reports what a node has, and stories are about devices: of what a manifest does not list there is plenty.
        self._fit_node = _ReadOnce(lambda node: fit_node_from(node, UNLISTED))
        self._pod_needs = _ReadOnce(pod_needs_from)
        self._verdicts: dict[tuple[bytes, str], _Verdict] = {}

    def judge(self, pod: Json) -> InTree:
        """Judge all nodes.

        Raises:
            ModelError: the pod cannot be read; the message names the field.
        """
        needs = pod_needs_from(pod)
        # Pods with the same needs share their verdicts.
        kind_of_pod = msgspec.json.encode(msgspec.structs.replace(needs, key=""))
        classes = self._objects(StoredKind.CLASS) if self._classes_serve else ()
        served = frozenset(
            name for device_class in classes for name in device_class_from(device_class).extended_resources
        )
        bound: dict[str, list[Json]] = {}
        for stored_pod in self._objects(StoredKind.POD):
            if node_name := stored_pod["spec"].get("nodeName"):
                bound.setdefault(node_name, []).append(stored_pod)
        nodes = self._objects(StoredKind.NODE)
        self._fit_node.forget_unless(len(nodes))
        self._pod_needs.forget_unless(sum(map(len, bound.values())))
        result = InTree([], reasons := {})
        for node in nodes:
            name = node["metadata"]["name"]
            pods = bound.get(name, ())
            versions = (_version(node), served, *map(_version, pods))
            verdict = self._verdicts.get((kind_of_pod, name))
            if verdict is None or verdict.versions != versions:
                fit_node = self._fit_node(node)
                other_needs = (pod_needs for pod in pods if (pod_needs := self._pod_needs(pod)) is not None)
                fit = NodeFit(() if fit_node is None else (fit_node,), other_needs, served)
                verdict = _Verdict(versions, tuple(reported(fit.refusals(needs, node["metadata"]["name"]))))
                if len(self._verdicts) >= _MOST_VERDICTS:
                    self._verdicts.clear()
                self._verdicts[kind_of_pod, name] = verdict
            if verdict.reasons:
                reasons[name] = verdict.reasons
            else:
                result.fitting.append(name)
        return result


class _ReadOnce(Generic[T]):
    """Reads objects, each as often as it changes."""

    def __init__(self, read: Callable[[Json], T]) -> None:
        self._read = read
        self._known: dict[str, tuple[tuple[str, str], T | None]] = {}

    def __call__(self, item: Json) -> T | None:
        """Return None for an object that cannot be read."""
        # A scheduler assumes that a pod is on a node before the pod has another version.
        state = (_version(item), str(part(item, "spec").get("nodeName")))
        uid = item["metadata"]["uid"]
        cached = self._known.get(uid)
        if cached is None or cached[0] != state:
            value = None
            with suppress(ModelError):
                value = self._read(item)
            cached = self._known[uid] = (state, value)
        return cached[1]

    def forget_unless(self, count: int) -> None:
        """Forget all objects if most of them are gone: only so many objects are there."""
        if len(self._known) > 2 * count + _FEW:
            self._known.clear()


def _version(item: Json) -> str:
    """Return the version of an object; a copy of another cluster may hold objects that people wrote, without a version."""
    return str(item["metadata"].get("resourceVersion"))
