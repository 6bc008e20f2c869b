from collections.abc import Iterable
from typing import Any

import msgspec

from dra_extender.model.api_json import ModelError, Value, decode
from dra_extender.model.device import (
    Attribute,
    CounterConsumption,
    Device,
    DeviceCapacity,
    DeviceTaint,
    PoolId,
    RequestPolicy,
    ValidRange,
)
from dra_extender.model.metadata import ObjectMeta
from dra_extender.model.node_selector import NodeSelector
from dra_extender.model.quantity import QuantityError, parse_quantity


class CounterSet(Value, frozen=True, rename=None):
    """A named set of counters that devices of the pool draw on; (name, nano-units)."""

    name: str
    counters: tuple[tuple[str, int], ...] = ()


class ResourceSlice(Value, frozen=True, rename=None, weakref=True, gc=True):
    """One published slice of a pool, compact and immutable."""

    name: str
    driver: str
    pool: str
    generation: int
    slice_count: int
    uid: str = ""
    resource_version: str = ""
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    per_device_node_selection: bool | None = None
    skip_node_operations: tuple[str, ...] = ()
    counter_sets: tuple[CounterSet, ...] = ()
    devices: tuple[Device, ...] = ()

    @property
    def pool_id(self) -> PoolId:
        """(driver, pool): what identifies a pool."""
        return (self.driver, self.pool)


class _Attribute(Value, frozen=True):
    int_value: int | None = msgspec.field(default=None, name="int")
    bool_value: bool | None = msgspec.field(default=None, name="bool")
    string: str | None = None
    version: str | None = None
    ints: tuple[int, ...] | None = None
    bools: tuple[bool, ...] | None = None
    strings: tuple[str, ...] | None = None
    versions: tuple[str, ...] | None = None


class _Range(Value, frozen=True):
    min: str | None = None
    max: str | None = None
    step: str | None = None


class _Policy(Value, frozen=True):
    default: str | None = None
    valid_values: tuple[str, ...] | None = None
    valid_range: _Range | None = None


class _Capacity(Value, frozen=True):
    value: str
    request_policy: _Policy | None = None


class _Counter(Value, frozen=True):
    value: str


class _Consumption(Value, frozen=True):
    counter_set: str
    counters: dict[str, _Counter] = {}
    compatibility_groups: tuple[str, ...] | None = None


class _Expression(Value, frozen=True):
    expression: str


class _Unread(Value, frozen=True):
    """An object of which nothing but its presence matters."""


class _Device(Value, frozen=True):
    name: str
    attributes: dict[str, _Attribute] | None = None
    capacity: dict[str, _Capacity] | None = None
    consumes_counters: tuple[_Consumption, ...] | None = None
    taints: tuple[DeviceTaint, ...] | None = None
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] | None = None
    binding_failure_conditions: tuple[str, ...] | None = None
    allow_multiple_allocations: bool | None = None
    node_allocatable_resources: dict[str, _Unread] | None = None
    # In 1.36 the field had another name and another content.
    node_allocatable_resource_mappings: dict[str, _Unread] | None = None
    compatible_only_with: _Expression | None = None


class _Set(Value, frozen=True):
    name: str
    counters: dict[str, _Counter] = {}


class _Pool(Value, frozen=True):
    name: str
    generation: int = 0
    resource_slice_count: int = 0


class _Spec(Value, frozen=True):
    driver: str
    pool: _Pool
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    skip_node_operations: tuple[str, ...] | None = None
    shared_counters: tuple[_Set, ...] | None = None
    devices: tuple[_Device, ...] | None = None


class _Slice(Value, frozen=True):
    metadata: ObjectMeta
    spec: _Spec


_MAX_SHARED = 500_000


