"""Where watch events enter the ledger: one sink per kind."""

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
        """One object as the API server sent it (JSON), added or modified; items of a list carry no kind and apiVersion.

        Raises:
            ModelError: the object cannot be read; what was known of it stays, and it is not delivered again before it changes.
        """
        ...

    def deleted(self, namespace: str, name: str, uid: str) -> None:
        """The object is gone, possibly while no watch was open.  The namespace may be empty."""
        ...

    def synced(self) -> None:
        """A list has been delivered completely.  Called after every list, not only the first."""
        ...

    def absent(self) -> None:
        """The server does not serve this kind: nothing will be delivered."""
        ...


def sinks_of(ledger: Ledger) -> Mapping[str, EventSink]:
    """The entrances of watch events into the ledger, by plural kind; nodes and classes first, because the rest refers to them."""
    return {
        "nodes": NodeSink(ledger),
        "deviceclasses": ClassSink(ledger),
        "devicetaintrules": TaintRuleSink(ledger),
        "resourceslices": SliceSink(ledger),
        "resourceclaims": ClaimSink(ledger),
        "podgroups": PodGroupSink(ledger),
        "pods": PodSink(ledger),
    }


class _LedgerSink:
    """What the sinks have in common."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.ready = False

    def synced(self) -> None:
        """A complete list has been delivered."""
        self.ready = True

    def absent(self) -> None:
        """The cluster has no such objects."""
        self.ready = True


class NodeSink(_LedgerSink):
    """Nodes: labels and features decide which slices a node can use."""

    def changed(self, data: bytes) -> None:
        """See EventSink."""
        ledger, node = self._ledger, read_node(data)
        old = ledger.nodes.get(node.name)
        ledger.nodes[node.name] = node
        ledger.group_starts.node_seen()
        ledger.node_changes.bump({node.name})
        if old is None or (old.labels, old.declared_features, old.extended_resources) != (
            node.labels,
            node.declared_features,
            node.extended_resources,
        ):
            ledger.inventory_changed(frozenset({node.name}))
            ledger.hint_devices()
        if ledger.member_fit.put_node(data):
            ledger.hint_claims()

    def deleted(self, namespace: str, name: str, uid: str) -> None:  # noqa: ARG002 - nodes are known by name
        """See EventSink."""
        ledger = self._ledger
        ledger.member_fit.drop_node(name)
        ledger.group_starts.node_gone(name)
        if ledger.nodes.pop(name, None) is not None:
            ledger.inventory_changed(frozenset({name}))
            ledger.events.publish(NodeRemoved(name))


class ClassSink(_LedgerSink):
    """Device classes, and which extended resource each backs."""

    def changed(self, data: bytes) -> None:
        """See EventSink."""
        item = read_device_class(data)
        old = self._ledger.classes.get(item.name)
        self._ledger.classes[item.name] = item
        if old is None or old.spec != item.spec:
            self._rebuild()

    def deleted(self, namespace: str, name: str, uid: str) -> None:  # noqa: ARG002 - classes are known by name
        """See EventSink."""
        if self._ledger.classes.pop(name, None) is not None:
            self._rebuild()

    def _rebuild(self) -> None:
        classes = self._ledger.classes.values()
        # The youngest class wins, then the first by name, as upstream resolves two classes with one resource name.
        ordered = sorted(classes, key=lambda each: each.name, reverse=True)
        ordered.sort(key=lambda each: each.metadata.creation_timestamp or "")
        self._ledger.backing = {name: item.name for item in ordered for name in item.extended_resources}
        self._ledger.once_backed.update(self._ledger.backing)
        self._ledger.hint_classes()


class SliceSink(_LedgerSink):
    """Resource slices."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._reader = SliceReader()

    def changed(self, data: bytes) -> None:
        """See EventSink."""
        ledger, item = self._ledger, self._reader.read(data)
        old = ledger.slices.by_name.get(item.name)
        if old is not None:
            ledger.pool_changed(old.pool_id)
        ledger.overlays.publish(item)
        ledger.pool_changed(item.pool_id)
        ledger.forget_held_nodes()
        ledger.hint_devices()

    def deleted(self, namespace: str, name: str, uid: str) -> None:  # noqa: ARG002 - slices are known by name
        """See EventSink."""
        ledger = self._ledger
        old = ledger.slices.by_name.get(name)
        if old is None:
            return
        ledger.pool_changed(old.pool_id)
        ledger.overlays.withdraw(name)
        ledger.forget_held_nodes()
        ledger.hint_devices()


class TaintRuleSink(_LedgerSink):
    """DeviceTaintRules; many servers do not serve them, and then this sink is complete from the beginning."""

    def changed(self, data: bytes) -> None:
        """See EventSink."""
        rule = read_device_taint_rule(data)
        self._ledger.overlays_changed(self._ledger.overlays.use_rule(rule))

    def deleted(self, namespace: str, name: str, uid: str) -> None:  # noqa: ARG002 - rules are known by name
        """See EventSink."""
        self._ledger.overlays_changed(self._ledger.overlays.drop_rule(name))


class ClaimSink(_LedgerSink):
    """Resource claims."""

    def changed(self, data: bytes) -> None:
        """See EventSink."""
        self._ledger.claim_seen(data)

    def deleted(self, namespace: str, name: str, uid: str) -> None:
        """See EventSink."""
        self._ledger.claim_gone(namespace, name, uid)


class PodSink(_LedgerSink):
    """Pods."""

    def changed(self, data: bytes) -> None:
        """See EventSink."""
        pod = read_pod(data)
        needs_changed = self._ledger.member_fit.put_pod(pod, data)
        self._ledger.pod_seen(pod)
        if needs_changed:
            self._ledger.hint_claims()

    def deleted(self, namespace: str, name: str, uid: str) -> None:
        """See EventSink."""
        self._ledger.pod_gone(namespace, name, uid)


class PodGroupSink(_LedgerSink):
    """PodGroups, which many servers do not serve."""

    def synced(self) -> None:
        """See EventSink."""
        super().synced()
        self._ledger.pod_groups.served = True

    def changed(self, data: bytes) -> None:
        """See EventSink."""
        group = read_kept_pod_group(data)
        old = self._ledger.pod_groups.put(group)
        self._ledger.pod_group_changed(group.metadata.key)
        if old is None or (old.spec, old.status) != (group.spec, group.status):
            self._ledger.hint_claims()

    def deleted(self, namespace: str, name: str, uid: str) -> None:
        """See EventSink."""
        gone = self._ledger.pod_groups.drop(namespace, name, uid)
        if gone is not None:
            self._ledger.pod_group_changed(gone.metadata.key)
            self._ledger.hint_claims()
