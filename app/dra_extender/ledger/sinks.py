"""Takes watch events into the ledger: one sink per kind changes the indexes, the versions of nodes and the queueing hints."""

from collections.abc import Mapping
from typing import Protocol

from dra_extender.ledger.events import NodeRemoved
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.device_class import read_device_class
from dra_extender.model.device_taint_rule import read_device_taint_rule
from dra_extender.model.node import read_node
from dra_extender.model.pod import read_pod
from dra_extender.model.pod_group import read_kept_pod_group
from dra_extender.model.resource_slice import SliceReader


class EventSink(Protocol):
    """Takes what a list and a watch of one kind deliver, in order, one object per call.

    Calls are synchronous, come from the event loop, and must be short.  An object is delivered once for each of its
    resourceVersions; a recreated object is delivered as deleted under its old UID first.
    """

    def changed(self, data: bytes) -> None:
        """Take in an added or modified object as the API server sent it (JSON); items of a list have no kind and apiVersion.

        Raises:
            ModelError: the object cannot be read; what was known of it stays, and it is not delivered again before it changes.
        """

    def deleted(self, namespace: str, name: str, uid: str) -> None:
        """Take in the deletion of an object, possibly while no watch was open.  The namespace may be empty."""

    def listing(self) -> None:
        """Take note that a list begins.  Its objects come by name, not in the order of their writes as those of a watch."""

    def synced(self) -> None:
        """Take note that a list has been delivered completely.  Called after every list, not only the first."""

    def absent(self) -> None:
        """Take note that the server does not serve this kind: nothing will be delivered."""


def sinks_of(ledger: Ledger) -> Mapping[str, EventSink]:
    """Return the entrances of watch events into the ledger, by plural kind; nodes and classes first: the rest refers to them."""
    return {
        "nodes": _NodeSink(ledger),
        "deviceclasses": _ClassSink(ledger),
        "devicetaintrules": _TaintRuleSink(ledger),
        "resourceslices": _SliceSink(ledger),
        "resourceclaims": _ClaimSink(ledger),
        "podgroups": _PodGroupSink(ledger),
        "pods": _PodSink(ledger),
    }


class _LedgerSink:
    """Takes the events of one kind; `EventSink` documents the methods."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def listing(self) -> None:
        pass

    def synced(self) -> None:
        pass

    def absent(self) -> None:
        pass


class _NodeSink(_LedgerSink):
    """Nodes: labels and features decide which slices a node can use."""

    def changed(self, data: bytes) -> None:
        ledger, node = self._ledger, read_node(data)
        old = ledger.nodes.get(node.name)
        ledger.nodes[node.name] = node
        ledger.group_entry_trials.node_seen()
        ledger.node_versions.bump({node.name})
        if old is None or (old.labels, old.declared_features, old.extended_resources) != (
            node.labels,
            node.declared_features,
            node.extended_resources,
        ):
            ledger.inventory_changed(frozenset({node.name}))
            ledger.hint_devices()
        if ledger.member_fit.put_node(data):
            ledger.hint_claims()
        ledger.free_amounts.put_node(node.name, ledger.member_fit.allocatable(node.name))

    def deleted(self, namespace: str, name: str, uid: str) -> None:  # noqa: ARG002 - nodes are known by name
        ledger = self._ledger
        ledger.member_fit.drop_node(name)
        ledger.free_amounts.drop_node(name)
        ledger.group_entry_trials.node_gone(name)
        if ledger.nodes.pop(name, None) is not None:
            ledger.inventory_changed(frozenset({name}))
            ledger.events.publish(NodeRemoved(name))


class _ClassSink(_LedgerSink):
    """Device classes, and which extended resource each backs."""

    def changed(self, data: bytes) -> None:
        item = read_device_class(data)
        old = self._ledger.classes.get(item.name)
        self._ledger.classes[item.name] = item
        if old is None or old.spec != item.spec:
            self._rebuild()

    def deleted(self, namespace: str, name: str, uid: str) -> None:  # noqa: ARG002 - classes are known by name
        if self._ledger.classes.pop(name, None) is not None:
            self._rebuild()

    def _rebuild(self) -> None:
        # The youngest class wins, then the first by name, as upstream resolves two classes with one resource name.
        ordered = sorted(self._ledger.classes.values(), key=lambda item: item.name, reverse=True)
        ordered.sort(key=lambda item: item.metadata.creation_timestamp or "")
        self._ledger.backing = {name: item.name for item in ordered for name in item.extended_resources}
        self._ledger.once_backed.update(self._ledger.backing)
        self._ledger.hint_classes()


class _SliceSink(_LedgerSink):
    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._reader = SliceReader()

    def synced(self) -> None:
        # A list of 5,000 slices leaves 20 MB in the table of shared parts, most of them parts of a single device.
        self._reader = SliceReader()

    def changed(self, data: bytes) -> None:
        ledger, item = self._ledger, self._reader.read(data)
        old = ledger.slices.by_name.get(item.name)
        if old is not None:
            ledger.pool_changed(old.pool_id)
        ledger.overlays.publish(item)
        ledger.pool_changed(item.pool_id)
        ledger.forget_held_nodes()
        ledger.hint_devices()

    def deleted(self, namespace: str, name: str, uid: str) -> None:  # noqa: ARG002 - slices are known by name
        ledger = self._ledger
        old = ledger.slices.by_name.get(name)
        if old is not None:
            ledger.pool_changed(old.pool_id)
            ledger.overlays.withdraw(name)
            ledger.forget_held_nodes()
            ledger.hint_devices()


class _TaintRuleSink(_LedgerSink):
    def changed(self, data: bytes) -> None:
        rule = read_device_taint_rule(data)
        self._ledger.overlays_changed(self._ledger.overlays.use_rule(rule))

    def deleted(self, namespace: str, name: str, uid: str) -> None:  # noqa: ARG002 - rules are known by name
        self._ledger.overlays_changed(self._ledger.overlays.drop_rule(name))


class _ClaimSink(_LedgerSink):
    def listing(self) -> None:
        self._ledger.claims.begin_list()

    def synced(self) -> None:
        self._ledger.claims.end_list()

    def changed(self, data: bytes) -> None:
        self._ledger.claim_seen(data)

    def deleted(self, namespace: str, name: str, uid: str) -> None:
        self._ledger.claim_gone(namespace, name, uid)


class _PodSink(_LedgerSink):
    def changed(self, data: bytes) -> None:
        pod = read_pod(data)
        needs_changed = self._ledger.member_fit.put_pod(pod, data)
        self._ledger.free_amounts.put_pod(pod, data)
        self._ledger.pod_seen(pod)
        if needs_changed:
            self._ledger.hint_claims()

    def deleted(self, namespace: str, name: str, uid: str) -> None:
        self._ledger.pod_gone(namespace, name, uid)


class _PodGroupSink(_LedgerSink):
    """PodGroups, which many servers do not serve."""

    def synced(self) -> None:
        self._ledger.pod_groups.served = True

    def changed(self, data: bytes) -> None:
        group = read_kept_pod_group(data)
        old = self._ledger.pod_groups.put(group)
        self._ledger.pod_group_changed(group.metadata.key)
        if old is None or (old.spec, old.status) != (group.spec, group.status):
            self._ledger.hint_claims()

    def deleted(self, namespace: str, name: str, uid: str) -> None:
        gone = self._ledger.pod_groups.drop(namespace, name, uid)
        if gone is not None:
            self._ledger.pod_group_changed(gone.metadata.key)
            self._ledger.hint_claims()
