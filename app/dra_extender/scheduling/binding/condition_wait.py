from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

import structlog

from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.state.notifier import Notifier, wait_for_any
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import is_group
from dra_extender.model.resource_claim import ClaimHead
from dra_extender.model.snapshot import allocated_at
from dra_extender.scheduling.binding.prebind import BindingTimeoutError
from dra_extender.scheduling.claims.conditions import ConditionVerdict, Readiness, conditional_devices, judge
from dra_extender.scheduling.claims.lookup import FoundClaim
from dra_extender.scheduling.claims.releaser import ClaimReleasedError, ClaimReleaser
from dra_extender.scheduling.evaluation.backoff import DeviceBackoff
from dra_extender.scheduling.ports.cluster import Cluster, ClusterError
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options
from dra_extender.telemetry.metrics import Metrics

PENDING_REASON: Final = "BindingConditionsPending"
_LONGEST_SECONDS: Final = 60.0
_LOG = structlog.get_logger(__name__)

GoOn = Callable[[], Awaitable[None]]
"""Raises RetryableError if waiting makes no sense any more."""


class _Judged(NamedTuple):
    found: FoundClaim
    verdict: ConditionVerdict


class _DevicesFailedError(ClaimReleasedError):
    """A device reports a binding failure condition."""


class BindingWait:
    """Holds a bind back until the drivers report the pod's devices ready; gives them back when they fail or take too long."""

    def __init__(
        self,
        ledger: Ledger,
        giving_back: ClaimReleaser,
        cool_downs: DeviceBackoff,
        cluster: Cluster,
        metrics: Metrics,
        options: Options,
    ) -> None:
        self._ledger = ledger
        self._giving_back = giving_back
        self._cool_downs = cool_downs
        self._cluster = cluster
        self._metrics = metrics
        self._options = options
        self._waiting = 0
        metrics.before_render(lambda: metrics.binding.waiting(self._waiting))

    async def __call__(self, found: Sequence[FoundClaim], pod: Pod, node: str, go_on: GoOn, nudge: Notifier) -> None:
        """Return when every device of these claims is ready.

        `go_on` is asked at every turn; `nudge` fires when it should be asked.

        Raises:
            RetryableError: a device failed or took too long (the pod's part of the claim is given back, and other devices are tried
                first for it for a while), a claim is not the pod's any more, or whatever `go_on` raises.
        """
        await go_on()
        devices = [result for each in found for result in conditional_devices(each.record.claim)]
        if not devices or not self._options.binding_conditions:
            return
        since = self._cluster.clock.now()
        status = "error"
        self._waiting += 1
        try:
            await self._wait(found, pod, node, go_on, nudge)
            status = "success"
        except _DevicesFailedError:
            status = "failed"
            raise
        except BindingTimeoutError:
            status = "timeout"
            raise
        finally:
            self._waiting -= 1
            seconds = self._cluster.clock.now() - since
            self._metrics.binding.waited(pod.scheduler_name, [each.driver for each in devices], status, seconds)

    def concerns(self, found: Sequence[FoundClaim]) -> bool:
        """Whether any device of these claims, written or just taken, has binding conditions."""
        if not self._options.binding_conditions:
            return False
        return any(
            any(each.binding_conditions for each in pending.allocation.devices.results)
            if (pending := claim.record.pending) is not None
            else bool(conditional_devices(claim.record.claim))
            for claim in found
        )

    async def confirm(self, found: Sequence[FoundClaim], ready: Sequence[ClaimHead], pod: Pod) -> None:
        """Return if every device is still ready: much may have happened since the wait, while others were waited for.

        Claims that are as they were when they were found `ready` need no further thought.

        Raises:
            RetryableError: as above, or a device is not ready any more.
        """
        if not self._options.binding_conditions:
            return
        if all(self._giving_back.current(each, pod).claim is claim for each, claim in zip(found, ready, strict=True)):
            return
        try:
            pending = await self._pending(found, pod, self._cluster.clock.now())
        except (_DevicesFailedError, BindingTimeoutError):
            await self._nominate(pod, "")
            raise
        if pending:
            raise RetryableError(f"not ready any more: {'; '.join(each.verdict.text for each in pending)}")

    async def _wait(self, found: Sequence[FoundClaim], pod: Pod, node: str, go_on: GoOn, nudge: Notifier) -> None:
        since, told, nominated = self._cluster.clock.now(), "", pod.nominated_node_name == node
        try:
            while pending := await self._pending(found, pod, since):
                text = _message(pending, node)
                if text != told:
                    told = text
                    self._cluster.events.about_pod(pod, warning=False, reason=PENDING_REASON, message=text)
                if nominated:
                    await self._something_changes(found, pending, nudge)
                else:
                    # What changes meanwhile is found by judging again.
                    nominated = True
                    await self._nominate(pod, node)
                await go_on()
        except ClaimReleasedError:
            if nominated:
                await self._nominate(pod, "")
            raise

    async def _pending(self, found: Sequence[FoundClaim], pod: Pod, since: float) -> Sequence[_Judged]:
        """The claims that are not ready yet, as they are known now.

        Raises:
            RetryableError: a claim is not the pod's any more.
            _DevicesFailedError, BindingTimeoutError: the claims of such devices are given back.
        """
        judged = [self._judged(each, pod, since) for each in found]
        for readiness, problem in ((Readiness.FAILED, _DevicesFailedError), (Readiness.TIMED_OUT, BindingTimeoutError)):
            bad = [each for each in judged if each.verdict.readiness is readiness]
            if bad:
                self._leave_alone(bad, pod)
                for each in bad:
                    await self._giving_back(each.found, pod)
                words = "; ".join(each.verdict.text for each in bad)
                raise problem(f"binding conditions {readiness}: {words}")
        return [each for each in judged if each.verdict.readiness is Readiness.PENDING]

    def _leave_alone(self, bad: Sequence[_Judged], pod: Pod) -> None:
        """Have the pod try other devices first for a while; of a claim of its PodGroup also the members that wait."""
        for each in bad:
            devices = frozenset(trouble.device for trouble in each.verdict.troubles)
            waiting = {pod.uid}
            if is_group(each.found.consumer):
                members = self._ledger.pods.members(pod.namespace, each.found.consumer.name)
                waiting |= {other.uid for other in members if not (other.node_name or other.finished)}
            for uid in waiting:
                if not devices <= self._cool_downs.of(uid):
                    self._cool_downs.start(uid, devices)

    def _judged(self, found: FoundClaim, pod: Pod, since: float) -> _Judged:
        known = self._giving_back.current(found, pod)
        now, timeout = self._cluster.clock.now(), self._options.binding_timeout_seconds
        return _Judged(found, judge(known.claim, now=now, waiting_since=since, timeout=timeout))

    async def _nominate(self, pod: Pod, node: str) -> None:
        """Tell autoscalers, and a scheduler that starts meanwhile, where the pod is going; no reason to fail."""
        try:
            await self._cluster.pods.nominate(pod.namespace, pod.name, pod.uid, node)
        except ClusterError as problem:
            _LOG.warning("the nominated node could not be published", pod=pod.key, node=node, problem=str(problem))

    async def _something_changes(
        self, found: Sequence[FoundClaim], pending: Sequence[_Judged], nudge: Notifier
    ) -> None:
        """Until a claim changes (one that is ready may fail yet), the first clock runs out, or there is a nudge."""
        claims = self._ledger.claims
        left = min(each.verdict.deadline for each in pending) - self._cluster.clock.now()
        signals = [claims.change_of(each.record.claim.metadata.uid) for each in found]
        await wait_for_any((*signals, nudge), min(max(left, 0.0) + 0.001, _LONGEST_SECONDS))


def _message(pending: Sequence[_Judged], node: str) -> str:
    """Which device waits for what since when; constant until that changes, so that it is one Event."""
    return "; ".join(map(_words, pending)) + f"; before that the pod cannot run on node {node}"


def _words(judged: _Judged) -> str:
    since = allocated_at(judged.found.record.claim)
    return judged.verdict.text + (f", since {since}" if since else "")
