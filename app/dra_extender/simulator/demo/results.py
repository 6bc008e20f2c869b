"""What a story came to, as values: the text report and the JSON form derive from them."""

import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.allocation_snapshot import holdings_of
from dra_extender.model.api_json import ModelError
from dra_extender.model.device import Device
from dra_extender.model.resource_claim import claim_from
from dra_extender.model.resource_slice import SliceReader
from dra_extender.simulator.apiserver.cluster import MemoryCluster
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind, named_claims, part
from dra_extender.simulator.scheduler.loop import PodWaiting, SchedulingLoop, foreign_scheduler


class AllocatedDevice(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One device of a claim; counter sets it draws on with the compatibility groups it had when it was allocated."""

    request: str
    driver: str
    pool: str
    device: str
    counter_sets: dict[str, tuple[str, ...]] = {}


class ClaimUse(msgspec.Struct, frozen=True, rename="camel"):
    """A claim as the pod names it, the claim object, and what is allocated for it."""

    name: str
    claim: str
    devices: tuple[AllocatedDevice, ...] = ()


class PodState(msgspec.Struct, frozen=True, rename="camel"):
    """Where a pod is, or why it waits: the scheduler's message, each node's reason, and the Events on the pod."""

    pod: str
    node: str | None
    claims: tuple[ClaimUse, ...] = ()
    message: str = ""
    reasons: dict[str, str] = {}
    details: tuple[str, ...] = ()

    @property
    def why(self) -> str:
        """Return all messages about why the pod waits, as one text."""
        return "\n".join((self.message, *self.reasons.values(), *self.details))

    def same_as(self, earlier: "PodState | None") -> bool:
        if earlier is None:
            return False
        return msgspec.structs.replace(self, details=()) == msgspec.structs.replace(earlier, details=())


class CheckedExpectation(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An expectation that was checked; without `failure` it holds.

    `refused`: the cluster refused a document about this pod, which counts as the failure.
    """

    pod: str
    expected: str
    failure: str | None = None
    at_end: bool = False
    refused: bool = False


class ApplyEffect(StrEnum):
    """What applying a document did to the object."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    DELETED = "deleted"
    TERMINATING = "is being deleted"
    REFUSED = "refused"


class StoryStep(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One document and what followed: pods whose state changed, problems on the way, and the expectation if there was one.

    `line` counts in `file`.
    """

    file: str
    line: int
    subject: str
    effect: ApplyEffect
    narration: tuple[str, ...] = ()
    refusal: str = ""
    pods: tuple[PodState, ...] = ()
    problems: tuple[str, ...] = msgspec.field(name="trouble", default=())
    checked: CheckedExpectation | None = None


class StoryResult(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A whole story: its steps, the last state of every pod that is left, and expectations about the end."""

    title: str
    steps: tuple[StoryStep, ...] = ()
    pods: tuple[PodState, ...] = ()
    at_end: tuple[CheckedExpectation, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def checks(self) -> tuple[CheckedExpectation, ...]:
        return (*(step.checked for step in self.steps if step.checked is not None), *self.at_end)

    @property
    def failures(self) -> int:
        """Return the number of refused documents and of other expectations that do not hold."""
        return self.refused + sum(check.failure is not None and not check.refused for check in self.checks)

    @property
    def refused(self) -> int:
        return sum(step.effect is ApplyEffect.REFUSED for step in self.steps)


_EXTENDED: Final = "extended resources"
_BETWEEN_NODES: Final = re.compile(r"; (?=\d+ of \d+ nodes: )")


def state_of(cluster: MemoryCluster, pod: Json, loop: SchedulingLoop) -> PodState:
    """Return the state of the pod now, with the last result of the scheduler for it."""
    metadata, outcome = pod["metadata"], loop.outcome(pod["metadata"]["uid"])
    name = f"{metadata['namespace']}/{metadata['name']}"
    node = pod["spec"].get("nodeName") or None
    claims = tuple(_claim_uses(cluster, pod))
    if node is not None or outcome is None:
        return PodState(name, node, claims, "" if node is not None else _untried(pod, loop.scheduler_names))
    newest = {event.reason: event.message for event in cluster.events.of_pod(metadata["uid"])}
    details = tuple(line for message in newest.values() for line in _BETWEEN_NODES.split(message))
    reasons = outcome.reasons if isinstance(outcome, PodWaiting) else {}
    message = getattr(outcome, "message", "")
    return PodState(name, None, claims, message, dict(sorted(reasons.items())), details)


def _untried(pod: Json, scheduler_names: Sequence[str]) -> str:
    """Return why the scheduler has not tried a pod that is not bound; empty if nothing is in its way."""
    if pod["spec"]["schedulerName"] not in scheduler_names:
        return foreign_scheduler(pod["spec"]["schedulerName"], scheduler_names)
    gates = [str(gate.get("name")) for gate in pod["spec"].get("schedulingGates") or []]
    return f"the pod has scheduling gates: {', '.join(gates)}" if gates else ""


def _claim_uses(cluster: MemoryCluster, pod: Json) -> Iterator[ClaimUse]:
    for label, name in _named(pod):
        raw = cluster.store.find(Key(StoredKind.CLAIM, pod["metadata"]["namespace"], name))
        if raw is None:
            yield ClaimUse(label, name)
            continue
        claim = claim_from(raw)
        allocation = claim.status.allocation
        results = allocation.devices.results if allocation is not None else ()
        devices = tuple(
            AllocatedDevice(result.request, result.driver, result.pool, result.device, _counter_sets(cluster, holding))
            for result, holding in zip(results, holdings_of(claim), strict=True)
        )
        yield ClaimUse(label, name, devices)


def _named(pod: Json) -> Iterator[tuple[str, str]]:
    """Yield the pod's names for its claims, and what they are called; the one for its extended resources comes last."""
    yield from named_claims(pod)
    extended = part(pod, "status", "extendedResourceClaimStatus").get("resourceClaimName")
    if extended:
        yield _EXTENDED, extended


def _counter_sets(cluster: MemoryCluster, holding: DeviceHolding) -> dict[str, tuple[str, ...]]:
    """As frozen with the allocation; without a snapshot as the slice says now."""
    live: Device | None = None
    if holding.consumption is None:
        reader = SliceReader()
        for raw in cluster.store.all(StoredKind.SLICE):
            try:
                published_slice = reader.convert(raw)
            except ModelError:
                continue
            if published_slice.pool_id == holding.pool_id:
                live = next((device for device in published_slice.devices if device.name == holding.device), live)
    return {consumption.counter_set: consumption.compatibility_groups for consumption in holding.drawn(live)}
