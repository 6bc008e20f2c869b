"""What the spec of a ResourceClaim looks like."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from dra_extender.simulator.demo.field_types import (
    Count,
    DnsLabel,
    DriverName,
    Expression,
    ObjectFields,
    QuantityByName,
    Subdomain,
    each_once,
)


class CelFields(ObjectFields):
    """A CEL expression over a device."""

    expression: Expression


class SelectorFields(ObjectFields):
    """An entry of `selectors`."""

    cel: CelFields


Selectors = Annotated[list[SelectorFields], Field(max_length=32)]


class OpaqueFields(ObjectFields):
    """Parameters for a driver."""

    driver: DriverName
    parameters: Any


class TolerationFields(ObjectFields):
    """A toleration of a request."""

    key: str | None = None
    operator: Literal["Exists", "Equal"] | None = None
    value: str | None = None
    effect: Literal["NoSchedule", "NoExecute"] | None = None
    toleration_seconds: int | None = None


class CapacityRequestFields(ObjectFields):
    """Amounts of capacity that a request asks for."""

    requests: QuantityByName | None = None


class DerivedAttributeFields(ObjectFields):
    """An entry of `derivedAttributes`."""

    name: str
    expression: str


class RequestBodyFields(ObjectFields):
    """What `exactly` and an entry of `firstAvailable` have in common."""

    device_class_name: Subdomain
    selectors: Selectors | None = None
    allocation_mode: Literal["ExactCount", "All"] | None = None
    count: Count | None = None
    tolerations: list[TolerationFields] | None = None
    capacity: CapacityRequestFields | None = None
    derived_attributes: list[DerivedAttributeFields] | None = None


class ExactRequestFields(RequestBodyFields):
    """`exactly` of a request."""

    admin_access: bool | None = None


class SubRequestFields(RequestBodyFields):
    """An entry of `firstAvailable`."""

    name: DnsLabel


class RequestFields(ObjectFields):
    """A request of a claim."""

    exactly_one_of: ClassVar[tuple[str, ...]] = ("exactly", "firstAvailable")
    field_hints: ClassVar[Mapping[str, str]] = dict.fromkeys(
        [each.alias or name for name, each in ExactRequestFields.model_fields.items()],
        "in resource.k8s.io/v1 it belongs under 'exactly'",
    )

    name: DnsLabel
    exactly: ExactRequestFields | None = None
    first_available: Annotated[list[SubRequestFields], Field(max_length=8), each_once("name")] | None = None


class ConstraintFields(ObjectFields):
    """A constraint of a claim."""

    exactly_one_of: ClassVar[tuple[str, ...]] = ("matchAttribute", "distinctAttribute")

    requests: list[str] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class ClaimConfigurationFields(ObjectFields):
    """An entry of `config` of a claim."""

    requests: list[str] | None = None
    opaque: OpaqueFields


class DeviceClaimFields(ObjectFields):
    """`spec.devices` of a claim."""

    requests: Annotated[list[RequestFields], Field(max_length=32), each_once("name")] | None = None
    constraints: Annotated[list[ConstraintFields], Field(max_length=32)] | None = None
    config: Annotated[list[ClaimConfigurationFields], Field(max_length=32)] | None = None


class ClaimSpecFields(ObjectFields):
    """`spec` of a ResourceClaim."""

    devices: DeviceClaimFields
