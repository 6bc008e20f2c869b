"""Snapshot of the devices of an allocation, frozen beside it (KEP-5963, snapshot at allocation).

Released API servers have no field for the groups and counters that an allocated device had when it was allocated, and a
driver may republish its slice at any time.  So they are kept in an annotation of the claim.  The KEP's field for the groups,
`results[].compatibilityGroups`, is written beside it where the API server keeps it, and counts wherever it is found.  A digest
binds the annotation to one allocation: after a foreign or later allocation of the same claim it does not match and counts for
nothing.
"""

import hashlib
from collections.abc import Iterable
from typing import Annotated, Final, NamedTuple

import msgspec

from dra_extender.cel.values.quantity import QuantityError, parse_quantity
from dra_extender.model.allocation import AllocationResult, DeviceHolding, DeviceResult, node_of
from dra_extender.model.api_json import ModelError, Value
from dra_extender.model.device import NODE, POOL, CounterConsumption, DeviceId, groups_source, regrouped
from dra_extender.model.fields import DnsLabel, Format, LabelKey, Name, OneOf, QualifiedName, Quantity, Time
from dra_extender.model.resource_claim import ClaimHead

SNAPSHOT_ANNOTATION: Final = "dra-extender.io/allocation-snapshot"
SNAPSHOT_VERSION: Final = 1


class _Consumption(Value, frozen=True):
    counter_set: Annotated[str, Format.COUNTER_SET]
    counters: dict[DnsLabel, Quantity] = {}
    compatibility_groups: tuple[DnsLabel, ...] = ()


class _Device(Value, frozen=True):
    consumes_counters: tuple[_Consumption, ...] = ()
    compatible_only_with: Annotated[str, Format.EXPRESSION] | None = None
    neighbours_on: Annotated[str, OneOf(POOL, NODE, "")] = ""
    binding_conditions: tuple[LabelKey, ...] | None = None
    binding_failure_conditions: tuple[LabelKey, ...] | None = None
    share_id: Name | None = None
    consumed_capacity: dict[QualifiedName, Quantity] | None = None
    sources: dict[Annotated[str, Format.SUPPLIED_FIELD], Name] = {}
    binds_to_node: bool = False


class StrippedShare(NamedTuple):
    """A share that the API server stored without its ID or its amounts: the dropped field, and the device."""

    field: str
    device_id: DeviceId


class _Frozen(NamedTuple):
    device: _Device
    consumption: tuple[CounterConsumption, ...]


class Snapshot(Value, frozen=True):
    """The content of the annotation, in JSON."""

    version: int
    digest: Annotated[str, Format.DIGEST]
    allocation_timestamp: Time | None = None
    devices: tuple[_Device, ...] = ()


_DECODER: Final = msgspec.json.Decoder(Snapshot)


def encode_snapshot(allocation: AllocationResult, holdings: tuple[DeviceHolding, ...]) -> str:
    """Return the annotation value for this allocation: what each result froze, in the order of the results.

    That is counter consumption with groups, `compatibleOnlyWith`, binding conditions and shares (some API servers do not store
    them), `bindsToNode` of shares, and `sources`: field -> rule of the admin's policy, for each field that was not published.
    Readers ignore members they do not know.
    """
    timestamp = allocation.allocation_timestamp
    snapshot = Snapshot(
        version=SNAPSHOT_VERSION,
        digest=allocation_digest(allocation.devices.results, timestamp),
        allocation_timestamp=timestamp,
        devices=tuple(
            _Device(
                consumes_counters=_consumption(holding),
                compatible_only_with=holding.compatible_only_with,
                neighbours_on=holding.neighbours_on,
                binding_conditions=result.binding_conditions,
                binding_failure_conditions=result.binding_failure_conditions,
                share_id=result.share_id,
                consumed_capacity=result.consumed_capacity,
                sources=dict(holding.sources),
                binds_to_node=holding.binds_to_node,
            )
            for result, holding in zip(allocation.devices.results, holdings, strict=True)
        ),
    )
    return msgspec.json.encode(snapshot).decode()


def holdings_of(claim: ClaimHead) -> tuple[DeviceHolding, ...]:
    """Return what the stored allocation of this claim takes out of its pools; empty without an allocation.

    Groups come from `results[].compatibilityGroups` where the allocation has that field, even if another scheduler wrote it or the
    annotation differs.  Otherwise groups and counters come from the annotation, if it belongs to this very allocation.  If neither
    has them, `consumption` is None and the live slice counts.

    Raises:
        ModelError: `consumedCapacity` of a result is no amount, so that it is unknown what the claim takes.
    """
    allocation = claim.status.allocation
    if allocation is None:
        return ()
    frozen = _frozen(claim, allocation)
    return tuple(
        _holding(result, frozen[index] if frozen is not None else None, node_of(allocation))
        for index, result in enumerate(allocation.devices.results)
    )


