"""API JSON is read whatever it nests and escapes, byte by byte as it was sent, and is passed on as it was stored."""

import json
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from dra_extender.model.api_json import (
    MAX_PARAMETERS,
    SHALLOW,
    ModelError,
    as_stored,
    decode_any,
    listed,
    without_escapes,
)
from dra_extender.model.device_class import read_device_class
from dra_extender.model.managed_fields import writers_of
from dra_extender.model.pod import read_pod
from dra_extender.model.resource_claim import read_claim
from dra_extender.model.templated_claim import read_template
from hypothesis import given
from hypothesis import strategies as st


class _Holder(msgspec.Struct, frozen=True):
    before: str
    parameters: msgspec.Raw
    items: tuple[msgspec.Raw, ...] = ()
    after: str = ""


_DECODER = msgspec.json.Decoder(_Holder)


def holder(text: bytes) -> bytes:
    return b'{"before": "b", "skipped": %b, "parameters": %b, "items": [1, %b], "after": "\\ud83d\\ude00"}' % (
        text,
        text,
        text,
    )


def nested(depth: int, opening: bytes = b"[", closing: bytes = b"]", core: bytes = b"") -> bytes:
    return opening * depth + core + closing * depth


ODD = {
    "deep lists": nested(5_000),
    "deep objects": nested(5_000, b'{"a":', b"}", b"1"),
    "brackets in names": nested(2_000, b'{"[[{\\"":', b"}", b'"]]}}"'),
    "white space": nested(2_000, b" [\n", b" ] "),
    "beside each other": b"[" + b",".join([nested(400)] * 5) + b"]",
    "half a pair": rb'"\ud800"',
    "halves and pairs": rb'{"\udc00x": ["\ud800\ud83d\ude00\udc00", "\\ud800", "\\\ud800", "\ud800\u0041"]}',
    "deep and half": nested(2_000, core=rb'"\uDBFF"'),
    "not UTF-8": b'{"\xff": "\xfe"}',
    "numbers": b"[1.50, 1e5, 1E400, -0, 123456789012345678901234567890]",
    "doubled keys": b'{"a": 1, "a": 2}',
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_raw_parts_keep_every_byte_and_the_rest_is_read(text: bytes) -> None:
    found = decode_any(_DECODER, holder(text))
    assert (bytes(found.parameters), [bytes(each) for each in found.items]) == (text.strip(), [b"1", text.strip()])
    assert (found.before, found.after) == ("b", "😀")


@pytest.mark.parametrize("depth", [1, SHALLOW - 3, SHALLOW - 1, SHALLOW, 2 * SHALLOW - 2, 2 * SHALLOW, 10 * SHALLOW])
def test_cuts_fit_at_every_depth(depth: int) -> None:
    text = b"[" + nested(depth, core=b'"x"') + b"," + nested(5_000) + b"]"
    assert bytes(decode_any(_DECODER, holder(text)).parameters) == text


values = st.recursive(
    st.sampled_from([b"1", b'"x"', rb'"\ud800"', rb'"\\"', b'"]"', b"null", rb'"\"\udc00["']),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda each: b"[" + b" ,".join(each) + b"]")
        | st.tuples(st.integers(1, 400), inner).map(lambda each: nested(each[0], core=each[1]))
        | inner.map(lambda each: b'{ "\\ud900" : ' + each + b"}")
    ),
    max_leaves=8,
)


@given(values)
def test_any_value_comes_back_as_it_was(text: bytes) -> None:
    assert bytes(decode_any(_DECODER, holder(text)).parameters) == text


def test_a_text_with_marks_of_its_own_is_not_changed() -> None:
    text = b'["<0123456789abcdef:0>", ' + nested(3_000) + b', "<0123456789abcdef:1>"]'
    assert bytes(decode_any(_DECODER, holder(text)).parameters) == text


@pytest.mark.parametrize(
    "text", [b"[" * 5_000, b"[" * 5_000 + b"}" * 5_000, rb'"\ud800', b'{"a":' * 3_000], ids=lambda each: str(each[:8])
)
def test_what_is_no_json_is_refused(text: bytes) -> None:
    with pytest.raises(ModelError, match="ResourceClaim"):
        read_claim(b'{"spec": ' + text)


READERS: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "claim": (read_claim, b'{"spec": {"devices": {"config": [{"opaque": {"driver": "d", "parameters": %b}}]}}}'),
    "allocated claim": (
        read_claim,
        b'{"status": {"allocation": {"devices": {"config": [{"source": "FromClaim", "opaque": {"parameters": %b}}]}}}}',
    ),
    "device status": (read_claim, b'{"status": {"devices": [{"driver": "d", "data": %b}]}}'),
    "class": (read_device_class, b'{"spec": {"config": [{"opaque": {"driver": "d", "parameters": %b}}]}}'),
    "template": (read_template, b'{"spec": {"spec": {"devices": {"config": [{"opaque": {"parameters": %b}}]}}}}'),
    "managed fields": (writers_of, b'{"metadata": {"managedFields": [{"manager": "m", "fieldsV1": {"f:x": %b}}]}}'),
    "pod": (read_pod, b'{"metadata": {"uid": "u", "name": "n", "managedFields": [{"fieldsV1": %b}]}, "spec": {}}'),
}


@pytest.mark.parametrize(("read", "text"), READERS.values(), ids=READERS)
@pytest.mark.parametrize("odd", ["deep objects", "half a pair"])
def test_every_kind_of_object_is_read(read: Callable[[bytes], object], text: bytes, odd: str) -> None:
    read(text % ODD[odd])


def test_parameters_of_an_allocation_are_written_as_they_were_read() -> None:
    odd = ODD["deep and half"]
    claim = read_claim(READERS["allocated claim"][1] % odd)
    assert b'"parameters":' + odd in msgspec.json.encode(claim.status.allocation)


HOSTILE = (b"[],", b"[[]],", b'"\\"', b'"",', b"[", b'{"a":', b"\\", b'"[\\', b'"', b"\\ud800", b'"\\ud800",')


@pytest.mark.parametrize("piece", HOSTILE, ids=str)
def test_the_time_is_linear_in_the_size(piece: bytes) -> None:
    """The worst of these takes about a microsecond a byte; what is quadratic would take many seconds."""
    text = holder(nested(300) + b"," + piece * (2**18 // len(piece)))
    began = time.process_time()
    with pytest.raises((msgspec.DecodeError, RecursionError)):
        decode_any(_DECODER, text)
    assert time.process_time() - began < 2


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


def test_first_names_are_listed_and_the_others_counted() -> None:
    assert listed(["a", "b", "c"]) == "a, b, c"
    assert listed(["a", "b", "c", "d"]) == "a, b, c and 1 more"
    assert listed(["a", "b"], 1) == "a and 1 more"
