"""What a node selector looks like (core `ValidateNodeSelector`)."""

from collections.abc import Iterator
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from dra_extender.manifests.problems import shown
from dra_extender.validation.field_types import LabelKey, LabelValue, ObjectFields, Problem, refuse
from dra_extender.validation.names import is_subdomain

_NAME: Final = "metadata.name"
_WITHOUT_VALUES: Final = ("Exists", "DoesNotExist")


class RequirementFields(ObjectFields):
    """A requirement on the labels of a node."""

    key: LabelKey
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: list[LabelValue] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        number = len(self.values or ())
        if self.operator in ("In", "NotIn") and not number:
            refuse([Problem(("values",), f"expected at least 1 item beside operator: {self.operator}")])
        if self.operator in _WITHOUT_VALUES and number:
            refuse([Problem(("values",), f"expected no values beside operator: {self.operator}")])
        if self.operator in ("Gt", "Lt") and number != 1:
            refuse([Problem(("values",), f"expected one value beside operator: {self.operator}, got {number}")])
        return self


class FieldRequirementFields(ObjectFields):
    """A requirement on the name of a node."""

    key: str
    operator: Literal["In", "NotIn"]
    values: list[str] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse(self._problems())
        return self

    def _problems(self) -> Iterator[Problem]:
        if self.key != _NAME:
            yield Problem(("key",), f"expected {_NAME}, got {shown(self.key)}")
        values = self.values or []
        if len(values) != 1:
            yield Problem(("values",), f"expected one value, got {len(values)}")
        elif not is_subdomain(values[0]):
            yield Problem(("values", 0), f"expected the name of a node, got {shown(values[0])}")


class NodeSelectorTermFields(ObjectFields):
    """A term of a node selector."""

    match_expressions: list[RequirementFields] | None = None
    match_fields: list[FieldRequirementFields] | None = None


class NodeSelectorFields(ObjectFields):
    """A node selector; one of its terms is enough."""

    node_selector_terms: Annotated[list[NodeSelectorTermFields], Field(min_length=1)]
