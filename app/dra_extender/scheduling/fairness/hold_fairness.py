"""Holds among namespaces: a pod that others' unused holds keep out gets its turn, whatever the holders do."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final

from dra_extender.ledger.events import HoldEnded
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.device import PoolId
from dra_extender.model.pod import Pod
from dra_extender.scheduling.evaluation.result import FilterResult, NodeResult
from dra_extender.scheduling.fairness.hold_shares import HoldShares
from dra_extender.scheduling.fairness.stale_holds import RevocationScope, StaleHolds
from dra_extender.scheduling.permit.permit import Permit
from dra_extender.scheduling.ports.cluster import Clock

_SLACK_SECONDS: Final = 0.05


class HoldFairness:
    """Ties the two halves together: `shares` limits what is offered, `stale` ends what is held for too long.

    A pod that holds keep out is looked at again when those are stale.
    """

    def __init__(
        self,
        ledger: Ledger,
        gate: Permit,
        binding: Collection[str],
        clock: Clock,
        reconsider: Callable[[str], None],
    ) -> None:
        """`reconsider` is called with the UID of a pod that may fit by now."""
        self.shares = HoldShares(ledger, clock)
        self.stale = StaleHolds(ledger, self.shares, gate, binding, clock)
        self._reconsider = reconsider
        self._timers: set[str] = set()
        ledger.events.subscribe(HoldEnded, lambda event: self.shares.hold_ended(*event))

    async def make_room(self, attempt: FilterResult, again: Callable[[], Awaitable[FilterResult]]) -> FilterResult:
        """Revoke the stale holds behind which the pod fits, no more than it takes, and try `again`."""
        for scope in RevocationScope:
            if attempt.fits or not attempt.revocable:
                break
            self.stale.revoke(attempt.revocable, scope)
            attempt = await again()
        return attempt

    def refused(self, pod: Pod, attempt: FilterResult) -> None:
        """The pod was refused: it waits for holds to end if it would fit without them."""
        if not attempt.behind:
            self.shares.waits_no_more(pod.uid)
            return
        self.shares.waits(pod, {holding.pool_id for each in attempt.behind for holding in each.holdings})
        self._look_later(pod.uid)

    def among(self, pod: Pod, names: Sequence[str], fits: Mapping[str, NodeResult], count: int) -> Sequence[str]:
        """The nodes to offer, see HoldShares.

        Raises:
            RetryableError: the pod may be offered none at present.
        """
        if not self.shares.anybody_waits:
            return names[:count]
        return self.shares.among(pod, names, lambda name: _pools(fits[name]), count)

    def _look_later(self, pod_uid: str) -> None:
        if pod_uid in self._timers:
            return
        self._timers.add(pod_uid)
        seconds = self.shares.stale_after + _SLACK_SECONDS
        asyncio.get_running_loop().call_later(seconds, self._look, pod_uid)

    def _look(self, pod_uid: str) -> None:
        self._timers.discard(pod_uid)
        if self.shares.is_waiting(pod_uid):
            self._reconsider(pod_uid)
            self._look_later(pod_uid)


def _pools(outcome: NodeResult) -> set[PoolId]:
    placement = outcome.placement
    claims = () if placement is None else placement.claims
    return {holding.pool_id for claim in claims for holding in claim.holdings}
