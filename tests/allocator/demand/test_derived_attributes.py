"""Derived attributes (DRADerivedAttributes): computed for constraints, and for nothing else."""

import dataclasses
from typing import Any

import pytest
from dra_extender.allocator.state.features import Features
from dra_extender.allocator.state.reasons import Code

from tests.support.allocator.building import (
    NODE,
    Held,
    allocate,
    ask,
    claim_of,
    demand_of,
    either,
    every,
    exactly,
    picks,
    pools_of,
    reasons,
    slice_of,
    typed,
)

Json = dict[str, Any]
NAME = "example.com/derived"
MATCH = [{"matchAttribute": NAME}]
TYPE = 'device.attributes["gpu.example.com"].type'


def numbered(*numbers: int) -> list[Json]:
    """Devices d0, d1, ... with an attribute "n"."""
    return [{"name": f"d{index}", "attributes": {"n": {"int": number}}} for index, number in enumerate(numbers)]


def deriving(expression: str, count: int = 1, name: str = "r", attribute: str = NAME, **more: Any) -> Json:
    return exactly(count, name, derivedAttributes=[{"name": attribute, "expression": expression}], **more)


N = 'device.attributes["gpu.example.com"].n'


def test_constraint_compares_what_the_request_derives() -> None:
    slices = [slice_of(*numbered(1, 2, 4, 3))]
    assert picks(ask(slices, claim_of(deriving(f"{N} % 2", 2), constraints=MATCH))) == [["d0", "d3"]]
    distinct = [{"distinctAttribute": NAME}]
    assert picks(ask(slices, claim_of(deriving(f"{N} % 2", 2), constraints=distinct))) == [["d0", "d1"]]


def test_each_request_derives_by_its_own_expression_or_uses_what_is_published() -> None:
    wanted = claim_of(
        deriving(f"{N} / 10", attribute="gpu.example.com/n"),
        exactly(name="s"),
        constraints=[{"matchAttribute": "gpu.example.com/n"}],
    )
    assert picks(ask([slice_of(*numbered(30, 7, 3))], wanted)) == [["d0", "d2"]]


def test_derived_attribute_is_found_under_its_full_name_only() -> None:
    """It shadows a published attribute of exactly that name, not the bare name of the driver's own."""
    slices = [slice_of(*numbered(1, 2))]
    constraint = [{"matchAttribute": "gpu.example.com/n"}]
    assert reasons(ask(slices, claim_of(deriving("1", 2, attribute="n"), constraints=constraint))).verdict == "no"
    derived = deriving("1", 2, attribute="gpu.example.com/n")
    assert picks(ask(slices, claim_of(derived, constraints=constraint))) == [["d0", "d1"]]


def test_selectors_do_not_see_derived_attributes() -> None:
    expression = 'has(device.attributes["example.com"].derived)'
    found = reasons(ask([slice_of("a")], claim_of(deriving("1", selectors=[{"cel": {"expression": expression}}]))))
    assert found.rejections[0].code is Code.NO_MATCH


def test_alternatives_derive_by_themselves() -> None:
    slices = [slice_of(*numbered(1, 2))]
    wanted = claim_of(either(deriving(N, 2), deriving("true", 2)), constraints=MATCH)
    assert picks(ask(slices, wanted)) == [["d0", "d1"]]


@pytest.mark.parametrize("lists", [True, False])
def test_lists_match_by_a_common_value_if_list_attributes_are_on(lists: bool) -> None:
    features = dataclasses.replace(Features(), list_type_attributes=lists)
    wanted = claim_of(deriving(f"lists.range(2).map(i, {N} + i)", 2), constraints=MATCH)
    found = ask([slice_of(*numbered(1, 4, 2))], wanted, features=features)
    if lists:
        assert picks(found) == [["d0", "d2"]]
    else:
        assert reasons(found).verdict == "no"


