"""Who holds a device: the claim, the pods or PodGroups for which it is reserved, and since when."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from dra_extender.inspection.holds import unmade_claim
from dra_extender.inspection.lines import age_text, clock_text
from dra_extender.ledger.guard_index import is_guard_reservation
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.allocation_snapshot import allocated_at
from dra_extender.model.api_json import Value
from dra_extender.model.device import DeviceId
from dra_extender.model.metadata import Moment, moment, seconds_of
from dra_extender.model.resource_claim import ClaimHead, ConsumerReference


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
                claim=unmade_claim(ledger, hold) if claim is None else "/".join(claim.claim.metadata.key),
                consumers=tuple(pods),
                until=moment(held_until.get(hold.claim_uid)),
                planned=hold.claim_uid not in held_until,
            )
            self._add(holder, ledger.holds.kept(hold.claim_uid))

    def _add(self, holder: Holder, holdings: Iterable[DeviceHolding]) -> None:
        observer = msgspec.structs.replace(holder, admin=True)
        for holding in holdings:
            held = HeldDevice(observer if holding.admin else holder, holding)
            self._by_device[holding.driver, holding.pool, holding.device].append(held)

    def of_device(self, device: DeviceId) -> Sequence[HeldDevice]:
        """Return the holders of a device (driver, pool, device), by claim."""
        return sorted(self._by_device.get(device, ()), key=lambda each: each.holder.claim)


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
        claim="/".join(claim.metadata.key),
        consumers=tuple(consumer_text(consumer, claim.metadata.namespace) for consumer in claim.status.reserved_for),
        since=moment(seconds_of(allocated_at(claim))),
        pending=pending,
        orphaned=orphaned,
        leaving=leaving,
    )


def consumer_text(consumer: ConsumerReference, namespace: str) -> str:
    """`namespace/name` of a pod; anything else has its kind before it."""
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
    states = (
        (holder.pending, " (being allocated)"),
        (holder.orphaned, " (claim deleted)"),
        (holder.leaving, f" ({holder.leaving})"),
        (holder.until is not None, f" (held until {clock_text(holder.until or 0.0)})"),
        (holder.planned, " (planned)"),
    )
    state = next((text for applies, text in states if applies), "")
    since = "" if holder.since is None else f" {age_text(max(0.0, now - holder.since))}"
    return names + claim + state + since