class SliceReader:
    """Reads ResourceSlice JSON into compact values and shares equal parts between all slices it has read.

    The table of shared parts is bounded: a full one starts anew, which costs memory for later slices, not correctness.
    """

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(_Slice)
        self._shared: dict[Any, Any] = {}

    def read(self, data: bytes) -> ResourceSlice:
        """The slice in `data`.

        Raises:
            ModelError: not a ResourceSlice; names slice, device and field where they are known.
        """
        return self._slice(decode("ResourceSlice", self._decoder, data))

    def convert(self, raw: Any) -> ResourceSlice:
        """As `read`, from decoded JSON."""
        try:
            wire = msgspec.convert(raw, _Slice)
        except msgspec.ValidationError as problem:
            raise ModelError(f"ResourceSlice: {problem}") from problem
        return self._slice(wire)

    def _slice(self, wire: _Slice) -> ResourceSlice:
        spec, share = wire.spec, self._share
        try:
            return ResourceSlice(
                name=wire.metadata.name,
                uid=wire.metadata.uid,
                resource_version=wire.metadata.resource_version,
                driver=share(spec.driver),
                pool=share(spec.pool.name),
                generation=spec.pool.generation,
                slice_count=spec.pool.resource_slice_count,
                node_name=share(spec.node_name) or None,
                node_selector=spec.node_selector,
                all_nodes=bool(spec.all_nodes),
                per_device_node_selection=spec.per_device_node_selection,
                skip_node_operations=share(spec.skip_node_operations or ()),
                counter_sets=tuple(
                    CounterSet(name=share(each.name), counters=self._counters(each.counters.items()))
                    for each in spec.shared_counters or ()
                ),
                devices=tuple(self._device(each) for each in spec.devices or ()),
            )
        except QuantityError as problem:
            raise ModelError(f"ResourceSlice {wire.metadata.name}: {problem}") from problem

    def _device(self, wire: _Device) -> Device:
        share = self._share
        attributes = tuple(
            share((share(name), self._attribute(value))) for name, value in (wire.attributes or {}).items()
        )
        capacity = tuple(share((share(name), self._capacity(value))) for name, value in (wire.capacity or {}).items())
        return Device(
            name=share(wire.name),
            attributes=share(attributes),
            capacity=share(capacity),
            consumes_counters=share(tuple(self._consumption(each) for each in wire.consumes_counters or ())),
            taints=share(wire.taints or ()),
            node_name=share(wire.node_name) or None,
            node_selector=wire.node_selector,
            all_nodes=bool(wire.all_nodes),
            binds_to_node=bool(wire.binds_to_node),
            binding_conditions=share(wire.binding_conditions),
            binding_failure_conditions=share(wire.binding_failure_conditions),
            allow_multiple_allocations=bool(wire.allow_multiple_allocations),
            node_allocatable=share(_node_allocatable(wire)),
            compatible_only_with=None
            if wire.compatible_only_with is None
            else share(wire.compatible_only_with.expression),
        )

    def _attribute(self, wire: _Attribute) -> Attribute:
        return self._share(  # type: ignore[no-any-return]
            Attribute(
                int_value=wire.int_value,
                bool_value=wire.bool_value,
                string_value=wire.string,
                version_value=wire.version,
                int_values=wire.ints,
                bool_values=wire.bools,
                string_values=wire.strings,
                version_values=wire.versions,
            )
        )

    def _capacity(self, wire: _Capacity) -> DeviceCapacity:
        policy = None
        if wire.request_policy is not None:
            found = wire.request_policy
            bounds = found.valid_range
            policy = RequestPolicy(
                default=_optional(found.default),
                valid_values=None if found.valid_values is None else tuple(map(parse_quantity, found.valid_values)),
                valid_range=None
                if bounds is None
                else ValidRange(min=_optional(bounds.min), max=_optional(bounds.max), step=_optional(bounds.step)),
            )
        text = self._share(wire.value)
        return self._share(DeviceCapacity(value=parse_quantity(text), text=text, policy=policy))  # type: ignore[no-any-return]

    def _consumption(self, wire: _Consumption) -> CounterConsumption:
        return self._share(  # type: ignore[no-any-return]
            CounterConsumption(
                counter_set=self._share(wire.counter_set),
                counters=self._counters(wire.counters.items()),
                compatibility_groups=self._share(wire.compatibility_groups or ()),
            )
        )

    def _counters(self, items: Iterable[tuple[str, _Counter]]) -> tuple[tuple[str, int], ...]:
        share = self._share
        return share(tuple(share((share(name), parse_quantity(counter.value))) for name, counter in items))  # type: ignore[no-any-return]

    def _share(self, value: Any) -> Any:
        if len(self._shared) >= _MAX_SHARED:
            self._shared.clear()
        return self._shared.setdefault(value, value)


def _node_allocatable(wire: _Device) -> tuple[str, ...]:
    named = wire.node_allocatable_resources or wire.node_allocatable_resource_mappings
    return tuple(sorted(named)) if named else ()


def _optional(text: str | None) -> int | None:
    return None if text is None else parse_quantity(text)
