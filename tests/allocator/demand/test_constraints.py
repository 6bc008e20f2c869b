"""matchAttribute and distinctAttribute, over scalars and over sets of values."""

import dataclasses
from typing import Any

import pytest
from dra_extender.allocator.demand.constraints import REFUSED, Constraint, lookup
from dra_extender.allocator.state.features import Features
from dra_extender.allocator.state.reasons import Code
from dra_extender.cel.device import Attribute
from dra_extender.model.device import Device
from hypothesis import given
from hypothesis import strategies as st

from tests.support.allocator.building import DRIVER, ask, claim_of, exactly, picks, reasons, slice_of

SCALARS = dataclasses.replace(Features(), list_type_attributes=False)
ATTRIBUTE = f"{DRIVER}/k"
MATCH = [{"matchAttribute": ATTRIBUTE}]
DISTINCT = [{"distinctAttribute": ATTRIBUTE}]


def device(name: str, **value: Any) -> dict[str, Any]:
    return {"name": name, "attributes": {"k": value}}


def devices(*values: dict[str, Any]) -> list[Any]:
    return [slice_of(*(device(f"d{index}", **value) for index, value in enumerate(values, start=1)))]


def test_attribute_is_found_by_its_full_name_or_bare_in_the_domain_of_the_driver() -> None:
    bare, full = Attribute(int_value=1), Attribute(int_value=2)
    both = Device(name="d", attributes=(("k", bare), (ATTRIBUTE, full)))
    assert lookup(ATTRIBUTE, DRIVER, both) is full
    assert lookup(ATTRIBUTE, DRIVER, Device(name="d", attributes=(("k", bare),))) is bare
    assert lookup(ATTRIBUTE, "other.example.com", Device(name="d", attributes=(("k", bare),))) is None


def test_sets_of_distinct_devices_are_disjoint() -> None:
    slices = devices({"ints": [1, 2]}, {"ints": [2, 3]}, {"int": 3}, {"strings": ["1"]})
    assert picks(ask(slices, claim_of(exactly(3), constraints=DISTINCT))) == [["d1", "d3", "d4"]]


values = st.one_of(
    st.builds(lambda found: Attribute(int_values=tuple(found)), st.lists(st.integers(0, 3), max_size=3)),
    st.builds(lambda found: Attribute(string_value=found), st.sampled_from("ab")),
    st.builds(lambda found: Attribute(int_value=found), st.integers(0, 3)),
    st.just(Attribute()),
)


@given(found=st.lists(values, max_size=6), distinct=st.booleans(), lists=st.booleans())
def test_refusal_leaves_the_state_alone_and_state_is_immutable(
    found: list[Attribute], distinct: bool, lists: bool
) -> None:
    constraint = Constraint(attribute=ATTRIBUTE, distinct=distinct, requests=(), lists=lists)
    state = None
    for attribute in found:
        again = [constraint.state_with(state, attribute) for _ in range(2)]
        assert again[0] == again[1]
        if again[0] is not REFUSED:
            state = again[0]
            hash(state) if lists else None


@pytest.mark.parametrize(
    ("constraints", "first", "second", "text"),
    [
        (MATCH, {"int": 0}, {"int": 1}, "it has 1, the others have 0"),
        (MATCH, {"bool": True}, {"version": "1.0.0"}, "it has 1.0.0, the others have true"),
        (MATCH, {"ints": [1, 2]}, {"strings": ["1", "2"]}, 'it has "1", "2", the others have 1, 2'),
        (MATCH, {"ints": [1]}, {"ints": [5, 4, 3, 2]}, "it has 2, 3, 4 and 1 more, the others have 1"),
        (MATCH, {"int": 1}, {"strings": []}, ""),
        (DISTINCT, {"int": 1}, {"int": 1}, "another one has 1 too"),
        (DISTINCT, {"strings": ["a", "b"]}, {"strings": ["b", "c"]}, 'another one has "b" too'),
    ],
)
def test_refusal_says_the_values_of_both_sides(
    constraints: list[dict[str, str]], first: dict[str, Any], second: dict[str, Any], text: str
) -> None:
    found = reasons(ask(devices(first, second), claim_of(exactly(2), constraints=constraints)))
    (kind,) = constraints[0]
    tail = f": {text}" if text else ", which has no value"
    assert found.rejections[0].code is Code.CONSTRAINT
    assert found.rejections[0].detail == f"1 of 2 devices found; d2 does not satisfy {kind} {ATTRIBUTE}{tail}"


def test_refusal_says_the_values_of_scalars_too() -> None:
    for constraints, text in ((MATCH, "it has 2, the others have 1"), (DISTINCT, "another one has 1 too")):
        other = {"int": 2} if constraints is MATCH else {"int": 1}
        claim = claim_of(exactly(2), constraints=constraints)
        found = reasons(ask(devices({"int": 1}, other), claim, features=SCALARS))
        assert found.rejections[0].detail.endswith(text)
