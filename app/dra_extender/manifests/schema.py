"""A small language for what manifests look like, so that a wrong one is answered with the field and what was expected."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from dra_extender.manifests.documents import Path
from dra_extender.manifests.problems import unknown_field


class SchemaError(msgspec.Struct, frozen=True):
    """Something wrong at a path; `expression` marks a CEL expression that does not compile."""

    path: Path
    text: str
    expression: bool = False


class Leaf(msgspec.Struct, frozen=True):
    """A single value; `check` says what is wrong with it, or None."""

    check: Callable[[Any], str | None]
    expression: bool = False


class ListOf(msgspec.Struct, frozen=True):
    """A list; `key` names the field that must differ between its items (the item itself with an empty key)."""

    item: "Rule"
    most: int | None = None
    key: str | None = None
    least: int = 0


class MapOf(msgspec.Struct, frozen=True):
    """A mapping with free keys."""

    value: "Rule"
    least: int = 0


class Fields(msgspec.Struct, frozen=True):
    """A mapping with known keys.

    `one_of`: of each group exactly one must be set.  `any_of`: of these at least one, unless there are none.
    `hints`: what to say of keys that belong elsewhere.
    `open`: other keys are fine.
    """

    fields: Mapping[str, "Rule"]
    required: tuple[str, ...] = ()
    one_of: tuple[tuple[str, ...], ...] = ()
    any_of: tuple[str, ...] = ()
    hints: Mapping[str, str] = {}
    open: bool = False


Rule = Leaf | ListOf | MapOf | Fields


def check(rule: Rule, value: Any, path: Path = ()) -> Iterator[SchemaError]:
    """Everything that is wrong with the value, in its own order."""
    match rule:
        case Leaf():
            text = rule.check(value)
            if text is not None:
                yield SchemaError(path, text, rule.expression)
        case ListOf():
            yield from _check_list(rule, value, path)
        case MapOf():
            yield from _check_map(rule, value, path)
        case Fields():
            yield from _check_fields(rule, value, path)


def described(value: Any) -> str:
    """The value as a message quotes it."""
    match value:
        case None:
            return "nothing"
        case bool():
            return f"{str(value).lower()} (a boolean)"
        case int() | float():
            return f"{value} (a number)"
        case str():
            return repr(value if len(value) <= _SHOWN else value[:_SHOWN] + "...")
        case list():
            return "a list"
        case _:
            return "a mapping"


_SHOWN: Final = 60


def _check_list(rule: ListOf, value: Any, path: Path) -> Iterator[SchemaError]:
    if not isinstance(value, list):
        yield SchemaError(path, f"expected a list, found {described(value)}")
        return
    if rule.most is not None and len(value) > rule.most:
        yield SchemaError(path, f"expected at most {rule.most} items, found {len(value)}")
    if len(value) < rule.least:
        yield SchemaError(path, "expected at least one item, found none")
    seen: list[Any] = []
    for index, item in enumerate(value):
        yield from check(rule.item, item, (*path, index))
        if rule.key is None:
            continue
        name = item.get(rule.key) if rule.key and isinstance(item, dict) else item
        if name is not None and name in seen:
            where = (*path, index, rule.key) if rule.key else (*path, index)
            yield SchemaError(where, f"expected each only once, found {described(name)} again")
        seen.append(name)


def _check_map(rule: MapOf, value: Any, path: Path) -> Iterator[SchemaError]:
    if not isinstance(value, dict):
        yield SchemaError(path, f"expected a mapping, found {described(value)}")
        return
    if len(value) < rule.least:
        yield SchemaError(path, "expected at least one entry, found none")
    for name, item in value.items():
        yield from check(rule.value, item, (*path, name))


def _check_fields(rule: Fields, value: Any, path: Path) -> Iterator[SchemaError]:
    if not isinstance(value, dict):
        yield SchemaError(path, f"expected a mapping, found {described(value)}")
        return
    for name in rule.required:
        if value.get(name) is None:
            yield SchemaError(path, f"missing field {name!r}")
    for group in rule.one_of:
        found = [name for name in group if value.get(name) is not None]
        if len(found) != 1:
            wanted = " or ".join(group)
            yield SchemaError(path, f"expected exactly one of {wanted}, found {' and '.join(found) or 'none'}")
    if rule.any_of and all(value.get(name) is None for name in rule.any_of):
        yield SchemaError(path, f"expected {' or '.join(rule.any_of)}, found none")
    for name, item in value.items():
        if name in rule.fields:
            if item is not None:
                yield from check(rule.fields[name], item, (*path, name))
        elif not rule.open:
            yield SchemaError((*path, name), _unknown(rule, name))


def _unknown(rule: Fields, name: str) -> str:
    if name in rule.hints:
        return f"unknown field; {rule.hints[name]}"
    return unknown_field(name, sorted(rule.fields))
