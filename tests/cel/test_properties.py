import pytest
from dra_extender.cel.budget import Budget
from dra_extender.cel.device import Attribute, prepare_device
from dra_extender.cel.errors import CelCompileError, CelRuntimeError
from dra_extender.cel.program import compile_expression
from dra_extender.cel.syntax.parser import parse
from hypothesis import given, settings
from hypothesis import strategies as st

DEVICE = prepare_device(
    "gpu.example.com",
    {"n": Attribute(int_value=2), "s": Attribute(string_value="x"), "l": Attribute(int_values=(1, 2))},
    {"memory": "1"},
    allow_multiple_allocations=True,
)
WORDS = st.sampled_from(
    [
        *(".", "[", "]", "(", ")", "{", "}", "?", ":", ",", "&&", "||", "!", "-", "+", "*", "==", "<"),
        *("device", "driver", "attributes", "in", "true", "null", "x", "all", "map", "has", "cel", "bind", "size"),
        *("quantity", "semver", "optional", "of", "orValue", "1", "1u", "2.5", "'x'", "b'x'", "r'\\'", "`n`"),
        *("'gpu.example.com'", " ", "\n", "//", '"""', "\\", "\x00"),
    ],
)


@settings(deadline=None)
@given(st.text(max_size=80))
def test_parsing_any_text_gives_a_tree_or_a_compile_error(text: str) -> None:
    try:
        parse(text)
    except CelCompileError:
        return


@settings(deadline=None)
@given(st.lists(WORDS, max_size=25).map("".join))
def test_any_sequence_of_tokens_has_a_result_or_an_error_of_the_engine(text: str) -> None:
    try:
        compile_expression(text).evaluate(DEVICE)
    except (CelCompileError, CelRuntimeError):
        return


ATTRIBUTES = 'device.attributes["gpu.example.com"]'
NUMBERS = st.recursive(
    st.sampled_from(
        ["0", "1", "-3", "2.5", "7u", f"{ATTRIBUTES}.n", f"{ATTRIBUTES}.missing", f"{ATTRIBUTES}.l.size()"]
    ),
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from("+-*/%"), inner),
        st.builds("dyn({})".format, inner),
        st.builds("({} < {} ? {} : {})".format, inner, inner, inner, inner),
    ),
    max_leaves=6,
)
CONDITIONS = st.recursive(
    st.one_of(
        st.builds("({} {} {})".format, NUMBERS, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), NUMBERS),
        st.sampled_from(
            ["true", "false", "has(device.attributes.x.y)", f"{ATTRIBUTES}.s", f"{ATTRIBUTES}.l.exists(x, x == 2)"]
        ),
    ),
    lambda inner: st.one_of(
        st.builds("({} && {})".format, inner, inner),
        st.builds("({} || {})".format, inner, inner),
        st.builds("!{}".format, inner),
        st.builds("[1, 2].all(x, {})".format, inner),
        st.builds("cel.bind(b, {}, b)".format, inner),
    ),
    max_leaves=6,
)


def outcome(expression: str) -> object:
    try:
        return compile_expression(expression).evaluate(DEVICE)[0]
    except CelCompileError:
        return "compile-error"
    except CelRuntimeError:
        return "run-error"


@settings(deadline=None)
@given(CONDITIONS, CONDITIONS)
def test_logical_operators_do_not_depend_on_the_order_of_their_terms(one: str, other: str) -> None:
    assert outcome(f"({one}) && ({other})") == outcome(f"({other}) && ({one})")
    assert outcome(f"({one}) || ({other})") == outcome(f"({other}) || ({one})")


@settings(deadline=None)
@given(CONDITIONS)
def test_evaluating_twice_gives_the_same_value_at_the_same_cost(condition: str) -> None:
    try:
        program = compile_expression(condition)
        first = program.evaluate(DEVICE)
    except (CelCompileError, CelRuntimeError):
        return
    assert program.evaluate(DEVICE) == first


@settings(deadline=None)
@given(CONDITIONS)
def test_binding_a_condition_to_a_name_does_not_change_its_outcome(condition: str) -> None:
    assert outcome(f"cel.bind(bound, {condition}, bound)") == outcome(condition)


@settings(deadline=None)
@given(st.integers(min_value=-(2**63), max_value=2**63 - 1), st.integers(min_value=-(2**63), max_value=2**63 - 1))
def test_integer_arithmetic_is_exact_or_an_overflow(one: int, other: int) -> None:
    total = one + other
    expected: object = True if -(2**63) <= total < 2**63 else "run-error"
    assert outcome(f"({one}) + ({other}) == ({max(min(total, 2**63 - 1), -(2**63))})") == expected


@settings(deadline=None)
@given(st.text(max_size=40))
def test_a_quoted_string_is_the_text_it_was_made_of(text: str) -> None:
    literal = "".join(f"\\U{ord(character):08x}" for character in text)
    if any(0xD800 <= ord(character) < 0xE000 for character in text):
        return
    assert compile_expression(f"size('{literal}') == {len(text)}").matches(DEVICE)


@pytest.mark.parametrize("text", ["", " ", "\n", "//", "\x00", "\ufeff", "\u2028"])
def test_nothing_is_no_expression(text: str) -> None:
    with pytest.raises(CelCompileError):
        compile_expression(text)


@settings(deadline=None)
@given(CONDITIONS)
def test_limits_and_budgets_that_are_not_reached_change_neither_value_nor_cost(condition: str) -> None:
    try:
        program = compile_expression(condition)
        value, cost = program.evaluate(DEVICE)
    except (CelCompileError, CelRuntimeError):
        return
    with pytest.MonkeyPatch.context() as unlimited:
        unlimited.setattr("dra_extender.cel.cost.COST_LIMIT", 10**12)
        unlimited.setattr("dra_extender.cel.cost.WORK_LIMIT", 10**12)
        assert program.evaluate(DEVICE) == (value, cost)
    budget = Budget(10**9)
    if isinstance(value, bool):
        assert program.matches(DEVICE, budget=budget) is value
        assert budget.remaining <= 10**9 - cost


@settings(deadline=None)
@given(CONDITIONS, CONDITIONS, st.integers(0, 5))
def test_more_to_evaluate_never_costs_less(one: str, other: str, rounds: int) -> None:
    def cost(expression: str) -> int | None:
        try:
            return compile_expression(expression).evaluate(DEVICE)[1]
        except (CelCompileError, CelRuntimeError):
            return None

    alone, both = cost(one), cost(f"({one}) && ({other})")
    assert alone is None or both is None or both >= alone
    fewer, more = (cost(f"lists.range({count}).map(x, {one}).size() >= 0") for count in (rounds, rounds + 1))
    assert fewer is None or more is None or more >= fewer
