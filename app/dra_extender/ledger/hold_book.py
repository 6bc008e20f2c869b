"""Holds: devices reserved for pending pods between the filter answer and the bind that names one node.

A hold belongs to a claim and lists the pods that use the claim.  It keeps one placement per offered node.  All placements count as
in use until the hold is narrowed to one node or ends, because kube-scheduler may choose any of the nodes.  Holds are an overlay
beside what is allocated: if a restart loses them, bind decides anew, and never wrongly.
"""

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from dra_extender.ledger.notifier import Notifier
from dra_extender.ledger.set_index import discard_member
from dra_extender.ledger.usage import UsageTable
from dra_extender.model.allocation import ClaimPlacement, DeviceHolding, ScoreTerms
from dra_extender.model.device import DeviceId, PoolId
from dra_extender.runtime.caches import LruCache

MOST_OF_A_NAMESPACE: Final = 10_000
"""The most holds of one namespace at a time; each keeps as many placements as nodes were offered."""

_MOST_PARTIAL: Final = 8


@dataclass(slots=True)
class Hold:
    """One claim's hold: placements by node with the node version each was decided at, pods, and when it lapses (monotonic).

    `score_terms`: the score terms of the placements, where there are any.  `ends_at`: `latest` if it is nominated, otherwise
    `expires`.  `since`: when it was placed (monotonic).  Holds of the same `unit` (UID of a pod or a PodGroup)
    are revoked together.
    """

    claim_uid: str
    placements: dict[str, ClaimPlacement]
    versions: dict[str, int]
    expires: float
    pods: set[str] = field(default_factory=set)
    score_terms: Mapping[str, ScoreTerms] = field(default_factory=dict)
    nominated: bool = False
    namespace: str = ""
    unit: str = ""
    since: float = 0.0
    latest: float = math.inf

    @property
    def ends_at(self) -> float:
        return self.latest if self.nominated else self.expires

    @property
    def is_single_node(self) -> bool:
        return len(self.placements) == 1


class HoldView:
    """All holds, by claim and by pod, to be read.

    `held_usage` is everything they keep.  `changed` fires when a hold ends or is narrowed to one node; `releases` counts how
    often that was, `expired` how many holds have expired.
    """

    def __init__(self) -> None:
        self._holds: dict[str, Hold] = {}
        self._by_pod: dict[str, set[str]] = {}
        self._kept: dict[str, Sequence[DeviceHolding]] = {}
        # The usage without some holds, until the next change.
        self._partial: LruCache[frozenset[str], UsageTable] = LruCache(_MOST_PARTIAL)
        self.held_usage = UsageTable()
        self.changed = Notifier()
        self.releases = 0
        self.expired = 0

    def __len__(self) -> int:
        return len(self._holds)

    def get(self, claim_uid: str) -> Hold | None:
        return self._holds.get(claim_uid)

    def of_pod(self, pod_uid: str) -> tuple[Hold, ...]:
        return tuple(self._holds[uid] for uid in sorted(self._by_pod.get(pod_uid, ())))

    def all(self) -> Iterable[Hold]:
        return self._holds.values()

    def holdings(self, claim_uid: str) -> Sequence[DeviceHolding]:
        return self._kept.get(claim_uid, ())

    @property
    def multi_node(self) -> int:
        return sum(not hold.is_single_node for hold in self._holds.values())

    def held_usage_without(self, claims: frozenset[str]) -> UsageTable:
        """Return what all holds keep except those of these claims; read-only."""
        table = self._partial.get(claims)
        if table is None:
            table = self._partial[claims] = UsageTable()
            for claim_uid, holdings in self._kept.items():
                if claim_uid not in claims:
                    table.add(holdings)
        return table


