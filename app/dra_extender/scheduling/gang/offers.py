"""The nodes that the members of a gang were offered, while these offers are valid, and why the plan with them failed.

kube-scheduler offers each member its own nodes (affinity, taints, CPU), one member after the other.  An offer outlives the plan
that was made with it, so that a gang whose members may go to different nodes is planned once the offers of its members are known.
On the same facts, each further member of a gang whose plan failed gets the same answer without a search.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dra_extender.allocator.state.reasons import Rejection
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.pod_group import PodGroup
from dra_extender.runtime.caches import LruCache
from dra_extender.scheduling.evaluation.backoff import DeviceBackoff

_MOST_GANGS: Final = 1_000
MOST_NAMES: Final = 500_000
"""The most names of nodes in all offers together; equal offers of one gang count once.  A name takes 30 to 60 bytes."""
_LARGE: Final = 4
"""A gang with more than this fraction of all names forgets its own offers first."""
_WHOLE_GANG: Final = ""

Names = frozenset[str]


class _Offer(NamedTuple):
    """The offered nodes, and the position in the journal of node changes at that time."""

    nodes: Names
    place: int


@dataclass(slots=True)
class _GangOffers:
    """The offers to one gang.  `order` has every node once, in the order of the first offers of each.

    `revision` changes when an offer differs from what was assumed for the member, and not with changes of nodes.  `reasons`: why
    pods (UIDs) get no assignment as long as the `facts` stay the same; under _WHOLE_GANG why no member gets one.
    """

    revision: int = 0
    offers: dict[str, _Offer] = field(default_factory=dict)
    order: dict[str, None] = field(default_factory=dict)
    facts: object = None
    reasons: dict[str, Rejection] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The names in `order` and in different offers."""
        return len(self.order) + sum(map(len, {offer.nodes for offer in self.offers.values()}))

    def put(self, pod_uid: str, names: Names, place: int) -> None:
        """Record the offer to a member; equal sets become one object."""
        shared_names = {offer.nodes: offer.nodes for offer in self.offers.values()}
        self.offers[pod_uid] = _Offer(shared_names.get(names, names), place)


