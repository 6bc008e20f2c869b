"""What the usage of a pool breaks."""

from collections.abc import Sequence

from dra_extender.allocator.pools.pools import Pool
from dra_extender.allocator.rules.violations import Violation, usage_violations
from dra_extender.allocator.state.usage import PoolUsage


def contradictions(pool: Pool, usage: PoolUsage) -> Sequence[Violation]:
    """Return every rule that the usage of this pool breaks."""
    return [violation for violation in usage_violations(pool, usage) if violation is not None]
