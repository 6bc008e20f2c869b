"""Usage of pools by allocations and holds, as the allocator reads it."""

from collections.abc import Mapping
from typing import Protocol

from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.device import PoolId

PoolUsage = Mapping[str, tuple[DeviceHolding, ...]]
"""The usage of one pool: device name -> every holding of that device, in no particular order.

Devices that are no longer published are among them, and so are holdings with admin access, which do not make a device taken.
"""


class Usage(Protocol):
    """The usage of all pools as one search sees it: stored allocations, pending allocations, and holds of other pods."""

    def pool(self, pool_id: PoolId) -> PoolUsage:
        """Return the usage of this pool; empty for an unused or unknown pool.  Constant during one search."""
        ...

    def has_compatibility_rules(self, pool_id: PoolId) -> bool:
        """Return whether any holding in this pool has `compatibleOnlyWith` frozen with it."""
        ...


def any_compatibility_rule(usage: PoolUsage) -> bool:
    """Return whether any of these holdings has `compatibleOnlyWith` frozen with it."""
    return any(holding.compatible_only_with is not None for holdings in usage.values() for holding in holdings)
