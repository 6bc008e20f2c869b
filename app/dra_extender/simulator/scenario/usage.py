from collections.abc import Iterable

from dra_extender.allocator.state.usage import PoolUsage, any_compatibility_rule
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.device import PoolId
from dra_extender.model.resource_claim import ResourceClaim
from dra_extender.model.snapshot import holdings_of


class FixedUsage:
    """The allocated state of a set of claims that does not change."""

    def __init__(self, claims: Iterable[ResourceClaim]) -> None:
        self._pools: dict[PoolId, dict[str, tuple[DeviceHolding, ...]]] = {}
        for claim in claims:
            for holding in holdings_of(claim):
                pool = self._pools.setdefault(holding.pool_id, {})
                pool[holding.device] = (*pool.get(holding.device, ()), holding)

    def pool(self, pool_id: PoolId) -> PoolUsage:
        """What is taken in this pool."""
        return self._pools.get(pool_id, {})

    def has_compatibility_rules(self, pool_id: PoolId) -> bool:
        """See Usage."""
        return any_compatibility_rule(self.pool(pool_id))
