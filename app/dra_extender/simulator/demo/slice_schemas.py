"""What the spec of a ResourceSlice looks like."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from dra_extender.simulator.demo.claim_schemas import CelFields
from dra_extender.simulator.demo.field_types import (
    Count,
    DnsLabel,
    DriverName,
    ObjectFields,
    PoolName,
    Quantity,
    Subdomain,
    each_once,
)

_ALTERNATIVES: Final = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")


class RequirementFields(ObjectFields):
    """A requirement of a node selector."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: list[str] | None = None


class NodeSelectorTermFields(ObjectFields):
    """A term of a node selector."""

    match_expressions: list[RequirementFields] | None = None
    match_fields: list[RequirementFields] | None = None


class NodeSelectorFields(ObjectFields):
    """A node selector."""

    node_selector_terms: Annotated[list[NodeSelectorTermFields], Field(min_length=1)]


class CounterFields(ObjectFields):
    """A counter, or what a device takes of it."""

    value: Quantity


Counters = Annotated[dict[str, CounterFields], Field(min_length=1)]


class ConsumptionFields(ObjectFields):
    """An entry of `consumesCounters`."""

    counter_set: DnsLabel
    counters: Counters
    compatibility_groups: Annotated[list[str], Field(max_length=2), each_once()] | None = None


class AttributeFields(ObjectFields):
    """The value of an attribute."""

    exactly_one_of: ClassVar[tuple[str, ...]] = (
        "int",
        "bool",
        "string",
        "version",
        "ints",
        "bools",
        "strings",
        "versions",
    )

    int_value: int | None = Field(None, alias="int")
    bool_value: bool | None = Field(None, alias="bool")
    string: str | None = None
    version: str | None = None
    ints: list[int] | None = None
    bools: list[bool] | None = None
    strings: list[str] | None = None
    versions: list[str] | None = None


class ValidRangeFields(ObjectFields):
    """The amounts that a request may ask for."""

    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class RequestPolicyFields(ObjectFields):
    """How a capacity is shared."""

    default: Quantity | None = None
    valid_values: Annotated[list[Quantity], Field(max_length=10)] | None = None
    valid_range: ValidRangeFields | None = None


class CapacityFields(ObjectFields):
    """A capacity of a device."""

    value: Quantity
    request_policy: RequestPolicyFields | None = None


class TaintFields(ObjectFields):
    """A taint of a device."""

    key: str
    value: str | None = None
    effect: Literal["None", "NoSchedule", "NoExecute"]
    time_added: str | None = None


Conditions = Annotated[list[str], Field(max_length=4), each_once()]


class ResourceMappingFields(ObjectFields):
    """How a device counts as a resource of its node."""

    capacity_key: str | None = None
    capacity_multiplier: Quantity | None = None
    device_multiplier: Quantity | None = None


class ResourceOverheadFields(ObjectFields):
    """What a device costs of a resource of its node."""

    per_pod: Quantity | None = None
    per_container: Quantity | None = None


class NodeAllocatableFields(ObjectFields):
    """An entry of `nodeAllocatableResources`."""

    mapping: ResourceMappingFields | None = None
    overhead: ResourceOverheadFields | None = None


class DeviceFields(ObjectFields):
    """A device of a slice."""

    field_hints: ClassVar[Mapping[str, str]] = {
        "compatibilityGroups": "it belongs into an entry of consumesCounters",
        "nodeAllocatableResourceMappings": "Kubernetes 1.37 has nodeAllocatableResources in its place",
    }

    name: DnsLabel
    attributes: dict[str, AttributeFields] | None = None
    capacity: dict[str, CapacityFields] | None = None
    consumes_counters: Annotated[list[ConsumptionFields], Field(max_length=2), each_once("counter_set")] | None = None
    taints: list[TaintFields] | None = None
    node_name: Subdomain | None = None
    node_selector: NodeSelectorFields | None = None
    all_nodes: bool | None = None
    binds_to_node: bool | None = None
    binding_conditions: Conditions | None = None
    binding_failure_conditions: Conditions | None = None
    allow_multiple_allocations: bool | None = None
    node_allocatable_resources: dict[str, NodeAllocatableFields] | None = None
    # No released API has it; see docs/policy.md.
    compatible_only_with: CelFields | None = None


class PoolFields(ObjectFields):
    """The pool of a slice."""

    name: PoolName
    generation: int
    resource_slice_count: Count


class CounterSetFields(ObjectFields):
    """An entry of `sharedCounters`."""

    name: DnsLabel
    counters: Counters


class SliceSpecFields(ObjectFields):
    """`spec` of a ResourceSlice."""

    exactly_one_of: ClassVar[tuple[str, ...]] = _ALTERNATIVES
    at_least_one_of: ClassVar[tuple[str, ...]] = ("devices", "sharedCounters")

    driver: DriverName
    pool: PoolFields
    node_name: Subdomain | None = None
    node_selector: NodeSelectorFields | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    skip_node_operations: list[str] | None = None
    shared_counters: Annotated[list[CounterSetFields], Field(max_length=8), each_once("name")] | None = None
    partition_type_attribute: str | None = None
    devices: Annotated[list[DeviceFields], Field(max_length=128), each_once("name")] | None = None
