from typing import Any

import msgspec

from dra_extender.cel.values.quantity import QuantityError
from dra_extender.model.api_json import ModelError, Value, decode, from_json
from dra_extender.model.device import CounterBody, Device, DeviceBody, DeviceReader, PoolId
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


class _Set(Value, frozen=True):
    name: str
    counters: dict[str, CounterBody] = {}


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
    devices: tuple[DeviceBody, ...] | None = None


class _Slice(Value, frozen=True):
    metadata: ObjectMeta
    spec: _Spec


class SliceReader:
    """Reads ResourceSlice JSON into compact values and shares equal parts between all slices it has read."""

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(_Slice)
        self._devices = DeviceReader()

    def read(self, data: bytes) -> ResourceSlice:
        """The slice in `data`.

        Raises:
            ModelError: not a ResourceSlice; names slice, device and field where they are known.
        """
        return self._slice(decode("ResourceSlice", self._decoder, data))

    def convert(self, raw: Any) -> ResourceSlice:
        """As `read`, from decoded JSON."""
        return self._slice(from_json("ResourceSlice", _Slice, raw))

    def _slice(self, wire: _Slice) -> ResourceSlice:
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
                    CounterSet(name=share(each.name), counters=devices.counters(each.counters.items()))
                    for each in spec.shared_counters or ()
                ),
                devices=tuple(devices.read(each) for each in spec.devices or ()),
                unchanged_since=wire.metadata.creation_timestamp if wire.metadata.generation == 1 else None,
            )
        except QuantityError as problem:
            raise ModelError(f"ResourceSlice {wire.metadata.name}: {problem}") from problem
