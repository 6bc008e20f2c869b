"""What the spec of a ResourceClaim looks like, and the rules between its fields."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from dra_extender.manifests.documents import FieldPath
from dra_extender.manifests.problems import shown
from dra_extender.validation.field_types import (
    DnsLabel,
    DriverName,
    Expression,
    FullyQualifiedName,
    Integer,
    LabelValue,
    ObjectFields,
    Problem,
    QuantityByName,
    Subdomain,
    TolerationKey,
    each_once,
    refuse,
)

MAX_PARAMETERS: Final = 10 * 1024
"""The longest parameters for a driver, in bytes of JSON."""


class CelFields(ObjectFields):
    """A CEL expression over a device."""

    expression: Expression


class SelectorFields(ObjectFields):
    """An entry of `selectors`."""

    cel: CelFields


Selectors = Annotated[list[SelectorFields], Field(max_length=32)]


def _check_parameters(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"expected a mapping of fields, got {shown(value)}")  # noqa: TRY004 - pydantic expects it
    size = len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(errors="replace"))
    if size > MAX_PARAMETERS:
        raise ValueError(f"expected at most {MAX_PARAMETERS} bytes of JSON, got {size}")
    return value


class OpaqueFields(ObjectFields):
    """Parameters for a driver."""

    driver: DriverName
    parameters: Annotated[Any, AfterValidator(_check_parameters)]


class TolerationFields(ObjectFields):
    """A toleration of a request."""

    key: TolerationKey | None = None
    operator: Literal["Exists", "Equal"] | None = None
    value: LabelValue | None = None
    effect: Literal["NoSchedule", "NoExecute", "None", ""] | None = None
    toleration_seconds: Integer | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.operator == "Exists" and self.value:
            refuse([Problem(("value",), "expected no value beside operator: Exists")])
        return self


class CapacityRequestFields(ObjectFields):
    """Amounts of capacity that a request asks for."""

    requests: QuantityByName | None = None


class DerivedAttributeFields(ObjectFields):
    """An entry of `derivedAttributes`."""

    name: FullyQualifiedName
    expression: Annotated[str, Field(min_length=1)]


class RequestBodyFields(ObjectFields):
    """What `exactly` and an entry of `firstAvailable` have in common."""

    device_class_name: Subdomain
    selectors: Selectors | None = None
    allocation_mode: Literal["ExactCount", "All"] | None = None
    count: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    tolerations: list[TolerationFields] | None = None
    capacity: CapacityRequestFields | None = None
    derived_attributes: Annotated[list[DerivedAttributeFields], Field(max_length=32), each_once("name")] | None = None

    @model_validator(mode="after")
    def _check_count(self) -> Self:
        if self.allocation_mode == "All" and self.count:
            refuse([Problem(("count",), "expected no count beside allocationMode: All")])
        return self


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
    first_available: Annotated[list[SubRequestFields], Field(min_length=1, max_length=8), each_once("name")] | None = (
        None
    )

    def bodies(self) -> Iterator[tuple[FieldPath, str, RequestBodyFields]]:
        """Path, name for constraints, and fields of each alternative."""
        if self.exactly is not None:
            yield ("exactly",), self.name, self.exactly
        for index, each in enumerate(self.first_available or ()):
            yield ("firstAvailable", index), f"{self.name}/{each.name}", each


RequestNames = Annotated[list[str], Field(max_length=32), each_once()]


class ConstraintFields(ObjectFields):
    """A constraint of a claim.  The API server accepts both attributes, and kube-scheduler reads `matchAttribute` then."""

    requests: RequestNames | None = None
    match_attribute: FullyQualifiedName | None = None
    distinct_attribute: FullyQualifiedName | None = None

    @property
    def attribute(self) -> str | None:
        """Return the attribute that the allocator compares."""
        return self.distinct_attribute if self.match_attribute is None else self.match_attribute

    @model_validator(mode="after")
    def _check_attribute(self) -> Self:
        if self.attribute is None:
            raise ValueError("expected matchAttribute or distinctAttribute, got none")
        return self


class ClaimConfigurationFields(ObjectFields):
    """An entry of `config` of a claim."""

    requests: RequestNames | None = None
    opaque: OpaqueFields


class DeviceClaimFields(ObjectFields):
    """`spec.devices` of a claim."""

    requests: Annotated[list[RequestFields], Field(max_length=32), each_once("name")] | None = None
    constraints: Annotated[list[ConstraintFields], Field(max_length=32)] | None = None
    config: Annotated[list[ClaimConfigurationFields], Field(max_length=32)] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse([*self._names_of_no_request(), *self._unused_derived_attributes()])
        return self

    def _names_of_no_request(self) -> Iterator[Problem]:
        known = {name for each in self.requests or () for name in (each.name, *(body[1] for body in each.bodies()))}
        lists: Sequence[tuple[str, Sequence[ConstraintFields | ClaimConfigurationFields]]] = (
            ("constraints", self.constraints or ()),
            ("config", self.config or ()),
        )
        for field, entries in lists:
            for place, entry in enumerate(entries):
                for index, name in enumerate(entry.requests or ()):
                    if name not in known:
                        text = f"expected the name of a request, or REQUEST/ALTERNATIVE, got {shown(name)}"
                        yield Problem((field, place, "requests", index), text)

    def _unused_derived_attributes(self) -> Iterator[Problem]:
        """A derived attribute serves a constraint of its request, or nothing."""
        for place, request in enumerate(self.requests or ()):
            for path, name, body in request.bodies():
                for index, each in enumerate(body.derived_attributes or ()):
                    if not any(self._concerns(constraint, each.name, name) for constraint in self.constraints or ()):
                        where = ("requests", place, *path, "derivedAttributes", index, "name")
                        text = f"expected a name that a constraint on this request refers to, got {shown(each.name)}"
                        yield Problem(where, text)

    def _concerns(self, constraint: ConstraintFields, attribute: str, request: str) -> bool:
        if attribute != constraint.attribute:
            return False
        names = constraint.requests or ()
        return not names or request in names or request.partition("/")[0] in names


class ClaimSpecFields(ObjectFields):
    """`spec` of a ResourceClaim."""

    devices: DeviceClaimFields | None = None
