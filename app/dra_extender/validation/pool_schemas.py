"""What the spec of a ResourceSlice looks like, and the rules between its fields (`validateResourceSliceSpec`)."""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from dra_extender.validation.field_types import (
    Count,
    DnsLabel,
    DriverName,
    FullyQualifiedName,
    ObjectFields,
    OnlyTrue,
    PoolName,
    Problem,
    Subdomain,
    each_once,
    refuse,
)
from dra_extender.validation.node_selectors import NodeSelectorFields
from dra_extender.validation.slice_schemas import Counters, DeviceFields

MAX_DEVICES: Final = 128
MAX_ADVANCED_DEVICES: Final = 64
"""The same where a device has taints, counters or lists of attribute values."""
_ALTERNATIVES: Final = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_OF_DEVICE: Final = ("nodeName", "nodeSelector", "allNodes")


class PoolFields(ObjectFields):
    """The pool of a slice."""

    name: PoolName
    generation: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    resource_slice_count: Count


class CounterSetFields(ObjectFields):
    """An entry of `sharedCounters`."""

    name: DnsLabel
    counters: Counters


SkippedOperation = Literal["NodePrepareResources", "NodeUnprepareResources", "*"]


class SliceSpecFields(ObjectFields):
    """`spec` of a ResourceSlice.

    Until 1.34 a slice may have devices beside shared counters; a caller that reads one for a later release has to refuse that.
    """

    exactly_one_of: ClassVar[tuple[str, ...]] = _ALTERNATIVES

    driver: DriverName
    pool: PoolFields
    node_name: Subdomain | None = None
    node_selector: NodeSelectorFields | None = None
    all_nodes: OnlyTrue | None = None
    per_device_node_selection: OnlyTrue | None = None
    skip_node_operations: Annotated[list[SkippedOperation], each_once()] | None = None
    shared_counters: Annotated[list[CounterSetFields], Field(max_length=8), each_once("name")] | None = None
    partition_type_attribute: FullyQualifiedName | None = None
    devices: Annotated[list[DeviceFields], Field(max_length=MAX_DEVICES), each_once("name")] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse([*self._nodes(), *self._sizes(), *self._partition_types(), *self._operations()])
        return self

    def _nodes(self) -> Iterator[Problem]:
        terms = 1 if self.node_selector is None else len(self.node_selector.node_selector_terms)
        if terms != 1:
            yield Problem(("nodeSelector", "nodeSelectorTerms"), f"expected one term, got {terms}")
        for index, device in enumerate(self.devices or ()):
            given = [name for name in _OF_DEVICE if name in device.given()]
            if self.per_device_node_selection and len(given) != 1:
                got = " and ".join(given) or "none"
                wanted = "expected exactly one of nodeName, nodeSelector or allNodes beside perDeviceNodeSelection"
                yield Problem(("devices", index), f"{wanted}, got {got}")
            elif not self.per_device_node_selection and given:
                text = "expected only in a slice with perDeviceNodeSelection: true"
                yield Problem(("devices", index, given[0]), text)

    def _sizes(self) -> Iterator[Problem]:
        number = len(self.devices or ())
        if number > MAX_ADVANCED_DEVICES and any(each.has_advanced_fields for each in self.devices or ()):
            text = f"expected at most {MAX_ADVANCED_DEVICES} devices where one has taints, consumesCounters or lists of values"
            yield Problem(("devices",), f"{text}, got {number}")

    def _partition_types(self) -> Iterator[Problem]:
        name = self.partition_type_attribute
        if name is None:
            return
        consuming = [(index, each) for index, each in enumerate(self.devices or ()) if each.consumes_counters]
        if not consuming:
            yield Problem(("partitionTypeAttribute",), "expected only in a slice with devices that consume counters")
        bare = name.removeprefix(f"{self.driver}/")
        for index, each in consuming:
            attributes = each.attributes or {}
            found = attributes.get(name) or attributes.get(bare)
            if found is None:
                text = (
                    f"expected attribute {name}, for partitionTypeAttribute names it and the device consumes counters"
                )
                yield Problem(("devices", index), text)
            elif found.string is None:
                text = "expected a string, for partitionTypeAttribute names this attribute"
                yield Problem(("devices", index, "attributes", name if name in attributes else bare), text)

    def _operations(self) -> Iterator[Problem]:
        skipped = self.skip_node_operations or []
        if "NodePrepareResources" in skipped and not {"NodeUnprepareResources", "*"} & set(skipped):
            yield Problem(("skipNodeOperations",), "expected NodeUnprepareResources beside NodePrepareResources")