def with_groups(allocation: AllocationResult, holdings: tuple[DeviceHolding, ...]) -> AllocationResult:
    """Return the allocation with the groups of each device in `results[].compatibilityGroups`, where API servers may keep them.

    These are the published groups.  Groups that the admin's policy supplied stay only in the annotation.
    """
    results = tuple(
        msgspec.structs.replace(result, compatibility_groups=_published_groups(holding) or None)
        for result, holding in zip(allocation.devices.results, holdings, strict=True)
    )
    return msgspec.structs.replace(allocation, devices=msgspec.structs.replace(allocation.devices, results=results))


def contradiction(claim: ClaimHead) -> DeviceId | None:
    """Return the first device of the stored allocation whose two snapshots differ in groups; None if none does.

    They are `results[].compatibilityGroups`, which counts then, and the annotation.
    """
    allocation = claim.status.allocation
    if allocation is None or all(result.compatibility_groups is None for result in allocation.devices.results):
        return None
    for result, frozen in zip(allocation.devices.results, _frozen(claim, allocation) or (), strict=False):
        groups = _groups(result)
        if groups is not None:
            counts = regrouped(frozen.consumption, groups)
            if _by_set(counts) != _by_set(frozen.consumption):
                return result.device_id
    return None


def results_of(claim: ClaimHead) -> tuple[DeviceResult, ...]:
    """Return the devices of the stored allocation, with the binding conditions that an API server without the field dropped."""
    allocation = claim.status.allocation
    if allocation is None:
        return ()
    frozen = _frozen(claim, allocation)
    if frozen is None:
        return allocation.devices.results
    results = zip(allocation.devices.results, frozen, strict=True)
    return tuple(_with_conditions(result, snapshot) for result, snapshot in results)


def allocated_at(claim: ClaimHead) -> str | None:
    """Return when the stored allocation was made (RFC 3339), from the allocation itself or from the snapshot that belongs to it."""
    allocation = claim.status.allocation
    if allocation is None:
        return None
    if allocation.allocation_timestamp is not None:
        return allocation.allocation_timestamp
    snapshot = _decoded(claim, allocation)
    return None if snapshot is None else snapshot.allocation_timestamp


def is_snapshotted(claim: ClaimHead) -> bool:
    """Return whether the stored allocation was made by this program, here or in another replica: its snapshot says so."""
    allocation = claim.status.allocation
    return allocation is not None and _decoded(claim, allocation) is not None


def lost_share(claim: ClaimHead) -> StrippedShare | None:
    """Return the first share of our allocation that the stored object shows as something else; None if there is none.

    An API server without the fields of KEP-5075 drops them in silence: what was decided as a share then has the device whole.
    """
    allocation = claim.status.allocation
    text = claim.metadata.annotations.get(SNAPSHOT_ANNOTATION)
    if allocation is None or text is None:
        return None
    try:
        snapshot = _DECODER.decode(text)
        if len(snapshot.devices) != len(allocation.devices.results):
            return None
        pairs = list(zip(allocation.devices.results, snapshot.devices, strict=True))
        written = tuple(
            msgspec.structs.replace(stored, share_id=device.share_id) if stored.share_id is None else stored
            for stored, device in pairs
        )
        if snapshot.digest != allocation_digest(written, snapshot.allocation_timestamp):
            return None
        return next((lost for stored, device in pairs if (lost := _lost(stored, device)) is not None), None)
    except (msgspec.DecodeError, QuantityError):
        return None


def _lost(stored: DeviceResult, written: _Device) -> StrippedShare | None:
    if stored.share_id != written.share_id:
        return StrippedShare("shareID", stored.device_id)
    if written.share_id is not None and _amounts(stored.consumed_capacity) != _amounts(written.consumed_capacity):
        return StrippedShare("consumedCapacity", stored.device_id)
    return None


def _with_conditions(result: DeviceResult, frozen: _Frozen) -> DeviceResult:
    device = frozen.device
    if result.binding_conditions is not None or device.binding_conditions is None:
        return result
    return msgspec.structs.replace(
        result,
        binding_conditions=device.binding_conditions,
        binding_failure_conditions=device.binding_failure_conditions,
    )


def _frozen(claim: ClaimHead, allocation: AllocationResult) -> tuple[_Frozen, ...] | None:
    snapshot = _decoded(claim, allocation)
    try:
        if snapshot is None:
            return None
        return tuple(_Frozen(device, _drawn_by(device)) for device in snapshot.devices)
    except QuantityError:
        return None


