"""Allocations: the devices of a claim as they are written, and what they take out of their pools."""

from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from dra_extender.model.api_json import Value
from dra_extender.model.device import Conditions, CounterConsumption, Device, DeviceId, NodeOperation, PoolId, regrouped
from dra_extender.model.fields import (
    DnsLabel,
    DriverName,
    Format,
    Gate,
    LabelValue,
    Mark,
    Name,
    OneOf,
    PoolName,
    QualifiedName,
    Quantity,
    RequestName,
    Time,
    Word,
)
from dra_extender.model.node import Node
from dra_extender.model.node_selector import NODE_NAME_FIELD, NodeSelector, NodeSelectorTerm

NO_PARAMETERS: Final = msgspec.Raw()


class DeviceToleration(Value, frozen=True):
    """A toleration of a request; it is copied whole into each result of that request."""

    key: Annotated[str, Format.TOLERATION_KEY] | None = None
    operator: Annotated[str, OneOf("Exists", "Equal")] | None = None
    value: LabelValue | None = None
    effect: Annotated[str, OneOf("NoSchedule", "NoExecute", "None", "")] | None = None
    toleration_seconds: int | None = None


class DeviceResult(Value, frozen=True, rename={"share_id": "shareID"}):
    """One allocated device of a claim (`status.allocation.devices.results[]`)."""

    request: RequestName
    driver: DriverName
    pool: PoolName
    device: DnsLabel
    admin_access: bool | None = msgspec.field(default=None, name="adminAccess")
    tolerations: tuple[DeviceToleration, ...] = ()
    share_id: Annotated[Name, Gate.CONSUMABLE_CAPACITY] | None = None
    consumed_capacity: Annotated[dict[QualifiedName, Quantity], Gate.CONSUMABLE_CAPACITY] | None = msgspec.field(
        default=None, name="consumedCapacity"
    )
    binding_conditions: Conditions | None = msgspec.field(default=None, name="bindingConditions")
    binding_failure_conditions: Conditions | None = msgspec.field(default=None, name="bindingFailureConditions")
    skip_node_operations: tuple[NodeOperation, ...] = msgspec.field(default=(), name="skipNodeOperations")
    # KEP-5963.
    compatibility_groups: (
        Annotated[
            dict[Annotated[str, Format.COUNTER_SET], tuple[DnsLabel, ...] | None],
            Mark.DRAFT,
            Gate.COMPATIBILITY_GROUPS,
        ]
        | None
    ) = msgspec.field(default=None, name="compatibilityGroups")

    @property
    def device_id(self) -> DeviceId:
        """(driver, pool, device)."""
        return (self.driver, self.pool, self.device)


class OpaqueConfiguration(Value, frozen=True):
    """Parameters for one driver, as the bytes that the API server sent: never decoded, equal if they are spelled the same."""

    driver: Annotated[DriverName, Mark.REQUIRED] = ""
    parameters: Annotated[msgspec.Raw, Mark.REQUIRED, Mark.LEFT_OUT] = NO_PARAMETERS


class AllocationConfiguration(Value, frozen=True):
    """Configuration that travels with an allocation; no `requests` means all requests of the claim."""

    source: Word
    requests: tuple[RequestName, ...] = ()
    opaque: OpaqueConfiguration | None = None


class DeviceAllocation(Value, frozen=True):
    """Devices and configuration of an allocation."""

    results: Annotated[tuple[DeviceResult, ...], Mark.WHOLE] = ()
    config: tuple[AllocationConfiguration, ...] = ()


class AllocationResult(Value, frozen=True):
    """`status.allocation` of a claim.  `allocation_timestamp` is immutable once stored, so it belongs in the first write."""

    devices: DeviceAllocation = DeviceAllocation()
    node_selector: Annotated[NodeSelector, Mark.WHOLE] | None = None
    allocation_timestamp: Time | None = None

    def usable_on(self, node: str, labels: dict[str, str]) -> bool:
        """Return whether the node selector allows the node."""
        return self.node_selector is None or self.node_selector.matches(node, labels)

    def allows(self, node: Node) -> bool:
        """Return whether a pod with this allocation may run on the node: it is selected, and declares what the devices need.

        Raises:
            ModelError: the node selector is malformed.
        """
        return self.usable_on(node.name, node.labels) and (node.skips_node_operations or self.skipping_device is None)

    @property
    def skipping_device(self) -> DeviceResult | None:
        """The first device that needs a node that can skip node operations."""
        return next((result for result in self.devices.results if result.skip_node_operations), None)


