"""Devices of a slice: as the API server sends them, and compact, with equal parts shared."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Final

from dra_extender.cel.device import Attribute
from dra_extender.cel.values.quantity import parse_quantity
from dra_extender.model.api_json import Value
from dra_extender.model.fields import (
    Described,
    DnsLabel,
    Format,
    Gate,
    Items,
    LabelKey,
    LabelValue,
    Mark,
    OneOf,
    QualifiedName,
    Quantity,
    Resource,
    Subdomain,
    Time,
)
from dra_extender.model.node_selector import NodeSelector

DeviceId = tuple[str, str, str]
"""(driver, pool, device)."""

PoolId = tuple[str, str]
"""(driver, pool)."""

PHYSICAL_DEVICE: Final = "physical-device/"
"""How the name begins of a counter set that no slice declares and that has no counters: all partitions of one physical device
draw on it, so that their groups are compared.  Names of published counter sets have no slash."""

POOL: Final = "pool"
"""All devices of the pool are neighbours."""
NODE: Final = "node"
"""All devices that are local to the node are neighbours."""


_Text = Annotated[str, Format.ATTRIBUTE_TEXT]
_Version = Annotated[str, Format.ATTRIBUTE_VERSION]


class AttributeBody(Value, frozen=True):
    """The value of an attribute as the API server sends it; it is decoded into an `Attribute`."""

    unread: ClassVar[Mapping[str, Any]] = {
        "int": int,
        "bool": bool,
        "string": _Text,
        "version": _Version,
        "ints": Annotated[tuple[int, ...], Items(min_items=1)],
        "bools": Annotated[tuple[bool, ...], Items(min_items=1)],
        "strings": Annotated[tuple[_Text, ...], Items(min_items=1)],
        "versions": Annotated[tuple[_Version, ...], Items(min_items=1)],
    }


class ValidRange(Value, frozen=True, rename=None):
    """Allowed amounts of a capacity request, in nano-units."""

    min: int | None = None
    max: int | None = None
    step: int | None = None


class RequestPolicy(Value, frozen=True, rename=None):
    """The amounts of a shared capacity that requests may take, in nano-units (KEP-5075)."""

    default: int | None = None
    valid_values: tuple[int, ...] | None = None
    valid_range: ValidRange | None = None


class DeviceCapacity(Value, frozen=True, rename=None):
    """One capacity of a device: its value in nano-units, the text it was published with, and the request policy."""

    value: int
    text: str
    policy: RequestPolicy | None = None


class CounterConsumption(Value, frozen=True, rename=None):
    """What a device draws from one counter set of its pool (KEP-4815) and with whom it may share it (KEP-5963).

    `counters` holds (name, nano-units).  No `compatibility_groups` means "no groups", however the field was left out.
    `groups_supplied`: the admin's policy supplied the groups, the driver published none.
    """

    counter_set: str
    counters: tuple[tuple[str, int], ...] = ()
    compatibility_groups: tuple[str, ...] = ()
    groups_supplied: bool = False

    @property
    def synthetic(self) -> bool:
        """Return whether the counter set only stands for a physical device that the admin's policy names."""
        return self.counter_set.startswith(PHYSICAL_DEVICE)

    @property
    def grouped_by_policy(self) -> bool:
        """Return whether the groups, or the physical device that they are about, come from the admin's policy."""
        return self.groups_supplied or self.synthetic


def groups_source(counter_set: str) -> str:
    """Return the field as `Device.sources` names it where the admin's policy supplied the groups of this counter set."""
    return f"compatibilityGroups[{counter_set}]"


def regrouped(
    consumption: Iterable[CounterConsumption], groups: Mapping[str, tuple[str, ...]]
) -> tuple[CounterConsumption, ...]:
    """Return what a device draws on counter sets, with these groups by counter set in place of published ones.

    Groups that the admin's policy supplied stay, and so do those of a physical device: no slice and no allocation names them.  A
    counter set that has groups and is not drawn on any more keeps the device as a member without amounts.
    """
    drawn = tuple(
        entry
        if entry.grouped_by_policy
        else CounterConsumption(
            counter_set=entry.counter_set,
            counters=entry.counters,
            compatibility_groups=groups.get(entry.counter_set, ()),
        )
        for entry in consumption
    )
    named = {entry.counter_set for entry in drawn}
    return drawn + tuple(
        CounterConsumption(counter_set=name, compatibility_groups=group_names)
        for name, group_names in groups.items()
        if group_names and name not in named
    )