def _decoded(claim: ClaimHead, allocation: AllocationResult) -> Snapshot | None:
    """Return the annotation, if it belongs to this very allocation."""
    text = claim.metadata.annotations.get(SNAPSHOT_ANNOTATION)
    if text is None:
        return None
    try:
        snapshot = _DECODER.decode(text)
    except msgspec.DecodeError:
        return None
    results = allocation.devices.results
    stored = allocation.allocation_timestamp
    if (
        snapshot.version != SNAPSHOT_VERSION
        or len(snapshot.devices) != len(results)
        or (stored is not None and stored != snapshot.allocation_timestamp)
        or snapshot.digest != allocation_digest(results, snapshot.allocation_timestamp)
    ):
        return None
    return snapshot


def _holding(result: DeviceResult, frozen: _Frozen | None, node: str | None) -> DeviceHolding:
    consumption = None if frozen is None else frozen.consumption
    groups = _groups(result)
    is_share = result.share_id is not None and not result.admin_access
    if frozen is not None and groups is not None:
        consumption = regrouped(frozen.consumption, groups)
    return DeviceHolding(
        driver=result.driver,
        pool=result.pool,
        device=result.device,
        share_id=result.share_id,
        admin=bool(result.admin_access),
        consumption=consumption,
        groups=None if groups is None or consumption is not None else tuple(groups.items()),
        consumed_capacity=_consumed(result),
        compatible_only_with=None if frozen is None else frozen.device.compatible_only_with,
        neighbours_on="" if frozen is None else frozen.device.neighbours_on,
        sources=() if frozen is None else tuple(frozen.device.sources.items()),
        node=node if is_share else None,
        binds_to_node=frozen is not None and frozen.device.binds_to_node and is_share,
    )


def _groups(result: DeviceResult) -> dict[str, tuple[str, ...]] | None:
    """Return the groups that the allocation itself keeps, by counter set; null means no groups, as in a slice."""
    groups = result.compatibility_groups
    return None if groups is None else {counter_set: names or () for counter_set, names in groups.items()}


def _by_set(consumption: Iterable[CounterConsumption]) -> dict[str, set[str]]:
    """Return the groups of each counter set that has some, whatever their order."""
    groups_by_set: dict[str, set[str]] = {}
    for entry in consumption:
        if entry.compatibility_groups:
            groups_by_set.setdefault(entry.counter_set, set()).update(entry.compatibility_groups)
    return groups_by_set


def _consumed(result: DeviceResult) -> tuple[tuple[str, int], ...]:
    try:
        return tuple((name, _drawn(text)) for name, text in (result.consumed_capacity or {}).items())
    except QuantityError as problem:
        where = "/".join(result.device_id)
        raise ModelError(f"ResourceClaim: consumedCapacity of device {where}: {problem}") from problem


def _amounts(consumed: dict[str, str] | None) -> tuple[tuple[str, int], ...]:
    return tuple((name, parse_quantity(text)) for name, text in (consumed or {}).items())


def _published_groups(holding: DeviceHolding) -> dict[str, tuple[str, ...] | None]:
    return {
        entry.counter_set: entry.compatibility_groups
        for entry in holding.consumption or ()
        if entry.compatibility_groups and not entry.grouped_by_policy
    }


def _consumption(holding: DeviceHolding) -> tuple[_Consumption, ...]:
    return tuple(
        _Consumption(
            counter_set=entry.counter_set,
            counters={name: f"{amount}n" for name, amount in entry.counters},
            compatibility_groups=entry.compatibility_groups,
        )
        for entry in holding.consumption or ()
    )


def _drawn_by(device: _Device) -> tuple[CounterConsumption, ...]:
    return tuple(
        CounterConsumption(
            counter_set=entry.counter_set,
            counters=tuple((name, _drawn(text)) for name, text in entry.counters.items()),
            compatibility_groups=entry.compatibility_groups,
            groups_supplied=groups_source(entry.counter_set) in device.sources,
        )
        for entry in device.consumes_counters
    )


def _drawn(text: str) -> int:
    """Return the amount that an allocation draws.  API servers store negative ones, with which others would seem to have more."""
    return max(0, parse_quantity(text))


def allocation_digest(results: tuple[DeviceResult, ...], timestamp: str | None) -> str:
    """Return what binds the annotation to an allocation: a digest of its devices, shares and time."""
    identity = [
        [result.request, result.driver, result.pool, result.device, result.share_id or ""] for result in results
    ]
    return hashlib.sha256(msgspec.json.encode([identity, timestamp or ""])).hexdigest()[:32]
