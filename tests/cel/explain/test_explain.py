import re
from pathlib import Path

import pytest
from dra_extender.cel.device import Attribute, prepare_device
from dra_extender.cel.errors import CelCompileError, CelRuntimeError
from dra_extender.cel.explain.evaluation import Evaluation, ExplainableExpression
from dra_extender.cel.explain.explain import explain
from dra_extender.cel.program import compile_expression
from dra_extender.cel.values.values import unwrapped
from hypothesis import given
from hypothesis import strategies as st

A = 'device.attributes["gpu.example.com"]'
C = 'device.capacity["gpu.example.com"]'
DEVICE = prepare_device(
    "gpu.example.com",
    {
        "model": Attribute(string_value="A100"),
        "type": Attribute(string_value="mig"),
        "index": Attribute(int_value=3),
        "healthy": Attribute(bool_value=True),
        "driverVersion": Attribute(version_value="1.2.3"),
        "links": Attribute(string_values=("a", "b")),
        "resource.kubernetes.io/pcieRoot": Attribute(string_value="p"),
    },
    {"memory": "40Gi"},
    allow_multiple_allocations=False,
)
NO_MODEL = 'device has no attribute "modle" of domain "gpu.example.com"; did you mean model? It has driverVersion'
NO_SPEED = (
    'the device has no attribute "speed" of domain "gpu.example.com"; '
    "it has driverVersion, healthy, index, links, model, type"
)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        (f'{A}.model == "H100"', f'{A}.model is "A100", wanted "H100"'),
        (f'"H100" == {A}.model', f'{A}.model is "A100", wanted "H100"'),
        (f'device.driver == "gpu.example.com" && {A}.model == "H100"', f'{A}.model is "A100", wanted "H100"'),
        (f"2 > {A}.index", f"{A}.index is 3, wanted less than 2"),
        (f'!({A}.model == "A100")', f'{A}.model is "A100", wanted anything but "A100"'),
        (f"{A}.healthy == false", f"{A}.healthy is true, wanted false"),
        (f"!{A}.healthy", f"{A}.healthy is true, wanted false"),
        (f'{A}.model in ["H100", "H200"]', f'{A}.model is "A100", wanted one of ["H100", "H200"]'),
        (f'!({A}.model in ["A100"])', f'{A}.model is "A100", wanted none of ["A100"]'),
        (
            '"other" in device.attributes',
            'the device has no attribute of domain "other"; it has gpu.example.com, resource.kubernetes.io',
        ),
        (f"has({A}.speed)", NO_SPEED),
        (f'"speed" in {A}', NO_SPEED),
        (f"!has({A}.model)", f'{A}.model is "A100"'),
        (f"{A}.?speed.orValue(0) > 3", f"{A}.?speed.orValue(0) is 0 ({NO_SPEED}), wanted more than 3"),
        (f'{C}.memory.compareTo(quantity("80Gi")) >= 0', f"{C}.memory is 40Gi, wanted at least 80Gi"),
        (f'0 <= {C}.memory.compareTo(quantity("80Gi"))', f"{C}.memory is 40Gi, wanted at least 80Gi"),
        (
            f'0 > quantity("10Gi").compareTo({C}.memory) && 0 < {C}.memory.compareTo(quantity("40Gi"))',
            f"{C}.memory is 40Gi, wanted more than 40Gi",
        ),
        (f'{A}.driverVersion.compareTo(semver("2.0.0")) == 0', f"{A}.driverVersion is 1.2.3, wanted 2.0.0"),
        (f'{A}.driverVersion.isGreaterThan(semver("2.0.0"))', f"{A}.driverVersion is 1.2.3, wanted more than 2.0.0"),
        (f'{A}.model.lowerAscii().matches("^h")', f'{A}.model.lowerAscii() is "a100", wanted a match of "^h"'),
        (f'{A}.model.startsWith("H")', f'{A}.model is "A100", wanted a text that starts with "H"'),
        (f"{A}.index == {A}.links.size()", f"{A}.index is 3, {A}.links.size() is 2, wanted 2"),
        (
            f'{A}.links.exists(x, x == "c")',
            f'none of the 2 elements of {A}.links satisfy x == "c" (x is "a", wanted "c")',
        ),
        (
            f'{A}.links.all(x, x == "a")',
            f'1 of the 2 elements of {A}.links satisfies x == "a" (x is "b", wanted "a")',
        ),
        (
            "[dyn(0), dyn(false)].all(x, x)",
            "none of the 2 elements of [dyn(0), dyn(false)] satisfy x (x is false, wanted true)",
        ),
        ("[].exists(x, x)", "[] is empty"),
        (f'cel.bind(a, {A}, a.model == "X")', 'a.model is "A100", wanted "X"'),
        (f"has({A}.x) ? true : {A}.index == 0", f"{A}.x is absent; {A}.index is 3, wanted 0"),
        (f"has({A}.speed) ? {A}.speed == 1 : false", NO_SPEED),
        (f'!has({A}.model) || {A}.model == "H100"', f'{A}.model is "A100", wanted "H100"'),
        ("false", "false is always false"),
    ],
)
def test_the_message_of_a_false_condition_has_the_values_of_both_sides(expression: str, reason: str) -> None:
    explanation = explain(expression, DEVICE)
    assert explanation == reason


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        (f'true && {A}.modle == "x"', NO_MODEL),
        (f"{A}.memory == 3", f"did you mean {C}.memory?"),
        (f'{A}.pcieRoot == "p"', 'did you mean device.attributes["resource.kubernetes.io"].pcieRoot?'),
        ('device.attributes["type"].string == "x"', f"did you mean {A}.type?"),
        ('device.attributes["gpu.example.com/type"].string == "x"', f"did you mean {A}.type?"),
        (f'{A}.type.string == "x"', f'{A}.type is "mig", a plain string without anything inside'),
        (f'{A}.driverVersion >= "1"', f"{A}.driverVersion is 1.2.3 (Semver)"),
        (f"{A}.links.all(x, 1 / (x.size() - 1) == 1)", '(where x is "a")'),
        (f'cel.bind(a, {A}.nope, a == "x")', 'no attribute "nope"'),
        ('{"a": 1}.zoo == 1', 'there is no "zoo"; it has "a"'),
        (f"{A}.links[5] == 'x'", "a list of 2"),
    ],
)
def test_a_failure_names_the_part_that_failed_and_what_is_there_instead(expression: str, reason: str) -> None:
    explanation = explain(expression, DEVICE)
    assert reason in explanation


