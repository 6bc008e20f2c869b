"""The release of claims whose devices were allocated to another claim first, before the Binding."""

from collections.abc import Sequence
from typing import Final, Protocol

import structlog

from dra_extender.allocator.rules.verdict import DEVICE
from dra_extender.ledger.index.guards import whole_devices
from dra_extender.ledger.state.notifier import Notifier, wait_for_any
from dra_extender.model.pod import Pod
from dra_extender.scheduling.binding.conflicts import FOREIGN, AllocationConflict, find_conflict
from dra_extender.scheduling.binding.decision import BindDecision
from dra_extender.scheduling.binding.guard_claims import GuardClaims
from dra_extender.scheduling.claims.lookup import FoundClaim
from dra_extender.scheduling.claims.releaser import ClaimReleasedError, ClaimReleaser
from dra_extender.scheduling.evaluation.backoff import DeviceBackoff
from dra_extender.scheduling.ports.context import SchedulingContext
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import YieldPolicy

_LOOK_SECONDS: Final = 0.25
_LOG = structlog.get_logger(__name__)


class WaitingBind(Protocol):
    """A bind whose claims are written, as the stages see it that wait for others."""

    @property
    def pod(self) -> Pod:
        """The pod that is being bound."""
        ...

    @property
    def node(self) -> str:
        """The node to which it is bound."""
        ...

    @property
    def claims(self) -> Sequence[FoundClaim]:
        """The claims of the pod."""
        ...

    @property
    def deadline(self) -> float:
        """When the bind gives up (monotonic seconds)."""
        ...

    @property
    def recheck(self) -> Notifier:
        """Fires when `check` may raise."""
        ...

    def check(self) -> None:
        """Raise RetryableError if the bind should end now."""
        ...


class ConflictRelease:
    """Releases the claims of a bind whose devices were allocated to another claim first, and begins a backoff of the node.

    If the other claim is another scheduler's, the release waits until it harms no pod (`YieldPolicy`).
    """

    def __init__(
        self,
        context: SchedulingContext,
        decision: BindDecision,
        releaser: ClaimReleaser,
        backoff: DeviceBackoff,
        guards: GuardClaims | None,
    ) -> None:
        self._ledger = context.ledger
        self._metrics = context.metrics
        self._clock = context.clock
        self._policy = context.options.yield_policy
        self._decision = decision
        self._releaser = releaser
        self._backoff = backoff
        self._guards = guards

    async def release_conflicting(self, bind: WaitingBind) -> None:
        """Return if the bind may go on: no claim is in conflict, or another pod runs with it already.

        Raises:
            ClaimReleasedError: there was a conflict; every claim of the pod with one is released.
            RetryableError: the bind should end; another scheduler's claim has a device until the bind's deadline; or the API server
                refused a write.
        """
        bind.check()
        text = ""
        for each in bind.claims:
            conflict = self._conflict(each, bind)
            if conflict is not None and self._must_wait(conflict, bind.pod):
                conflict = await self._wait_while_unsafe(each, bind, conflict)
            if conflict is None:
                continue
            name = "/".join(each.record.claim.metadata.key)
            text = f"claim {name}: {conflict.text}"
            self._metrics.overlap(conflict.kind, "yielded", conflict.writer)
            _LOG.warning(
                "an allocation overlaps another one and is released", claim=name, node=bind.node, **conflict._asdict()
            )
            if self._guards is not None:
                await self._guards.prepare(whole_devices(each.record.holdings))
            await self._releaser.release(each, bind.pod)
        if text:
            self._backoff.nodes.undone(bind.pod.uid, bind.node)
            raise ClaimReleasedError(text)

    async def _wait_while_unsafe(
        self, claim: FoundClaim, bind: WaitingBind, conflict: AllocationConflict | None
    ) -> AllocationConflict | None:
        """Wait until the conflict is over (None), or the claim can be released without harm to other pods."""
        while conflict is not None and self._must_wait(conflict, bind.pod):
            if self._clock.monotonic() >= bind.deadline:
                name = "/".join(claim.record.claim.metadata.key)
                raise RetryableError(
                    f"claim {name}: {conflict.text}; pod {bind.pod.key} waits for the end of that allocation"
                )
            await wait_for_any((bind.recheck,), _LOOK_SECONDS)
            bind.check()
            conflict = self._conflict(claim, bind)
        return conflict

    def _conflict(self, claim: FoundClaim, bind: WaitingBind) -> AllocationConflict | None:
        pools = self._decision.pools_of(bind.node)
        found = find_conflict(
            claim.record, self._ledger.claims, self._ledger.slices, pools, self._decision.is_compatible
        )
        return None if found is None or self._releaser.runs_elsewhere(claim, bind.pod) else found

    def _must_wait(self, conflict: AllocationConflict, pod: Pod) -> bool:
        """Whether a release now could make another scheduler allocate a device twice."""
        if self._policy is YieldPolicy.CLEAR or (conflict.kind, conflict.writer) != (DEVICE, FOREIGN):
            return False
        return self._policy is YieldPolicy.WAIT or self._ledger.pods.other_schedulers_wait_for_devices(
            pod.scheduler_name
        )
