"""What is free, allocated and held right now, kept from watch events and our own writes."""

from collections import deque
from collections.abc import Callable, Collection, Container, Iterable
from dataclasses import dataclass

from dra_extender.allocator.state.usage import Usage
from dra_extender.ledger.claim_record import ClaimRecord
from dra_extender.ledger.claims import ClaimIndex
from dra_extender.ledger.events import (
    AllocationEnded,
    AllocationObserved,
    ClaimOrphaned,
    ClaimSpecsDropped,
    GuardObserved,
    GuardReservationObserved,
    HoldEnded,
    LedgerEvents,
    PodGroupChanged,
    PodResolved,
)
from dra_extender.ledger.free_amounts import FreeAmounts
from dra_extender.ledger.group_entry_trials import GroupEntryTrials
from dra_extender.ledger.guard_index import GUARD_MARK, Guard, GuardIndex, guard_reservations, whole_devices
from dra_extender.ledger.hold_book import HeldNodes, HoldBook, HoldView
from dra_extender.ledger.member_fit import MemberFit
from dra_extender.ledger.node_versions import NodeVersions
from dra_extender.ledger.notifier import Notifier
from dra_extender.ledger.orphans import users_of
from dra_extender.ledger.pod_groups import PodGroupIndex
from dra_extender.ledger.pods import PodIndex
from dra_extender.ledger.slices import Overlays, SliceIndex
from dra_extender.ledger.usage import Reduced, UsageChange, UsageTable, UsageWith
from dra_extender.model.allocation import ClaimPlacement, DeviceHolding
from dra_extender.model.api_json import ModelError
from dra_extender.model.device import PoolId
from dra_extender.model.device_class import DeviceClass
from dra_extender.model.node import Node
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import GROUP
from dra_extender.model.resource_claim import ClaimHead, read_claim, read_identity


@dataclass(slots=True)
class ChangeCounters:
    """How often something changed that may make a rejected pod schedulable, by kind: the queueing hints."""

    devices: int = 0
    claims: int = 0
    classes: int = 0


