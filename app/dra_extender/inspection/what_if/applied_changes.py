"""Applies changes to a copy of a cluster, and notes what each did."""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import msgspec

from dra_extender.cel.errors import CelCompileError
from dra_extender.cel.program import compile_expression
from dra_extender.inspection.objects import KINDS, keep_fields
from dra_extender.inspection.pod_facts import PodFacts, read_pod_facts, without_controller_text
from dra_extender.inspection.what_if.changes import ChangeError, Changes, PodKey, UnreadableChangeError, WrittenObject
from dra_extender.inspection.what_if.copied_cluster import CopiedCluster, without_allocation
from dra_extender.inspection.what_if.report import ClaimFate
from dra_extender.manifests.api_defaults import fill_in
from dra_extender.model.api_json import ModelError, number_of
from dra_extender.model.device import DeviceId, device_id_of
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind
from dra_extender.simulator.apiserver.served_fields import drop_fields

MOST_NODES_ADDED: Final = 5_000
"""Nodes that one trial may add."""
_MOST_NAMED: Final = 5
"""Pods that one sentence names."""
_HOSTNAME: Final = "kubernetes.io/hostname"
_CORDON_TAINT: Final = "node.kubernetes.io/unschedulable"


class AppliedChanges:
    """Applies changes to a copy.

    `sentences` say what was changed, in order.  `ended` and `evicted`: the pods by key, each with what became of its claims.
    `reserved`: the pods that ask for the reserved devices, in the order of the changes.
    """

    def __init__(self, copy: CopiedCluster, changes: Changes) -> None:
        """Apply the changes.

        Raises:
            ChangeError: one of them names something that is not there, or cannot be made.
        """
        self._copy = copy
        self._store = copy.store
        self.sentences: list[str] = []
        self.ended: dict[PodKey, tuple[ClaimFate, ...]] = {}
        self.evicted: dict[PodKey, tuple[ClaimFate, ...]] = {}
        for written in sorted(changes.objects, key=lambda written: (_KIND_ORDER[written.kind], written.key)):
            self._write(written)
        self._add_nodes(changes)
        for pod_key in sorted(set(changes.without)):
            self.ended[pod_key] = copy.end_pod(copy.require(StoredKind.POD, pod_key, "--without: pod"))
            self.sentences.append(f"pod {'/'.join(pod_key)} ended")
        evicted: list[PodFacts] = []
        for pod in self._evicted(changes):
            with suppress(ModelError):
                evicted.append(read_pod_facts(msgspec.json.encode(pod)))
        drained = set(changes.drained)
        for pod_key, budget in copy.budgets.forbidding(evicted).items():
            sentence = f"PodDisruptionBudget {budget} forbids to evict pod {'/'.join(pod_key)} now"
            self.sentences.append(sentence + (": a drain waits" if drained else ""))
        lost = [pod.key for pod in evicted if pod.key in self.evicted and not pod.controller]
        if lost:
            sentence = without_controller_text(["/".join(key) for key in lost], _MOST_NAMED)
            are_drained = not set(changes.evicted).issuperset(lost)
            self.sentences.append(sentence + ("; kubectl drain needs --force" if are_drained else ""))
        self.reserved = [reserve(copy, reserved) for reserved in changes.reserved]
        self.sentences += [f"{device_text(reserved)} reserved" for reserved in changes.reserved]
        for gate, is_on in sorted(changes.gates, key=lambda change: change[0].gate_name):
            # What an API server drops while the gate is off; fields that were dropped before stay lost.
            if not is_on:
                for kind in _PUBLISHED:
                    for item in self._copy.all(kind):
                        drop_fields(kind, item, frozenset({gate}), drafts=True)
                        self._copy.put(kind, item)
            self.sentences.append(f"gate {gate.gate_name} {'on' if is_on else 'off'}")
        if changes.policy is not None:
            self.sentences.append(f"policy {changes.policy.name} in force")

    def _evicted(self, changes: Changes) -> Iterator[Json]:
        """Evict pods by name, then those of drained nodes; yield them as they were."""
        for pod_key in sorted(set(changes.evicted)):
            pod = self._copy.require(StoredKind.POD, pod_key, "--evict: pod")
            if not pod["spec"].get("nodeName"):
                raise ChangeError(f"--evict: expected a pod that has a node, {'/'.join(pod_key)} has none")
            self.sentences.append(f"pod {'/'.join(pod_key)} {'evicted' if self._evict(pod) else 'ended'}")
            yield pod
        for name in sorted(set(changes.drained)):
            yield from self._drain(name)

    def _write(self, written: WrittenObject) -> None:
        """Create the object, or replace the one of that name.

        What the API server and other writers keep stays: UID, age, owner, status.  The specs of claims and of pods with a node
        cannot be changed; such an object is ended, and a new one made.
        """
        kind, before = written.kind, self._store.find(Key(written.kind, *written.key))
        if before is None:
            metadata = {"creationTimestamp": self._copy.created, **_without_version(written.item["metadata"])}
            item = {**written.item, "metadata": metadata}
            if kind not in (StoredKind.NODE, StoredKind.POD, StoredKind.POD_GROUP):
                item.pop("status", None)
            self._copy.put(kind, item)
            self.sentences.append(f"{written.label} created")
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
        is_new, item = self._renewed_where_fixed(kind, before, item)
        self._copy.put(kind, item)
        self.sentences.append(
            f"{written.label} {'replaced by a new one, whose spec differs' if is_new else 'replaced'}"
        )

    def _renewed_where_fixed(self, kind: StoredKind, before: Json, item: Json) -> tuple[bool, Json]:
        """Return whether the spec differs where it cannot be changed, and the object as it is then."""
        renewed = {**item["metadata"], "creationTimestamp": self._copy.created}
        renewed["uid"] = f"{renewed['uid']}-replaced"
        if kind is StoredKind.CLAIM and _spec_differs(kind, item, before):
            return True, without_allocation({**item, "metadata": renewed})
        node = before["spec"].get("nodeName") if kind is StoredKind.POD else None
        if not node:
            return False, item
        placed = {**item, "spec": {**item["spec"], "nodeName": node}}
        if not _spec_differs(kind, placed, before):
            return False, placed
        metadata = item["metadata"]
        self.evicted[metadata.get("namespace", ""), metadata["name"]] = self._copy.end_pod(before)
        spec = {name: value for name, value in item["spec"].items() if name != "nodeName"}
        return True, {**item, "metadata": renewed, "spec": spec, "status": {"phase": "Pending"}}

    def _add_nodes(self, changes: Changes) -> None:
        """Copy nodes, schedulable, and the slices that name them; attributes of devices stay as they are."""
        counts = Counter[str]()
        for node, copies in changes.added:
            counts[node] += copies
        if counts.total() > MOST_NODES_ADDED:
            raise ChangeError(f"--add-nodes: expected at most {MOST_NODES_ADDED} nodes in all")
        for node, count in sorted(counts.items()):
            template = self._copy.require(StoredKind.NODE, ("", node), "--add-nodes: node")
            slices = [
                item
                for item in self._copy.all(StoredKind.SLICE)
                if item["spec"].get("nodeName") == node and (item["spec"].get("pool") or {}).get("name")
            ]
            names = [f"{node}-added-{number}" for number in range(1, count + 1)]
            for number, name in enumerate(names, 1):
                if self._store.find(Key(StoredKind.NODE, "", name)) is not None:
                    raise ChangeError(f"--add-nodes: node {name} exists already")
                self._copy.put(StoredKind.NODE, _node_called(template, name, self._copy.created))
                for published in slices:
                    self._copy.put(StoredKind.SLICE, _slice_of(published, name, number))
            if names:
                which = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
                self.sentences.append(f"{which} added, like {node} with {number_of(len(slices), 'slice')}")

    def _drain(self, name: str) -> list[Json]:
        """Cordon a node, and return the pods that are evicted from it."""
        node = self._copy.require(StoredKind.NODE, ("", name), "--drain: node")
        self._copy.put(StoredKind.NODE, {**node, "spec": {**(node.get("spec") or {}), "unschedulable": True}})
        pods = [pod for pod in self._copy.all(StoredKind.POD) if (pod.get("spec") or {}).get("nodeName") == name]
        leaving = [pod for pod in pods if not stays_on_its_node(pod)]
        evicted = [pod for pod in leaving if self._evict(pod)]
        ended = f", {len(leaving) - len(evicted)} ended" if len(evicted) < len(leaving) else ""
        stay = f", {len(pods) - len(leaving)} stay" if len(leaving) < len(pods) else ""
        self.sentences.append(f"node {name} cordoned, {number_of(len(evicted), 'pod')} evicted{ended}{stay}")
        return evicted

    def _evict(self, pod: Json) -> bool:
        """End the pod and add another in its place; return False if only the end is due, because its controller has replaced it."""
        key = pod["metadata"]["namespace"], pod["metadata"]["name"]
        if "deletionTimestamp" in pod["metadata"]:
            self.ended[key] = self._copy.end_pod(pod)
            return False
        self.evicted[key] = self._copy.evict_pod(pod)
        return True


