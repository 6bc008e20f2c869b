import json
from itertools import islice

import msgspec
import pytest
from dra_extender.model.api_json import ModelError
from dra_extender.model.lazy_node_names import NodeNames, rotated
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples

plain = st.text(st.characters(codec="utf-8", exclude_characters='"\\,[ ', exclude_categories=["Cc"]))
lists = st.lists(plain, min_size=1, max_size=300)


def names_of(names: list[str]) -> NodeNames:
    read = NodeNames.read(msgspec.json.encode(names))
    assert read is not None
    return read


@given(lists)
def test_they_are_what_was_sent(names: list[str]) -> None:
    assert list(names_of(names)) == names
    assert len(names_of(names)) == len(names)
    assert (names_of(names)[0], names_of(names)[1:]) == (names[0], names[1:])


@given(lists, plain)
def test_a_name_is_found_without_decoding(names: list[str], other: str) -> None:
    assert all(name in names_of(names) for name in names)
    assert (other in names_of(names)) == (other in names)


@given(lists, st.integers(0, 2**32))
def test_turning_leaves_nothing_out_and_keeps_the_order(names: list[str], number: int) -> None:
    for given_names in (names, names_of(names)):
        found = list(rotated(given_names, number))
        assert any(found == names[start:] + names[:start] for start in range(len(names)))


@given(st.integers(0, 2**32))
def test_long_lists_are_decoded_piece_by_piece(number: int) -> None:
    names = [f"gpu-pool-a-{index:05}" for index in range(2_000)]
    found = list(rotated(names_of(names), number))
    start = names.index(found[0])
    assert found == names[start:] + names[:start]


@pytest.mark.parametrize(
    "sent",
    ["null", "[]", "5", '["a", "b\\n"]', '[ "a"]', '["a",5]', '{"a":"b"}', '"a"', '[["a"]]'],
)
def test_anything_unusual_is_left_to_others(sent: str) -> None:
    assert NodeNames.read(sent.encode()) is None


@given(lists)
def test_spaces_between_names_do_no_harm(names: list[str]) -> None:
    read = NodeNames.read(json.dumps(names, ensure_ascii=False).encode())
    assert read is not None
    assert sorted(read.rotated(7)) == sorted(names)


def test_what_is_too_long_for_a_name_is_refused_when_it_is_looked_at() -> None:
    read = NodeNames.read(b'["a","%b","b"]' % (b"x" * 254))
    assert read is not None
    with pytest.raises(ModelError, match="names of nodes"):
        list(read)
    with pytest.raises(ModelError, match="names of nodes"):
        list(read.rotated(3))


def test_no_names_turn_into_none() -> None:
    assert list(rotated((), 5)) == []


def taken(read: NodeNames, number: int, count: int | None) -> list[str] | None:
    """The first of the rotated names; None if they are left to others."""
    try:
        return list(islice(read.rotated(number), count))
    except ModelError:
        return None


@pytest.mark.parametrize("sent", ['["a",5,"b"]', '["a",["b","c"],"d"]', '["a",{"b":"c"},"d"]', '["a",null,"b"]'])
def test_what_is_no_name_is_refused_when_it_is_looked_at(sent: str) -> None:
    read = NodeNames.read(sent.encode())
    assert read is not None
    with pytest.raises(ModelError, match="names of nodes"):
        list(read)
    for number in range(len(sent)):
        assert taken(read, number, None) is None


@pytest.mark.parametrize("sent", ['["a",",","b"]', '[","]', '["a", ",", "b"]', '[",",",",","]', '["a,","b","c"]'])
def test_a_comma_in_a_name_is_never_taken_for_a_border(sent: str) -> None:
    """Which names are read of a list does not depend on where the reading begins."""
    names = json.loads(sent)
    read = NodeNames.read(sent.encode())
    assert read is not None
    assert list(read) == names
    for number in range(len(sent)):
        for count in range(1, len(names) + 1):
            found = taken(read, number, count)
            assert found is None or found in [(names[start:] + names[:start])[:count] for start in range(len(names))]


def test_what_stands_between_names_is_never_taken_for_names() -> None:
    """Read from the middle of the name `,`, names of commas and spaces and what stands between them change places."""
    names = [",", *[" ,"] * 200] * 4
    read = NodeNames.read(json.dumps(names).encode())
    assert read is not None
    for number in range(0, 6_000, 7):
        found = taken(read, number, 20)
        assert found is None or set(found) <= set(names)


# Names of commas, quotes and white space, among which a border is hard to find, and long ones, so that there are several pieces.
odd = st.one_of(
    st.sampled_from(
        ["", ",", " ,", ", ", ",,", " ", "]", "[", "a,", ",a", "\\", '"', '","', "\n", "\u00e9", "\U0001f600"]
    ),
    st.text(", a[]{}:0", max_size=4),
    st.text(max_size=5),
    st.sampled_from(["n" * 253, "gpu-pool-a-00017"]),
)
separators = st.sampled_from([",", ", ", " ,", " , ", ",\n", "\t,\r\n"])


@st.composite
def written_lists(draw: st.DrawFn) -> tuple[list[str], str]:
    """Names, and one of the many ways to write them."""
    block = draw(st.lists(odd, min_size=1, max_size=12))
    names = block * draw(st.sampled_from([1, 1, 2, 40]))
    ascii_only = draw(st.booleans())
    between = draw(st.lists(separators, min_size=1, max_size=4))
    text = "["
    for index, name in enumerate(names):
        text += (between[index % len(between)] if index else "") + json.dumps(name, ensure_ascii=ascii_only)
    return names, text + "]"


@examples(100)
@given(written_lists(), st.integers(0, 2**32), st.integers(0, 50))
def test_names_are_read_as_they_are_or_left_to_others(written: tuple[list[str], str], number: int, count: int) -> None:
    names, text = written
    assert json.loads(text) == names
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        return
    read = NodeNames.read(raw)
    if read is None:
        return
    assert list(read) == names
    assert (len(read), read[0], read[1:]) == (len(names), names[0], names[1:])
    whole, first = taken(read, number, None), taken(read, number, count)
    turns = [names[start:] + names[:start] for start in range(len(names))]
    assert whole is None or whole in turns
    assert first is None or first in [turn[:count] for turn in turns]


def test_usual_names_are_never_left_to_others() -> None:
    for number in range(300):
        names = [f"node-{index}.example.com" for index in range(number % 60 + 1)]
        assert sorted(names_of(names).rotated(number)) == sorted(names)
