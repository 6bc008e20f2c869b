"""Messages about fields that people wrote: the name of a field, and what is wrong with it.

Messages about settings, the device policy, kube-scheduler's configuration and manifests are made here.
"""

import difflib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, NamedTuple, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from dra_extender.manifests.documents import FieldPath
from dra_extender.model.api_json import number_of

SENTENCE: Final = "sentence"
"""The key in the context of a pydantic error under which a validator of ours puts the whole sentence."""
YAML_TYPES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "string_type": "a text",
        "string_too_short": "a text that is not empty",
        "bool_type": "true or false",
        "int_type": "a whole number",
        "list_type": "a list",
        "model_type": "a mapping of fields",
        "dict_type": "a mapping of fields",
    }
)
"""By the type of a pydantic error: what was expected, as people say it who write YAML."""
SETTING_TYPES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "bool_parsing": "true or false",
        "bool_type": "true or false",
        "dict_type": "a mapping of settings",
        "float_parsing": "a number",
        "float_type": "a number",
        "int_from_float": "a whole number",
        "int_parsing": "a whole number",
        "int_parsing_size": "a smaller number",
        "int_type": "a whole number",
        "ip_any_address": "an IPv4 or IPv6 address",
        "model_attributes_type": "a mapping of settings",
        "model_type": "a mapping of settings",
        "path_type": "a path",
        "string_type": "a text",
        "tuple_type": "a list",
    }
)
"""The same for settings, which come as texts from the environment."""
_BOUNDS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "greater_than": ("gt", "more than"),
        "greater_than_equal": ("ge", "at least"),
        "less_than": ("lt", "less than"),
        "less_than_equal": ("le", "at most"),
    }
)
_START: Final = re.compile("^(?:Input|Value|List|Tuple|String) should (?:be|have) ")
_SHOWN: Final = 60


class FieldProblem(NamedTuple):
    """A field, a sentence about it (empty: there is no such field), and where its value comes from, if that is known."""

    field: str
    sentence: str
    source: str = ""

    def __str__(self) -> str:
        """Return for example `setting server.port (command line): expected at least 0, got -1`."""
        where = f"{self.field} ({self.source})" if self.source else self.field
        return f"{where}: {self.sentence}" if self.sentence else f"{where} does not exist"


class Problem(NamedTuple):
    """Something wrong below the value that is checked; `is_expression` marks a CEL expression that does not compile."""

    path: FieldPath
    sentence: str
    is_expression: bool = False

    def below(self, path: FieldPath) -> "Problem":
        """Return the problem as one of the value in which the checked one is at this path."""
        return self._replace(path=(*path, *self.path))


Problems = Iterator[Problem]


class WrittenFields(BaseModel):
    """Fields that people write.  `field_hints`: what to say about a field that does not exist here, by its name."""

    field_hints: ClassVar[Mapping[str, str]] = {}


def path_text(path: Sequence[str | int]) -> str:
    """Return a path as people write it, e.g. `spec.devices[0].name`."""
    text = ""
    for step in path:
        if isinstance(step, int) or "." in step or "/" in step:
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


def shown(value: Any) -> str:
    """Return the value as a message quotes it."""
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case int() | float():
            return str(value)
        case str():
            return repr(value if len(value) <= _SHOWN else value[:_SHOWN] + "...")
        case list():
            return f"a list of {len(value)}"
        case _:
            return "a mapping"


def sentence_of(error: ErrorDetails, expected: Mapping[str, str], quote: Callable[[Any], str] = shown) -> str:
    """Return what pydantic found: `expected ..., got ...`, or the sentence of a validator of ours.

    Args:
        error: One error of a ValidationError.
        expected: What to say was expected, by the type of the error, where pydantic's own text is not for people who write YAML.
        quote: How a message quotes the value.
    """
    context = error.get("ctx", {})
    match error["type"]:
        case "missing":
            return "expected a value, the field is missing"
        case "value_error":
            return str(context["error"])
        case "too_long":
            requirement = f"at most {number_of(context['max_length'], 'item')}"
        case "too_short":
            requirement = f"at least {number_of(context['min_length'], 'item')}"
        case kind if kind in _BOUNDS and kind not in expected:
            bound, comparison = _BOUNDS[kind]
            requirement = f"{comparison} {context[bound]}"
        case kind:
            if SENTENCE in context:
                return str(context[SENTENCE])
            requirement = expected.get(kind) or _START.sub("", error["msg"])
    return f"expected {requirement}, got {quote(error['input'])}"


def unknown_field(model: type[BaseModel], path: FieldPath) -> str:
    """Return the sentence about an unknown field at this path of a value of the model: the field that was meant, or all."""
    owner, name = _model_at(model, path[:-1]), str(path[-1])
    if issubclass(owner, WrittenFields) and name in owner.field_hints:
        return f"unknown field; {owner.field_hints[name]}"
    return unknown_field_sentence(name, [field.alias or attribute for attribute, field in owner.model_fields.items()])


def unknown_field_sentence(name: str, field_names: Collection[str]) -> str:
    """Say of a field that does not exist which one was meant, or which ones exist."""
    close = difflib.get_close_matches(name, field_names, n=1)
    if close:
        return f"unknown field; did you mean {close[0]!r}?"
    return f"unknown field; expected one of {', '.join(field_names)}"


def _model_at(model: type[BaseModel], path: FieldPath) -> type[BaseModel]:
    """Return the model of the value at this path; a path goes through lists by index and through mappings by key."""
    annotation: Any = model
    for step in path:
        annotation = _below(annotation, step)
    return next(kind for kind in _plain_types(annotation) if isinstance(kind, type) and issubclass(kind, BaseModel))


def _below(annotation: Any, step: str | int) -> Any:
    """Return the type of an item of a list, of a value of a mapping, or of a field of a model."""
    for alternative in _plain_types(annotation):
        if get_origin(alternative) in (list, dict):
            return get_args(alternative)[-1]
        if isinstance(alternative, type) and issubclass(alternative, BaseModel):
            return next(
                field.annotation for name, field in alternative.model_fields.items() if step in (field.alias, name)
            )
    return annotation


def _plain_types(annotation: Any) -> Sequence[Any]:
    """Return the alternatives of a type without the metadata of Annotated."""
    if get_origin(annotation) is Annotated:
        return _plain_types(get_args(annotation)[0])
    if isinstance(annotation, type) or get_origin(annotation) in (list, dict):
        return (annotation,)
    return [plain for argument in get_args(annotation) for plain in _plain_types(argument)]
