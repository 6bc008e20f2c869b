"""The wait for the binding conditions of allocated devices (KEP-5007), and the metrics that the KEP names."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import structlog

from dra_extender.ledger.claim_record import ClaimRecord
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.notifier import wait_for_any
from dra_extender.model.allocation_snapshot import allocated_at
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import is_group
from dra_extender.model.resource_claim import ClaimHead
from dra_extender.scheduling.binding.conflicts import ConflictYield
from dra_extender.scheduling.binding.reservations import Unreserve
from dra_extender.scheduling.claims.extended_need import with_subject
from dra_extender.scheduling.claims.lookup import FoundClaim
from dra_extender.scheduling.claims.pod_claims import why_unusable_on
from dra_extender.scheduling.claims.readiness import ClaimReadiness, Readiness, conditional_devices, evaluate_conditions
from dra_extender.scheduling.evaluation.backoff import DeviceBackoff
from dra_extender.scheduling.ports.cluster import Clock, Cluster, ClusterError
from dra_extender.scheduling.ports.errors import ClaimReleasedError, RetryableError
from dra_extender.scheduling.ports.options import Options
from dra_extender.scheduling.requeue.event_notes import with_why_command
from dra_extender.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from dra_extender.scheduling.binding.bind import BindSession

PENDING_REASON: Final = "BindingConditionsPending"
_LONGEST_SECONDS: Final = 60.0
_LOG = structlog.get_logger(__name__)


_ClaimState = tuple[FoundClaim, ClaimReadiness]


class BindingTimeoutError(ClaimReleasedError):
    """Binding conditions were not met in time."""


class _DevicesFailedError(ClaimReleasedError):
    """A device reports a binding failure condition."""


@dataclass(eq=False)
class ConditionWait:
    """Holds a bind back until the drivers report the pod's devices ready; releases the claims if they fail or take too long."""

    ledger: Ledger
    cluster: Cluster
    metrics: Metrics
    options: Options
    unreserve: Unreserve
    backoff: DeviceBackoff
    conflicts: ConflictYield

    def __post_init__(self) -> None:
        self._waiting = 0
        self.metrics.before_render(lambda: self.metrics.binding.bindingconditions_waiting_pods.set(self._waiting))

    def concerns(self, claims: Sequence[FoundClaim]) -> bool:
        """Return whether any device of these claims, allocated or pending, has binding conditions."""
        if not self.options.binding_conditions:
            return False
        return any(
            any(result.binding_conditions for result in pending.allocation.devices.results)
            if (pending := claim.record.pending) is not None
            else bool(conditional_devices(claim.record.claim))
            for claim in claims
        )

    async def wait_until_ready(self, bind: "BindSession") -> None:
        """Return when every device of the bind's claims is ready; look for conflicts at every turn of the wait.

        Raises:
            RetryableError: a device failed or took too long (then the pod's part of the claim is released, and other devices are
                tried first for it for a while), a claim is not the pod's any more, or as `ConflictYield.release_conflicting`.
        """
        devices = [result for claim in bind.claims for result in conditional_devices(claim.record.claim)]
        if not devices or not self.options.binding_conditions:
            return
        since = self.cluster.clock.now()
        status = "error"
        self._waiting += 1
        try:
            await self._wait(bind)
            status = "success"
        except _DevicesFailedError:
            status = "failed"
            raise
        except BindingTimeoutError:
            status = "timeout"
            raise
        finally:
            self._waiting -= 1
            seconds = self.cluster.clock.now() - since
            drivers = [device.driver for device in devices]
            self.metrics.binding.waited(bind.pod.scheduler_name, drivers, status, seconds)

    async def confirm(self, bind: "BindSession", ready: Sequence[ClaimHead]) -> None:
        """Return if every claim is still allocated for the pod and usable on the node, and every device ready.

        The devices of claims that are the same objects as in `ready`, when they were ready, are not looked at again.  Nothing is
        awaited before this returns.
        """
        claims, pod, node = bind.claims, bind.pod, self.ledger.nodes.get(bind.node)
        heads = [self._reserved(claim, pod).claim for claim in claims]
        for claim in claims:
            rejection = None if node is None else why_unusable_on(node, claim, self.ledger)
            if rejection is not None:
                text = with_subject(pod, rejection).text
                raise RetryableError(f"node {bind.node} cannot be used any more: {text}")
        unchanged = all(head is then for head, then in zip(heads, ready, strict=True))
        if unchanged or not self.options.binding_conditions:
            return
        try:
            pending = await self._pending(claims, pod, self.cluster.clock.now())
        except (_DevicesFailedError, BindingTimeoutError):
            await self._nominate(pod, "")
            raise
        if pending:
            raise RetryableError(f"not ready any more: {'; '.join(state.text for _, state in pending)}")

    async def _wait(self, bind: "BindSession") -> None:
        pod, node, since = bind.pod, bind.node, self.cluster.clock.now()
        published, nominated = "", pod.nominated_node_name == node
        try:
            while pending := await self._pending(bind.claims, pod, since):
                text = _message(pending, pod, node)
                if text != published:
                    published = text
                    self.cluster.events.about_pod(pod, warning=False, reason=PENDING_REASON, message=text)
                if nominated:
                    # A claim that is ready may fail yet.
                    signals = [self.ledger.claims.change_of(claim.uid) for claim in bind.claims]
                    seconds_left = min(state.deadline for _, state in pending) - self.cluster.clock.now()
                    await wait_for_any((*signals, bind.recheck), min(max(seconds_left, 0.0) + 0.001, _LONGEST_SECONDS))
                else:
                    # The next look finds what changed during this call.
                    nominated = True
                    await self._nominate(pod, node)
                await self.conflicts.release_conflicting(bind)
        except ClaimReleasedError:
            if nominated:
                await self._nominate(pod, "")
            raise

    async def _pending(self, claims: Sequence[FoundClaim], pod: Pod, since: float) -> Sequence[_ClaimState]:
        """Return the claims that are not ready yet, as they are known now.

        Raises:
            RetryableError: a claim is not the pod's any more.
            _DevicesFailedError, BindingTimeoutError: the claims of such devices are released.
        """
        timeout = self.options.binding_timeout_seconds
        states = []
        for claim in claims:
            record, now = self._reserved(claim, pod), self.cluster.clock.now()
            state = evaluate_conditions(record.claim, now=now, waiting_since=since, timeout=timeout)
            states.append((claim, state))
        for readiness, problem in ((Readiness.FAILED, _DevicesFailedError), (Readiness.TIMED_OUT, BindingTimeoutError)):
            bad = [(claim, state) for claim, state in states if state.readiness is readiness]
            if bad:
                self._begin_backoff(bad, pod)
                await self.unreserve.release_each((claim for claim, _ in bad), pod)
                text = "; ".join(state.text for _, state in bad)
                raise problem(f"binding conditions {readiness}: {text}")
        return [(claim, state) for claim, state in states if state.readiness is Readiness.PENDING]

    def _reserved(self, claim: FoundClaim, pod: Pod) -> ClaimRecord:
        """Return the claim as it is known now.

        Raises:
            ClaimReleasedError: it is not allocated for the pod or its PodGroup any more, or is just being released.
        """
        record = self.ledger.claims.by_uid(claim.uid)
        if (
            record is None
            or record.claim.status.allocation is None
            or not record.claim.reserved_by(claim.consumer.uid)
            or self.unreserve.is_releasing(claim)
        ):
            raise ClaimReleasedError(f"claim {claim.name} was deallocated while pod {pod.key} waited for it")
        return record

    def _begin_backoff(self, bad: Sequence[_ClaimState], pod: Pod) -> None:
        """Have the pod try other devices first for a while; of a claim of its PodGroup also the members that wait."""
        for claim, state in bad:
            devices = frozenset(problem.device for problem in state.problems)
            waiting = {pod.uid}
            if is_group(claim.consumer):
                members = self.ledger.pods.members(pod.namespace, claim.consumer.name)
                waiting |= {member.uid for member in members if not (member.node_name or member.finished)}
            for uid in waiting:
                if not devices <= self.backoff.devices_of(uid):
                    self.backoff.start(uid, devices)

    async def _nominate(self, pod: Pod, node: str) -> None:
        """Publish where the pod is going, for autoscalers and a scheduler that starts meanwhile; a failure is logged only."""
        try:
            await self.cluster.pods.nominate(pod.namespace, pod.name, pod.uid, node)
        except ClusterError as problem:
            _LOG.warning("the nominated node could not be published", pod=pod.key, node=node, problem=str(problem))


