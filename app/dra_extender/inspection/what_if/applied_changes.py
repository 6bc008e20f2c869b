"""Applies changes to a working copy, and notes what each did."""

from typing import Any, Final

from dra_extender.inspection.kept_fields import kept
from dra_extender.inspection.what_if.changes import ChangeError, Changes, NodeCopies, WrittenObject
from dra_extender.inspection.what_if.ended_pods import end_pod, evict_pod, stays_on_its_node, without_allocation
from dra_extender.inspection.what_if.report import ClaimFate
from dra_extender.inspection.what_if.working_copy import KIND_NAMES, Json, Key, WorkingCopy
from dra_extender.model.metadata import time_text

MOST_NODES_ADDED: Final = 5_000
"""Nodes that one trial may add."""
_PODS: Final = "pods"
_NODES: Final = "nodes"
_SLICES: Final = "resourceslices"
_CLAIMS: Final = "resourceclaims"
_HOSTNAME: Final = "kubernetes.io/hostname"
_CORDON_TAINT: Final = "node.kubernetes.io/unschedulable"


class AppliedChanges:
    """What changes did to a copy.

    `sentences` say it in the order in which they were applied.  `ended` and `evicted`: the pods by key, each with what became of
    its claims.
    """

    def __init__(self, copy: WorkingCopy, changes: Changes) -> None:
        """Apply the changes.

        Raises:
            ChangeError: one of them names something that is not there, or cannot be made.
        """
        self._copy = copy
        self._created = time_text(copy.origin.taken_at)
        self.sentences: list[str] = []
        self.ended: dict[Key, tuple[ClaimFate, ...]] = {}
        self.evicted: dict[Key, tuple[ClaimFate, ...]] = {}
        for each in sorted(changes.objects, key=lambda written: (_ORDER[written.kind], written.key)):
            self._apply(each)
        self._add_nodes(changes)
        for key in sorted(set(changes.without)):
            self._end(key)
        for node in sorted(set(changes.drained)):
            self._drain(node)

    def _apply(self, written: WrittenObject) -> None:
        """Create the object, or replace the one of that name.

        What the API server and other writers keep stays: UID, age, owner, status.  The specs of claims and of pods with a node
        cannot be changed; such an object is ended, and a new one made.
        """
        kind, key = written.kind, written.key
        label = f"{KIND_NAMES[kind]} {'/'.join(each for each in key if each)}"
        before = self._copy.find(kind, *key)
        if before is None:
            metadata = {"creationTimestamp": self._created, **_without_version(written.item["metadata"])}
            item = {**written.item, "metadata": metadata}
            self._copy.put(kind, item if kind in (_NODES, _PODS, "podgroups") else _without_status(item))
            self.sentences.append(f"{label} created")
            return
        kept_metadata = {
            name: before["metadata"][name]
            for name in ("uid", "creationTimestamp", "ownerReferences", "finalizers", "generation")
            if name in before["metadata"]
        }
        own_annotations = before["metadata"].get("annotations") or {}
        metadata = {
            **kept_metadata,
            **_without_version(written.item["metadata"], "uid"),
            "annotations": {**own_annotations, **(written.item["metadata"].get("annotations") or {})},
        }
        item = {**written.item, "metadata": metadata}
        if "status" in before and not item.get("status"):
            item["status"] = before["status"]
        self._replace(kind, before, item, label)

    def _replace(self, kind: str, before: Json, item: Json, label: str) -> None:
        key = (item["metadata"].get("namespace", ""), item["metadata"]["name"])
        verb = "replaced"
        if kind == _CLAIMS and kept(kind, item).get("spec") != kept(kind, before).get("spec"):
            item = without_allocation({**item, "metadata": _renewed(item["metadata"], self._created)})
            verb = "replaced by a new one, whose spec differs"
        elif kind == _PODS:
            node = before["spec"].get("nodeName")
            spec = {**item["spec"], "nodeName": node} if node else item["spec"]
            if node and kept(kind, {**item, "spec": spec}).get("spec") != kept(kind, before).get("spec"):
                self.evicted[key] = end_pod(self._copy, before)
                spec = {name: value for name, value in item["spec"].items() if name != "nodeName"}
                item = {
                    **item,
                    "metadata": _renewed(item["metadata"], self._created),
                    "spec": spec,
                    "status": {"phase": "Pending"},
                }
                verb = "replaced by a new one, whose spec differs"
            else:
                item = {**item, "spec": spec}
        self._copy.put(kind, item)
        self.sentences.append(f"{label} {verb}")

    def _add_nodes(self, changes: Changes) -> None:
        if sum(each.copies for each in changes.added) > MOST_NODES_ADDED:
            raise ChangeError(f"--add-nodes: expected at most {MOST_NODES_ADDED} nodes in all")
        counts: dict[str, int] = {}
        for each in changes.added:
            counts[each.node] = counts.get(each.node, 0) + each.copies
        for node, count in sorted(counts.items()):
            self._copies(NodeCopies(node, count))

    def _copies(self, wanted: NodeCopies) -> None:
        """Copy the node, schedulable, and the slices that name it; attributes of devices stay as they are."""
        template = self._copy.find(_NODES, "", wanted.node)
        if template is None:
            raise ChangeError(f"--add-nodes: node {wanted.node} does not exist in {self._copy.origin.source}")
        slices = [each for each in self._copy.all(_SLICES) if _is_local(each["spec"], wanted.node)]
        names = []
        for number in range(1, wanted.copies + 1):
            name = f"{wanted.node}-added-{number}"
            if self._copy.has(_NODES, "", name):
                raise ChangeError(f"--add-nodes: node {name} exists already")
            self._copy.put(_NODES, _node_called(template, name, self._created))
            for each in slices:
                self._copy.put(_SLICES, _slice_of(each, name, number))
            names.append(name)
        if names:
            which = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
            self.sentences.append(
                f"{which} added, like {wanted.node} with {len(slices)} {'slice' if len(slices) == 1 else 'slices'}"
            )

    def _end(self, key: Key) -> None:
        pod = self._copy.find(_PODS, *key)
        if pod is None:
            raise ChangeError(f"--without: pod {'/'.join(key)} does not exist in {self._copy.origin.source}")
        self.ended[key] = end_pod(self._copy, pod)
        self.sentences.append(f"pod {'/'.join(key)} ended")

    def _drain(self, name: str) -> None:
        node = self._copy.find(_NODES, "", name)
        if node is None:
            raise ChangeError(f"--drain: node {name} does not exist in {self._copy.origin.source}")
        self._copy.put(_NODES, {**node, "spec": {**(node.get("spec") or {}), "unschedulable": True}})
        found = [pod for pod in self._copy.all(_PODS) if (pod.get("spec") or {}).get("nodeName") == name]
        staying = 0
        for pod in found:
            if stays_on_its_node(pod):
                staying += 1
                continue
            metadata = pod["metadata"]
            self.evicted[metadata["namespace"], metadata["name"]] = evict_pod(self._copy, pod, self._created)
        stay = f", {staying} stay" if staying else ""
        evicted = len(found) - staying
        self.sentences.append(f"node {name} cordoned, {evicted} {'pod' if evicted == 1 else 'pods'} evicted{stay}")


