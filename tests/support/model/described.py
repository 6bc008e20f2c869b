"""Objects of the API made up from the structs that describe them, and a walk over all that is described."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, assert_never

from dra_extender.model.api_json import Value
from dra_extender.model.fields import (
    Anything,
    Field,
    Flag,
    Format,
    ListOf,
    MapOf,
    Mark,
    Number,
    Record,
    Shape,
    Text,
    fields_of,
)
from hypothesis import strategies as st

MADE: Final = "made"
"""Is in each text that an author may choose."""
_LETTERS: Final = st.text("abz09", max_size=3)
_LABELS: Final = _LETTERS.map(lambda text: f"{MADE}{text}")
_DOMAINS: Final = _LABELS.map(lambda label: f"{label}.example.com")
_WITH_DOMAIN: Final = st.tuples(_DOMAINS, _LABELS).map("/".join)
_MOST: Final = 3


class DescribedField(NamedTuple):
    """A field by its path from a kind of object; `checked`: manifests are checked there."""

    path: tuple[str, ...]
    owner: type[Value]
    field: Field
    checked: bool


def described(struct: type[Value], path: tuple[str, ...] = (), *, checked: bool = True) -> Iterator[DescribedField]:
    """Yield all fields below an object; a list or a mapping counts as one of its items."""
    for field in fields_of(struct):
        here, is_checked = (*path, field.name), checked and Mark.UNCHECKED not in field.marks
        yield DescribedField(here, struct, field, is_checked)
        shape = field.shape
        while isinstance(shape, ListOf | MapOf):
            shape = shape.item if isinstance(shape, ListOf) else shape.value
        if isinstance(shape, Record):
            yield from described(shape.struct, here, checked=is_checked)


def objects(struct: type[Value], *, former: bool = False) -> st.SearchStrategy[Any]:
    """Objects, in decoded JSON, with any of the described fields; `former`: also with those of earlier releases."""
    fields = [field for field in fields_of(struct) if former or Mark.FORMER not in field.marks]
    needed = {field.name: values(field.shape, former=former) for field in fields if Mark.REQUIRED in field.marks}
    others = {field.name: values(field.shape, former=former) for field in fields if Mark.REQUIRED not in field.marks}
    return st.deferred(lambda: st.fixed_dictionaries(needed, optional=others))


def values(shape: Shape, *, former: bool = False) -> st.SearchStrategy[Any]:
    """Values that an API server accepts in a field of this shape, in decoded JSON."""
    match shape:
        case Record(struct):
            return objects(struct, former=former)
        case ListOf(item, items):
            most = min(items.max_items or _MOST, max(_MOST, items.min_items))
            return st.lists(values(item, former=former), min_size=items.min_items, max_size=most)
        case MapOf(key, value, items):
            return st.dictionaries(values(key), values(value, former=former), min_size=items.min_items, max_size=_MOST)
        case Text(text_format, one_of):
            return st.sampled_from(one_of) if one_of else texts(text_format)
        case Number(bounds):
            return st.integers(bounds.least, bounds.below - 1)
        case Flag(only_true):
            return st.just(value=True) if only_true else st.booleans()
        case Anything(kind):
            return st.just({}) if kind is Any else st.dictionaries(_LABELS, st.integers(0, 3), max_size=2)
        case _:
            assert_never(shape)


def texts(text_format: Format) -> st.SearchStrategy[str]:
    """Texts that an API server accepts."""
    match text_format:
        case Format.QUALIFIED_NAME | Format.CAPACITY:
            return _LABELS | _WITH_DOMAIN
        case Format.FULLY_QUALIFIED_NAME | Format.LABEL_KEY | Format.TOLERATION_KEY | Format.EXTENDED_RESOURCE:
            return _WITH_DOMAIN
        case Format.RESOURCE:
            return st.sampled_from(["cpu", "memory"]) | _WITH_DOMAIN
        case Format.QUANTITY:
            return st.sampled_from(["1", "500m", "40Gi"])
        case Format.EXPRESSION | Format.UNCOMPILED_EXPRESSION:
            return _LABELS.map(lambda name: f'device.driver == "{name}.example.com"')
        case Format.ATTRIBUTE_VERSION | Format.VERSION:
            return st.integers(0, 9).map(lambda number: f"1.{number}.0")
        case Format.TIME:
            return st.integers(0, 59).map(lambda second: f"2026-01-02T15:04:{second:02}Z")
        case Format.RESOURCE_VERSION:
            return st.integers(1, 99).map(str)
        case Format.SUBDOMAIN | Format.DRIVER | Format.POOL:
            return _DOMAINS
        case (
            Format.NAME
            | Format.WORD
            | Format.SENTENCE
            | Format.DNS_LABEL
            | Format.COUNTER_SET
            | Format.LABEL_VALUE
            | Format.REQUEST
            | Format.SUPPLIED_FIELD
            | Format.ATTRIBUTE_TEXT
            | Format.ANNOTATION
            | Format.DIGEST
            | Format.PLAIN
        ):
            return _LABELS
        case _:
            assert_never(text_format)