class PreBindTimer:
    """Measures what KEP-5007 calls PreBind, as a context: claims are written, binding conditions are waited for.

    On the way out it is observed: a success if nothing was left to do, a timeout if BindingTimeoutError ends it, else a failure.
    """

    def __init__(self, clock: Clock, metrics: Metrics, *, requires_conditions: bool = False) -> None:
        self._clock = clock
        self._metrics = metrics
        self._requires = requires_conditions
        self._since = 0.0
        self._seconds = 0.0
        self._paused = False

    def __enter__(self) -> Self:
        self._since = self._clock.monotonic()
        return self

    def pause(self) -> None:
        """Stop the timer: the pod waits for its gang, or the Binding is posted; neither is PreBind upstream."""
        self._seconds += self._clock.monotonic() - self._since
        self._paused = True

    def resume(self) -> None:
        self._since = self._clock.monotonic()
        self._paused = False

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        status = "success"
        if not self._paused:
            self._seconds += self._clock.monotonic() - self._since
            status = "timeout" if isinstance(problem, BindingTimeoutError) else "failure"
        self._metrics.binding.prebind(status, self._seconds, requires_conditions=self._requires)


def _message(pending: Sequence[_ClaimState], pod: Pod, node: str) -> str:
    """Say which device waits for what since when; constant until that changes, so that it is one Event."""
    texts = []
    for claim, state in pending:
        since = allocated_at(claim.record.claim)
        texts.append(state.text + (f", since {since}" if since else ""))
    return with_why_command((*texts, f"before that the pod cannot run on node {node}"), pod)