class HoldBook(HoldView):
    """All holds, to be changed."""

    def __init__(
        self,
        report_changed: Callable[[Collection[PoolId]], None],
        report_ended: Callable[[Hold, Sequence[DeviceHolding], bool], None] = lambda *_: None,
    ) -> None:
        """`report_changed` gets the pools in which the overlay changed, `report_ended` the parts of a `HoldEnded`."""
        super().__init__()
        self._by_namespace: dict[str, OrderedDict[str, None]] = {}
        self._report_changed = report_changed
        self._report_ended = report_ended
        # No hold expires before this time.
        self._earliest = math.inf

    def place(self, hold: Hold) -> None:
        """Place a hold, in place of one of the same claim.  `end` undoes it."""
        self.end(hold.claim_uid)
        self._holds[hold.claim_uid] = hold
        self._earliest = min(self._earliest, hold.ends_at)
        claims = self._by_namespace.setdefault(hold.namespace, OrderedDict())
        claims[hold.claim_uid] = None
        for pod in hold.pods:
            self._by_pod.setdefault(pod, set()).add(hold.claim_uid)
        self._keep(hold)
        if len(claims) > MOST_OF_A_NAMESPACE:
            self.end(next(iter(claims)))

    def add_pod(self, claim_uid: str, pod_uid: str, expires: float) -> None:
        """Add a further pod that uses the same claim; the hold expires no earlier than `expires`."""
        hold = self._holds[claim_uid]
        hold.pods.add(pod_uid)
        hold.expires = max(hold.expires, expires)
        self._by_pod.setdefault(pod_uid, set()).add(claim_uid)

    def rekey(self, claim_uid: str, new_uid: str) -> None:
        """Give the hold to the claim with the new UID, in place of that claim's own hold."""
        hold = self._holds.get(claim_uid)
        if hold is None or claim_uid == new_uid:
            return
        self.end(new_uid)
        self._holds[new_uid] = self._holds.pop(claim_uid)
        self._kept[new_uid] = self._kept.pop(claim_uid)
        self._partial.clear()
        claims = self._by_namespace[hold.namespace]
        del claims[claim_uid]
        claims[new_uid] = None
        hold.claim_uid = new_uid
        for pod in hold.pods:
            discard_member(self._by_pod, pod, claim_uid)
            self._by_pod.setdefault(pod, set()).add(new_uid)

    def narrow_to(self, claim_uid: str, node: str, *, nominated: bool = False) -> None:
        """Keep this node only.  A nominated hold lasts until its `latest`; a node that is not held ends the hold."""
        hold = self._holds.get(claim_uid)
        if hold is None:
            return
        if node not in hold.placements:
            self.end(claim_uid)
            return
        hold.nominated = nominated
        self._earliest = min(self._earliest, hold.ends_at)
        if len(hold.placements) > 1:
            hold.placements = {node: hold.placements[node]}
            self._keep(hold)
            self.releases += 1
            self.changed.fire()

    def end(self, claim_uid: str, *, allocated: bool = False) -> None:
        """Release all devices held for this claim; `allocated`: because the claim has its devices now."""
        hold = self._holds.pop(claim_uid, None)
        if hold is None:
            return
        for pod in hold.pods:
            discard_member(self._by_pod, pod, claim_uid)
        claims = self._by_namespace[hold.namespace]
        del claims[claim_uid]
        if not claims:
            del self._by_namespace[hold.namespace]
        self._report_ended(hold, self._kept[claim_uid], allocated)
        holdings = self._kept.pop(claim_uid)
        self.held_usage.remove(holdings)
        self._overlay_changed(holdings)
        self.releases += 1
        self.changed.fire()

    def release_pod(self, pod_uid: str) -> None:
        """Remove the pod from its holds; holds without pods end."""
        for claim_uid in sorted(self._by_pod.get(pod_uid, ())):
            hold = self._holds[claim_uid]
            if hold.pods == {pod_uid}:
                self.end(claim_uid)
            else:
                hold.pods.discard(pod_uid)
                discard_member(self._by_pod, pod_uid, claim_uid)

    def expire(self, now: float) -> int:
        """End expired holds; returns how many, and adds them to `expired`."""
        if now < self._earliest:
            return 0
        over = [uid for uid, hold in self._holds.items() if hold.ends_at <= now]
        for claim_uid in over:
            self.end(claim_uid)
        self._earliest = min((hold.ends_at for hold in self._holds.values()), default=math.inf)
        self.expired += len(over)
        return len(over)

    def _keep(self, hold: Hold) -> None:
        """Replace what this hold kept by what it keeps now; only the difference counts as a change."""
        gone = list(self._kept.get(hold.claim_uid, ()))
        holdings = self._kept[hold.claim_uid] = kept_by(hold.placements.values())
        added = holdings
        if gone:
            added = list[DeviceHolding]()
            for holding in holdings:
                if holding in gone:
                    gone.remove(holding)
                else:
                    added.append(holding)
            self.held_usage.remove(gone)
        self.held_usage.add(added)
        self._overlay_changed((*gone, *added))

    def _overlay_changed(self, holdings: Iterable[DeviceHolding]) -> None:
        self._partial.clear()
        self._report_changed({holding.pool_id: None for holding in holdings})


