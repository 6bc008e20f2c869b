"""Holds among namespaces: a pod that does not fit because of other pods' unused holds gets its turn, whatever those pods do."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final

from dra_extender.ledger.ledger import Ledger
from dra_extender.model.device import PoolId
from dra_extender.model.pod import Pod
from dra_extender.scheduling.evaluation.result import FilterResult, NodeResult
from dra_extender.scheduling.fairness.hold_shares import HoldShares
from dra_extender.scheduling.fairness.stale_holds import RevocationScope, StaleHolds
from dra_extender.scheduling.holds import HoldService
from dra_extender.scheduling.permit.permit import Permit
from dra_extender.scheduling.ports.cluster import Clock

_SLACK_SECONDS: Final = 0.05


class HoldFairness:
    """Has two parts: `shares` limits what a pod is offered, `stale` revokes what is held for too long.

    A pod that does not fit because of holds is reconsidered when these are stale.
    """

    def __init__(
        self,
        ledger: Ledger,
        permit: Permit,
        binding: Collection[str],
        holds: HoldService,
        clock: Clock,
        reconsider: Callable[[str], None],
    ) -> None:
        """`reconsider` is called with the UID of a pod that may fit by now."""
        self.shares = HoldShares(ledger, clock)
        self.stale = StaleHolds(ledger, self.shares, permit, binding, holds, clock)
        self._reconsider = reconsider
        self._timers: set[str] = set()

    async def revoke_stale(self, result: FilterResult, evaluate: Callable[[], Awaitable[FilterResult]]) -> FilterResult:
        """Revoke the stale holds without which the pod would fit, no more than necessary, and evaluate again."""
        for scope in RevocationScope:
            if result.fits or not result.revocable:
                break
            self.stale.revoke(result.revocable, scope)
            result = await evaluate()
        return result

    def record_rejection(self, pod: Pod, result: FilterResult) -> None:
        """Count the rejected pod as waiting if it would fit without holds."""
        if not result.behind:
            self.shares.end_waiting(pod.uid)
            return
        self.shares.begin_waiting(pod, {holding.pool_id for each in result.behind for holding in each.holdings})
        self._recheck_later(pod.uid)

    def select(self, pod: Pod, names: Sequence[str], fits: Mapping[str, NodeResult], count: int) -> Sequence[str]:
        """The nodes that the pod may be offered, see HoldShares.

        Raises:
            RetryableError: the pod may be offered none at present.
        """
        return self.shares.select(pod, names, lambda name: _pools(fits[name]), count)

    def _recheck_later(self, pod_uid: str) -> None:
        if pod_uid in self._timers:
            return
        self._timers.add(pod_uid)
        seconds = self.shares.stale_after + _SLACK_SECONDS
        asyncio.get_running_loop().call_later(seconds, self._recheck, pod_uid)

    def _recheck(self, pod_uid: str) -> None:
        self._timers.discard(pod_uid)
        if self.shares.is_waiting(pod_uid):
            self._reconsider(pod_uid)
            self._recheck_later(pod_uid)


def _pools(result: NodeResult) -> set[PoolId]:
    placement = result.placement
    claims = () if placement is None else placement.claims
    return {holding.pool_id for claim in claims for holding in claim.holdings}