class GangOffers:
    """The offers to the members of the gangs with the latest calls, and their failed plans.

    Gangs and names are bounded.  A gang with many different offers forgets the older half of them first; otherwise the gang whose
    last call is oldest is forgotten.
    """

    def __init__(
        self,
        ledger: Ledger,
        device_backoff: DeviceBackoff,
        most_gangs: int = _MOST_GANGS,
        most_names: int = MOST_NAMES,
    ) -> None:
        """Keep the offers of so many gangs, with so many names of nodes; `names` counts those that are kept."""
        self._ledger = ledger
        self._device_backoff = device_backoff
        self._most_names = most_names
        self.names = 0
        # By UID of the PodGroup.
        self._gangs: LruCache[str, _GangOffers] = LruCache(most_gangs, on_evict=self._evicted)

    def record(self, group: PodGroup, pod_uid: str, nodes: Sequence[str]) -> None:
        """Record that kube-scheduler offers the member these nodes and no others."""
        uid = group.metadata.uid
        gang_offers = self._gangs[uid] = self._gangs.get(uid) or _GangOffers()
        before = gang_offers.size
        names, place = frozenset(nodes), self._ledger.node_versions.place
        assumed = gang_offers.offers.get(pod_uid) or next(iter(gang_offers.offers.values()), None)
        if assumed is None or assumed.nodes != names:
            gang_offers.revision += 1
            gang_offers.order |= dict.fromkeys(nodes)
        gang_offers.put(pod_uid, names, place)
        self.names += gang_offers.size - before
        while self.names > self._most_names and self._forget_some(pod_uid):
            pass

    def _forget_some(self, pod_uid: str) -> bool:
        """Forget some offers, but not that to this member; return whether there were any to forget."""
        largest = max(self._gangs.values(), key=lambda gang_offers: gang_offers.size)
        if len(self._gangs) > 1 and largest.size <= self._most_names // _LARGE:
            self._gangs.evict()
            return True
        before = largest.size
        other_uids = [uid for uid in largest.offers if uid != pod_uid]
        for uid in other_uids[: (len(other_uids) + 1) // 2]:
            del largest.offers[uid]
        largest.revision += 1
        self.names += largest.size - before
        if not other_uids and len(self._gangs) > 1:
            self._gangs.evict()
        return bool(other_uids) or len(self._gangs) > 1

    def _evicted(self, _: str, gang_offers: _GangOffers) -> None:
        self.names -= gang_offers.size

    def record_failure(self, group: PodGroup, pod_uid: str, why: Rejection, *, whole_gang: bool) -> None:
        """Record that the pod gets no assignment, and with `whole_gang` no other member."""
        gang_offers = self._gangs.get(group.metadata.uid)
        if gang_offers is None:
            return
        facts = self._facts(group, gang_offers.revision)
        if gang_offers.facts != facts or whole_gang or _WHOLE_GANG in gang_offers.reasons:
            gang_offers.reasons = {}
        gang_offers.facts = facts
        gang_offers.reasons[_WHOLE_GANG if whole_gang else pod_uid] = why

    def failure(self, group: PodGroup, pod_uid: str) -> Rejection | None:
        """Return why the pod gets no assignment, if no fact has changed since that was recorded."""
        gang_offers = self._gangs.get(group.metadata.uid)
        if gang_offers is None:
            return None
        why = gang_offers.reasons.get(_WHOLE_GANG) or gang_offers.reasons.get(pod_uid)
        return None if why is None or gang_offers.facts != self._facts(group, gang_offers.revision) else why

    def _facts(self, group: PodGroup, revision: int) -> tuple[object, ...]:
        """Return the versions of everything that a plan reads, and what is in backoff for members."""
        ledger, backoff = self._ledger, self._device_backoff
        members = [
            (uid, backoff.devices_of(uid), backoff.nodes_of(uid))
            for uid in backoff.pods
            if (pod := ledger.pods.by_uid(uid)) is not None and (pod.namespace, pod.pod_group) == group.metadata.key
        ]
        return (
            group,
            revision,
            ledger.state_versions.place,
            ledger.hold_versions.place,
            ledger.node_versions.place,
            ledger.changes.claims,
            ledger.changes.classes,
            ledger.serves_extended_resources,
            frozenset(member for member in members if member[1] or member[2]),
        )

    def last(self, group: PodGroup, pod_uid: str) -> Collection[str]:
        """Return the last offer to the member; empty if that is not known."""
        gang_offers = self._gangs.get(group.metadata.uid)
        offer = None if gang_offers is None else gang_offers.offers.get(pod_uid)
        return () if offer is None else offer.nodes

    def among(self, group: PodGroup, pod_uid: str, nodes: Collection[str]) -> "OfferedNodes":
        """Return the offers to the gang in a call that offers these `nodes` to the member with this UID."""
        gang_offers = self._gangs.get(group.metadata.uid) or _GangOffers()
        self._forget_invalid(gang_offers)
        begin = min((offer.place for offer in gang_offers.offers.values()), default=0)
        changes = self._ledger.node_versions.since(begin)[0] or ()
        changed = {name: begin + index for index, name in enumerate(changes, start=1)}
        exist = self._ledger.nodes
        order = tuple(name for name in {**gang_offers.order, **dict.fromkeys(nodes)} if name in exist)
        return OfferedNodes(gang_offers.offers, frozenset(nodes), pod_uid, changed, order)

    def _forget_invalid(self, gang_offers: _GangOffers) -> None:
        """Forget members that are bound, finished or gone, offers that are older than the journal, and deleted nodes."""
        before, pods = gang_offers.size, self._ledger.pods
        for uid, offer in list(gang_offers.offers.items()):
            if pods.is_resolved(uid) or self._ledger.node_versions.since(offer.place)[0] is None:
                del gang_offers.offers[uid]
        exist = self._ledger.nodes
        if any(name not in exist for name in gang_offers.order):
            gang_offers.order = {name: None for name in gang_offers.order if name in exist}
        self.names += gang_offers.size - before


class OfferedNodes:
    """The nodes on which each member may be planned; `nodes` are all of them, in an order that stays the same.

    The last offer to a member is valid for the nodes that have not changed since.  For other nodes, and for a member without an
    offer, the offer to the first member with one is assumed.
    """

    def __init__(
        self, offers: dict[str, _Offer], nodes: Names, pod_uid: str, changed: Mapping[str, int], order: Sequence[str]
    ) -> None:
        """`nodes` are offered to the pod with this UID in the present call; `changed`: the position of each change of a node."""
        self._offers = offers
        self._pod_uid = pod_uid
        self._changed = changed
        self.nodes = order
        self._sets: dict[Names, Names] = {}
        self._by_offer: dict[_Offer, Names] = {}
        # Equal sets of thousands of names are compared here, not for each question.
        self._now = self._interned(nodes)
        first = next(iter(offers.values()), None)
        self._first = self._now if first is None else self._interned(self._valid(first, nodes))

    def to(self, pod_uid: str) -> Names:
        """Return the nodes of this member; equal sets are one object."""
        if pod_uid == self._pod_uid:
            return self._now
        offer = self._offers.get(pod_uid)
        if offer is None:
            return self._first
        valid_nodes = self._by_offer.get(offer)
        if valid_nodes is None:
            valid_nodes = self._by_offer[offer] = self._interned(self._valid(offer, self._first))
        return valid_nodes

    def is_known(self, pod_uid: str, node: str) -> bool:
        """Return whether kube-scheduler has offered or left out this node for the member since the node last changed."""
        offer = self._offers.get(pod_uid)
        return pod_uid == self._pod_uid or (offer is not None and self._changed.get(node, offer.place) <= offer.place)

    def _valid(self, offer: _Offer, current_offer: Names) -> Names:
        """Return the offer, updated by `current_offer` for the nodes that have changed since."""
        outdated = {name for name, place in self._changed.items() if place > offer.place}
        return (offer.nodes - outdated) | (current_offer & outdated) if outdated else offer.nodes

    def _interned(self, names: Names) -> Names:
        """Return one object for equal sets of names."""
        return self._sets.setdefault(names, names)
