"""HTML from templates, escaped, and what the query of an address asks for."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dra_extender.cel.explain.values import quantity_text
from dra_extender.inspection.holders import state_text
from dra_extender.inspection.lines import age_text
from dra_extender.inspection.text.audit import check_text, checks_text
from dra_extender.inspection.text.why import effect_text, ended_texts
from dra_extender.model.api_json import listed, printable
from dra_extender.model.metadata import split_key, time_text

T = TypeVar("T")

_DIGITS: Final = 6
_PERCENT: Final = 100

Query = Mapping[str, str]


class QueryError(ValueError):
    """The query cannot be meant; the message names the field, and says what was expected."""


class Link(NamedTuple):
    """A text that leads to a view, or to a part of it."""

    text: str
    view: str
    query: Mapping[str, str] = {}
    part: str = ""


class ListPart(NamedTuple):
    """A page of a list of `total` entries, `first` to `last` of them, both counted from 1."""

    page: int
    pages: int
    first: int
    last: int
    total: int

    def entries_of(self, entries: Sequence[T]) -> Sequence[T]:
        return entries[self.first - 1 : self.last]


def part_of(total: int, size: int, page: int) -> ListPart:
    """Return page `page` of `total` entries with `size` on each page; a list without entries has one page.

    Raises:
        QueryError: there is no such page.
    """
    pages = max(1, -(-total // size))
    if not 1 <= page <= pages:
        raise QueryError(f"page: expected 1 to {pages}, got {page}")
    first = (page - 1) * size + 1
    return ListPart(page, pages, first, min(total, page * size), total)


def number(query: Query, name: str) -> int:
    """Return the query parameter as a number, such as a page; default 1.

    Raises:
        QueryError: it is no number from 1.
    """
    text = query.get(name, "")
    if not text:
        return 1
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS and int(text)):
        raise QueryError(f"{name}: expected a number from 1, got {text[:40]!r}")
    return int(text)


def choice(query: Query, name: str, choices: Collection[str]) -> str:
    """Return the query parameter; empty if it is missing.

    Raises:
        QueryError: it is none of the choices.
    """
    text = query.get(name, "")
    if text not in choices:
        raise QueryError(f"{name}: expected {listed([value for value in choices if value])}, got {text[:40]!r}")
    return text


def pod_key(query: Query) -> tuple[str, str] | None:
    """Namespace and name of the pod that is asked for; None if none is.

    Raises:
        QueryError: expected both.
    """
    text = query.get("pod", "")
    namespace, name = split_key(text)
    if not text:
        return None
    if not (namespace and name):
        raise QueryError(f"pod: expected namespace/name, got {text[:80]!r}")
    return namespace, name


def page_templates(base: str) -> Environment:
    """Return the templates of this package; links begin with `base`, and names that a template is not given are errors."""
    environment = Environment(
        loader=PackageLoader("dra_extender.page"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(_FILTERS)
    environment.globals["base"] = base
    environment.globals["link"] = lambda view, **query: f"{base}/{view}{_query(query)}"
    return environment


def _query(values: Mapping[str, object]) -> str:
    parameters = {name: str(value) for name, value in values.items() if value not in ("", None)}
    return f"?{urlencode(parameters)}" if parameters else ""


def _shown(value: object) -> object:
    """Text as `printable` has it; what templates made themselves stays."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def device_anchor(driver: str, pool: str, device: str) -> str:
    """Return the id of a device on the view of its node."""
    return quote(f"{driver}/{pool}/{device}", safe="/")


def counted(number: int, singular: str, plural: str = "") -> str:
    """`1 pod`, `2,000 pods`; a plural that does not end with s is given."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


_FILTERS: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType(
    {
        "age": lambda seconds: age_text(seconds) if math.isfinite(seconds) else "for ever",
        "quantity": quantity_text,
        "machine_time": time_text,
        "percent": lambda part, total: max(0, min(_PERCENT, _PERCENT * part // total)) if total > 0 else 0,
        "counted": counted,
        "anchor": device_anchor,
        "points": lambda corners: " ".join(f"{x:g},{y:g}" for x, y in corners),
        "check": check_text,
        "checks": checks_text,
        "effect": effect_text,
        "ended": ended_texts,
        "holder_state": state_text,
    }
)
