"""Who has a device: claims with the pods or PodGroups that they are reserved for, and holds of a running extender."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from textwrap import wrap
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from dra_extender.inspection.lines import age_text, clock_text
from dra_extender.ledger.guard_index import is_guard_reservation
from dra_extender.ledger.hold_book import Hold
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import AllocationResult, ClaimPlacement, DeviceHolding
from dra_extender.model.allocation_snapshot import allocated_at
from dra_extender.model.api_json import Value, listed
from dra_extender.model.device import DeviceId
from dra_extender.model.metadata import Moment, moment, seconds_of
from dra_extender.model.resource_claim import ClaimHead, ConsumerReference
from dra_extender.scheduling.claims.extended_claims import name_for
from dra_extender.scheduling.hold_report import HoldReport


class Holder(Value, frozen=True):
    """A claim (`namespace/name`) that has a device, or that a running bind will give it to (`pending`), or for which it is held.

    `consumers` are `namespace/name` of the pods and `PodGroup namespace/name` of the groups for which it is reserved.
    `since`: when it was allocated, None if that is not recorded.  `orphaned`: the claim is deleted, and a
    pod still uses it.  `until`: it has not the device yet, which the extender holds for it until then.
    `planned`: it would get the device in the plan of a gang that was made for an answer.  `leaving`: the claim is about to be
    released, because all consumers are pods that have ended or are gone (`ended`), or that, or the claim without any, are
    `being deleted`; empty if one of them stays.
    """

    claim: str
    consumers: tuple[str, ...] = ()
    since: Moment | None = None
    pending: bool = False
    planned: bool = False
    orphaned: bool = False
    admin: bool = False
    until: Moment | None = None
    leaving: str = ""

    @property
    def can_be_ended(self) -> bool:
        """Whether the device is free once its consumers end: not what is planned or held, nor admin access, which takes nothing."""
        return not (self.admin or self.planned or self.until is not None)


class HeldDevice(NamedTuple):
    """One holder of a device, and what it takes of it."""

    holder: Holder
    holding: DeviceHolding


class Holders:
    """The holders of all devices of a cluster."""

    def __init__(
        self, ledger: Ledger, held_until: Mapping[str, float] = MappingProxyType({}), *, knows_pods: bool = True
    ) -> None:
        """`held_until`: when the hold of a claim ends, by its UID.  `knows_pods`: the ledger has the pods of all namespaces."""
        self._by_device: dict[DeviceId, list[HeldDevice]] = defaultdict(list)
        for record in ledger.claims.counted():
            pending = record.claim.status.allocation is None and record.pending is not None
            leaving = _leaving(record.claim, ledger) if knows_pods else ""
            holder = holder_of(record.claim, pending=pending, orphaned=record.orphaned, leaving=leaving)
            self._add(holder, record.counted)
        for hold in ledger.holds.all():
            claim = ledger.claims.by_uid(hold.claim_uid)
            pods = (pod.key for uid in sorted(hold.pods) if (pod := ledger.pods.by_uid(uid)) is not None)
            holder = Holder(
                claim=unmade_claim(ledger, hold) if claim is None else claim.claim.metadata.full_name,
                consumers=tuple(pods),
                until=moment(held_until.get(hold.claim_uid)),
                planned=hold.claim_uid not in held_until,
            )
            self._add(holder, ledger.holds.holdings(hold.claim_uid))

    def _add(self, holder: Holder, holdings: Iterable[DeviceHolding]) -> None:
        observer = msgspec.structs.replace(holder, admin=True)
        for holding in holdings:
            held_device = HeldDevice(observer if holding.admin else holder, holding)
            self._by_device[holding.device_id].append(held_device)

    def of_device(self, device: DeviceId) -> Sequence[HeldDevice]:
        """Return the holders of a device (driver, pool, device), by claim."""
        return sorted(self._by_device.get(device, ()), key=lambda held_device: held_device.holder.claim)


def _leaving(claim: ClaimHead, ledger: Ledger) -> str:
    """Return why the claim is about to be released, as in Holder; empty if it is not."""
    consumers = claim.status.reserved_for
    if not consumers:
        return "being deleted" if claim.metadata.deletion_timestamp is not None else ""
    pods = [ledger.pods.by_uid(consumer.uid) for consumer in consumers if consumer.resource == "pods"]
    staying = [pod for pod in pods if pod is not None and not pod.finished]
    if not pods or len(pods) < len(consumers) or not all(pod.deleting for pod in staying):
        return ""
    return "being deleted" if staying else "ended"


def holder_of(claim: ClaimHead, *, pending: bool = False, orphaned: bool = False, leaving: str = "") -> Holder:
    return Holder(
        claim=claim.metadata.full_name,
        consumers=tuple(consumer_text(consumer, claim.metadata.namespace) for consumer in claim.status.reserved_for),
        since=moment(seconds_of(allocated_at(claim))),
        pending=pending,
        orphaned=orphaned,
        leaving=leaving,
    )


def consumer_text(consumer: ConsumerReference, namespace: str) -> str:
    """Return `namespace/name` of a pod; anything else has its kind before it."""
    if is_guard_reservation(consumer):
        return f"guard claim {consumer.name}"
    name = f"{namespace}/{consumer.name}"
    return name if consumer.resource == "pods" else f"{consumer.resource} {name}"


def holder_text(holder: Holder, now: float, *, with_claim: bool = False) -> str:
    """Return the pods that a claim is reserved for, else the claim; with the time for which it has been allocated.

    `with_claim`: the claim stands behind the pods, without their namespace.
    """
    names = ", ".join(holder.consumers) or f"claim {holder.claim}"
    name = holder.claim.partition("/")[2]
    claim = f" (claim {name})" if with_claim and name and holder.consumers else ""
    until = "" if holder.until is None else f" (held until {clock_text(holder.until)})"
    state = state_text(holder) or until
    since = "" if holder.since is None else f" {age_text(max(0.0, now - holder.since))}"
    return names + claim + state + since


def state_text(holder: Holder) -> str:
    """Return e.g. ` (being allocated)`; empty if the holder has the device, or if it is held for it until a time."""
    states = (
        (holder.pending, "being allocated"),
        (holder.orphaned, "claim deleted"),
        (holder.leaving, holder.leaving),
        (holder.planned, "planned"),
    )
    return next((f" ({text})" for applies, text in states if applies), "")


MOST_LINES: Final = 20
"""Holds that the lines of an answer name; JSON has all."""
_FURTHER_INDENT: Final = "  "


class HeldDevices(Value, frozen=True):
    """Devices (`driver/pool/device`) of one node that the extender keeps free for a claim (`namespace/name`).

    `pods` are `namespace/name` of the pods that use the claim.  `until`: when the hold ends.
    """

    claim: str
    pods: tuple[str, ...]
    node: str
    devices: tuple[str, ...]
    until: Moment


def held_devices(ledger: Ledger, report: HoldReport) -> tuple[HeldDevices, ...]:
    """Return what a running extender holds and what counts as taken in the ledger, by claim and node."""
    rows = (
        HeldDevices(
            claim=f"{hold.namespace}/{hold.claim}" if hold.claim else unmade_claim(ledger, live_hold),
            pods=tuple(name or uid for name, uid in hold.pods),
            node=at.node,
            devices=tuple(f"{device.driver}/{device.pool}/{device.device}" for device in at.devices),
            until=hold.until,
        )
        for hold in report.holds
        if (live_hold := ledger.holds.get(hold.claim_uid)) is not None
        for at in hold.nodes
    )
    return tuple(sorted(rows, key=lambda row: (row.claim, row.node)))


def held_lines(rows: Sequence[HeldDevices], width: int) -> Iterator[str]:
    """Yield e.g. `held for ml/first until 09:47:05Z: gpu-0 on n1`, wrapped."""
    for row in islice(rows, MOST_LINES):
        devices = listed([name.rpartition("/")[2] for name in row.devices])
        pods = listed(row.pods) or f"claim {row.claim}"
        text = f"held for {pods} until {clock_text(row.until)}: {devices} on {row.node}"
        yield from wrap(text, width, subsequent_indent=_FURTHER_INDENT, break_long_words=False)
    if len(rows) > MOST_LINES:
        yield f"and {len(rows) - MOST_LINES} more holds"


def place_holds(ledger: Ledger, report: HoldReport) -> None:
    """Put the holds into a ledger that has the objects.

    Holds of pods that do not wait any more, of allocated claims, and those whose end has come are left out; the others do not
    expire in the ledger: the time of an inspection stands still.
    """
    for hold in report.holds:
        if hold.until <= report.taken_at:
            continue
        record = ledger.claims.by_uid(hold.claim_uid)
        pods = {uid for _, uid in hold.pods if (pod := ledger.pods.by_uid(uid)) is not None and not pod.node_name}
        if not pods or (record is not None and record.claim.status.allocation is not None):
            continue
        placements = {at.node: ClaimPlacement(allocation=AllocationResult(), holdings=at.devices) for at in hold.nodes}
        versions = {node: ledger.state_versions.version(node) for node in placements}
        ledger.hold_book.place(
            Hold(hold.claim_uid, placements, versions, math.inf, pods, namespace=hold.namespace, unit=min(pods))
        )


def held_notes(report: HoldReport, pod: str, pod_uid: str, group: str) -> Iterator[str]:
    """Say what the extender keeps for a pod (`namespace/name`, UID) and plans for its PodGroup (`namespace/name`)."""
    for hold in report.holds:
        if any(uid == pod_uid for _, uid in hold.pods):
            nodes = listed(sorted(at.node for at in hold.nodes))
            yield f"devices for claim {hold.claim} are held on {nodes} until {clock_text(hold.until)}"
    for plan in report.plans:
        if plan.pod_group == group:
            node = next((member.node for member in plan.members if member.pod == pod), "")
            yield (
                f"the plan of PodGroup {group} has {len(plan.members)} members, {plan.needed} are needed, "
                f"{plan.waiting} wait for the others; {f'its node for this pod is {node}' if node else 'this pod is not in it'}"
            )


def unmade_claim(ledger: Ledger, hold: Hold) -> str:
    """Return `namespace/name` of a claim for extended resources that a bind will make; without a name if its pod is not known."""
    pods = (pod for uid in sorted(hold.pods) if (pod := ledger.pods.by_uid(uid)) is not None)
    return f"{hold.namespace}/{next(map(name_for, pods), '')}"
