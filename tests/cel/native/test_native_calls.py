"""Native calls on values whose time depends on their sizes are made through a NativeFunction, and nowhere else."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import dra_extender.cel
import pytest
from dra_extender.cel.cost import CALL_LIMIT, WORK_LIMIT, EvaluationFrame
from dra_extender.cel.environment import FUNCTIONS as LIBRARY
from dra_extender.cel.errors import CelCostError, CelDeadlineError
from dra_extender.cel.native.call import NativeFunction
from dra_extender.cel.native.lists import (
    concatenated,
    distinct_by_hash,
    index_of,
    number_range,
    same_elements,
    sorted_indexes,
)
from dra_extender.cel.native.strings import RFIND

from tests.support.cel.native_functions import KINDS, native_functions

METHODS: Final = frozenset(
    {
        *(
            "find",
            "rfind",
            "index",
            "rindex",
            "count",
            "replace",
            "split",
            "rsplit",
            "join",
            "strip",
            "lstrip",
            "rstrip",
        ),
        *("lower", "upper", "casefold", "encode", "decode", "translate", "hex", "partition", "rpartition"),
        *(
            "startswith",
            "endswith",
            "isprintable",
            "isdigit",
            "search",
            "finditer",
            "findall",
            "fullmatch",
            "match",
            "sub",
        ),
        *("fromkeys", "sort", "reverse", "expandtabs", "zfill", "splitlines"),
    }
)
FUNCTIONS: Final = frozenset(
    {"sorted", "reversed", "set", "frozenset", "list", "tuple", "sum", "hash", "repr", "merge"}
)
CHECKED: Final = (
    *sorted(Path(dra_extender.cel.__path__[0]).glob("library/*.py")),
    *(
        Path(dra_extender.cel.__path__[0]) / f"{name}.py"
        for name in (
            "native/equality",
            "compiler/comparisons",
            "compiler/calls",
            "compiler/loops",
            "compiler/compiler",
            "compiler/selections",
            "cost",
        )
    ),
)
_PARTS = "goes through the parts of an expression, or the arguments of a call"
_DOUBLE = "the text of a double has some twenty characters, one that is read at most 400"
ALLOWED: Final = {
    ("library/core", "_ordering"): "a table of declarations",
    ("library/conversions", "_text_to_number"): "at most 400 digits, which is asked before",
    ("library/conversions", "_text_to_double"): _DOUBLE,
    ("library/lists", "_reverse"): "reverses a list that was just copied, for which each element was charged more",
    ("library/strings", "_join"): "a piece of a list, charged before",
    ("library/time", "_offset"): "at most 100 characters, which is asked before",
    ("native/equality", "_equal_containers"): "an empty set",
    ("compiler/calls", "_compile_overloads"): _PARTS,
    ("compiler/calls", "_static_evaluation"): _PARTS,
    ("compiler/calls", "_dynamic_evaluation"): _PARTS,
    ("compiler/calls", "fold_call"): _PARTS,
    ("compiler/calls", "_charged"): _PARTS,
    ("compiler/calls", "_charging_failure"): _PARTS,
    ("compiler/calls", "_charged_pattern"): _PARTS,
    ("compiler/calls", "_compile_membership"): _PARTS,
    ("compiler/compiler", "Compiler"): _PARTS,
    ("compiler/compiler", "_list_of_elements"): _PARTS,
    ("compiler/compiler", "_map_of_entries"): _PARTS,
    ("compiler/compiler", "_later_costs"): _PARTS,
    ("library/string_format", "format_text"): "the template and the result are charged before",
    ("library/string_format", "check_format"): "a constant of the expression",
    ("library/string_format", "_floating"): _DOUBLE,
    ("library/string_format", "_shown"): "charged before by the lengths of the keys, each of which was charged more",
    ("library/string_format", "_listed"): "charged before by the number of parts and their lengths",
    ("cel/cost", "_leaves"): "a text is charged before, and so is each piece of a list",
    ("cel/cost", "_leaves_of_piece"): "a piece of a list, charged before",
}
"""Functions that make such calls all the same, and why these are short or charged."""


def _module(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def _calls(path: Path) -> Iterator[tuple[str, str, int]]:
    for outer in ast.parse(path.read_text()).body:
        if isinstance(outer, ast.FunctionDef | ast.ClassDef):
            for node in ast.walk(outer):
                called = node.func if isinstance(node, ast.Call) else None
                if isinstance(called, ast.Attribute) and called.attr in METHODS:
                    yield outer.name, called.attr, called.lineno
                elif isinstance(called, ast.Name) and called.id in FUNCTIONS:
                    yield outer.name, called.id, called.lineno


@pytest.mark.parametrize("path", CHECKED, ids=_module)
def test_calls_whose_time_depends_on_sizes_are_made_through_native_functions(path: Path) -> None:
    found = [(name, call, line) for name, call, line in _calls(path) if (_module(path), name) not in ALLOWED]
    assert not found, "declare a NativeFunction and call it, or give a reason in ALLOWED"


def test_every_exception_is_needed() -> None:
    made = {(_module(path), name) for path in CHECKED for name, _, _ in _calls(path)}
    assert not [key for key in ALLOWED if key not in made]


def test_no_lambda_of_a_declaration_makes_such_a_call() -> None:
    for path in CHECKED:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Lambda):
                names = {part.attr for part in ast.walk(node.body) if isinstance(part, ast.Attribute)}
                assert names.isdisjoint(METHODS - {"count", "index"}), f"{path.name}:{node.lineno}"


def test_native_functions_have_names_of_their_own() -> None:
    names = [each.name for each in native_functions()]
    assert len(names) == len(set(names)) > 40


def test_the_search_for_slow_calls_knows_the_arguments_of_every_native_function() -> None:
    assert {each.name for each in native_functions()} == KINDS.keys()


def _frame() -> EvaluationFrame:
    return EvaluationFrame(None, 0, ())


def _never(*_: object) -> object:
    raise AssertionError("the call was made")


def test_a_call_that_takes_longer_than_one_may_is_refused_before_it_is_made() -> None:
    entry = NativeFunction("examine", _never, lambda: CALL_LIMIT + 1)
    with pytest.raises(CelCostError, match=f"one call of examine takes {CALL_LIMIT + 1} units of work"):
        entry.call(_frame())


def test_a_call_that_the_evaluation_cannot_afford_any_more_is_refused_before_it_is_made() -> None:
    frame = _frame()
    frame.work = WORK_LIMIT - CALL_LIMIT + 1
    with pytest.raises(CelCostError, match="visits more than"):
        NativeFunction("examine", _never, lambda: CALL_LIMIT).call(frame)


def test_the_deadline_is_asked_before_a_long_call() -> None:
    frame = EvaluationFrame(None, 0, (), lambda: True)
    with pytest.raises(CelDeadlineError):
        NativeFunction("examine", _never, lambda: CALL_LIMIT).call(frame)


@pytest.mark.parametrize(
    ("text", "part", "end"),
    [
        ("abcabc", "bc", 6),
        ("abcabc", "bc", 5),
        ("abcabc", "", 6),
        ("abcabc", "", 3),
        ("abcabc", "x", 6),
        ("abc", "abcd", 3),
        ("ab" * 30_000, "ab" * 200, 60_000),
        ("ab" * 30_000, "ab" * 200, 12_345),
        ("ab" * 30_000, "abb", 60_000),
        ("\u4e00b" * 30_000, "b\u4e00", 59_999),
    ],
)
def test_the_last_place_of_a_text_is_the_one_that_python_finds(text: str, part: str, end: int) -> None:
    assert RFIND.call(_frame(), text, part, end) == text.rfind(part, 0, end)


@pytest.mark.parametrize("length", [0, 1, 9_999, 10_000, 10_001, 20_003])
def test_lists_in_pieces_are_what_python_makes_of_the_whole(length: int) -> None:
    numbers = [(place * 7919) % 10_007 for place in range(length)]
    texts = list(map(str, numbers))
    assert concatenated(_frame(), numbers, tuple(numbers[:5])) == [*numbers, *numbers[:5]]
    assert number_range(_frame(), length) == list(range(length))
    assert same_elements(_frame(), texts, tuple(texts))
    assert not same_elements(_frame(), [*texts, "a"], [*texts, "b"])
    assert index_of(_frame(), numbers, -1) == -1
    if numbers:
        assert index_of(_frame(), texts, texts[-1]) == texts.index(texts[-1])
        assert sorted_indexes(_frame(), numbers) == sorted(range(length), key=numbers.__getitem__)
        assert distinct_by_hash(_frame(), texts[:500]) == list(dict.fromkeys(texts[:500]))


@pytest.mark.parametrize(
    "text", ["", "a", "\n" * 12_000 + "a\u00e9" + "\u3000" * 25_000, " " * 30_000, "a" * 12_000 + " "]
)
def test_a_trimmed_text_is_the_same_in_pieces(text: str) -> None:
    trim = next(iter(LIBRARY["trim"].overloads)).implementation
    assert trim(_frame(), text) == text.strip()