class Ledger:
    """What is free, allocated and held right now.

    Watch events (`sinks_of`) and the answers to our own writes change it, one object at a time.  Whatever their order, it equals a
    ledger built anew from the final objects.  It publishes `events`.  It has no clock and does no I/O.
    """

    def __init__(self, namespace_claim_bytes: int = 0) -> None:
        self.events = LedgerEvents()
        # Slices with every overlay on them, which is what decisions read; `overlays` has them as published.
        self.slices = SliceIndex()
        self.overlays = Overlays(self.slices)
        self.pods = PodIndex()
        self.member_fit = MemberFit()
        self.free_amounts = FreeAmounts()
        self.claims = ClaimIndex(
            lambda claim: users_of(claim, self.pods, self.nodes),
            namespace_claim_bytes,
            lambda namespace: self.events.publish(ClaimSpecsDropped(namespace)),
        )
        self.pod_groups = PodGroupIndex()
        self.classes: dict[str, DeviceClass] = {}
        self.nodes: dict[str, Node] = {}
        # Versions of what a search on a node reads: slices and the node (inventory), allocations as well (state), and holds.
        self.inventory_versions = NodeVersions()
        self.state_versions = NodeVersions()
        # Versions of nodes as the watch delivers them: what kube-scheduler reads of a node (taints, CPU) may have changed.
        self.node_versions = NodeVersions()
        self._hold_versions = NodeVersions()
        self._holds = HoldBook(
            self._holds_changed,
            lambda hold, holdings, allocated: self.events.publish(HoldEnded(hold, holdings, allocated)),
        )
        self._deferred = deque[Callable[[], None]]()
        self.changes = ChangeCounters()
        self.hinted = Notifier()
        self.backing: dict[str, str] = {}
        # Extended resources that a class backs or has backed: kube-scheduler may assume that one still does, and not check itself.
        self.once_backed: set[str] = set()
        # Whether claims are made for extended resources that a class backs; otherwise only a node's own resources count.
        self.serves_extended_resources = True
        self.guards = GuardIndex()
        self.group_entry_trials = GroupEntryTrials(self.nodes, self.claims)
        self._held_nodes = HeldNodes()
        self._held_nodes_known = True

    @property
    def hold_book(self) -> HoldBook:
        """All holds, deferred ones included, for `HoldService`, and for inspections that place reported holds."""
        self._place_deferred()
        return self._holds

    @property
    def holds(self) -> HoldView:
        """All holds, deferred ones included, for those that read them."""
        return self.hold_book

    @property
    def hold_versions(self) -> NodeVersions:
        """The versions of the holds that a search on a node reads."""
        self._place_deferred()
        return self._hold_versions

    def defer_hold(self, hold: Callable[[], None]) -> None:
        """Call `hold`, which places holds, before anything reads holds: the answer to kube-scheduler need not wait for it."""
        self._deferred.append(hold)

    def inventory_changed(self, nodes: frozenset[str] | None) -> None:
        """Raise the versions of these nodes (None: of all), because slices, labels or features that searches read have changed."""
        self.inventory_versions.bump(nodes)
        self.state_versions.bump(nodes)

    def nodes_under_holds(self) -> Container[str] | None:
        """Return the nodes on which holds keep devices, valid until the next change; None: possibly any node."""
        holds = self.holds
        if not self._held_nodes_known:
            self._held_nodes = HeldNodes()
            for pool_id in holds.held_usage.pools:
                self._held_nodes.add_pool(pool_id, self.slices.nodes_of(pool_id))
            self._held_nodes_known = True
        return self._held_nodes.nodes

    def usage(self) -> UsageWith | UsageTable:
        """Return allocations, pending ones included, and all holds."""
        return UsageWith(self.claims.usage, self.holds.held_usage) if len(self.holds) else self.claims.usage

    def usage_without(self, claims: frozenset[str], freed: Iterable[DeviceHolding] = ()) -> Usage:
        """Return `usage` without the holds of these claims and without these allocated holdings."""
        freed = tuple(freed)
        base: Usage = Reduced(self.claims.usage, freed) if freed else self.claims.usage
        return UsageWith(base, self.holds.held_usage_without(claims))

    def begin_pending(self, claim_uid: str, placement: ClaimPlacement) -> None:
        """Count this allocation before it is written, in place of the claim's hold.  `end_pending` is the undo."""
        self._usage_changed(self.claims.begin_pending(claim_uid, placement), frees=False)
        self.hold_book.end(claim_uid, allocated=True)

    def end_pending(self, claim_uid: str) -> None:
        """Count only what the API server has of this claim: our write was stored or given up."""
        self._usage_changed(self.claims.end_pending(claim_uid))

    def assume_written(self, data: bytes) -> ClaimRecord:
        """Store the answer to one of our own writes, before the watch delivers it; raise ModelError if it is no claim."""
        record, change = self.claims.store(data, from_watch=False)
        self._usage_changed(change)
        self._publish_ended(change)
        return record

    def guard_stored(self, data: bytes) -> Guard:
        """Store a guard claim as the watch or an answer has it; returns the newest known state."""
        guard = self.guards.put(read_claim(data), data)
        self.events.publish(GuardObserved(guard))
        return guard

    def claim_seen(self, data: bytes) -> None:
        """Take in a claim that the watch delivered.  One with an allocation needs no hold.

        Raises:
            ModelError: the claim cannot be read.  If only its spec cannot, its devices count all the same.
        """
        if GUARD_MARK in data:
            identity = read_identity(data)
            if self.guards.has(identity.namespace, identity.name):
                self.guard_stored(data)
                return
        record, change = self.claims.store(data, from_watch=True)
        self._usage_changed(change)
        self._publish_ended(change)
        if record.claim.status.allocation is not None:
            self.hold_book.end(record.claim.metadata.uid, allocated=True)
        if change.created or change.has_room:
            self.hint_claims()
        if change.created:
            self._owner_changed(record.claim)
        is_new = change.created or any(holding not in change.removed for holding in change.added)
        if record.holdings and is_new:
            self.events.publish(AllocationObserved(record))
        if GUARD_MARK in data and guard_reservations(record.claim):
            self.events.publish(GuardReservationObserved(record))
        if record.unreadable:
            raise ModelError(record.unreadable)

    def claim_gone(self, namespace: str, name: str, uid: str) -> None:
        if self.guards.has(namespace, name):
            guard = self.guards.drop(name, uid)
            if guard is not None and guard.device is not None:
                self.events.publish(AllocationEnded((guard.device,)))
            return
        record = self.claims.by_uid(uid) if uid else self.claims.by_key(namespace, name)
        change = self.claims.delete(namespace, name, uid)
        self._usage_changed(change)
        self._publish_ended(change)
        self.hold_book.end(uid if record is None else record.claim.metadata.uid)
        if record is not None:
            self._owner_changed(record.claim)
        self.hint_claims()

    def pod_seen(self, pod: Pod) -> None:
        """Take in a pod event: a nomination narrows its holds to one node; a bound or finished pod needs none."""
        namesake = self.pods.by_key(pod.namespace, pod.name)
        if namesake is not None and namesake.uid != pod.uid:
            self.pod_gone(pod.namespace, pod.name, namesake.uid)
        old = self.pods.put(pod)
        self.group_entry_trials.pod_seen(pod)
        if pod.finished:
            self.release_orphans(pod.uid)
        if old is None or (old.claim_statuses, old.finished, old.deleting) != (
            pod.claim_statuses,
            pod.finished,
            pod.deleting,
        ):
            self._member_changed(pod)
        if self._completes_a_gang(pod, old):
            self.hint_claims()
        if not pod.waits_for_node:
            self.hold_book.release_pod(pod.uid)
        elif pod.nominated_node_name:
            for hold in self.holds.of_pod(pod.uid):
                self.hold_book.narrow_to(hold.claim_uid, pod.nominated_node_name, nominated=True)
        elif old is not None and old.nominated_node_name:
            self.hold_book.release_pod(pod.uid)
        before = (False, "") if old is None else (old.deleting, old.node_name)
        if (pod.deleting, pod.node_name) != before:
            self.events.publish(PodResolved(pod.uid))

    def pod_asked_about(self, pod: Pod) -> None:
        """Note that kube-scheduler offers nodes for the pod: what it reported of the pod before, and of its gang, is outdated."""
        if self.pods.note_asked(pod) and pod.pod_group is not None:
            self.hint_claims()

    def _completes_a_gang(self, pod: Pod, old: Pod | None) -> bool:
        """Return whether other members may be enough to be placed now.

        That is so if a member is new, learned the names of its claims, lost a scheduling gate, was bound, or if kube-scheduler
        reports something else on it.
        """
        group = None if pod.pod_group is None else self.pod_groups.get(pod.namespace, pod.pod_group)
        if group is None or group.min_count is None:
            return False
        if old is None or (old.unschedulable not in ("", pod.unschedulable)):
            return True
        return (old.claim_statuses, old.node_name, old.gates) != (pod.claim_statuses, pod.node_name, pod.gates)

    def pod_gone(self, namespace: str, name: str, uid: str) -> None:
        self._member_changed(self.pods.by_key(namespace, name))
        pod = self.pods.drop(namespace, name, uid)
        if pod is not None:
            self.member_fit.drop_pod(pod.uid)
            self.free_amounts.drop_pod(pod.uid)
            self.group_entry_trials.gone(pod.uid)
            self.release_orphans(pod.uid)
            self.hold_book.release_pod(pod.uid)
            self.events.publish(PodResolved(pod.uid))

    def release_orphans(self, uid: str) -> None:
        """Free the devices of deleted claims that only this pod used: it is finished, deleted, or was not bound after all."""
        if uid not in self.claims.orphans.by_pod:
            return
        change = self.claims.pod_ended(uid)
        if change.removed:
            self._usage_changed(change)

    def pool_changed(self, pool_id: PoolId) -> None:
        """Raise the versions of the nodes that reach a pool whose slices have changed or are about to."""
        self.inventory_changed(self.slices.nodes_of(pool_id))

    def overlays_changed(self, pools: Collection[PoolId]) -> None:
        """Raise the versions of the nodes of these pools, whose effective devices taint rules or the policy have changed."""
        for pool_id in pools:
            self.pool_changed(pool_id)
        if pools:
            self.hint_devices()

    def pod_group_changed(self, key: tuple[str, str]) -> None:
        """Publish that a PodGroup, one of its pods, or a claim that was generated for one of them changed."""
        self.events.publish(PodGroupChanged(key))

    def _member_changed(self, pod: Pod | None) -> None:
        if pod is not None and pod.pod_group is not None:
            self.pod_group_changed((pod.namespace, pod.pod_group))

    def _owner_changed(self, claim: ClaimHead) -> None:
        owner = claim.metadata.controller
        if owner is not None and owner.group == GROUP:
            self.pod_group_changed((claim.metadata.namespace, owner.name))
        elif owner is not None:
            self._member_changed(self.pods.by_uid(owner.uid))

    def hint_devices(self) -> None:
        """Record a queueing hint: devices appeared, changed or became free."""
        self.changes.devices += 1
        self.hinted.fire()

    def hint_claims(self) -> None:
        """Record a queueing hint: claims or members of gangs appeared, changed or were deleted."""
        self.changes.claims += 1
        self.hinted.fire()

    def hint_classes(self) -> None:
        self.changes.classes += 1
        self.hinted.fire()

    def forget_held_nodes(self) -> None:
        """Have `nodes_under_holds` find these nodes again, because pools reach other nodes now."""
        self._held_nodes_known = False

    def _usage_changed(self, change: UsageChange, *, frees: bool = True) -> None:
        if change.removed or change.added:
            for pool_id in {holding.pool_id: None for holding in (*change.removed, *change.added)}:
                self.state_versions.bump(self.slices.nodes_of(pool_id))
        if frees and change.freed:
            self.hint_devices()
        if change.orphan is not None:
            self.events.publish(ClaimOrphaned(change.orphan))

    def _publish_ended(self, change: UsageChange) -> None:
        if change.removed:
            self.events.publish(AllocationEnded(whole_devices(change.removed) - whole_devices(change.added)))

    def _place_deferred(self) -> None:
        while self._deferred:
            self._deferred.popleft()()

    def _holds_changed(self, pools: Collection[PoolId]) -> None:
        held_usage, held_nodes = self._holds.held_usage, self._held_nodes
        for pool_id in pools:
            nodes = self.slices.nodes_of(pool_id)
            self._hold_versions.bump(nodes)
            if held_usage.pool(pool_id):
                held_nodes.add_pool(pool_id, nodes)
            else:
                held_nodes.remove_pool(pool_id)
