"""Whether a claim is ready: the binding conditions of its devices (KEP-5007)."""

from enum import StrEnum
from typing import NamedTuple

from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.ledger.guard_index import is_guard_reservation
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import DeviceResult
from dra_extender.model.allocation_snapshot import allocated_at, results_of
from dra_extender.model.device import DeviceId
from dra_extender.model.metadata import seconds_of
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import is_group
from dra_extender.model.resource_claim import ClaimHead
from dra_extender.scheduling.claims.lookup import FoundClaim


class Readiness(StrEnum):
    """The states of a claim whose devices have binding conditions."""

    READY = "ready"
    PENDING = "pending"
    FAILED = "failed"
    TIMED_OUT = "timed out"


class DeviceProblem(NamedTuple):
    """A device that is not ready, and the conditions that it waits for; or the one that reports its failure, with its `message`."""

    device: DeviceId
    conditions: tuple[str, ...]
    message: str = ""

    @property
    def name(self) -> str:
        return "/".join(self.device)


class ClaimReadiness(NamedTuple):
    """The readiness of a claim, the devices it is about (none when ready), and when its clock runs out (as `now`)."""

    readiness: Readiness
    problems: tuple[DeviceProblem, ...] = ()
    deadline: float = 0.0

    @property
    def text(self) -> str:
        if self.readiness is Readiness.FAILED:
            return "; ".join(
                f"device {problem.name} reports {problem.conditions[0]}{problem.message and f': {problem.message}'}"
                for problem in self.problems
            )
        return "; ".join(
            f"device {problem.name} waits for {', '.join(problem.conditions)}" for problem in self.problems
        )


def conditional_devices(claim: ClaimHead) -> tuple[DeviceResult, ...]:
    """Return the allocated devices for which a bind has to wait."""
    return tuple(result for result in results_of(claim) if result.binding_conditions)


def evaluate_conditions(claim: ClaimHead, *, now: float, waiting_since: float, timeout: float) -> ClaimReadiness:
    """Return the readiness of an allocated claim at `now` (seconds since the epoch).

    Ready: each device with binding conditions has a status entry in which all of them are "True"; of a share it is the entry of
    that share.  A failure condition that is "True" wins over everything.  The clock starts at the allocation timestamp, so that
    sharers and restarts do not start it anew; it starts at `waiting_since` if there is no timestamp, or one from the future,
    which is that of a machine whose clock is ahead.
    """
    devices = conditional_devices(claim)
    if not devices:
        return ClaimReadiness(Readiness.READY)
    failed, pending = [], []
    for result in devices:
        true = {
            condition.type: condition
            for status in claim.status.devices
            if (status.driver, status.pool, status.device, status.share_id) == (*result.device_id, result.share_id)
            for condition in status.conditions or ()
            if condition.status == "True"
        }
        failure = next((name for name in result.binding_failure_conditions or () if name in true), None)
        if failure is not None:
            failed.append(DeviceProblem(result.device_id, (failure,), true[failure].message or true[failure].reason))
        missing = tuple(name for name in result.binding_conditions or () if name not in true)
        if missing:
            pending.append(DeviceProblem(result.device_id, missing))
    allocated = seconds_of(allocated_at(claim))
    deadline = (waiting_since if allocated is None else min(waiting_since, allocated)) + timeout
    if failed:
        return ClaimReadiness(Readiness.FAILED, tuple(failed), deadline)
    if not pending:
        return ClaimReadiness(Readiness.READY, (), deadline)
    return ClaimReadiness(Readiness.TIMED_OUT if now > deadline else Readiness.PENDING, tuple(pending), deadline)


def why_not_ready(
    claims: tuple[FoundClaim, ...], pod: Pod, ledger: Ledger, now: float, timeout: float
) -> Rejection | None:
    """Return why an allocated claim is of no use: its devices failed or timed out, and other consumers keep it.

    A claim that is reserved only for the pod, or for its PodGroup without a bound member, is no reason: the bind releases it.
    """
    for claim in claims:
        head, consumer = claim.record.claim, claim.consumer
        if head.status.allocation is None:
            continue
        is_kept = any(
            reservation.uid != consumer.uid and not is_guard_reservation(reservation)
            for reservation in head.status.reserved_for
        )
        if is_group(consumer) and not is_kept:
            is_kept = ledger.pods.has_running_member(pod.namespace, consumer.name, excluding=pod.uid)
        state = evaluate_conditions(head, now=now, waiting_since=now, timeout=timeout) if is_kept else None
        if state is not None and state.readiness in (Readiness.FAILED, Readiness.TIMED_OUT):
            return Rejection(code=Code.CLAIM_NOT_READY, claim=claim.label, detail=state.text)
    return None
