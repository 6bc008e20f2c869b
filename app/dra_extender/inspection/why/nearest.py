"""Of all devices on the nodes that share a reason, the one that came closest, and who is in its way."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.explain.accounts import DeviceAccount
from dra_extender.allocator.rules.verdict import published_pool
from dra_extender.allocator.state.rejection import NEAREST_MISS_FIRST, Code
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.holders import Holders
from dra_extender.inspection.why.report import CounterNeed, HolderShare, NearestDevice
from dra_extender.model.device import Device, DeviceId
from dra_extender.model.node import Node

_MOST_NODES: Final = 400
"""Nodes of one reason that are looked at, spread evenly over all of them."""
_RANK: Final = {code: rank for rank, code in enumerate((*NEAREST_MISS_FIRST, Code.NO_MATCH, Code.OTHER_NODE))}


class _Candidate(NamedTuple):
    node: Node
    account: DeviceAccount


class NearestDevices:
    """Finds nearest devices in one cluster."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._holders = Holders(view.ledger)

    def find(self, demand: Demand, request: tuple[str, str], nodes: Sequence[str], code: Code) -> NearestDevice | None:
        """The nearest device for a request (claim, request) that fails with this code on these nodes; None if there is none.

        Devices with the code itself come first; of those that no selector means, that with the least distance.
        """
        best = min(self._candidates(demand, request, nodes), key=lambda each: _order(each.account, code), default=None)
        return None if best is None else self._described(best)

    def _candidates(self, demand: Demand, request: tuple[str, str], nodes: Sequence[str]) -> Iterator[_Candidate]:
        step = max(1, len(nodes) // _MOST_NODES)
        for name in nodes[::step]:
            node = self._view.ledger.nodes.get(name)
            if node is not None:
                for account in self._view.extender.accounts(demand, node, request):
                    if account.code is not None:
                        yield _Candidate(node, account)

    def _described(self, found: _Candidate) -> NearestDevice:
        account = found.account
        return NearestDevice(
            node=found.node.name,
            device="/".join(account.device_id),
            detail=account.detail,
            shortage=self._shortage(account),
            in_force=self._in_force(account),
            holders=tuple(self._in_the_way(account)),
        )

    def _shortage(self, account: DeviceAccount) -> CounterNeed | None:
        found = account.shortage
        if found is None:
            return None
        pool_id = account.device_id[:2]
        pool = published_pool(pool_id, self._view.ledger.slices.of_pool(pool_id))
        return CounterNeed(
            counter_set=found.counter_set,
            counter=found.counter,
            needed=found.asked,
            left=found.remaining,
            total=pool.totals.get(found.counter_set, {}).get(found.counter, 0),
        )

    @staticmethod
    def _in_force(account: DeviceAccount) -> tuple[str, ...] | None:
        conflict = account.conflict
        return None if conflict is None or conflict.state is None else tuple(sorted(conflict.state))

    def _in_the_way(self, account: DeviceAccount) -> Iterator[HolderShare]:
        """The holders of the device itself, or those that draw on the counter set that is short or in conflict."""
        if account.code in (Code.IN_USE, Code.CAPACITY):
            for each in self._holders.of(account.device_id):
                yield HolderShare(holder=each.holder, device=account.device_id[2])
        counter_set = (
            account.shortage.counter_set
            if account.shortage is not None
            else account.conflict.entry.counter_set
            if account.conflict is not None
            else None
        )
        if counter_set is not None:
            yield from self._drawing(account.device_id, counter_set)

    def _drawing(self, device_id: DeviceId, counter_set: str) -> Iterator[HolderShare]:
        pool_id = device_id[:2]
        live = {each.name: each for each in _devices(self._view, pool_id)}
        for name in sorted(self._view.ledger.claims.usage.pool(pool_id)):
            for each in self._holders.of((*pool_id, name)):
                if each.holding.admin:
                    continue
                for entry in each.holding.drawn(live.get(name)):
                    if entry.counter_set == counter_set:
                        yield HolderShare(
                            holder=each.holder,
                            device=name,
                            counters=entry.counters,
                            groups=entry.compatibility_groups,
                        )


def _order(account: DeviceAccount, code: Code) -> tuple[bool, int, float]:
    return (account.code is not code, _RANK.get(account.code or code, len(_RANK)), account.distance)


def _devices(view: ClusterView, pool_id: tuple[str, str]) -> Iterable[Device]:
    for published in view.ledger.slices.of_pool(pool_id):
        yield from published.devices