class DeviceTaint(Value, frozen=True):
    """A taint of a device; `effect` NoSchedule or NoExecute keeps claims away, anything else does not."""

    unread: ClassVar[Mapping[str, Any]] = {"timeAdded": Time}
    key: Annotated[LabelKey, Mark.REQUIRED] = ""
    value: LabelValue = ""
    effect: Annotated[str, OneOf("None", "NoSchedule", "NoExecute"), Mark.REQUIRED] = ""


class Device(Value, frozen=True, rename=None):
    """One device of a slice in compact form; equal parts are shared between devices.

    `compatible_only_with` is CEL over devices beside which this one may be allocated, `neighbours_on` says which those are: POOL,
    NODE, or empty for those on the same counter sets.  `sources` holds (field, rule) for each field that the admin's policy
    supplied; what is not listed was published.  `node_allocatable` names the resources of its node, such as cpu, that the device
    stands for or takes (DRANodeAllocatableResources).
    """

    name: str
    attributes: tuple[tuple[str, Attribute], ...] = ()
    capacity: tuple[tuple[str, DeviceCapacity], ...] = ()
    consumes_counters: tuple[CounterConsumption, ...] = ()
    taints: tuple[DeviceTaint, ...] = ()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    binds_to_node: bool = False
    binding_conditions: tuple[str, ...] | None = None
    binding_failure_conditions: tuple[str, ...] | None = None
    allow_multiple_allocations: bool = False
    node_allocatable: tuple[str, ...] = ()
    compatible_only_with: str | None = None
    neighbours_on: str = ""
    sources: tuple[tuple[str, str], ...] = ()


class ValidRangeBody(Value, frozen=True):
    """`validRange` as the API server sends it."""

    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class RequestPolicyBody(Value, frozen=True):
    """`requestPolicy` as the API server sends it."""

    default: Quantity | None = None
    valid_values: Annotated[tuple[Quantity, ...], Items(max_items=10)] | None = None
    valid_range: ValidRangeBody | None = None


class CapacityBody(Value, frozen=True):
    """A capacity as the API server sends it."""

    value: Quantity
    request_policy: Annotated[RequestPolicyBody, Gate.CONSUMABLE_CAPACITY] | None = None


class CounterBody(Value, frozen=True):
    """A counter as the API server sends it, or what a device draws on one."""

    value: Quantity


Counters = Annotated[dict[DnsLabel, CounterBody], Items(1, 32), Mark.REQUIRED]


class ConsumptionBody(Value, frozen=True):
    """An entry of `consumesCounters` as the API server sends it."""

    counter_set: Annotated[str, Format.COUNTER_SET]
    counters: Counters = {}
    compatibility_groups: (
        Annotated[tuple[DnsLabel, ...], Items(max_items=2, once=""), Gate.COMPATIBILITY_GROUPS] | None
    ) = None


class DeviceExpression(Value, frozen=True):
    """`compatibleOnlyWith` of a device."""

    expression: Annotated[str, Format.EXPRESSION]


class ResourceMapping(Value, frozen=True):
    """The amount of a resource of its node that a device is."""

    capacity_key: QualifiedName | None = None
    capacity_multiplier: Quantity | None = None
    device_multiplier: Quantity | None = None


class ResourceOverhead(Value, frozen=True):
    """The amount of a resource of its node that the use of a device costs."""

    per_pod: Quantity | None = None
    per_container: Quantity | None = None


class NodeAllocatable(Value, frozen=True):
    """An entry of `nodeAllocatableResources` of a device; for decisions, only its presence matters."""

    unread: ClassVar[Mapping[str, Any]] = {
        "mapping": Annotated[ResourceMapping, Mark.LEFT_OUT],
        "overhead": Annotated[ResourceOverhead, Mark.LEFT_OUT],
    }


Conditions = Annotated[tuple[LabelKey, ...], Items(max_items=4, once=""), Gate.BINDING_CONDITIONS]
"""Types of conditions."""


NodeOperation = Annotated[str, OneOf("NodePrepareResources", "NodeUnprepareResources", "*")]