_PUBLISHED: Final = (StoredKind.SLICE, StoredKind.CLASS)
"""The kinds that drivers and admins write again and again; allocations stay as they are."""
_KIND_ORDER: Final = {kind: place for place, kind in enumerate(KINDS)}


def _without_version(metadata: Json, *more: str) -> Json:
    left_out = ("resourceVersion", "managedFields", *more)
    return {name: value for name, value in metadata.items() if name not in left_out}


def _spec_differs(kind: StoredKind, item: Json, before: Json) -> bool:
    return bool(keep_fields(kind, item).get("spec") != keep_fields(kind, before).get("spec"))


def stays_on_its_node(pod: Json) -> bool:
    """Return whether a drain leaves the pod: it has ended, or belongs to a DaemonSet or to the node (a static pod)."""
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return True
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(owner.get("kind") in ("DaemonSet", "Node") for owner in owners)


def _node_called(template: Json, name: str, created: str) -> Json:
    metadata, spec = template["metadata"], template.get("spec") or {}
    labels = dict(metadata.get("labels") or {})
    if _HOSTNAME in labels:
        labels[_HOSTNAME] = name
    taints = [taint for taint in spec.get("taints") or () if taint.get("key") != _CORDON_TAINT]
    return {
        **template,
        "metadata": {"name": name, "labels": labels, "creationTimestamp": created},
        "spec": {**{field: value for field, value in spec.items() if field != "unschedulable"}, "taints": taints},
    }


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


