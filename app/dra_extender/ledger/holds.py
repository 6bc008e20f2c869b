"""Holds: devices reserved for pending pods between the filter answer and the bind that names one node.

A hold belongs to a claim and lists the pods that use the claim.  It keeps one placement per offered node.  All placements count as
in use until the hold is narrowed to one node or ends, because kube-scheduler may choose any of the nodes.  Holds are an overlay
beside what is allocated: if a restart loses them, bind decides anew, and never wrongly.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from dra_extender.ledger.state.notifier import Notifier
from dra_extender.ledger.state.usage import UsageTable
from dra_extender.model.allocation import ClaimPlacement, DeviceHolding, ScoreTerms
from dra_extender.model.device import DeviceId, PoolId
from dra_extender.runtime.caches import LruCache

MOST_OF_A_NAMESPACE: Final = 10_000
"""The most holds of one namespace at a time; each keeps as many placements as nodes were offered."""

_MOST_PARTIAL: Final = 8


@dataclass(slots=True)
class Hold:
    """One claim's hold: placements by node with the node version each was decided at, pods, and when it lapses (monotonic).

    `score_terms`: the score terms of the placements, where there are any.  A nominated hold ends at `latest`, any other one when it
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
    def end(self) -> float:
        """When it expires (monotonic)."""
        return self.latest if self.nominated else self.expires

    @property
    def is_single_node(self) -> bool:
        """Whether only one node is left."""
        return len(self.placements) == 1


class HoldView(Protocol):
    """All holds, to be read."""

    def __len__(self) -> int:
        """How many there are."""
        ...

    def get(self, claim_uid: str) -> Hold | None:
        """The hold of this claim, if there is one."""
        ...

    def of_pod(self, pod_uid: str) -> tuple[Hold, ...]:
        """The holds this pod is part of."""
        ...

    def all(self) -> Iterable[Hold]:
        """Every hold."""
        ...

    def kept(self, claim_uid: str) -> Sequence[DeviceHolding]:
        """What the hold of this claim keeps."""
        ...

    @property
    def multi_node(self) -> int:
        """How many holds keep devices on several nodes."""
        ...

    @property
    def overlay(self) -> UsageTable:
        """Everything that holds keep."""
        ...

    def overlay_without(self, claims: frozenset[str]) -> UsageTable:
        """What all holds keep except those of these claims."""
        ...

    @property
    def changed(self) -> Notifier:
        """Fires when a hold ends or is narrowed to one node."""
        ...

    @property
    def ended(self) -> int:
        """How many holds have ended or were narrowed to one node."""
        ...

    @property
    def expired(self) -> int:
        """How many holds have expired."""
        ...


