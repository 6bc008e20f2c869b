from collections.abc import Callable, Sequence
from typing import Final

import structlog

from dra_extender.allocator.rules.verdict import DEVICE
from dra_extender.ledger.index.guards import whole_devices
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.state.notifier import Notifier, wait_for_any
from dra_extender.model.pod import Pod
from dra_extender.scheduling.binding.conflicts import FOREIGN, AllocationConflict, overlap
from dra_extender.scheduling.binding.decision import BindDecision
from dra_extender.scheduling.binding.guard_claims import GuardClaims
from dra_extender.scheduling.claims.lookup import FoundClaim
from dra_extender.scheduling.claims.releaser import ClaimReleasedError, ClaimReleaser
from dra_extender.scheduling.evaluation.backoff import DeviceBackoff
from dra_extender.scheduling.ports.cluster import Clock
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import YieldPolicy
from dra_extender.telemetry.metrics import Metrics

_LOOK_SECONDS: Final = 0.25
_LOG = structlog.get_logger(__name__)


class OverlapRelease:
    """Releases what a bind has written and others were allocated first; the pod leaves the node alone after the second time.

    Where the other one is another scheduler, the release waits until it harms nobody (`YieldPolicy`).
    """

    def __init__(
        self,
        ledger: Ledger,
        decision: BindDecision,
        giving_back: ClaimReleaser,
        cool_downs: DeviceBackoff,
        metrics: Metrics,
        clock: Clock,
        mode: YieldPolicy,
    ) -> None:
        self.guards: GuardClaims | None = None
        self._ledger = ledger
        self._decision = decision
        self._giving_back = giving_back
        self._cool_downs = cool_downs
        self._metrics = metrics
        self._clock = clock
        self._mode = mode

    async def __call__(
        self,
        found: Sequence[FoundClaim],
        pod: Pod,
        node: str,
        check: Callable[[], None],
        nudge: Notifier,
        end: float,
    ) -> None:
        """Returns if nothing overlaps, or if another pod runs on ours already.

        Args:
            found: The claims of the pod.
            pod: The pod that is being bound.
            node: The node it is bound to.
            check: Raises RetryableError when the bind has lost its sense; called before each look.
            nudge: Fires when a look may be due.
            end: When the wait for another scheduler ends (monotonic seconds).

        Raises:
            ClaimReleasedError: something overlapped; every claim of the pod that overlaps is released.
            RetryableError: another scheduler's claim has a device until `end`; the server could not be written to; or as `check`.
        """
        told = ""
        for each in found:
            clash = await self._settled(each, pod, node, check, nudge, end)
            if clash is None:
                continue
            name = "/".join(each.record.claim.metadata.key)
            told = f"claim {name}: {clash.text}"
            self._metrics.overlap(clash.kind, "yielded", clash.writer)
            _LOG.warning("an allocation overlaps another one and is released", claim=name, node=node, **clash._asdict())
            if self.guards is not None:
                await self.guards.prepare(whole_devices(each.record.holdings))
            await self._giving_back(each, pod)
        if told:
            self._cool_downs.nodes.undone(pod.uid, node)
            raise ClaimReleasedError(told)

    async def _settled(
        self, claim: FoundClaim, pod: Pod, node: str, check: Callable[[], None], nudge: Notifier, end: float
    ) -> AllocationConflict | None:
        """What the claim overlaps that it is to be released for now, if anything."""
        while True:
            clash = self._clash(claim, pod, node)
            if clash is None or not self._must_wait(clash, pod):
                return clash
            if self._clock.monotonic() >= end:
                name = "/".join(claim.record.claim.metadata.key)
                raise RetryableError(f"claim {name}: {clash.text}; pod {pod.key} waits for the end of that allocation")
            await wait_for_any((nudge,), _LOOK_SECONDS)
            check()

    def _clash(self, claim: FoundClaim, pod: Pod, node: str) -> AllocationConflict | None:
        pools = self._decision.pools_of(node)
        clash = overlap(claim.record, self._ledger.claims, self._ledger.slices, pools, self._decision.judge)
        return None if clash is None or self._giving_back.runs_somewhere(claim, pod) else clash

    def _must_wait(self, clash: AllocationConflict, pod: Pod) -> bool:
        """Whether a release now could make another scheduler allocate a device twice."""
        if self._mode is YieldPolicy.CLEAR or (clash.kind, clash.writer) != (DEVICE, FOREIGN):
            return False
        return self._mode is YieldPolicy.WAIT or self._ledger.pods.others_want_devices(pod.scheduler_name)
