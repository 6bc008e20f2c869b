from pathlib import Path
from typing import Any

import msgspec
import pytest
from dra_extender.cel.errors import CelCompileError
from dra_extender.cel.syntax.parser import MAX_LENGTH, parse
from dra_extender.cel.syntax.printer import print_expression
from hypothesis import given
from hypothesis import strategies as st


def shape(part: Any) -> Any:
    """A tree without its offsets, in which 1, 1u, 1.0 and true differ, and so do both zeros."""
    if isinstance(part, msgspec.Struct):
        fields = [name for name in part.__struct_fields__ if name not in {"offset", "depth"}]
        return type(part).__name__, *(shape(getattr(part, name)) for name in fields)
    if isinstance(part, tuple):
        return tuple(map(shape, part))
    return type(part).__name__, repr(part)


def corpus() -> list[str]:
    lines = (Path(__file__).parents[1] / "language_cases.tsv").read_text(encoding="utf-8").splitlines()
    return [line.split("\t", 2)[2] for line in lines if line.count("\t") > 1]


def assert_stable(text: str) -> None:
    try:
        tree = parse(text)
    except CelCompileError:
        return
    printed = print_expression(tree)
    assert shape(parse(printed)) == shape(tree), printed
    assert print_expression(parse(printed)) == printed


def test_parsing_what_was_printed_gives_the_same_tree_for_every_expression_of_the_corpus() -> None:
    expressions = corpus()
    assert len(expressions) > 900
    for text in expressions:
        assert_stable(text)


NAMES = st.sampled_from(["a", "b", "device", "_x1", "for_", "in_", "cel"])
FIELDS = st.one_of(NAMES, st.sampled_from(["`a-b`", "`x/y.z`", "`in`", "`true`", "for", "while"]))


def quoted(text: str) -> str:
    return '"' + "".join(f"\\U{ord(each):08x}" for each in text) + '"'


LITERALS = st.one_of(
    st.integers(min_value=-(2**63), max_value=2**63 - 1).map(str),
    st.integers(min_value=0, max_value=2**64 - 1).map("{}u".format),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6).map(quoted),
    st.binary(max_size=4).map(lambda data: "b'" + "".join(f"\\x{each:02x}" for each in data) + "'"),
    st.sampled_from(["true", "false", "null", "r'\\d'", "'''it's \"x\"'''", '"it\'s"', "'a\\'\"'", "-0.0", "0x1F"]),
)
BINARY = ["&&", "||", "==", "!=", "<", "<=", ">", ">=", "in", "+", "-", "*", "/", "%"]


def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Operands stand with and without parentheses, so that every grouping occurs."""
    operand = st.one_of(inner, inner.map("({})".format))
    return st.one_of(
        st.builds("{} {} {}".format, operand, st.sampled_from(BINARY), operand),
        st.builds("{} && {} && {}".format, operand, operand, operand),
        st.builds("{}{}".format, st.sampled_from(["!", "-", "--", "!!!"]), operand),
        st.builds("{} ? {} : {}".format, operand, operand, operand),
        st.builds("{}{}{}".format, operand, st.sampled_from([".", ".?"]), FIELDS),
        st.builds("{}[{}{}]".format, operand, st.sampled_from(["", "?"]), inner),
        st.builds("{}.{}({}, {})".format, operand, NAMES, inner, inner),
        st.builds("f({}, {})".format, inner, inner),
        st.builds("has({}.{})".format, operand, FIELDS),
        st.builds("[{}, ?{}]".format, inner, inner),
        st.builds("{{{}: {}, ?{}: {}}}".format, inner, inner, inner, inner),
        st.builds("cel.bind({}, {}, {})".format, NAMES, inner, inner),
        st.builds(
            "{}.{}(x, {})".format,
            operand,
            st.sampled_from(["all", "exists", "exists_one", "map", "filter", "sortBy", "optMap", "optFlatMap"]),
            inner,
        ),
        st.builds("{}.map(x, {}, {})".format, operand, inner, st.one_of(inner, st.just("x"))),
        st.builds(
            "{}.{}(k, v, {})".format,
            operand,
            st.sampled_from(
                ["all", "exists", "exists_one", "existsOne", "transformList", "transformMap", "transformMapEntry"]
            ),
            inner,
        ),
        st.builds(
            "{}.{}(k, v, {}, {})".format,
            operand,
            st.sampled_from(["transformList", "transformMap", "transformMapEntry"]),
            inner,
            inner,
        ),
    )


EXPRESSIONS = st.recursive(st.one_of(LITERALS, NAMES), larger, max_leaves=12).filter(
    lambda text: len(text) < MAX_LENGTH // 4
)


@given(EXPRESSIONS)
def test_parsing_what_was_printed_gives_the_same_tree(text: str) -> None:
    assert_stable(text)


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ("(a&&b)||(c)", "a && b || c"),
        ("(a||b)&&c", "(a || b) && c"),
        ("a && (b && c)", "a && (b && c)"),
        ("(1+2)-(3-4)", "1 + 2 - (3 - 4)"),
        ("-(1)", "-(1)"),
        ("-(0).a", "-(0.a)"),
        ("(-1).f()", "(-1).f()"),
        ("!(a == b)", "!(a == b)"),
        ("a ? b : (c ? d : e)", "a ? b : c ? d : e"),
        ("(a ? b : c) ? d : e", "(a ? b : c) ? d : e"),
        ("device.attributes['gpu.example.com'].`a-b`", 'device.attributes["gpu.example.com"].`a-b`'),
        ("'it\\'s'", '"it\'s"'),
        ("'say \"x\"'", "'say \"x\"'"),
        ("[1].map(x, x > 0, x)", "[1].filter(x, x > 0)"),
        ("has( a.b )", "has(a.b)"),
        ("'\\n\\u00fc\\u200b'", '"\\nü\\u200b"'),
    ],
)
def test_canonical_text_has_no_needless_parentheses_and_double_quotes(written: str, printed: str) -> None:
    assert print_expression(parse(written)) == printed