class HoldBook:
    """All holds, by claim and by pod.  `overlay` is everything they keep."""

    def __init__(
        self,
        changed: Callable[[Collection[PoolId]], None],
        ended: Callable[[Hold, Sequence[DeviceHolding], bool], None] = lambda *_: None,
    ) -> None:
        """Begin without holds.

        Args:
            changed: Called with the pools in which the overlay changed.
            ended: Called with each hold that ends, what it kept, and whether it ends because its claim is allocated.
        """
        self._holds: dict[str, Hold] = {}
        self._by_pod: dict[str, set[str]] = {}
        self._kept: dict[str, Sequence[DeviceHolding]] = {}
        # Overlays without some holds, until the next change.
        self._partial: LruCache[frozenset[str], UsageTable] = LruCache(_MOST_PARTIAL)
        self._by_namespace: dict[str, OrderedDict[str, None]] = {}
        self._report = changed
        self._report_ended = ended
        # No hold expires before this time.
        self._earliest = math.inf
        self.overlay = UsageTable()
        self.changed = Notifier()
        self.ended = 0
        self.expired = 0

    def __len__(self) -> int:
        return len(self._holds)

    def get(self, claim_uid: str) -> Hold | None:
        """The hold of this claim, if there is one."""
        return self._holds.get(claim_uid)

    def of_pod(self, pod_uid: str) -> tuple[Hold, ...]:
        """The holds this pod is part of."""
        return tuple(self._holds[uid] for uid in sorted(self._by_pod.get(pod_uid, ())))

    def all(self) -> Iterable[Hold]:
        """Every hold."""
        return self._holds.values()

    def kept(self, claim_uid: str) -> Sequence[DeviceHolding]:
        """What the hold of this claim keeps."""
        return self._kept.get(claim_uid, ())

    @property
    def multi_node(self) -> int:
        """How many holds keep devices on several nodes."""
        return sum(not hold.is_single_node for hold in self._holds.values())

    def place(self, hold: Hold) -> None:
        """Place a hold, in place of one of the same claim.  `end` undoes it."""
        self.end(hold.claim_uid)
        self._holds[hold.claim_uid] = hold
        self._earliest = min(self._earliest, hold.end)
        claims = self._by_namespace.setdefault(hold.namespace, OrderedDict())
        claims[hold.claim_uid] = None
        for pod in hold.pods:
            self._by_pod.setdefault(pod, set()).add(hold.claim_uid)
        self._keep(hold)
        if len(claims) > MOST_OF_A_NAMESPACE:
            self.end(next(iter(claims)))

    def add_pod(self, claim_uid: str, pod_uid: str, expires: float) -> None:
        """A further pod uses the same claim; the hold expires no earlier than `expires`."""
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
            self._discard(pod, claim_uid)
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
        self._earliest = min(self._earliest, hold.end)
        if len(hold.placements) > 1:
            hold.placements = {node: hold.placements[node]}
            self._keep(hold)
            self._count_ended()

    def end(self, claim_uid: str, *, allocated: bool = False) -> None:
        """Release everything held for this claim; `allocated`: because the claim has its devices now."""
        hold = self._holds.pop(claim_uid, None)
        if hold is None:
            return
        for pod in hold.pods:
            self._discard(pod, claim_uid)
        claims = self._by_namespace[hold.namespace]
        del claims[claim_uid]
        if not claims:
            del self._by_namespace[hold.namespace]
        self._report_ended(hold, self._kept[claim_uid], allocated)
        self._release(claim_uid)

    def release_pod(self, pod_uid: str) -> None:
        """Remove the pod from its holds; holds without pods end."""
        for claim_uid in sorted(self._by_pod.get(pod_uid, ())):
            hold = self._holds[claim_uid]
            if hold.pods == {pod_uid}:
                self.end(claim_uid)
            else:
                hold.pods.discard(pod_uid)
                self._discard(pod_uid, claim_uid)

    def expire(self, now: float) -> int:
        """End expired holds; returns how many, and adds them to `expired`."""
        if now < self._earliest:
            return 0
        over = [uid for uid, hold in self._holds.items() if hold.end <= now]
        for claim_uid in over:
            self.end(claim_uid)
        self._earliest = min((hold.end for hold in self._holds.values()), default=math.inf)
        self.expired += len(over)
        return len(over)

    def overlay_without(self, claims: frozenset[str]) -> UsageTable:
        """What all holds keep except those of these claims; read-only."""
        table = self._partial.get(claims)
        if table is None:
            table = self._partial[claims] = UsageTable()
            for claim_uid, kept in self._kept.items():
                if claim_uid not in claims:
                    table.add(kept)
        return table

    def _discard(self, pod_uid: str, claim_uid: str) -> None:
        claims = self._by_pod.get(pod_uid)
        if claims is not None:
            claims.discard(claim_uid)
            if not claims:
                del self._by_pod[pod_uid]

    def _keep(self, hold: Hold) -> None:
        """Replace what this hold kept by what it keeps now; only the difference counts as a change."""
        gone = list(self._kept.get(hold.claim_uid, ()))
        kept = self._kept[hold.claim_uid] = kept_by(hold.placements.values())
        added = kept
        if gone:
            added = list[DeviceHolding]()
            for holding in kept:
                if holding in gone:
                    gone.remove(holding)
                else:
                    added.append(holding)
            self.overlay.remove(gone)
        self.overlay.add(added)
        self._report_change((*gone, *added))

    def _release(self, claim_uid: str) -> None:
        kept = self._kept.pop(claim_uid)
        self.overlay.remove(kept)
        self._report_change(kept)
        self._count_ended()

    def _count_ended(self) -> None:
        self.ended += 1
        self.changed.fire()

    def _report_change(self, holdings: Iterable[DeviceHolding]) -> None:
        self._partial.clear()
        self._report({(holding.driver, holding.pool): None for holding in holdings})


