"""What the devices and counters of a ResourceSlice look like; `pool_schemas` has the spec around them."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from dra_extender.cel.values.quantity import parse_quantity
from dra_extender.manifests.problems import shown
from dra_extender.validation.capacity_rules import Amount, AmountRange, SharingPolicy, policy_problems
from dra_extender.validation.claim_schemas import CelFields
from dra_extender.validation.field_types import (
    DnsLabel,
    Integer,
    LabelKey,
    LabelValue,
    ObjectFields,
    OnlyTrue,
    Problem,
    QualifiedName,
    Quantity,
    Subdomain,
    each_once,
    refuse,
)
from dra_extender.validation.names import is_node_allocatable, is_semantic_version
from dra_extender.validation.node_selectors import NodeSelectorFields

MAX_NAMES: Final = 32
"""Attributes and capacities of a device together; also the counters of a set, and of a consumption."""
MAX_VALUES: Final = 48
"""Attribute values of a device, those in lists one by one."""
MAX_BYTES: Final = 64
"""The longest attribute value."""


class CounterFields(ObjectFields):
    """A counter, or what a device takes of it."""

    value: Quantity


Counters = Annotated[dict[DnsLabel, CounterFields], Field(min_length=1, max_length=MAX_NAMES)]


class ConsumptionFields(ObjectFields):
    """An entry of `consumesCounters`."""

    counter_set: DnsLabel
    counters: Counters
    compatibility_groups: Annotated[list[DnsLabel], Field(max_length=2), each_once()] | None = None


def _check_text(value: str) -> str:
    if len(value.encode(errors="replace")) > MAX_BYTES:
        raise ValueError(f"expected at most {MAX_BYTES} bytes, got {shown(value)}")
    return value


def _check_version(value: str) -> str:
    if not is_semantic_version(value):
        raise ValueError(f"expected a version such as 1.2.3 (semver.org), got {shown(value)}")
    return _check_text(value)


Text = Annotated[str, AfterValidator(_check_text)]
Version = Annotated[str, AfterValidator(_check_version)]
_ANY: Final = Field(min_length=1)


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

    int_value: Integer | None = Field(None, alias="int")
    bool_value: bool | None = Field(None, alias="bool")
    string: Text | None = None
    version: Version | None = None
    ints: Annotated[list[Integer], _ANY] | None = None
    bools: Annotated[list[bool], _ANY] | None = None
    strings: Annotated[list[Text], _ANY] | None = None
    versions: Annotated[list[Version], _ANY] | None = None

    @property
    def values(self) -> int:
        """How many values a list has; 1 for a single value."""
        return max(len(self.ints or ()), len(self.bools or ()), len(self.strings or ()), len(self.versions or ()), 1)

    @property
    def is_list(self) -> bool:
        """Whether it is a list of values."""
        return not self.given().isdisjoint(("ints", "bools", "strings", "versions"))


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

    @model_validator(mode="after")
    def _check(self) -> Self:
        policy = self.request_policy
        if policy is not None:
            span = policy.valid_range
            found = SharingPolicy(
                _amount(self.value),
                _optional(policy.default),
                [_amount(each) for each in policy.valid_values or ()],
                None if span is None else AmountRange(_optional(span.min), _optional(span.max), _optional(span.step)),
            )
            refuse(Problem(("requestPolicy", *each.path), each.sentence) for each in policy_problems(found))
        return self


def _amount(text: str) -> Amount:
    return Amount(text, parse_quantity(text))


def _optional(text: str | None) -> Amount | None:
    return None if text is None else _amount(text)


def _check_time(value: Any) -> Any:
    try:
        datetime.fromisoformat(value)
    except ValueError as problem:
        raise ValueError(f"expected a time such as 2026-01-02T15:04:05Z, got {shown(value)}") from problem
    return value


class TaintFields(ObjectFields):
    """A taint of a device."""

    key: LabelKey
    value: LabelValue | None = None
    effect: Literal["None", "NoSchedule", "NoExecute"]
    time_added: Annotated[str, AfterValidator(_check_time)] | None = None


Conditions = Annotated[list[LabelKey], Field(max_length=4), each_once()]


class ResourceMappingFields(ObjectFields):
    """How a device counts as a resource of its node."""

    capacity_key: QualifiedName | None = None
    capacity_multiplier: Quantity | None = None
    device_multiplier: Quantity | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse(self._problems())
        return self

    def _problems(self) -> Iterator[Problem]:
        both = ("capacityKey", "capacityMultiplier")
        missing = [name for name in both if name not in self.given()]
        if len(missing) == 1:
            (given,) = set(both) - set(missing)
            yield Problem((missing[0],), f"expected a value beside {given}, the field is missing")
        for name, amount in (
            ("capacityMultiplier", self.capacity_multiplier),
            ("deviceMultiplier", self.device_multiplier),
        ):
            if amount is not None and parse_quantity(amount) <= 0:
                yield Problem((name,), f"expected an amount above 0, got {amount}")


class ResourceOverheadFields(ObjectFields):
    """What a device costs of a resource of its node."""

    per_pod: Quantity | None = None
    per_container: Quantity | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.given():
            raise ValueError("expected perPod or perContainer, got none")
        for name, amount in (("perPod", self.per_pod), ("perContainer", self.per_container)):
            if amount is not None and parse_quantity(amount) < 0:
                refuse([Problem((name,), f"expected an amount of at least 0, got {amount}")])
        return self


class NodeAllocatableFields(ObjectFields):
    """An entry of `nodeAllocatableResources`."""

    mapping: ResourceMappingFields | None = None
    overhead: ResourceOverheadFields | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.given():
            raise ValueError("expected mapping or overhead, got none")
        return self


class DeviceFields(ObjectFields):
    """A device of a slice."""

    field_hints: ClassVar[Mapping[str, str]] = {
        "compatibilityGroups": "it belongs into an entry of consumesCounters",
        "nodeAllocatableResourceMappings": "Kubernetes 1.37 has nodeAllocatableResources in its place",
    }

    name: DnsLabel
    attributes: dict[QualifiedName, AttributeFields] | None = None
    capacity: dict[QualifiedName, CapacityFields] | None = None
    consumes_counters: Annotated[list[ConsumptionFields], Field(max_length=2), each_once("counter_set")] | None = None
    taints: Annotated[list[TaintFields], Field(max_length=16)] | None = None
    node_name: Subdomain | None = None
    node_selector: NodeSelectorFields | None = None
    all_nodes: OnlyTrue | None = None
    binds_to_node: bool | None = None
    binding_conditions: Conditions | None = None
    binding_failure_conditions: Conditions | None = None
    allow_multiple_allocations: bool | None = None
    node_allocatable_resources: dict[str, NodeAllocatableFields] | None = None
    # No released API has it; see docs/policy.md.
    compatible_only_with: CelFields | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse([*self._sizes(), *self._policies(), *self._conditions(), *self._mappings()])
        return self

    @property
    def has_advanced_fields(self) -> bool:
        """Whether it has fields with which a slice may have fewer devices."""
        lists = any(each.is_list for each in (self.attributes or {}).values())
        return bool(self.taints or self.consumes_counters or lists)

    def _sizes(self) -> Iterator[Problem]:
        attributes = self.attributes or {}
        together = len(attributes) + len(self.capacity or {})
        if together > MAX_NAMES:
            yield Problem((), f"expected at most {MAX_NAMES} attributes and capacities together, got {together}")
        values = sum(each.values for each in attributes.values())
        if values > MAX_VALUES:
            yield Problem(("attributes",), f"expected at most {MAX_VALUES} attribute values, got {values}")

    def _policies(self) -> Iterator[Problem]:
        for name, each in (self.capacity or {}).items():
            if each.request_policy is not None and not self.allow_multiple_allocations:
                text = "expected only on a device with allowMultipleAllocations: true"
                yield Problem(("capacity", name, "requestPolicy"), text)

    def _conditions(self) -> Iterator[Problem]:
        needed, failed = self.binding_conditions or [], self.binding_failure_conditions or []
        if bool(needed) != bool(failed):
            missing = "bindingFailureConditions" if needed else "bindingConditions"
            yield Problem((missing,), "expected a list: the two lists of conditions go together")
        for index, each in enumerate(failed):
            if each in needed:
                text = f"expected a condition that is not in bindingConditions, got {shown(each)}"
                yield Problem(("bindingFailureConditions", index), text)

    def _mappings(self) -> Iterator[Problem]:
        for name, each in (self.node_allocatable_resources or {}).items():
            where = ("nodeAllocatableResources", name)
            if not is_node_allocatable(name):
                yield Problem(where, f"expected cpu, memory or hugepages-SIZE, got {shown(name)}")
            key = None if each.mapping is None else each.mapping.capacity_key
            if key is not None and key not in (self.capacity or {}):
                yield Problem(
                    (*where, "mapping", "capacityKey"), f"expected a capacity of the device, got {shown(key)}"
                )