_NAMESPACE: Final = "what-if"
_RESERVED_PRIORITY: Final = 2**31 - 1
"""A priority above that of all pods."""
_CLASS_NAME: Final = re.compile(r"[a-z0-9.-]+")
_CLAIM_NAME: Final = re.compile(r"[a-z0-9.-]+/[a-z0-9.-]+")
_DEVICE_NAME: Final = re.compile(r"[a-z0-9.-]+(/[a-z0-9.-]+){2,}")
_DOMAIN: Final = "dra-extender.io"
_RESERVED: Final = "reserved"


def names_claim(reserved: str) -> bool:
    return bool(_CLAIM_NAME.fullmatch(reserved))


def device_text(reserved: str) -> str:
    """Say what is asked for: a device by name, one of a class, one that an expression selects, or what a claim asks for."""
    if names_claim(reserved):
        return f"what claim {reserved} asks for"
    if _DEVICE_NAME.fullmatch(reserved):
        return f"device {reserved}"
    return f"a device of class {reserved}" if _CLASS_NAME.fullmatch(reserved) else f"a device with {reserved}"


def reserve(copy: CopiedCluster, reserved: str) -> PodKey:
    """Add a pod that asks for one device, or uses a claim; return its key.

    `reserved` is `DRIVER/POOL/DEVICE`, the name of a DeviceClass, a CEL expression as in a selector, or `NAMESPACE/NAME` of a
    claim.  A device by name is taken as a whole and whatever taints it and its nodes have.

    Raises:
        ChangeError: there is no such device, class or claim, or the expression does not compile.
    """
    namespace, claim = reserved.split("/") if names_claim(reserved) else (_NAMESPACE, "")
    number = 1
    while copy.store.find(Key(StoredKind.POD, namespace, f"{_RESERVED}-{number}")) is not None:
        number += 1
    name = f"{_RESERVED}-{number}"
    if not claim:
        metadata = {"name": name, "namespace": _NAMESPACE, "creationTimestamp": copy.created}
        requests = [{"name": "device", "exactly": _request(copy, reserved, name)}]
        item = {"metadata": metadata, "spec": {"devices": {"requests": requests}}}
        fill_in(StoredKind.CLAIM, item)
        copy.put(StoredKind.CLAIM, item)
    else:
        copy.require(StoredKind.CLAIM, (namespace, claim), "claim")
    spec = {
        "containers": [{"name": "main"}],
        "priority": _RESERVED_PRIORITY,
        "resourceClaims": [{"name": "device", "resourceClaimName": claim or name}],
        "tolerations": [{"operator": "Exists"}] if _DEVICE_NAME.fullmatch(reserved) else [],
    }
    metadata = {"name": name, "namespace": namespace, "uid": f"{name}-pod", "creationTimestamp": copy.created}
    copy.put(StoredKind.POD, {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})
    return namespace, name


