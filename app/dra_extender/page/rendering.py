"""HTML from templates.  Whatever is put into a page is escaped: first control characters and marks of direction, then HTML."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dra_extender.cel.explain.values import quantity_text
from dra_extender.inspection.lines import age_text
from dra_extender.model.api_json import printable
from dra_extender.model.metadata import time_text

_PERCENT: Final = 100


class Renderer:
    """Renders templates of this package; links begin with `base`."""

    def __init__(self, base: str) -> None:
        self._environment = Environment(
            loader=PackageLoader("dra_extender.page"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_shown,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(_FILTERS)
        self._environment.globals["base"] = base
        self._environment.globals["link"] = lambda view, **query: f"{base}/{view}{_query(query)}"

    def page(self, template: str, **values: object) -> str:
        """The text of a page.

        Raises:
            UndefinedError: the template uses a name that is not among the values.
        """
        return self._environment.get_template(template).render(values)


def _query(values: Mapping[str, object]) -> str:
    given = {name: str(value) for name, value in values.items() if value not in ("", None)}
    return f"?{urlencode(given)}" if given else ""


def _shown(value: object) -> object:
    """Text as `printable` has it; what templates made themselves stays."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _age(seconds: float) -> str:
    return age_text(seconds) if math.isfinite(seconds) else "for ever"


def _percent(part: int, whole: int) -> int:
    return max(0, min(_PERCENT, _PERCENT * part // whole)) if whole > 0 else 0


def _counted(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _lines(text: str) -> list[str]:
    return text.rstrip("\n").split("\n")


_FILTERS: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType(
    {
        "age": _age,
        "quantity": quantity_text,
        "machine_time": time_text,
        "percent": _percent,
        "counted": _counted,
        "lines": _lines,
    }
)
