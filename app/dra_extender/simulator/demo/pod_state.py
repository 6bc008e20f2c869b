import re
from collections.abc import Iterator, Sequence
from typing import Final

from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.api_json import ModelError
from dra_extender.model.device import Device
from dra_extender.model.resource_claim import claim_from
from dra_extender.model.resource_slice import SliceReader
from dra_extender.model.snapshot import holdings_of
from dra_extender.simulator.apiserver.cluster import MemoryCluster
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind, part
from dra_extender.simulator.demo.results import AllocatedDevice, ClaimUse, PodState
from dra_extender.simulator.scheduler.loop import PodWaiting, SchedulingLoop, foreign_scheduler

_EXTENDED: Final = "extended resources"
_BETWEEN_NODES: Final = re.compile(r"; (?=\d+ of \d+ nodes: )")


def state_of(cluster: MemoryCluster, pod: Json, loop: SchedulingLoop) -> PodState:
    """The state of the pod now, with the last result of the scheduler for it."""
    metadata, outcome = pod["metadata"], loop.outcome(pod["metadata"]["uid"])
    name = f"{metadata['namespace']}/{metadata['name']}"
    node = pod["spec"].get("nodeName") or None
    claims = tuple(_claims(cluster, pod))
    if node is not None or outcome is None:
        return PodState(name, node, claims, "" if node is not None else _untried(pod, loop.scheduler_names))
    newest = {event.reason: event.message for event in cluster.events.of(metadata["uid"])}
    details = tuple(line for message in newest.values() for line in _BETWEEN_NODES.split(message))
    reasons = outcome.reasons if isinstance(outcome, PodWaiting) else {}
    message = getattr(outcome, "message", "")
    return PodState(name, None, claims, message, dict(sorted(reasons.items())), details)


def _untried(pod: Json, scheduler_names: Sequence[str]) -> str:
    """Why the scheduler has not tried a pod that is not bound; empty if nothing is in its way."""
    if pod["spec"]["schedulerName"] not in scheduler_names:
        return foreign_scheduler(pod["spec"]["schedulerName"], scheduler_names)
    gates = [str(each.get("name")) for each in pod["spec"].get("schedulingGates") or []]
    return f"the pod has scheduling gates: {', '.join(gates)}" if gates else ""


def _claims(cluster: MemoryCluster, pod: Json) -> Iterator[ClaimUse]:
    for label, name in _named(pod):
        raw = cluster.store.find(Key(StoredKind.CLAIM, pod["metadata"]["namespace"], name))
        if raw is None:
            yield ClaimUse(label, name)
            continue
        claim = claim_from(raw)
        allocation = claim.status.allocation
        results = allocation.devices.results if allocation is not None else ()
        devices = tuple(
            AllocatedDevice(each.request, each.driver, each.pool, each.device, _counter_sets(cluster, holding))
            for each, holding in zip(results, holdings_of(claim), strict=True)
        )
        yield ClaimUse(label, name, devices)


def _named(pod: Json) -> Iterator[tuple[str, str]]:
    """The pod's names for its claims, and what they are called; the one for its extended resources comes last."""
    status = part(pod, "status")
    recorded = {each["name"]: each.get("resourceClaimName") for each in status.get("resourceClaimStatuses") or []}
    for entry in pod["spec"].get("resourceClaims") or []:
        yield entry["name"], entry.get("resourceClaimName") or recorded.get(entry["name"]) or ""
    extended = part(status, "extendedResourceClaimStatus").get("resourceClaimName")
    if extended:
        yield _EXTENDED, extended


def _counter_sets(cluster: MemoryCluster, holding: DeviceHolding) -> dict[str, tuple[str, ...]]:
    """As frozen with the allocation; without a snapshot as the slice says now."""
    live: Device | None = None
    if holding.consumption is None:
        reader = SliceReader()
        for raw in cluster.store.all(StoredKind.SLICE):
            try:
                found = reader.convert(raw)
            except ModelError:
                continue
            if found.pool_id == holding.pool_id:
                live = next((device for device in found.devices if device.name == holding.device), live)
    return {each.counter_set: each.compatibility_groups for each in holding.drawn(live)}
