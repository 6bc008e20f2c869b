from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from dra_extender.model.allocation import ClaimPlacement, Placement
from dra_extender.model.device import PoolId
from dra_extender.model.node_selector import only_node

_replace = msgspec.structs.replace


@dataclass(frozen=True, slots=True)
class PlacementTemplate:
    """A placement on a node, and that node's local pools in order, so that it can be had on a node like it."""

    node: str
    pools: tuple[PoolId, ...]
    placement: Placement

    def on(self, node: str, pools: tuple[PoolId, ...]) -> Placement:
        """The same devices of another node, whose local pools are these; shares keep the names they have."""
        names = {mine: other[1] for mine, other in zip(self.pools, pools, strict=True) if mine != other}
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
            holdings=tuple(_replace(each, pool=names.get(each.pool_id, each.pool)) for each in claim.holdings),
        )
