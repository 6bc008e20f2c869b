"""Claims edited in their protobuf form; that a real API server takes them is shown by test_spellings_e2e."""

import pytest
from dra_extender.kube.claims import has_driver_data, with_metadata, with_reservations
from dra_extender.kube.client.protobuf import (
    MAGIC,
    Envelope,
    ProtobufError,
    ProtobufField,
    field,
    fields,
    message_of,
    only_field,
    text,
)
from dra_extender.model.claim_edits import MetadataChange
from dra_extender.model.resource_claim import read_head
from dra_extender.scheduling.ports.cluster import ConflictError
from hypothesis import given
from hypothesis import strategies as st

UNKNOWN = b"\x08\x96\x01\x11" + bytes(8) + b"\x1d" + bytes(4)
"""Fields 1 to 3 as a number and as fixed numbers of eight and four bytes."""
SPEC = field(2, b"any bytes \xff <&> \xe2\x80\xa8")
TYPE = field(1, message_of((field(1, b"resource.k8s.io/v1"), field(2, b"ResourceClaim"))))
OTHER = field(2, message_of((field(3, b"pods"), field(4, b"o"), field(5, b"other"), field(77, b"future"))))
DATA = field(4, b"a driver's")
RESULT = message_of((field(1, b"gpu"), field(2, b"d"), field(3, b"p"), field(4, b"g"), field(77, b"\xff")))
ALLOCATION = field(
    1, message_of((field(1, message_of((field(1, RESULT), field(2, b"configuration")))), field(4, b"?")))
)
ALLOCATED = '{"devices":{"results":[{"request":"gpu","driver":"d","pool":"p","device":"g"}]}}'


def annotation(key: str, value: str) -> ProtobufField:
    return field(12, message_of((field(1, key.encode()), field(2, value.encode()))))


def metadata(*more: ProtobufField) -> list[ProtobufField]:
    return [field(1, b"name"), field(5, b"u"), field(6, b"7"), annotation("a", "1"), annotation("b", "2"), *more]


def stored(*, meta: list[ProtobufField] | None = None, status: list[ProtobufField] | None = None) -> bytes:
    claim = (
        field(1, message_of(metadata() if meta is None else meta)),
        SPEC,
        field(3, message_of(status or ())),
        field(99, UNKNOWN),
    )
    return MAGIC + message_of((TYPE, field(2, message_of(claim)), field(3, b""), field(4, b"")))


def claim_of(body: bytes) -> list[ProtobufField]:
    return fields(Envelope.opened(body, "resource.k8s.io/v1", "ResourceClaim").content)


def change(**more: object) -> MetadataChange:
    return MetadataChange(uid="u", resource_version="7", **more)  # type: ignore[arg-type]


def test_finalizers_and_annotations_change_and_every_other_byte_stays() -> None:
    before = stored(meta=metadata(field(14, b"old/1"), field(17, b"managed")))
    new = change(finalizers=("old/1", "new/2"), annotations={"b": "3", "a": None, "c": "4"})
    (meta, *rest) = claim_of(with_metadata(before, new))
    assert message_of(rest) == message_of(claim_of(before)[1:])
    assert fields(meta.content) == [
        *metadata()[:3],
        field(17, b"managed"),
        field(14, b"old/1"),
        field(14, b"new/2"),
        annotation("b", "3"),
        annotation("c", "4"),
    ]
    assert with_metadata(before, change()) == before


@pytest.mark.parametrize(("uid", "version"), [("v", "7"), ("u", "8")])
def test_another_object_or_version_is_a_conflict(uid: str, version: str) -> None:
    meant = MetadataChange(uid=uid, resource_version=version)
    with pytest.raises(ConflictError, match="UID u and version 7 now"):
        with_metadata(stored(), meant)


def wanted(status: str) -> bytes:
    return b'{"metadata":{"uid":"u","resourceVersion":"7"},"status":' + status.encode() + b"}"


def test_reservations_of_others_and_what_drivers_say_stay_byte_by_byte() -> None:
    before = stored(status=[ALLOCATION, OTHER, DATA])
    both = '{"resource":"pods","name":"o","uid":"other"},{"apiGroup":"g","resource":"r","name":"n","uid":"new"}'
    body = with_reservations(before, read_head(wanted(f'{{"allocation":{ALLOCATED},"reservedFor":[{both}]}}')))
    status = only_field(claim_of(body), 3)
    new = field(2, message_of((field(1, b"g"), field(3, b"r"), field(4, b"n"), field(5, b"new"))))
    assert fields(status.content) == [ALLOCATION, DATA, OTHER, new]
    assert [each for each in claim_of(body) if each.number != 3] == [
        each for each in claim_of(before) if each.number != 3
    ]


def test_an_allocation_is_taken_away_and_never_written() -> None:
    body = with_reservations(stored(status=[ALLOCATION, OTHER, DATA]), read_head(wanted("{}")))
    assert fields(only_field(claim_of(body), 3).content) == [DATA]
    other = ALLOCATED.replace('"p"', '"q"')
    for status in ([], [ALLOCATION]):
        with pytest.raises(ProtobufError, match="another allocation"):
            with_reservations(stored(status=status), read_head(wanted(f'{{"allocation":{other}}}')))


@pytest.mark.parametrize(
    ("status", "found"),
    [
        ('{"allocation":{},"devices":[{"driver":"d"},{"data":null}]}', False),
        ('{"allocation":{},"devices":[{"driver":"d"},{"data":{}}]}', True),
        ('{"devices":[{"data":{}}]}', False),
        ('{"allocation":{"data":{}}}', False),
    ],
)
def test_data_of_drivers_are_found_where_a_write_keeps_them(status: str, found: bool) -> None:
    assert has_driver_data(wanted(status)) is found


MESSAGES = [
    (b"", "magic number"),
    (b"{}", "magic number"),
    (MAGIC, "expected ResourceClaim"),
    (MAGIC + message_of((TYPE, TYPE)), "field 1 occurs 2 times"),
    (MAGIC + message_of((field(1, field(1, b"v1").encoded + field(2, b"Status").encoded),)), "found 'Status' of 'v1'"),
    (MAGIC + b"\x0a\x05abc", "ends after its message"),
    (MAGIC + b"\x0b", "wire type 3"),
    (MAGIC + b"\x00\x00", "field number"),
    (MAGIC + b"\xff" * 11, "does not end"),
    (MAGIC + message_of((field(1, field(1, b"\xff").encoded),)), "not UTF-8"),
    (MAGIC + message_of((TYPE, field(2, message_of((field(1, b""), field(1, b"")))))), "field 1 occurs 2 times"),
]


@pytest.mark.parametrize(("body", "problem"), MESSAGES)
def test_what_is_not_a_claim_is_not_edited(body: bytes, problem: str) -> None:
    with pytest.raises(ProtobufError, match=problem):
        with_metadata(body, change())


@given(st.binary(max_size=60))
def test_a_message_is_the_bytes_of_its_fields_or_none(message: bytes) -> None:
    try:
        found = fields(message)
    except ProtobufError:
        return
    assert message_of(found) == message


@given(st.integers(1, 2**29 - 1), st.binary(max_size=300), st.text(max_size=20))
def test_what_is_written_is_read(number: int, content: bytes, words: str) -> None:
    both = [field(number, content), field(number, words.encode())]
    assert fields(message_of(both)) == both
    assert text(both, number) == words
