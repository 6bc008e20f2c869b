"""The types of fields in manifests: each refuses a wrong value with a sentence that says what was expected."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Final, Self, TypeVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import InitErrorDetails, PydanticCustomError

from dra_extender.cel.program import compile_expression
from dra_extender.cel.support.errors import CelCompileError
from dra_extender.manifests.problems import SENTENCE, WrittenFields, shown
from dra_extender.model.quantity import parse_quantity
from dra_extender.simulator.apiserver.validation import is_label, is_pool_name, is_subdomain

T = TypeVar("T")

INVALID_EXPRESSION: Final = "invalid_expression"
"""The type of a pydantic error about a CEL expression that does not compile."""


class ObjectFields(WrittenFields):
    """Fields of an object of the API; null is as good as a field that is left out.

    `exactly_one_of`, `at_least_one_of`: names of fields, as they are written.  An empty tuple states no rule.
    """

    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)
    exactly_one_of: ClassVar[tuple[str, ...]] = ()
    at_least_one_of: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="after")
    def _check_alternatives(self) -> Self:
        given = {each.alias for name, each in type(self).model_fields.items() if getattr(self, name) is not None}
        found = [name for name in self.exactly_one_of if name in given]
        if self.exactly_one_of and len(found) != 1:
            wanted, got = " or ".join(self.exactly_one_of), " and ".join(found) or "none"
            raise ValueError(f"expected exactly one of {wanted}, got {got}")
        if self.at_least_one_of and given.isdisjoint(self.at_least_one_of):
            raise ValueError(f"expected {' or '.join(self.at_least_one_of)}, got none")
        return self


class OpenFields(ObjectFields):
    """Fields that are not all known here: others are left unchecked."""

    model_config = ConfigDict(extra="ignore")


def each_once(field: str = "") -> AfterValidator:
    """The items of a list differ in this field, or altogether."""

    def check(items: list[T]) -> list[T]:
        seen: list[Any] = []
        for index, item in enumerate(items):
            name = getattr(item, field) if field else item
            if name in seen:
                path = (index, to_camel(field)) if field else (index,)
                raise _error(path, name, f"expected each only once, got {shown(name)} again")
            seen.append(name)
        return items

    return AfterValidator(check)


def _error(path: tuple[str | int, ...], value: Any, sentence: str) -> ValidationError:
    """An error about a part of the value that is being validated."""
    problem = PydanticCustomError("repeated", "{sentence}", {SENTENCE: sentence})
    return ValidationError.from_exception_data("list", [InitErrorDetails(type=problem, loc=path, input=value)])


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


Count = Annotated[int, Field(gt=0)]
Quantity = Annotated[str, BeforeValidator(_check_quantity)]
QuantityByName = dict[str, Quantity]
Expression = Annotated[str, BeforeValidator(_check_expression)]
DnsLabel = Annotated[str, _named(is_label, "a DNS label (lower case letters, digits and '-', at most 63)")]
Subdomain = Annotated[str, _named(is_subdomain, "a DNS subdomain (lower case letters, digits, '-' and '.')")]
DriverName = Annotated[str, _named(lambda name: is_subdomain(name, 63), "a DNS subdomain of at most 63 characters")]
PoolName = Annotated[str, _named(is_pool_name, "DNS subdomains joined by '/'")]

EXPECTED: Final[Mapping[str, str]] = {"greater_than": "a whole number above 0"}
"""What was expected, by the type of a pydantic error, beside what holds for all YAML."""
