import json
from typing import Any

import msgspec
import pytest
from dra_extender.model.json_spelling import MAX_PARAMETERS, as_stored, without_escapes
from hypothesis import given
from hypothesis import strategies as st

TEXTS = st.text(st.sampled_from('<>&\u2028\u2029\\"u0032c8Ee9\x00\n\u00e9\U0001f600'))
VALUES = st.recursive(TEXTS | st.integers(), lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner))
ESCAPED = {each: f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"}


def sent(spelled: str) -> str:
    """As an API server spells it."""
    return "".join(ESCAPED.get(each, each) for each in spelled)


@given(VALUES, st.booleans())
def test_what_is_read_is_spelled_as_it_was_stored_or_shorter(value: Any, ascii_only: bool) -> None:
    stored = json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":"))
    again = without_escapes(sent(stored).encode())
    assert json.loads(again) == value
    assert len(again) <= len(stored.encode())
    if not ascii_only:
        assert again.decode() == stored


@pytest.mark.parametrize(
    ("spelled", "short"),
    [
        (rb'"\u003c\u003e\u0026\u2028\u2029\u003C\u003E"', '"<>&\u2028\u2029<>"'.encode()),
        (rb'{"a":[1.50,1e5,1E400,-0],"a":"\u00e9\ud800\/"}', rb'{"a":[1.50,1e5,1E400,-0],"a":"\u00e9\ud800\/"}'),
        (rb'"\\u003c \\\u003c \\\\u003c"', rb'"\\u003c \\< \\\\u003c"'),
    ],
)
def test_numbers_doubled_keys_and_other_escapes_stay(spelled: bytes, short: bytes) -> None:
    assert without_escapes(spelled) == short


def test_parameters_are_spelled_anew_only_where_they_would_be_too_long() -> None:
    """An API server sends ten KiB of `<` as sixty."""
    most = b'"' + rb"\u003c" * (MAX_PARAMETERS - 2) + b'"'
    assert bytes(as_stored(msgspec.Raw(most))) == b'"' + b"<" * (MAX_PARAMETERS - 2) + b'"'
    some = msgspec.Raw(rb'{ "a": "\u003c" }')
    assert as_stored(some) is some
