"""ResourceSlices: as the API server sends them, and compact as they are kept."""

from typing import Annotated, Any

import msgspec

from dra_extender.cel.values.quantity import QuantityError
from dra_extender.model.api_json import ModelError, Value, decode, from_json
from dra_extender.model.device import Counters, Device, DeviceBody, DeviceReader, NodeOperation, PoolId
from dra_extender.model.fields import (
    Count,
    DnsLabel,
    DriverName,
    FullyQualifiedName,
    Gate,
    Items,
    Mark,
    Natural,
    OneOf,
    PoolName,
    Subdomain,
)
from dra_extender.model.metadata import ObjectMeta
from dra_extender.model.node_selector import NodeSelector


class CounterSet(Value, frozen=True, rename=None):
    """A named set of counters that devices of the pool draw on; (name, nano-units)."""

    name: str
    counters: tuple[tuple[str, int], ...] = ()


class ResourceSlice(Value, frozen=True, rename=None, weakref=True, gc=True):
    """One published slice of a pool, compact and immutable.

    `unchanged_since`: when the slice was created, if its spec has never changed; None if it has, or if that is not known.
    """

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
    unchanged_since: str | None = None

    @property
    def pool_id(self) -> PoolId:
        """(driver, pool): what identifies a pool."""
        return (self.driver, self.pool)


class CounterSetBody(Value, frozen=True):
    """An entry of `sharedCounters` as the API server sends it."""

    name: DnsLabel
    counters: Counters = {}


class SlicePool(Value, frozen=True):
    """`spec.pool` of a slice."""

    name: PoolName
    generation: Natural = 0
    resource_slice_count: Annotated[Count, Mark.REQUIRED] = 0


class SliceSpec(Value, frozen=True):
    """`spec` of a slice as the API server sends it."""

    driver: DriverName
    pool: SlicePool
    node_name: Subdomain | None = None
    node_selector: NodeSelector | None = None
    all_nodes: Annotated[bool, OneOf(True)] | None = None
    per_device_node_selection: Annotated[bool, OneOf(True), Gate.PARTITIONABLE_DEVICES] | None = None
    skip_node_operations: Annotated[tuple[NodeOperation, ...], Items(once="")] | None = None
    shared_counters: (
        Annotated[tuple[CounterSetBody, ...], Items(max_items=8, once="name"), Gate.PARTITIONABLE_DEVICES] | None
    ) = None
    partition_type_attribute: Annotated[FullyQualifiedName, Mark.LEFT_OUT, Gate.PARTITION_TYPES] | None = None
    devices: Annotated[tuple[DeviceBody, ...], Items(max_items=128, once="name")] | None = None


class SliceObject(Value, frozen=True):
    """A ResourceSlice as the API server sends it."""

    metadata: ObjectMeta
    spec: Annotated[SliceSpec, Mark.WHOLE]


class SliceReader:
    """Reads ResourceSlice JSON into compact values and shares equal parts between all slices it has read."""

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(SliceObject)
        self._devices = DeviceReader()

    def read(self, data: bytes) -> ResourceSlice:
        """Return the slice in `data`.

        Raises:
            ModelError: not a ResourceSlice; names slice, device and field where they are known.
        """
        return self._slice(decode("ResourceSlice", self._decoder, data))

    def convert(self, raw: Any) -> ResourceSlice:
        """Return a slice from decoded JSON, as `read` does."""
        return self._slice(from_json("ResourceSlice", SliceObject, raw))

    def _slice(self, wire: SliceObject) -> ResourceSlice:
        spec, devices, share = wire.spec, self._devices, self._devices.share
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
                    CounterSet(name=share(counter_set.name), counters=devices.counters(counter_set.counters.items()))
                    for counter_set in spec.shared_counters or ()
                ),
                devices=tuple(devices.read(device) for device in spec.devices or ()),
                unchanged_since=wire.metadata.creation_timestamp if wire.metadata.generation == 1 else None,
            )
        except QuantityError as problem:
            raise ModelError(f"ResourceSlice {wire.metadata.name}: {problem}") from problem
