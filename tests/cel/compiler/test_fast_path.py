"""The fast path has the results of the full evaluation, and its stated cost is at least that of the full evaluation."""

import msgspec
import pytest
from dra_extender.cel.budget import Budget
from dra_extender.cel.device import Attribute, DeviceActivation, prepare_device
from dra_extender.cel.errors import CelBudgetError, CelCompileError, CelRuntimeError
from dra_extender.cel.program import Program, compile_expression
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

A = 'device.attributes["gpu.example.com"]'
C = 'device.capacity["gpu.example.com"]'
VALUES = (
    *(Attribute(string_value=text) for text in ("a100", "", "A100", "x" * 300, "é")),
    *(Attribute(int_value=number) for number in (0, 1, 3, -1)),
    *(Attribute(bool_value=truth) for truth in (True, False)),
    *(Attribute(version_value=text) for text in ("1.2.3", "1.2.3-rc.1", "550.54.15")),
    *(Attribute(string_values=("a100", "b")), Attribute(int_values=())),
)
TERMS = (
    *('device.driver == "gpu.example.com"', 'device.driver != "other"', "device.allowMultipleAllocations", "true"),
    *(
        f'{A}.x == "a100"',
        f'"a100" == {A}.y',
        f'{A}.y != "a100"',
        f"{A}.x == 3",
        f"{A}.z != 1",
        f"{A}.z == true",
        f"{A}.x",
    ),
    *(
        f"{A}.x > 2",
        f"2 <= {A}.y",
        f"{A}.z < 1",
        f"{A}.y >= 3",
        f"1 > {A}.x",
        f"has({A}.x)",
        f"has({C}.memory)",
        f"!{A}.y",
    ),
    *(f'{A}.x in ["a100", "h100"]', f"{A}.y in [0, 1]", "device.driver in ['a', 'gpu.example.com']", f"{A}.x in []"),
    *(
        f'{C}.memory.compareTo(quantity("20Gi")) >= 0',
        f'{C}.memory.isGreaterThan(quantity("1"))',
        f"{C}.memory == {C}.cores",
    ),
    *(
        f'{A}.x.compareTo(semver("1.2.3")) == 0',
        f'{A}.y.isLessThan(semver("2.0.0"))',
        f'{A}.z.compareTo(quantity("1")) == 0',
    ),
    *(
        f'{A}.x.lowerAscii().matches("^a.*0$")',
        f'{A}.y.startsWith("a")',
        f'{A}.x.contains("1")',
        f'{A}.z.endsWith("é")',
    ),
    *(
        f'{A}.x.upperAscii() == "A100"',
        f'{A}["y"] == "a100"',
        'device.attributes["other"].x == 1',
        f"{A}.y.size() == 4",
    ),
)
CONDITIONS = st.recursive(
    st.sampled_from(TERMS),
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=7).map(lambda terms: f"({' && '.join(terms)})"),
        st.lists(inner, min_size=2, max_size=7).map(lambda terms: f"({' || '.join(terms)})"),
        st.builds("!({})".format, inner),
        st.builds("({} == {})".format, inner, st.sampled_from(["true", "false"])),
        st.builds("({} ? {} : {})".format, inner, inner, inner),
    ),
    max_leaves=10,
)


def made(attributes: dict[str, Attribute], memory: str | None) -> DeviceActivation:
    capacity = {} if memory is None else {"memory": memory, "cores": "8"}
    return prepare_device("gpu.example.com", attributes, capacity, allow_multiple_allocations=True)


