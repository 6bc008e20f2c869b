"""Tables of the documents that are made from the program, in Markdown: settings, metrics and packages."""

import ast
import re
from collections.abc import Iterator
from enum import EnumType
from pathlib import Path
from typing import Any, Final

from annotated_types import Ge, Gt, Le, Lt
from dra_extender.config.settings import Settings
from dra_extender.telemetry.metrics import DEFINITIONS
from pydantic import BaseModel
from pydantic.fields import FieldInfo

_ROOT: Final = Path(__file__).parents[2]
_PACKAGE: Final = _ROOT / "app" / "dra_extender"
SETTINGS: Final = _ROOT / "docs" / "reference" / "settings.md"
METRICS: Final = _ROOT / "docs" / "reference" / "metrics.md"
ARCHITECTURE: Final = _ROOT / "docs" / "architecture.md"


def settings_tables() -> str:
    """Return a table of settings for each group, in the order of the program."""
    return "\n".join(_settings_table(name, field.annotation) for name, field in Settings.model_fields.items())


def _settings_table(group: str, model: Any) -> str:
    if not issubclass(model, BaseModel):
        raise TypeError(f"group {group!r} of the settings is no model")
    rows = [f"## {group}", "", model.__doc__ or "", "", "| setting | default | range | meaning |", "|---|---|---|---|"]
    rows += [
        f"| `{group}.{name}` | {_default(field.default)} | {_range(field)} | {field.description} |"
        for name, field in model.model_fields.items()
    ]
    return "\n".join(rows) + "\n"


def _default(value: object) -> str:
    if value is None:
        return "none"
    return f"`{str(value).lower()}`" if isinstance(value, bool) else f"`{value}`"


def _range(field: FieldInfo) -> str:
    if isinstance(field.annotation, EnumType):
        return ", ".join(f"`{each.value}`" for each in field.annotation)
    match field.metadata:
        case [Ge(ge=least), Le(le=most)]:
            return f"{least} to {most}"
        case bounds:
            return ", ".join(word for bound in bounds if (word := _bound(bound))) or "-"


def _bound(bound: object) -> str:
    match bound:
        case Ge(ge=value):
            return f"at least {value}"
        case Gt(gt=value):
            return f"above {value}"
        case Le(le=value):
            return f"at most {value}"
        case Lt(lt=value):
            return f"below {value}"
    return ""


def metrics_table() -> str:
    """Return the metrics by name."""
    rows = ["| name | type | labels | meaning |", "|---|---|---|---|"]
    for metric in sorted(DEFINITIONS, key=lambda metric: metric.full_name):
        labels = ", ".join(f"`{label}`" for label in metric.labels) or "-"
        rows.append(f"| `{metric.full_name}` | {metric.kind} | {labels} | {metric.meaning} |")
    return "\n".join(rows) + "\n"


def packages_table() -> str:
    """Return a row for each package: its path below `dra_extender` and the first sentence of its docstring."""
    rows = (f"| {name} | {sentence} |" for name, sentence in _packages())
    return "\n".join(("| package | what it is for |", "|---|---|", *rows, ""))


def _packages() -> Iterator[tuple[str, str]]:
    for file in sorted(_PACKAGE.rglob("__init__.py"), key=lambda path: path.parent.parts):
        name = file.parent.relative_to(_PACKAGE).as_posix()
        if name != ".":
            text = ast.get_docstring(ast.parse(file.read_text())) or ""
            sentence = re.split(r"(?<=\.)\s|\n\n", text, maxsplit=1)[0].replace("\n", " ")
            sentence = re.sub(r"`(\w+)\.(\w+)`", r"`\1/\2`", sentence)
            yield (f"`{name}`" if "/" in name else f"**`{name}`**"), sentence
