"""What a ledger counts as taken, in a form in which two ledgers can be compared."""

from collections import Counter
from collections.abc import Mapping

from dra_extender.ledger.usage import UsageTable
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.device import PoolId


def holdings_by_device(usage: UsageTable) -> Mapping[PoolId, Mapping[str, Counter[DeviceHolding]]]:
    """The holdings by pool and device; their order does not matter."""
    return {pool: {device: Counter(holdings) for device, holdings in usage.pool(pool).items()} for pool in usage.pools}