def named_nodes(allocation: AllocationResult) -> frozenset[str] | None:
    """Return the nodes that the allocation names; None unless it names all nodes on which it can be used."""
    if allocation.node_selector is None:
        return None
    names: set[str] = set()
    for term in allocation.node_selector.node_selector_terms:
        named = _names_in(term)
        if named is None:
            return None
        names |= named
    return frozenset(names)


def node_of(allocation: AllocationResult) -> str | None:
    """Return the node if the allocation names exactly one."""
    names = named_nodes(allocation)
    return next(iter(names)) if names is not None and len(names) == 1 else None


def _names_in(term: NodeSelectorTerm) -> frozenset[str] | None:
    for field in term.match_fields:
        if field.key == NODE_NAME_FIELD and field.operator == "In":
            return frozenset(field.values or ())
    return None if term.match_expressions or term.match_fields else frozenset()


class DeviceHolding(Value, frozen=True, rename=None):
    """What one result of an allocation takes out of its pool.

    `consumption` is what the device drew on counter sets when it was allocated (amounts and groups, KEP-5963 snapshot); None
    when no snapshot was kept, and then the slice as published now counts.  `groups`: where the allocation keeps only the groups
    (`results[].compatibilityGroups`), the (counter set, groups) that it names; None elsewhere.  `consumed_capacity` holds (name,
    nano-units).  `compatible_only_with`, `neighbours_on` and `sources` are the device's at that time; without `consumption` they
    say nothing.  `in_backoff`: the device is free, but not for the pod that asks now.  Of a share without admin access, `node` is
    the one node that the allocation names, and `binds_to_node` says that the device bound to it when it was allocated.
    """

    driver: str
    pool: str
    device: str
    share_id: str | None = None
    admin: bool = False
    consumption: tuple[CounterConsumption, ...] | None = None
    groups: tuple[tuple[str, tuple[str, ...]], ...] | None = None
    consumed_capacity: tuple[tuple[str, int], ...] = ()
    compatible_only_with: str | None = None
    neighbours_on: str = ""
    sources: tuple[tuple[str, str], ...] = ()
    in_backoff: bool = False
    node: str | None = None
    binds_to_node: bool = False

    @property
    def pool_id(self) -> PoolId:
        return (self.driver, self.pool)

    @property
    def device_id(self) -> DeviceId:
        return (self.driver, self.pool, self.device)

    @property
    def is_frozen(self) -> bool:
        """Return whether anything of what the device draws, or of its groups, was frozen when it was allocated."""
        return self.consumption is not None or self.groups is not None

    def drawn(self, live: Device | None) -> tuple[CounterConsumption, ...]:
        """Return what the device draws on counter sets: as frozen, else as `live` says, the device as the slice publishes it now.

        Where only the groups were frozen, they replace those of `live`.
        """
        if self.consumption is not None:
            return self.consumption
        if self.groups is None:
            return () if live is None else live.consumes_counters
        if live is None:
            return regrouped((), dict(self.groups))
        return regrouped(live.consumes_counters, dict(self.groups))


class ClaimPlacement(Value, frozen=True, rename=None):
    """A decided allocation of one claim on one node: what is written, and what it takes (one holding per result, same order)."""

    allocation: AllocationResult
    holdings: tuple[DeviceHolding, ...]


class Placement(Value, frozen=True, rename=None):
    """A solution for all claims of a pod on one node, in the order the claims were asked for."""

    claims: tuple[ClaimPlacement, ...]
    steps: int = 0


@dataclass(frozen=True, slots=True)
class ScoreTerms:
    """The terms by which an allocation that fits is scored; those of several claims are added up.

    `alternatives`: the sum of 8 - index over the chosen alternatives of `firstAvailable` requests.  `waits`: some device has to
    fulfil binding conditions first.  `counter_sets`: how many counter sets are drawn on, `joined` of these by others already.
    `loss`: what the placement costs the expected demand (docs/concepts/scoring.md); None where that is not known.
    `preferences`: how many attributes the devices should agree in, `aligned` of these they do.
    """

    alternatives: int = 0
    waits: bool = False
    counter_sets: int = 0
    joined: int = 0
    loss: float | None = None
    preferences: int = 0
    aligned: int = 0

    def __add__(self, other: "ScoreTerms") -> "ScoreTerms":
        """Return the sum of both."""
        return ScoreTerms(
            self.alternatives + other.alternatives,
            self.waits or other.waits,
            self.counter_sets + other.counter_sets,
            self.joined + other.joined,
            self.loss if other.loss is None else other.loss + (self.loss or 0.0),
            self.preferences + other.preferences,
            self.aligned + other.aligned,
        )

    def __bool__(self) -> bool:
        """Return whether there is anything by which nodes could differ."""
        return bool(self.alternatives or self.waits or self.counter_sets or self.loss is not None or self.preferences)