DEVICES = st.builds(
    made,
    st.dictionaries(st.sampled_from("xyz"), st.sampled_from(VALUES)),
    st.sampled_from([None, "40Gi", "1500m", "8"]),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(CONDITIONS, DEVICES)
def test_the_fast_path_has_the_result_of_the_full_evaluation(condition: str, device: DeviceActivation) -> None:
    try:
        program = compile_expression(condition)
    except CelCompileError:
        return
    full = msgspec.structs.replace(program, fast_path=None)
    expected = outcome(full, device)
    assert outcome(program, device) == expected
    if isinstance(expected, bool):
        budget = Budget(10**6)
        assert program.matches(device, budget=budget) is expected
        assert budget.remaining <= 10**6 - full.evaluate(device)[1]


@settings(deadline=None)
@given(
    st.lists(st.sampled_from([term for term in TERMS if "==" in term and f"{A}." in term]), min_size=3, max_size=6),
    DEVICES,
)
def test_conditions_in_a_row_on_attributes_of_one_domain_have_the_result_of_the_full_evaluation(
    row: list[str], device: DeviceActivation
) -> None:
    program = compile_expression(" && ".join(row))
    assert outcome(program, device) == outcome(msgspec.structs.replace(program, fast_path=None), device)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"x": "a", "y": "b", "z": "d"}, True),
        ({"x": "a", "y": "b", "z": "c"}, False),
        ({"x": "a", "y": "c", "z": "d"}, False),
        ({"x": "b", "y": "b"}, False),
    ],
)
def test_conditions_in_a_row_are_compared_one_by_one(attributes: dict[str, str], expected: bool) -> None:
    program = compile_expression(f'{A}.x == "a" && {A}.y == "b" && {A}.z != "c"')
    device = made({name: Attribute(string_value=value) for name, value in attributes.items()}, None)
    assert program.fast_path is not None
    assert program.fast_path(device) is expected


def outcome(program: Program, device: DeviceActivation) -> object:
    try:
        return program.matches(device)
    except CelRuntimeError as error:
        return type(error), str(error)


@pytest.mark.parametrize(
    "term", [term for term in TERMS if "size()" not in term and "in []" not in term and ".cores" not in term]
)
def test_the_terms_of_most_selectors_have_a_fast_path(term: str) -> None:
    fast_path = compile_expression(f"device.driver == 'a' && {term}" if "attributes" in term else term).fast_path
    assert (fast_path is None) is (term == "true")


@pytest.mark.parametrize(
    "expression",
    [
        "[1, 2].all(x, x > 0)",
        "device.attributes.exists(d, d == 'x')",
        f"cel.bind(a, {A}, a.x == 1)",
        f"{A}.?x.orValue('') == 'a'",
        f"{A}.x == {A}.y",
        f"{A}.x + 'a' == 'b'",
        f"{A}.x.matches({A}.y)",
        f"{A}.x == 1.5",
        " || ".join(f"{A}.x.contains('{'x' * 2000}')" for _ in range(4)) + f" || {A}.x.matches('{'y' * 1900}')",
    ],
)
def test_terms_with_rules_of_their_own_or_a_high_cost_have_no_fast_path(expression: str) -> None:
    program = compile_expression(expression)
    assert program.fast_path is None or program.fast_path_cost <= 500_000


def test_a_pattern_that_is_none_is_a_compile_error_as_ever() -> None:
    with pytest.raises(CelCompileError, match="invalid matches argument"):
        compile_expression(f"{A}.x.matches('(')")


def test_hundreds_of_terms_do_not_nest_as_deep() -> None:
    device = made({"x": Attribute(int_value=1)}, None)
    assert compile_expression(" || ".join(['device.driver == ""'] * 300 + ["device.driver != ''"])).matches(device)
    assert not compile_expression(" && ".join(["device.driver != ''"] * 300 + [f"{A}.x == 2"])).matches(device)


def test_the_fast_path_charges_a_budget_and_needs_one_that_is_not_spent() -> None:
    program = compile_expression(f"has({A}.x) && {A}.x == 1")
    device = made({"x": Attribute(int_value=1)}, None)
    assert program.fast_path is not None
    budget = Budget(program.fast_path_cost)
    assert program.matches(device, budget=budget)
    assert budget.remaining == 0
    with pytest.raises(CelBudgetError):
        program.matches(device, budget=budget)


def test_a_device_with_a_defect_fails_on_the_fast_path_too() -> None:
    device = made({"broken": Attribute(version_value="1.2")}, None)
    with pytest.raises(CelRuntimeError, match="attribute broken"):
        compile_expression("device.driver == 'gpu.example.com'").matches(device)
