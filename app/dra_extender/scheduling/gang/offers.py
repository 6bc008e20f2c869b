"""Which nodes the members of a gang were offered, for as long as that says something.

kube-scheduler offers each member its own nodes (affinity, taints, CPU), one member after the other.  What it offered outlives the
plan that was made with it, so that a gang whose members may go to different nodes is planned as soon as enough is known.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dra_extender.ledger.ledger import Ledger
from dra_extender.model.pod_group import PodGroup
from dra_extender.runtime.caches import LruCache

_REMEMBERED: Final = 1_000
MOST_NAMES: Final = 500_000
"""So many names of nodes are kept in all offers together, equal ones of a gang counted once: about 30 to 60 bytes each."""
_LARGE: Final = 4

Names = frozenset[str]


class _Offer(NamedTuple):
    """The nodes, and the place in the journal of nodes at that time."""

    nodes: Names
    place: int


@dataclass(slots=True)
class _Known:
    """What is known of one gang.  `order` has every node once, in the order in which they were offered first.

    `revision` moves when more is known than was assumed.  `size` counts the names in `order` and in different offers.
    """

    uid: str
    revision: int = 0
    size: int = 0
    offers: dict[str, _Offer] = field(default_factory=dict)
    order: dict[str, None] = field(default_factory=dict)
    _sets: dict[Names, tuple[Names, int]] = field(default_factory=dict)

    def put(self, pod_uid: str, names: Names, place: int) -> None:
        """The member was offered these nodes; equal sets become one object."""
        kept, users = self._sets.get(names, (names, 0))
        self._sets[kept] = kept, users + 1
        if not users:
            self.size += len(names)
        before = self.offers.get(pod_uid)
        self.offers[pod_uid] = _Offer(kept, place)
        if before is not None:
            self._release(before.nodes)

    def drop(self, pod_uid: str) -> None:
        """Forget what the member was offered."""
        self._release(self.offers.pop(pod_uid).nodes)

    def _release(self, names: Names) -> None:
        kept, users = self._sets[names]
        if users > 1:
            self._sets[kept] = kept, users - 1
        else:
            del self._sets[kept]
            self.size -= len(kept)

    def order_by(self, names: Iterable[str]) -> None:
        """These are the nodes, in this order."""
        self.size -= len(self.order)
        self.order = dict.fromkeys(names)
        self.size += len(self.order)


class GangOffers:
    """The offers to the members of the gangs that were asked about last.

    They are bounded in all.  A gang with many different offers forgets the older half of them first; else the gang is forgotten
    that was asked about longest ago.
    """

    def __init__(self, ledger: Ledger, remembered: int = _REMEMBERED, most_names: int = MOST_NAMES) -> None:
        """Keep those of so many gangs, with so many names of nodes."""
        self._ledger = ledger
        self._most_names = most_names
        self._names = 0
        self._gangs: LruCache[tuple[str, str], _Known] = LruCache(remembered, on_evict=self._evicted)

    def __len__(self) -> int:
        return len(self._gangs)

    def note(self, group: PodGroup, pod_uid: str, nodes: Sequence[str]) -> None:
        """The member was offered these nodes, and no others."""
        key, uid = group.metadata.key, group.metadata.uid
        known = self._gangs.get(key)
        if known is None or known.uid != uid:
            self._names -= 0 if known is None else known.size
            known = _Known(uid)
        self._gangs[key] = known
        before = known.size
        names, place = frozenset(nodes), self._ledger.node_changes.since(-1)[1]
        assumed = known.offers.get(pod_uid) or next(iter(known.offers.values()), None)
        if assumed is None or assumed.nodes != names:
            known.revision += 1
            known.order_by((*known.order, *nodes))
        known.put(pod_uid, names, place)
        self._names += known.size - before
        while self._names > self._most_names and self._make_room(pod_uid):
            pass

    @property
    def names(self) -> int:
        """How many names of nodes are kept."""
        return self._names

    def _make_room(self, asked: str) -> bool:
        """Forget something, but not what this member was offered; whether there was anything to forget."""
        largest = max(self._gangs.values(), key=lambda each: each.size)
        if len(self._gangs) > 1 and largest.size <= self._most_names // _LARGE:
            self._gangs.evict()
            return True
        before = largest.size
        others = [uid for uid in largest.offers if uid != asked]
        for uid in others[: (len(others) + 1) // 2]:
            largest.drop(uid)
        largest.revision += 1
        self._names += largest.size - before
        if not others and len(self._gangs) > 1:
            self._gangs.evict()
        return bool(others) or len(self._gangs) > 1

    def _evicted(self, _: tuple[str, str], known: _Known) -> None:
        self._names -= known.size

    def revision(self, group: PodGroup) -> int:
        """The same as long as what is known of the gang's members, or was assumed, has not changed, but by changes of nodes."""
        known = self._gangs.get(group.metadata.key)
        return known.revision if known is not None and known.uid == group.metadata.uid else -1

    def last(self, group: PodGroup, pod_uid: str) -> Collection[str]:
        """What the member was offered last; nothing if that is not known."""
        known = self._gangs.get(group.metadata.key)
        offer = known.offers.get(pod_uid) if known is not None and known.uid == group.metadata.uid else None
        return offer.nodes if offer is not None else ()

    def among(self, group: PodGroup, pod_uid: str, nodes: Collection[str]) -> "OfferedNodes":
        """What is known of the gang, of which the member with this UID is asked about and offered these `nodes`.

        Members that are bound or gone are forgotten, and so are nodes that do not exist any more.
        """
        known, news = self._gangs.get(group.metadata.key), self._ledger.node_changes
        if known is None or known.uid != group.metadata.uid:
            known = _Known(group.metadata.uid)
        before = known.size
        for uid, offer in list(known.offers.items()):
            if self._has_settled(uid) or news.since(offer.place)[0] is None:
                known.drop(uid)
        exist = self._ledger.nodes
        if any(name not in exist for name in known.order):
            known.order_by(name for name in known.order if name in exist)
        if self._gangs.get(group.metadata.key) is known:
            self._names += known.size - before
        begin = min((each.place for each in known.offers.values()), default=0)
        changed = {name: begin + index for index, name in enumerate(news.since(begin)[0] or (), start=1)}
        order = tuple(name for name in {**known.order, **dict.fromkeys(nodes)} if name in exist)
        return OfferedNodes(known.offers, frozenset(nodes), pod_uid, changed, order)

    def _has_settled(self, pod_uid: str) -> bool:
        pod = self._ledger.pods.by_uid(pod_uid)
        return self._ledger.pods.gone(pod_uid) or (pod is not None and (bool(pod.node_name) or pod.finished))