def _request(copy: CopiedCluster, reserved: str, name: str) -> Json:
    """Return a request for one device, with a class of its own if none is named."""
    if _CLASS_NAME.fullmatch(reserved):
        copy.require(StoredKind.CLASS, ("", reserved), "DeviceClass")
        return {"deviceClassName": reserved}
    own = f"{_NAMESPACE}-{name}"
    copy.put(StoredKind.CLASS, {"metadata": {"name": own}, "spec": {}})
    if _DEVICE_NAME.fullmatch(reserved):
        _mark_device(copy, device_id_of(reserved), own.replace("-", "_"))
        expression = f'has(device.attributes["{_DOMAIN}"].{own.replace("-", "_")})'
        return {
            "deviceClassName": own,
            "selectors": [{"cel": {"expression": expression}}],
            "tolerations": [{"operator": "Exists"}],
        }
    try:
        compile_expression(reserved)
    except CelCompileError as problem:
        expected = "expected a DeviceClass, DRIVER/POOL/DEVICE or a CEL expression"
        raise UnreadableChangeError(f"{expected}, got {reserved!r}: {problem.reason}") from problem
    return {"deviceClassName": own, "selectors": [{"cel": {"expression": reserved}}]}


def _mark_device(copy: CopiedCluster, device_id: DeviceId, mark: str) -> None:
    """Give the device an attribute that no other has, and take its leave to be shared away: it is asked for as a whole."""
    driver, pool, name = device_id
    exists = False
    for item in copy.all(StoredKind.SLICE):
        spec, devices = item["spec"], item["spec"].get("devices") or []
        if spec.get("driver") != driver or (spec.get("pool") or {}).get("name") != pool:
            continue
        for device in (device for device in devices if device.get("name") == name):
            exists = True
            device["attributes"] = {**(device.get("attributes") or {}), f"{_DOMAIN}/{mark}": {"bool": True}}
            device.pop("allowMultipleAllocations", None)
            copy.put(StoredKind.SLICE, item)
    if not exists:
        raise ChangeError(f"device {'/'.join(device_id)} does not exist in {copy.origin.source}")
