"""Times in JSON, by RFC 3339 whatever they are."""

import math
from datetime import datetime

import msgspec
import pytest
from dra_extender.model.metadata import Moment, decoded_moment, encoded_moment
from hypothesis import given
from hypothesis import strategies as st


def encoded(moment: float) -> bytes:
    return msgspec.json.encode(Moment(moment), enc_hook=encoded_moment)


def decoded(data: bytes) -> Moment:
    return msgspec.json.decode(data, type=Moment, dec_hook=decoded_moment)


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (0, b'"1970-01-01T00:00:00Z"'),
        (1_795_600_000, b'"2026-11-25T09:46:40Z"'),
        (1_795_600_000.25, b'"2026-11-25T09:46:40.250000Z"'),
        (math.inf, b'"9999-12-31T23:59:59Z"'),
        (math.nan, b'"9999-12-31T23:59:59Z"'),
        (-1e300, b'"0001-01-01T00:00:00Z"'),
    ],
)
def test_moment_is_written_by_rfc_3339(moment: float, text: bytes) -> None:
    assert encoded(moment) == text


@given(st.floats(allow_nan=True))
def test_every_moment_is_a_date_with_a_zone(moment: float) -> None:
    text = encoded(moment).decode().strip('"')
    assert datetime.fromisoformat(text).tzinfo is not None


@given(st.floats(-6e10, 2.5e11))
def test_moment_is_read_as_it_was_to_the_microsecond(moment: float) -> None:
    assert abs(decoded(encoded(moment)) - moment) < 1e-4


@pytest.mark.parametrize("data", [b"1", b"1.5", b"null", b"[]", b'"yesterday"', b'""', b'"' + b"9" * 1_000_000 + b'"'])
def test_what_is_no_time_is_refused(data: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        decoded(data)


def test_other_types_have_no_json_of_their_own() -> None:
    with pytest.raises((TypeError, NotImplementedError)):
        msgspec.json.encode(object(), enc_hook=encoded_moment)
    with pytest.raises((TypeError, NotImplementedError)):
        msgspec.json.decode(b'"x"', type=complex, dec_hook=decoded_moment)