def test_empty_list_is_refused_by_constraints() -> None:
    found = reasons(ask([slice_of("a")], claim_of(deriving("[]"), constraints=MATCH)))
    assert found.rejections[0].code is Code.CONSTRAINT


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ("device.", Code.ATTRIBUTE_INVALID),
        ("{'a': 1}", Code.ATTRIBUTE_INVALID),
        ("1.5", Code.ATTRIBUTE_INVALID),
        (N, Code.ATTRIBUTE_FAILED),
        ("[1, 2].map(x, x > 1 ? dyn(x) : dyn('a'))", Code.ATTRIBUTE_FAILED),
    ],
)
def test_expression_that_gives_no_attribute_is_an_error(expression: str, code: Code) -> None:
    found = reasons(ask([slice_of("a")], claim_of(deriving(expression), constraints=MATCH)))
    assert (found.verdict, found.rejections[0].code) == ("fatal", code)
    assert (found.rejections[0].claim, found.rejections[0].request) == ("c0", "r")
    assert NAME in found.rejections[0].detail


def test_expression_is_evaluated_only_where_a_search_gets_and_a_constraint_asks() -> None:
    """Neither on a device that a selector or another reason excludes, nor without a constraint of that name."""
    tainted = {"name": "t", "taints": [{"key": "k", "effect": "NoSchedule"}]}
    slices = [slice_of("a", tainted, *numbered(5))]
    assert picks(ask(slices, claim_of(deriving(N)))) == [["a"]]
    selector = 'device.attributes["gpu.example.com"].?n.hasValue() || device.driver == "other"'
    chosen = deriving(N, selectors=[{"cel": {"expression": selector}}])
    assert picks(ask(slices, claim_of(chosen, constraints=MATCH))) == [["d0"]]
    without = [slice_of(tainted, *numbered(5))]
    assert picks(ask(without, claim_of(deriving(N), constraints=MATCH))) == [["d0"]]


def test_capacity_is_looked_at_before_an_expression_and_for_all_after_it() -> None:
    small = {"name": "s", "capacity": {"m": {"value": "1"}}}
    slices, two = [slice_of(small, *numbered(5))], {"requests": {"m": "2"}}
    big = {"name": "b", "attributes": {"n": {"int": 1}}, "capacity": {"m": {"value": "4"}}}
    assert picks(ask([slice_of(small, big)], claim_of(deriving(N, capacity=two), constraints=MATCH))) == [["b"]]
    wanted = every(derivedAttributes=[{"name": NAME, "expression": N}])
    found = reasons(ask(slices, claim_of(wanted, constraints=MATCH)))
    assert found.rejections[0].code is Code.ATTRIBUTE_FAILED


def test_failed_expression_is_an_error_even_where_the_search_skips_what_is_hopeless() -> None:
    """Devices d0 to d9 keep the search busy before it gets to the one on which the expression fails."""
    slices = [slice_of(*numbered(*range(10)), "broken")]
    claims = [claim_of(exactly(3), name="x"), claim_of(deriving(N, 9), constraints=MATCH)]
    assert reasons(ask(slices, *claims)).rejections[0].code is Code.ATTRIBUTE_FAILED


def test_explaining_a_refusal_does_not_stumble_over_devices_that_the_search_left_out() -> None:
    """The first device is picked by an earlier place; explaining why the second place stays empty must not evaluate there."""
    slices = [slice_of(typed("a", "x"), typed("b", "y"))]
    found = reasons(ask(slices, claim_of(deriving(TYPE, 2), constraints=MATCH)))
    assert (found.verdict, found.rejections[0].code) == ("no", Code.CONSTRAINT)
    assert found.rejections[0].detail == (
        f'1 of 2 devices found; b does not satisfy matchAttribute {NAME}: it has "y", the others have "x"'
    )


def test_time_that_runs_out_inside_an_expression_is_said_as_such() -> None:
    demand = demand_of(claim_of(deriving("lists.range(5000).all(x, x >= 0)"), constraints=MATCH))
    calls = iter([False] * 3)
    found = reasons(allocate(demand, NODE, pools_of([slice_of("a")]), Held(), deadline=lambda: next(calls, True)))
    assert (found.verdict, found.rejections[0].code) == ("fatal", Code.SEARCH_LIMIT)