def test_a_true_disjunction_names_the_operands_that_hold_and_a_false_one_all() -> None:
    true = explain(f'{A}.index == 3 || {A}.model == "x"', DEVICE)
    false = explain(f'{A}.index == 4 || {A}.model == "x"', DEVICE)
    assert true == f"{A}.index is 3"
    assert false == f'{A}.index is 3, wanted 4; {A}.model is "A100", wanted "x"'


def test_a_condition_whose_operands_a_limit_stops_has_its_value_as_the_reason() -> None:
    slow = "lists.range(1000).exists(x, lists.range(90).exists(y, y < 0))"
    explanation = explain(f"{slow} && true", DEVICE)
    assert explanation == f"{slow} && true is false"


def test_the_message_of_a_result_that_is_no_bool_names_its_value_and_type() -> None:
    explanation = explain(f"{A}.index", DEVICE)
    assert "is 3, a int, where true or false was wanted" in explanation


def test_the_message_of_a_device_with_a_defect_names_the_defect() -> None:
    broken = prepare_device("d", {"v": Attribute(version_value="x")}, {}, allow_multiple_allocations=False)
    explanation = explain("true", broken)
    assert "the device cannot be read: attribute v" in explanation


@pytest.mark.parametrize(
    "expression",
    [
        " || ".join(f"{A}.index == {number + 10}" for number in range(150)),
        "[1, 2, 3, 4].exists(a, [1, 2, 3, 4].exists(b, [1, 2, 3, 4].exists(c, [1, 2, 3, 4].exists(d, a + b + c + d > 99))))",
        "lists.range(1000).exists(a, lists.range(1000).exists(b, a * b == -1))",
        f"{A}.model == '{'x' * 5000}'",
        "!(" * 40 + f"{A}.healthy" + ")" * 40,
    ],
)
def test_an_explanation_is_bounded_whatever_the_expression(expression: str) -> None:
    explanation = explain(expression, DEVICE)
    more = re.search("; and ([0-9]+) more$", explanation)
    assert more is None or int(more[1]) < 60
    assert len(explanation) < 2000


