import pytest
import re2
from dra_extender.cel.budget import COMPILE_LIMIT, Budget
from dra_extender.cel.errors import CelBudgetError, CelCompileError
from dra_extender.cel.program import ProgramCache, compile_expression
from dra_extender.cel.syntax.parser import MAX_LENGTH

from tests.support.cel.hostile import bound

_ROOM = MAX_LENGTH - 40


def filled(unit: str, between: str, before: str = "", after: str = "") -> str:
    return before + between.join([unit] * (_ROOM // (len(unit) + len(between)))) + after


DOUBLED = bound(8, "[]", "{{{0}: {0}}}", "size([" + ", ".join(["{0}"] * 2000) + "]) > 0")
LARGE = {
    "lists": filled("[]", ",", "size([", "])>0"),
    "maps": filled("{}", ",", "size([", "])>0"),
    "sums": filled("1+1+1+1+1+1+1+1", ",", "size([", "])>0"),
    "indexes": filled("[[]][0][0]", ",", "size([", "])>0"),
    "memberships": filled("1 in[]", "&&"),
    "conversions": filled("int(1)", ",", "size([", "])>0"),
    "one large type many times": "cel.bind(a," + "[" * 55 + "]" * 55 + ",size([" + ",".join(["a"] * 4900) + "])>0)",
    "one large type as arguments": "cel.bind(a," + "[" * 55 + "]" * 55 + ",size(" + ",".join(["a"] * 4900) + ")>0)",
    "types that double": DOUBLED,
    "patterns": filled('"a".matches("[\\\\pL\\\\pN\\\\pS]{1,9}")', "&&"),
}


@pytest.mark.parametrize("expression", LARGE.values(), ids=LARGE.keys())
def test_compiling_ends_at_a_count_that_says_so_and_charges_hardly_more_than_that(expression: str) -> None:
    budget = Budget(10 * COMPILE_LIMIT)
    with pytest.raises(CelCompileError, match=r"400000 units|too large"):
        compile_expression(expression, budget=budget)
    spent = 10 * COMPILE_LIMIT - budget.remaining
    assert spent < 1.1 * COMPILE_LIMIT or "matches" in expression


def test_patterns_that_together_take_seconds_are_refused_before_one_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(_pattern: str, _options: object) -> None:
        raise AssertionError("compiled")

    monkeypatch.setattr(re2, "compile", never)
    patterns = " && ".join(f'"a".matches("[a-z0-9]{{1,900}}{number}")' for number in range(200))
    with pytest.raises(CelCompileError, match="400000 units"):
        compile_expression(patterns)


@pytest.mark.parametrize(
    "expression",
    [
        filled('device.attributes["gpu.example.com"].model == "H100"', " || "),
        filled('device.attributes["gpu.example.com"].memory.compareTo(quantity("10Gi")) >= 0', " && "),
        'device.attributes["gpu.example.com"].uuid in ['
        + ", ".join(f'"GPU-{number:036}"' for number in range(220))
        + "]",
        filled('device.attributes["gpu.example.com"].model.matches("^[A-Z][0-9]+$")', " || "),
    ],
)
def test_the_longest_expressions_of_ordinary_terms_are_well_within(expression: str) -> None:
    budget = Budget(10 * COMPILE_LIMIT)
    compile_expression(expression, budget=budget)
    assert 10 * COMPILE_LIMIT - budget.remaining < 0.9 * COMPILE_LIMIT


def test_a_spent_budget_ends_before_the_next_expression_and_another_call_gets_further() -> None:
    cache, expressions = ProgramCache(), [filled("true", "&&", f"{number}==0||") for number in range(4)]
    calls = 0
    for _ in range(20):
        calls += 1
        budget = Budget(1)
        try:
            for each in expressions:
                cache.compile(each, budget=budget, owner="team")
        except CelBudgetError:
            continue
        break
    assert calls == len(expressions)


def test_messages_about_long_names_and_types_are_cut() -> None:
    for expression in ("f" * 9_000 + "()", "device." + "f" * 9_000, LARGE["one large type as arguments"]):
        with pytest.raises(CelCompileError) as caught:
            compile_expression(expression)
        assert len(str(caught.value)) < 2_000
