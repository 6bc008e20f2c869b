"""Placements that are used again: on an equivalent node, and with share IDs of their own.

The result cache keeps one placement for all nodes of an equivalence class and for all replicas of a workload.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import uuid4

import msgspec

from dra_extender.model.allocation import ClaimPlacement, Placement
from dra_extender.model.device import PoolId
from dra_extender.model.node_selector import only_node

_replace = msgspec.structs.replace


@dataclass(frozen=True, slots=True)
class PlacementTemplate:
    """A placement on a node, with that node's local pools in order.  `on` makes the placement for an equivalent node."""

    node: str
    pools: tuple[PoolId, ...]
    placement: Placement

    def on(self, node: str, pools: tuple[PoolId, ...]) -> Placement:
        """The same devices of another node, whose local pools are these; share IDs stay the same."""
        names = {own: other[1] for own, other in zip(self.pools, pools, strict=True) if own != other}
        claims = tuple(self._claim(each, node, names) for each in self.placement.claims)
        return _replace(self.placement, claims=claims)

    def _claim(self, claim: ClaimPlacement, node: str, names: Mapping[PoolId, str]) -> ClaimPlacement:
        allocation = claim.allocation
        results = tuple(
            _replace(each, pool=names.get((each.driver, each.pool), each.pool)) for each in allocation.devices.results
        )
        selector = allocation.node_selector
        if selector == only_node(self.node):
            selector = only_node(node)
        return ClaimPlacement(
            allocation=_replace(
                allocation, devices=_replace(allocation.devices, results=results), node_selector=selector
            ),
            holdings=tuple(
                _replace(each, pool=names.get(each.pool_id, each.pool), node=None if each.node is None else node)
                for each in claim.holdings
            ),
        )


def new_share_id() -> str:
    """A share ID that no other share has in any cluster."""
    return str(uuid4())


def with_fresh_shares(placement: ClaimPlacement, new_share_id: Callable[[], str]) -> ClaimPlacement:
    """The placement with share IDs of its own (KEP-5075); the same object if it has no shares.

    The cache gives one placement to every replica of a workload, but a share ID names one share alone.
    """
    results = placement.allocation.devices.results
    for each in results:
        if each.share_id is not None:
            break
    else:
        return placement
    share_ids = [None if each.share_id is None else new_share_id() for each in results]
    renamed = tuple(_replace(each, share_id=share_id) for each, share_id in zip(results, share_ids, strict=True))
    devices = _replace(placement.allocation.devices, results=renamed)
    return ClaimPlacement(
        allocation=_replace(placement.allocation, devices=devices),
        holdings=tuple(
            _replace(each, share_id=share_id) for each, share_id in zip(placement.holdings, share_ids, strict=True)
        ),
    )