class OfferedNodes:
    """The nodes on which each member may be planned; `nodes` are all of them, in an order that lasts.

    A member counts as offered what it was offered, as long as the nodes are what they were; of a node that has changed since, and
    of a member that was not asked about yet, nothing is known: the offer to the first member that was counts for it.
    """

    def __init__(
        self, offers: dict[str, _Offer], nodes: Names, asked: str, changed: Mapping[str, int], order: Sequence[str]
    ) -> None:
        self._offers = offers
        self._now = nodes
        self._asked = asked
        self._changed = changed
        self.nodes = order
        self._sets: dict[Names, Names] = {}
        self._by_offer: dict[_Offer, Names] = {}
        first = next(iter(offers.values()), None)
        self._first = nodes if first is None else self._valid(first, nodes)

    def to(self, pod_uid: str) -> Names:
        """The nodes of this member; equal sets are one object."""
        if pod_uid == self._asked:
            return self._one(self._now)
        offer = self._offers.get(pod_uid)
        if offer is None:
            return self._one(self._first)
        known = self._by_offer.get(offer)
        if known is None:
            known = self._by_offer[offer] = self._one(self._valid(offer, self._first))
        return known

    def _valid(self, offer: _Offer, others: Names) -> Names:
        """The offer, with what others were offered of the nodes about which it says nothing any more."""
        moved = {name for name, place in self._changed.items() if place > offer.place}
        return (offer.nodes - moved) | (others & moved) if moved else offer.nodes

    def _one(self, names: Names) -> Names:
        return self._sets.setdefault(names, names)
