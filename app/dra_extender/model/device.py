from collections.abc import Iterable, Mapping
from typing import Final

from dra_extender.model.api_json import Value
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


class Attribute(Value, frozen=True, rename=None):
    """The value of one device attribute; upstream's type is a union, so normally exactly one field is set."""

    int_value: int | None = None
    bool_value: bool | None = None
    string_value: str | None = None
    version_value: str | None = None
    int_values: tuple[int, ...] | None = None
    bool_values: tuple[bool, ...] | None = None
    string_values: tuple[str, ...] | None = None
    version_values: tuple[str, ...] | None = None


class ValidRange(Value, frozen=True, rename=None):
    """Allowed amounts of a capacity request, in nano-units."""

    min: int | None = None
    max: int | None = None
    step: int | None = None


class RequestPolicy(Value, frozen=True, rename=None):
    """How amounts of a shared capacity may be requested, in nano-units (KEP-5075)."""

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
    """

    counter_set: str
    counters: tuple[tuple[str, int], ...] = ()
    compatibility_groups: tuple[str, ...] = ()

    @property
    def synthetic(self) -> bool:
        """Whether the counter set only stands for a physical device that the admin's policy names."""
        return self.counter_set.startswith(PHYSICAL_DEVICE)


def groups_source(counter_set: str) -> str:
    """The field as `Device.sources` names it where the admin's policy supplied the groups of this counter set."""
    return f"compatibilityGroups[{counter_set}]"


def regrouped(
    consumption: Iterable[CounterConsumption],
    groups: Mapping[str, tuple[str, ...]],
    sources: Iterable[tuple[str, str]],
) -> tuple[CounterConsumption, ...]:
    """What a device draws on counter sets, with these groups by counter set in place of published ones.

    Groups that the admin's policy supplied stay, and so do those of a physical device: no slice and no allocation names them.  A
    counter set that has groups and is not drawn on any more keeps the device as a member without amounts.
    """
    supplied = {field for field, _ in sources}
    drawn = tuple(
        each
        if each.synthetic or groups_source(each.counter_set) in supplied
        else CounterConsumption(
            counter_set=each.counter_set,
            counters=each.counters,
            compatibility_groups=groups.get(each.counter_set, ()),
        )
        for each in consumption
    )
    named = {each.counter_set for each in drawn}
    return drawn + tuple(
        CounterConsumption(counter_set=name, compatibility_groups=found)
        for name, found in groups.items()
        if found and name not in named
    )


class DeviceTaint(Value, frozen=True):
    """A taint of a device; `effect` NoSchedule or NoExecute keeps claims away, anything else does not."""

    key: str = ""
    value: str = ""
    effect: str = ""


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