class HeldNodes:
    """The nodes on which holds keep devices, by pool."""

    __slots__ = ("_anywhere", "_by_pool", "_pools_of")

    def __init__(self) -> None:
        self._by_pool: dict[PoolId, frozenset[str] | None] = {}
        self._pools_of: dict[str, int] = {}
        self._anywhere = 0

    def add_pool(self, pool_id: PoolId, nodes: frozenset[str] | None) -> None:
        """Holds keep devices of this pool, which these nodes reach (None: possibly any node)."""
        if pool_id in self._by_pool:
            return
        self._by_pool[pool_id] = nodes
        if nodes is None:
            self._anywhere += 1
            return
        for name in nodes:
            self._pools_of[name] = self._pools_of.get(name, 0) + 1

    def remove_pool(self, pool_id: PoolId) -> None:
        """Holds keep no device of this pool any more."""
        if pool_id not in self._by_pool:
            return
        nodes = self._by_pool.pop(pool_id)
        if nodes is None:
            self._anywhere -= 1
            return
        for name in nodes:
            left = self._pools_of[name] - 1
            if left:
                self._pools_of[name] = left
            else:
                del self._pools_of[name]

    def clear(self) -> None:
        """Nothing is held."""
        self._by_pool.clear()
        self._pools_of.clear()
        self._anywhere = 0

    @property
    def nodes(self) -> Container[str] | None:
        """The nodes; None: possibly any node.  A live view."""
        return None if self._anywhere else self._pools_of.keys()


def kept_by(placements: Iterable[ClaimPlacement]) -> Sequence[DeviceHolding]:
    """The least that keeps free what any one of these placements of a claim needs.

    For a device in shares that is one holding with the greatest share of any placement, per capacity: a device that
    several nodes reach is not kept once for each.  A device that is taken whole counts the same once and more often.
    """
    found = [placement.holdings for placement in placements]
    if len(found) == 1:
        return found[0]
    if not any(holding.share_id is not None for holdings in found for holding in holdings):
        return [holding for holdings in found for holding in holdings]
    kept: list[DeviceHolding] = []
    shares: dict[DeviceId, dict[int, list[DeviceHolding]]] = {}
    for index, holding in ((index, each) for index, holdings in enumerate(found) for each in holdings):
        if holding.share_id is None or holding.admin:
            kept.append(holding)
        else:
            device_id = (holding.driver, holding.pool, holding.device)
            shares.setdefault(device_id, {}).setdefault(index, []).append(holding)
    for of_device in shares.values():
        kept += _greatest(list(of_device.values()))
    return kept


def _greatest(alternatives: Sequence[Sequence[DeviceHolding]]) -> Sequence[DeviceHolding]:
    """The shares that one placement has of a device, or one share that is as great as those of any placement."""
    if len(alternatives) == 1:
        return alternatives[0]
    most: dict[str, int] = {}
    for shares in alternatives:
        for name, amount in _sums(shares).items():
            most[name] = max(amount, most.get(name, amount))
    # Two placements may have been decided before and after the slice changed, so each snapshot stays; so does each node, to which
    # the share may bind the device.
    distinct = {(each.consumption, each.node): each for shares in alternatives for each in shares}
    first, *others = distinct.values()
    one = msgspec.structs.replace(first, consumed_capacity=tuple(most.items()))
    return [one, *(msgspec.structs.replace(each, consumed_capacity=()) for each in others)]


def _sums(shares: Iterable[DeviceHolding]) -> dict[str, int]:
    found: dict[str, int] = {}
    for share in shares:
        for name, amount in share.consumed_capacity:
            found[name] = found.get(name, 0) + amount
    return found
