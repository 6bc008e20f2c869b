from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from app.model.allocation import DeviceResult
from app.model.resource_claim import ResourceClaim
from app.model.snapshot import results_of


class Readiness(StrEnum):
    """Whether the devices of a claim are attached and usable (KEP-5007)."""

    READY = "ready"
    PENDING = "pending"
    FAILED = "failed"
    TIMED_OUT = "timed out"


class Verdict(NamedTuple):
    """The readiness of a claim and, unless it is ready, which device and condition it is about."""

    readiness: Readiness
    detail: str = ""


def has_conditions(claim: ResourceClaim) -> bool:
    """Whether binding has to wait for anything of this claim."""
    return any(True for _ in _conditional(claim))


def judge(claim: ResourceClaim, *, now: float, waiting_since: float, timeout: float) -> Verdict:
    """The readiness of an allocated claim at `now` (seconds since the epoch).

    Ready: each device with binding conditions has a status entry in which all of them are "True".  A failure condition that is
    "True" wins over everything.  The clock starts at the allocation timestamp, so that sharers and restarts do not start it anew;
    without a timestamp it starts at `waiting_since`.
    """
    pending = ""
    for result in _conditional(claim):
        true = _true_conditions(claim, result)
        failed = [each for each in result.binding_failure_conditions or () if each in true]
        where = f"{result.driver}/{result.pool}/{result.device}"
        if failed:
            return Verdict(Readiness.FAILED, f"device {where} reports {failed[0]}")
        missing = [each for each in result.binding_conditions or () if each not in true]
        if missing and not pending:
            pending = f"device {where} waits for {missing[0]}"
    if not pending:
        return Verdict(Readiness.READY)
    started = _timestamp(claim)
    if now > (waiting_since if started is None else started) + timeout:
        return Verdict(Readiness.TIMED_OUT, pending)
    return Verdict(Readiness.PENDING, pending)


def _conditional(claim: ResourceClaim) -> Iterable[DeviceResult]:
    return (result for result in results_of(claim) if result.binding_conditions)


def _true_conditions(claim: ResourceClaim, result: DeviceResult) -> set[str]:
    return {
        condition.type
        for status in claim.status.devices
        if (status.driver, status.pool, status.device) == result.device_id
        for condition in status.conditions
        if condition.status == "True"
    }


def _timestamp(claim: ResourceClaim) -> float | None:
    text = claim.status.allocation.allocation_timestamp if claim.status.allocation else None
    try:
        return None if text is None else datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
