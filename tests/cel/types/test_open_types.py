"""Types that no value decides are settled as cel-go settles them: elements of [] and {}, optional.none(), and what is made of them.

All answers but the last test's are those of Kubernetes 1.37.
"""

import pytest
from dra_extender.cel.device import Attribute, prepare_device
from dra_extender.cel.errors import CelCompileError, CelRuntimeError
from dra_extender.cel.program import compile_expression

DEVICE = prepare_device(
    "gpu.example.com", {"numbers": Attribute(int_values=(3, 1))}, {}, allow_multiple_allocations=False
)
NUMBERS = 'device.attributes["gpu.example.com"].numbers'
TWICE = "cel.bind(s, x + x, [x, dyn(1)].size() == 2 ? optional.of(s) : optional.of(s))"


def verdict(expression: str) -> str:
    try:
        program = compile_expression(expression)
    except CelCompileError:
        return "compile-error"
    try:
        return "match" if program.matches(DEVICE) else "no-match"
    except CelRuntimeError:
        return "run-error"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f"(optional.none().optMap(x, [x, [{NUMBERS}][x]])).hasValue()", "no-match"),
        ("[].map(x, [x, {'a': dyn(1)}[x]]).size() == 0", "match"),
        ("[].map(x, [x, {'a': 1}[x]]).size() == 0", "compile-error"),
    ],
)
def test_an_element_that_an_index_has_settled_stays_open_for_the_elements_behind_it(
    expression: str, expected: str
) -> None:
    assert verdict(expression) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("[].map(x, [x, dyn(1), x[0]]).size() == 0", "match"),
        ("[].map(x, [x[0], x]).size() == 0", "compile-error"),
        ("[].map(x, {'a': x + 1, x: 1}).size() == 0", "compile-error"),
    ],
)
def test_each_element_of_a_literal_settles_types_before_the_next_is_checked(expression: str, expected: str) -> None:
    assert verdict(expression) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("[].map(x, x == optional.of(1) && [?x].size() == 0).size() == 0", "compile-error"),
        ("[].map(x, [?x.or(optional.of(1)), 1]).size() == 0", "match"),
    ],
)
def test_a_variable_that_is_settled_as_optional_later_cannot_be_left_out(expression: str, expected: str) -> None:
    assert verdict(expression) == expected


def test_arguments_of_a_method_settle_types_before_its_target() -> None:
    assert verdict("[].map(x, [x + x, dyn(1)].includes([x, dyn(1)])).size() == 0") == "match"


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ("x && true && {0}", "match"),
        ("true && x && {0}", "match"),
        ("x && {0}", "compile-error"),
        ("true && true && x && {0}", "compile-error"),
        ("true && x && true && {0}", "match"),
    ],
)
def test_a_term_has_to_be_a_bool_as_soon_as_the_other_side_of_its_operator_is_checked(
    terms: str, expected: str
) -> None:
    later = "[x].all(y, [y, true].size() == 2 && [x, dyn(1)].size() == 2)"
    assert verdict(f"[].map(x, {terms.format(later)}).size() == 0") == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("[].map(x, 1.5 < x && [x, 1.5].size() == 2).size() == 0", "match"),
        ("[].map(x, 1u < x && [x, 1u].size() == 2).size() == 0", "match"),
        ("[].map(x, 1u < x && [x, 1].size() == 2).size() == 0", "compile-error"),
    ],
)
def test_what_is_compared_with_a_number_is_taken_for_one_of_the_same_type(expression: str, expected: str) -> None:
    assert verdict(expression) == expected


def test_the_type_of_a_loop_is_what_it_was_at_its_end() -> None:
    mixed = "[e, [dyn(1)]].size() == 2 && [e.map(x, x), [dyn(1)]].size() == 2"
    assert verdict(f"cel.bind(e, [], e.map(x, x) == [1] && {mixed})") == "no-match"


def test_the_source_of_optmap_is_checked_once_for_having_a_value_and_once_for_it() -> None:
    assert verdict(f"[].map(x, {TWICE}.optMap(y, [y, dyn(1)])).size() == 0") == "match"
    assert verdict(f"[].map(x, cel.bind(o, {TWICE}, o.optMap(y, [y, dyn(1)]))).size() == 0") == "compile-error"


@pytest.mark.parametrize("step", ["a + x", "[x, dyn(1)][0]", "[a, x][0]"])
def test_a_chain_of_optmap_is_not_checked_twice_for_each_link(step: str) -> None:
    chain = "optional.of(x)" + f".optMap(a, {step})" * 10
    assert verdict(f"[].map(x, {chain}.hasValue()).size() == 0") == "match"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("[].sortBy(x, dyn(1)).map(x, [x, 1]).size() == 0", "match"),
        ("[].sortBy(x, x).map(x, x + 'a').size() == 0", "compile-error"),
        ("dyn([2, 1]).sortBy(x, dyn(x))[0] == 1", "match"),
    ],
)
def test_sortby_keeps_open_what_it_sorts(expression: str, expected: str) -> None:
    assert verdict(expression) == expected


def test_the_key_of_transformmap_is_a_use_of_its_variable() -> None:
    assert verdict("{type: 1}.transformMap(k, w, 1).size() == 1") == "compile-error"


@pytest.mark.parametrize(
    "expression",
    [
        "(dyn(optional.of(1)).orValue([dyn(1)])).first().hasValue()",
        "sets.contains(dyn(optional.of(1)).orValue({}.transformList(k, w, dyn(1))), [])",
    ],
)
def test_a_dynamic_value_is_not_trusted_to_be_what_the_argument_beside_it_says(expression: str) -> None:
    assert verdict(expression) == "run-error"


@pytest.mark.parametrize(
    ("source", "cost"), [("dyn(1)", 5), ("dyn({'a': 1})", 19), ("dyn({'a': 1, 'b': 2})", 32), ("[1]", 20)]
)
def test_sortby_costs_what_upstream_charges_when_it_fails(source: str, cost: int) -> None:
    key = "dyn(1)[1]" if source == "[1]" else "x"
    program = compile_expression(f"{source}.sortBy(x, {key}).size() == 1 || true")
    assert program.evaluate(DEVICE)[1] == cost


def test_adding_to_an_empty_list_that_a_macro_keeps_does_not_change_it() -> None:
    """Upstream's list becomes longer, which docs/reference/differences.md lists."""
    assert verdict("cel.bind(e, [], e + [1] == [1] && e == [])") == "match"
    assert verdict("optional.of([]).optMap(e, e + [2] == [2] && e.size() == 0).value()") == "match"