class HeldNodes:
    """The nodes on which holds keep devices, by pool."""

    def __init__(self) -> None:
        self._by_pool: dict[PoolId, frozenset[str] | None] = {}
        self._pools_of: Counter[str] = Counter()
        self._anywhere = 0

    def add_pool(self, pool_id: PoolId, nodes: frozenset[str] | None) -> None:
        """Add a pool of which holds keep devices, and which these nodes reach (None: possibly any node)."""
        if pool_id in self._by_pool:
            return
        self._by_pool[pool_id] = nodes
        self._anywhere += nodes is None
        for name in nodes or ():
            self._pools_of[name] += 1

    def remove_pool(self, pool_id: PoolId) -> None:
        """Remove a pool of which holds keep no device any more."""
        if pool_id not in self._by_pool:
            return
        nodes = self._by_pool.pop(pool_id)
        self._anywhere -= nodes is None
        for name in nodes or ():
            self._pools_of[name] -= 1
            if not self._pools_of[name]:
                del self._pools_of[name]

    @property
    def nodes(self) -> Container[str] | None:
        """The nodes; None: possibly any node.  A live view."""
        return None if self._anywhere else self._pools_of.keys()


def kept_by(placements: Iterable[ClaimPlacement]) -> Sequence[DeviceHolding]:
    """Return the smallest hold that covers every listed placement of a claim.

    For a device in shares that is one holding with the greatest share of any placement, per capacity: a device that several nodes
    reach is not kept once for each.  A device that is taken whole counts the same once and more often.
    """
    alternatives = [placement.holdings for placement in placements]
    if len(alternatives) == 1:
        return alternatives[0]
    if not any(holding.share_id is not None for holdings in alternatives for holding in holdings):
        return [holding for holdings in alternatives for holding in holdings]
    union: list[DeviceHolding] = []
    shares: dict[DeviceId, dict[int, list[DeviceHolding]]] = {}
    for index, holdings in enumerate(alternatives):
        for holding in holdings:
            if holding.share_id is None or holding.admin:
                union.append(holding)
            else:
                device_id = holding.device_id
                shares.setdefault(device_id, {}).setdefault(index, []).append(holding)
    for shares_by_placement in shares.values():
        union += _greatest(list(shares_by_placement.values()))
    return union


def _greatest(alternatives: Sequence[Sequence[DeviceHolding]]) -> Sequence[DeviceHolding]:
    """Return the shares that one placement has of a device, or one share that is as great as those of any placement."""
    if len(alternatives) == 1:
        return alternatives[0]
    greatest: dict[str, int] = {}
    for shares in alternatives:
        amounts: dict[str, int] = {}
        for share in shares:
            for name, amount in share.consumed_capacity:
                amounts[name] = amounts.get(name, 0) + amount
        for name, amount in amounts.items():
            greatest[name] = max(amount, greatest.get(name, amount))
    # Two placements may have been decided before and after the slice changed, so each snapshot stays; so does each node, to which
    # the share may bind the device.
    distinct = {(share.consumption, share.node): share for shares in alternatives for share in shares}
    first, *further = distinct.values()
    share_with_amounts = msgspec.structs.replace(first, consumed_capacity=tuple(greatest.items()))
    return [share_with_amounts, *(msgspec.structs.replace(share, consumed_capacity=()) for share in further)]
