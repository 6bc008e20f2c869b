"""The types of fields in manifests: each refuses a wrong value with a sentence that says what was expected."""

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, ClassVar, Final, NamedTuple, Self, TypeVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import InitErrorDetails, PydanticCustomError

from dra_extender.cel.errors import CelCompileError
from dra_extender.cel.program import compile_expression
from dra_extender.cel.values.quantity import parse_quantity
from dra_extender.manifests.documents import FieldPath
from dra_extender.manifests.problems import SENTENCE, WrittenFields, shown
from dra_extender.validation.names import (
    is_driver_name,
    is_fully_qualified_name,
    is_label,
    is_label_key,
    is_label_value,
    is_pool_name,
    is_qualified_name,
    is_subdomain,
)

T = TypeVar("T")

INVALID_EXPRESSION: Final = "invalid_expression"
"""The type of a pydantic error about a CEL expression that does not compile."""


class Problem(NamedTuple):
    """Something wrong below the value that is being validated."""

    path: FieldPath
    sentence: str


def refuse(problems: Iterable[Problem]) -> None:
    """Refuse the value that is being validated if anything below it is wrong.

    Raises:
        ValidationError: an error at each of the paths.
    """
    found = [
        InitErrorDetails(
            type=PydanticCustomError("refused", "{sentence}", {SENTENCE: each.sentence}), loc=each.path, input=None
        )
        for each in problems
    ]
    if found:
        raise ValidationError.from_exception_data("fields", found)


class ObjectFields(WrittenFields):
    """Fields of an object of the API; null is as good as a field that is left out.

    `exactly_one_of`: names of fields, as they are written.  An empty tuple states no rule.
    """

    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)
    exactly_one_of: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="after")
    def _check_alternatives(self) -> Self:
        found = [name for name in self.exactly_one_of if name in self.given()]
        if self.exactly_one_of and len(found) != 1:
            wanted, got = " or ".join(self.exactly_one_of), " and ".join(found) or "none"
            raise ValueError(f"expected exactly one of {wanted}, got {got}")
        return self

    def given(self) -> frozenset[str]:
        """The names of the fields that have a value, as they are written."""
        fields = type(self).model_fields.items()
        return frozenset(each.alias or name for name, each in fields if getattr(self, name) is not None)


class OpenFields(ObjectFields):
    """Fields that are not all described here; `known_fields` tells which others exist."""

    model_config = ConfigDict(extra="ignore")


def each_once(field: str = "") -> AfterValidator:
    """The items of a list differ in this field, or altogether."""

    def check(items: list[T]) -> list[T]:
        seen: set[Any] = set()
        for index, item in enumerate(items):
            name = getattr(item, field) if field else item
            if name in seen:
                path = (index, to_camel(field)) if field else (index,)
                refuse([Problem(path, f"expected each only once, got {shown(name)} again")])
            seen.add(name)
        return items

    return AfterValidator(check)


def _named(is_valid: Callable[[Any], bool], wanted: str) -> BeforeValidator:
    def check(value: Any) -> Any:
        if not is_valid(value):
            raise ValueError(f"expected {wanted}, got {shown(value)}")
        return value

    return BeforeValidator(check)


def _check_quantity(value: Any) -> str:
    text = str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
    if not isinstance(text, str):
        raise ValueError(f"expected a quantity such as 40Gi or 500m, got {shown(value)}")  # noqa: TRY004 - pydantic expects it
    parse_quantity(text)
    return text


def _check_expression(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("expected a CEL expression as text")
    try:
        compile_expression(value)
    except CelCompileError as problem:
        place = f"line {problem.line}, column {problem.column}"
        context = {SENTENCE: f"the expression does not compile: {problem.reason} ({place})"}
        raise PydanticCustomError(INVALID_EXPRESSION, "{sentence}", context) from problem
    return value


Count = Annotated[int, Field(gt=0, lt=2**63)]
Integer = Annotated[int, Field(ge=-(2**63), lt=2**63)]
OnlyTrue = Annotated[bool, _named(lambda value: value is None or value is True, "true, or the field left out")]
Quantity = Annotated[str, BeforeValidator(_check_quantity)]
QuantityByName = dict[str, Quantity]
Expression = Annotated[str, BeforeValidator(_check_expression)]
DnsLabel = Annotated[str, _named(is_label, "a DNS label (lower case letters, digits and '-', at most 63)")]
Subdomain = Annotated[str, _named(is_subdomain, "a DNS subdomain (lower case letters, digits, '-' and '.')")]
DriverName = Annotated[str, _named(is_driver_name, "a DNS subdomain of at most 63 characters")]
PoolName = Annotated[str, _named(is_pool_name, "DNS subdomains joined by '/'")]
LabelKey = Annotated[str, _named(is_label_key, "the key of a label, such as example.com/name")]
TolerationKey = Annotated[
    str, _named(lambda text: text == "" or is_label_key(text), "the key of a label, such as example.com/name")
]
LabelValue = Annotated[
    str, _named(is_label_value, "the value of a label (letters, digits, '-', '_' and '.', at most 63)")
]
_IDENTIFIER: Final = "letters, digits and '_', at most 32, the first no digit"
QualifiedName = Annotated[
    str, _named(is_qualified_name, f"a name ({_IDENTIFIER}), or a driver's domain, '/' and such a name")
]
FullyQualifiedName = Annotated[
    str, _named(is_fully_qualified_name, f"a domain, '/' and a name ({_IDENTIFIER}), such as example.com/model")
]

EXPECTED: Final[Mapping[str, str]] = {
    "greater_than": "a whole number above 0",
    "greater_than_equal": "a whole number of at least 0",
    "less_than": "a whole number below 2^63",
}
"""What was expected, by the type of a pydantic error, beside what holds for all YAML."""