class DeviceBody(Value, frozen=True):
    """A device as the API server sends it."""

    name: DnsLabel
    attributes: dict[QualifiedName, Annotated[Attribute, Described(AttributeBody)]] | None = None
    capacity: dict[QualifiedName, CapacityBody] | None = None
    consumes_counters: (
        Annotated[tuple[ConsumptionBody, ...], Items(max_items=2, once="counterSet"), Gate.PARTITIONABLE_DEVICES] | None
    ) = None
    taints: Annotated[tuple[DeviceTaint, ...], Items(max_items=16), Gate.DEVICE_TAINTS] | None = None
    node_name: Subdomain | None = None
    node_selector: NodeSelector | None = None
    all_nodes: Annotated[bool, OneOf(True)] | None = None
    binds_to_node: Annotated[bool, Gate.BINDING_CONDITIONS] | None = None
    binding_conditions: Conditions | None = None
    binding_failure_conditions: Conditions | None = None
    allow_multiple_allocations: Annotated[bool, Gate.CONSUMABLE_CAPACITY] | None = None
    node_allocatable_resources: Annotated[dict[Resource, NodeAllocatable], Gate.NODE_ALLOCATABLE_RESOURCES] | None = (
        None
    )
    # In 1.36 the field had another name and another content.
    node_allocatable_resource_mappings: Annotated[dict[Resource, NodeAllocatable], Mark.FORMER] | None = None
    # See docs/concepts/policy.md.
    compatible_only_with: Annotated[DeviceExpression, Mark.DRAFT] | None = None


_MAX_SHARED: Final = 500_000


class DeviceReader:
    """Turns devices of the API into compact values, and shares equal parts between all devices that it has read.

    The table of shared parts is bounded: a full one starts anew, which costs memory for later devices, not correctness.
    """

    def __init__(self) -> None:
        self._shared: dict[Any, Any] = {}

    def read(self, wire: DeviceBody) -> Device:
        """Return the device; raises QuantityError where an amount cannot be read."""
        share = self.share
        node_allocatable = wire.node_allocatable_resources or wire.node_allocatable_resource_mappings or ()
        attributes = tuple(share((share(name), share(value))) for name, value in (wire.attributes or {}).items())
        capacity = tuple(share((share(name), self._capacity(value))) for name, value in (wire.capacity or {}).items())
        return Device(
            name=share(wire.name),
            attributes=share(attributes),
            capacity=share(capacity),
            consumes_counters=share(tuple(self._consumption(entry) for entry in wire.consumes_counters or ())),
            taints=share(wire.taints or ()),
            node_name=share(wire.node_name) or None,
            node_selector=wire.node_selector,
            all_nodes=bool(wire.all_nodes),
            binds_to_node=bool(wire.binds_to_node),
            binding_conditions=share(wire.binding_conditions),
            binding_failure_conditions=share(wire.binding_failure_conditions),
            allow_multiple_allocations=bool(wire.allow_multiple_allocations),
            node_allocatable=share(tuple(sorted(node_allocatable))),
            compatible_only_with=None
            if wire.compatible_only_with is None
            else share(wire.compatible_only_with.expression),
        )

    def _capacity(self, wire: CapacityBody) -> DeviceCapacity:
        policy = None
        if wire.request_policy is not None:
            wire_policy = wire.request_policy
            bounds = wire_policy.valid_range
            policy = RequestPolicy(
                default=_optional(wire_policy.default),
                valid_values=None
                if wire_policy.valid_values is None
                else tuple(map(parse_quantity, wire_policy.valid_values)),
                valid_range=None
                if bounds is None
                else ValidRange(min=_optional(bounds.min), max=_optional(bounds.max), step=_optional(bounds.step)),
            )
        text = self.share(wire.value)
        return self.share(DeviceCapacity(value=parse_quantity(text), text=text, policy=policy))  # type: ignore[no-any-return]

    def _consumption(self, wire: ConsumptionBody) -> CounterConsumption:
        return self.share(  # type: ignore[no-any-return]
            CounterConsumption(
                counter_set=self.share(wire.counter_set),
                counters=self.counters(wire.counters.items()),
                compatibility_groups=self.share(wire.compatibility_groups or ()),
            )
        )

    def counters(self, items: Iterable[tuple[str, CounterBody]]) -> tuple[tuple[str, int], ...]:
        """Return counters as (name, nano-units); raises QuantityError where an amount cannot be read."""
        share = self.share
        return share(tuple(share((share(name), parse_quantity(counter.value))) for name, counter in items))  # type: ignore[no-any-return]

    def share(self, value: Any) -> Any:
        """Return the first value that was seen and is equal to this one."""
        if len(self._shared) >= _MAX_SHARED:
            self._shared.clear()
        return self._shared.setdefault(value, value)


def _optional(text: str | None) -> int | None:
    return None if text is None else parse_quantity(text)


def device_id_of(text: str) -> DeviceId:
    """Return the device that `driver/pool/device` names; the name of a pool may have slashes in it."""
    driver, _, pool_and_name = text.partition("/")
    pool, _, name = pool_and_name.rpartition("/")
    return driver, pool, name