_ORDER: Final = {kind: place for place, kind in enumerate(KIND_NAMES)}


def _without_version(metadata: Json, *more: str) -> Json:
    left_out = ("resourceVersion", "managedFields", *more)
    return {name: value for name, value in metadata.items() if name not in left_out}


def _without_status(item: Json) -> Json:
    return {name: value for name, value in item.items() if name != "status"}


def _renewed(metadata: Json, created: str) -> Json:
    return {**metadata, "uid": f"{metadata['uid']}-replaced", "creationTimestamp": created}


def _node_called(template: Json, name: str, created: str) -> Json:
    metadata, spec = template["metadata"], template.get("spec") or {}
    labels = dict(metadata.get("labels") or {})
    if _HOSTNAME in labels:
        labels[_HOSTNAME] = name
    taints = [each for each in spec.get("taints") or () if each.get("key") != _CORDON_TAINT]
    return {
        **template,
        "metadata": {"name": name, "labels": labels, "creationTimestamp": created},
        "spec": {**{field: value for field, value in spec.items() if field != "unschedulable"}, "taints": taints},
    }


def _is_local(spec: Json, node: str) -> bool:
    """Whether this is the spec of a slice that names the node."""
    return spec.get("nodeName") == node and bool((spec.get("pool") or {}).get("name"))


def _slice_of(template: Json, node: str, number: int) -> Json:
    spec: dict[str, Any] = template["spec"]
    pool = spec["pool"]
    own = pool["name"] == spec["nodeName"]
    return {
        **template,
        "metadata": {"name": f"{template['metadata']['name']}-added-{number}"},
        "spec": {
            **spec,
            "nodeName": node,
            "pool": {**pool, "name": node if own else f"{pool['name']}-added-{number}"},
        },
    }
