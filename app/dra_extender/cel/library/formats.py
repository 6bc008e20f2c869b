"""The Kubernetes library of named formats."""

from typing import Any, Final

from dra_extender.cel.cost import EvaluationFrame, tenth
from dra_extender.cel.library.optional import some
from dra_extender.cel.native.call import TEXT, NativeFunction
from dra_extender.cel.types.declarations import function, method, overload
from dra_extender.cel.types.types import NAMED_FORMAT, STRING, list_of, optional_of
from dra_extender.cel.values.named_formats import FORMATS, NamedFormat
from dra_extender.cel.values.network import url_work
from dra_extender.cel.values.values import NONE, Optional, size_of

_VALIDATION_WORK: Final = 200
_CHARACTER_WORK: Final = 8
_QUOTED_WORK: Final = 24


def _named(name: str) -> Optional:
    found = FORMATS.get(name)
    return NONE if found is None else some(found)


def _problems(form: NamedFormat, text: str) -> list[str]:
    return form.problems(text)


def _validation_work(form: NamedFormat, text: str) -> int:
    if form.name == "URI":
        return _VALIDATION_WORK + url_work(text) // 2 + _QUOTED_WORK * len(text)
    return _VALIDATION_WORK + _CHARACTER_WORK * len(text)


def _validate(frame: EvaluationFrame, form: NamedFormat, text: str) -> Optional:
    problems = VALIDATE.call(frame, form, text)
    return some(problems) if problems else NONE


def _validated(_: EvaluationFrame, arguments: tuple[Any, ...], __: Any) -> int:
    """Cost of running a pattern of the format's size over the text."""
    form, text = arguments
    if type(form) is not NamedFormat:
        return 0
    return tenth(1 + size_of(text)) * -(-form.pattern_size // 4) - 1


VALIDATE: Final = NativeFunction("validate", (NAMED_FORMAT.name, TEXT), _problems, _validation_work)

FUNCTIONS: Final = (
    function("format.named", overload((STRING,), optional_of(NAMED_FORMAT), _named)),
    function(
        "validate",
        method((NAMED_FORMAT, STRING), optional_of(list_of(STRING)), _validate, metered=True),
        extra=_validated,
    ),
    *(function(f"format.{name}", overload((), NAMED_FORMAT, lambda form=form: form)) for name, form in FORMATS.items()),
)
