"""The tables of docs/reference/settings.md, made from the settings."""

from enum import EnumType
from pathlib import Path
from typing import Any, Final

from annotated_types import Ge, Gt, Le, Lt
from dra_extender.config.settings import Settings
from pydantic import BaseModel
from pydantic.fields import FieldInfo

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"


def tables() -> str:
    """One Markdown table for each group, in the order of the program."""
    return "\n".join(_table(name, field.annotation) for name, field in Settings.model_fields.items())


def _table(group: str, model: Any) -> str:
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
    words = [word for bound in field.metadata if (word := _bound(bound))]
    return ", ".join(words) or "-"


def _bound(bound: object) -> str:
    match bound:
        case Ge(ge=value):
            return f"from {value}"
        case Gt(gt=value):
            return f"above {value}"
        case Le(le=value):
            return f"to {value}"
        case Lt(lt=value):
            return f"below {value}"
    return ""
