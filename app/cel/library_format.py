"""The Kubernetes library of named formats."""

from typing import Any, Final

from app.cel.cost import Frame, tenth
from app.cel.declarations import function, method, overload
from app.cel.library_optional import some
from app.cel.named_formats import FORMATS, NamedFormat
from app.cel.types import NAMED_FORMAT, STRING, list_of, optional_of
from app.cel.values import NONE, Optional, size_of

_VALIDATION_WORK: Final = 100


def _named(name: str) -> Optional:
    found = FORMATS.get(name)
    return NONE if found is None else some(found)


def _validate(frame: Frame, form: NamedFormat, text: str) -> Optional:
    frame.spend(_VALIDATION_WORK + len(text))
    problems = form.problems(text)
    return some(problems) if problems else NONE


def _validated(_: Frame, arguments: tuple[Any, ...], __: Any) -> int:
    """Cost of running a pattern of the format's size over the text."""
    form, text = arguments
    if type(form) is not NamedFormat:
        return 0
    return tenth(1 + size_of(text)) * -(-form.pattern_size // 4) - 1


FUNCTIONS: Final = (
    function("format.named", overload((STRING,), optional_of(NAMED_FORMAT), _named)),
    function(
        "validate",
        method((NAMED_FORMAT, STRING), optional_of(list_of(STRING)), _validate, metered=True),
        extra=_validated,
    ),
    *(function(f"format.{name}", overload((), NAMED_FORMAT, lambda form=form: form)) for name, form in FORMATS.items()),
)