def test_a_deadline_leaves_parts_undecided_instead_of_raising() -> None:
    explanation = explain(
        "lists.range(1000).all(a, lists.range(100).all(b, a >= b || true))", DEVICE, deadline=lambda: True
    )
    assert "was not decided" in explanation


LINES = (Path(__file__).parents[1] / "language_cases.tsv").read_text(encoding="utf-8").splitlines()[1:]
CORPUS = [line.split("\t", 2)[2] for line in LINES]
TERMS = st.recursive(
    st.sampled_from(
        [f'{A}.model == "A100"', f"{A}.index < 2", f"has({A}.x)", f"{A}.x == 1", "true", f"{A}.healthy", f"{A}.index"]
    ),
    lambda inner: st.one_of(
        st.builds("({} && {})".format, inner, inner),
        st.builds("({} || {})".format, inner, inner),
        st.builds("!({})".format, inner),
        st.builds("({} ? {} : {})".format, inner, inner, inner),
        st.builds("[1, 2].exists(e, {} || e == 2)".format, inner),
        st.builds("cel.bind(b, {}, b)".format, inner),
    ),
    max_leaves=8,
)


def assert_agrees(expression: str) -> None:
    try:
        matches: bool | None = compile_expression(expression).matches(DEVICE)
    except CelCompileError:
        return
    except CelRuntimeError:
        matches = None
    evaluation = Evaluation(ExplainableExpression(expression), DEVICE)
    value = unwrapped(evaluation.outcome(evaluation.root).value)
    assert (value if isinstance(value, bool) else None) is matches
    explanation = explain(expression, DEVICE)
    assert explanation
    assert explain(expression, DEVICE) == explanation


@given(TERMS)
def test_parts_have_the_value_of_the_whole_evaluation_and_an_explanation_always_a_reason(expression: str) -> None:
    assert_agrees(expression)


def test_every_expression_of_the_corpus_can_be_explained() -> None:
    assert len(CORPUS) > 900
    for expression in CORPUS:
        assert_agrees(expression)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("null", "null"),
        ("true", "true"),
        ("3u", "3u"),
        ("2.5", "2.5"),
        ("b'a'", "b'a'"),
        ("'a' + 'b'", '"ab"'),
        ("quantity('40Gi')", "40Gi"),
        ("quantity('1500m')", "1500m"),
        ("quantity('40G')", "40G"),
        ("semver('1.2.3-rc.1+b')", "1.2.3-rc.1+b"),
        ("[dyn(1), dyn([dyn(2), dyn([dyn(3), dyn([4])])])]", "[1, [2, [3, a list of 1]]]"),
        ("lists.range(9)", "[0, 1, 2, 3, 4, 5, and 3 more]"),
        ("{'a': 1}", '{"a": 1}'),
        ("optional.of(3)", "optional(3)"),
        ("optional.none()", "absent"),
        ("int", "int"),
        ("duration('90s')", "90s"),
        ("timestamp('2026-01-02T03:04:05Z')", "2026-01-02T03:04:05Z"),
        ("ip('10.0.0.1')", "10.0.0.1"),
        ("cidr('10.0.0.0/8')", "10.0.0.0/8"),
        ("url('https://example.com/a')", "https://example.com/a"),
        (f"'{'x' * 100}' + ''", '"' + "x" * 57 + '..."'),
    ],
)
def test_messages_write_values_of_every_type_as_expressions_do(expression: str, text: str) -> None:
    explanation = explain(f"dyn('another') == dyn({expression})", DEVICE)
    assert explanation == f'dyn("another") is "another", wanted {text}'
