"""Selectors that want one native call to take seconds are stopped by a count before the call is made."""

import random

import pytest
import re2
from dra_extender.cel.budget import Budget
from dra_extender.cel.cost import CALL_LIMIT, WORK_LIMIT, EvaluationFrame
from dra_extender.cel.device import prepare_device
from dra_extender.cel.errors import CelBudgetError, CelCompileError, CelCostError, CelRuntimeError
from dra_extender.cel.fair_cache import FairCache
from dra_extender.cel.native import patterns
from dra_extender.cel.native.call import NativeFunction
from dra_extender.cel.native.pattern_size import estimated_size
from dra_extender.cel.native.patterns import (
    CACHE_BYTES,
    MAX_INSTRUCTIONS,
    MAX_LENGTH,
    SCAN_LIMIT,
    Pattern,
    charge_pattern,
    compile_pattern,
    pattern_cost,
)
from dra_extender.cel.native.patterns import LARGE_PATTERNS as KEPT_LARGE
from dra_extender.cel.native.patterns import SMALL_PATTERNS as KEPT_SMALL
from dra_extender.cel.program import compile_expression
from dra_extender.cel.values.semver import parse_semver

from tests.support.cel.native_attacks import LARGE_PATTERNS, ONE_CALL, PASSED, PATTERNS_IN_USE

DEVICE = prepare_device("gpu.example.com", {}, {}, allow_multiple_allocations=False)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The native calls that were made, with what was charged for each."""
    calls: list[tuple[str, int]] = []
    original = EvaluationFrame.begin_call

    def begin(frame: EvaluationFrame, name: str, work: int) -> None:
        original(frame, name, work)
        calls.append((name, work))

    monkeypatch.setattr(EvaluationFrame, "begin_call", begin)
    return calls


@pytest.mark.parametrize("expression", ONE_CALL.values(), ids=ONE_CALL.keys())
def test_what_takes_long_is_stopped_before_it_begins(expression: str, made: list[tuple[str, int]]) -> None:
    program = compile_expression(expression)
    with pytest.raises(CelCostError, match=r"at most|more than|actual cost limit"):
        program.matches(DEVICE)
    assert all(work <= CALL_LIMIT for _, work in made)
    assert sum(work for _, work in made) <= WORK_LIMIT


@pytest.mark.parametrize("expression", PASSED.values(), ids=PASSED.keys())
def test_what_only_looks_long_has_a_verdict(expression: str, made: list[tuple[str, int]]) -> None:
    assert compile_expression(expression).matches(DEVICE)
    assert all(work <= CALL_LIMIT for _, work in made)


@pytest.mark.parametrize("pattern", LARGE_PATTERNS.values(), ids=LARGE_PATTERNS.keys())
def test_a_pattern_that_expands_to_too_much_is_refused_before_it_is_compiled(
    pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(re2, "compile", lambda *_: pytest.fail("it was compiled"))
    with pytest.raises(CelCompileError, match=f"expands to about [0-9]+ instructions, at most {MAX_INSTRUCTIONS} are"):
        compile_expression(f"device.driver.matches(r'{pattern}')")
    with pytest.raises(CelRuntimeError, match="expands to about"):
        compile_expression(f"device.driver.matches(r'{pattern}' + '')").matches(DEVICE)


@pytest.mark.parametrize("pattern", PATTERNS_IN_USE)
def test_patterns_as_users_write_them_are_accepted(pattern: str) -> None:
    compile_expression(f"device.driver.matches(r'{pattern}')").matches(DEVICE)


def test_a_search_is_bounded_by_instructions_times_bytes() -> None:
    compiled = compile_pattern("(a?){100}a{100}c")
    most = SCAN_LIMIT // (compiled.size + 8) - 1
    expression = "cel.bind(t, lists.range({}).map(i, 'a').join(), t.matches('(a?){{100}}a{{100}}c'))"
    assert not compile_expression(expression.format(most).replace("{{", "{").replace("}}", "}")).matches(DEVICE)
    with pytest.raises(CelCostError, match=f"searches {most + 1} bytes"):
        compile_expression(expression.format(most + 1).replace("{{", "{").replace("}}", "}")).matches(DEVICE)


def test_a_pattern_that_is_too_long_is_refused_before_it_is_looked_at() -> None:
    with pytest.raises(CelRuntimeError, match=f"it has {MAX_LENGTH + 1} characters, at most {MAX_LENGTH} are accepted"):
        compile_pattern("a" * (MAX_LENGTH + 1))


def test_a_single_byte_is_no_part_of_gos_syntax() -> None:
    with pytest.raises(CelCompileError, match="invalid escape sequence"):
        compile_expression(r"'\u00e9'.find(r'\C') == ''")
    assert compile_expression(r"'a.C'.matches(r'\Q.C\E')").matches(DEVICE)


def test_what_compiling_costs_is_stated_by_the_estimate() -> None:
    assert pattern_cost("a") < 3_000
    assert pattern_cost(r"\pL{3}") > 100_000
    assert pattern_cost("[" * 3_000) > 100_000
    frame = EvaluationFrame(None, 0, ())
    charge_pattern(frame, r"\pL{3}")
    assert frame.work >= pattern_cost(r"\pL{3}")


def test_cached_patterns_are_bounded_in_bytes_and_re2_caches_none_of_its_own() -> None:
    for number in range(400):
        compile_pattern(f"^a{number}.*b$")
        compile_pattern(f"x{number}.{{100}}")
    assert 0 < KEPT_SMALL.bytes_kept + KEPT_LARGE.bytes_kept <= CACHE_BYTES
    assert re2._Regexp._make.cache_info().currsize == 0
    assert len(KEPT_LARGE) < 400


@pytest.mark.parametrize(("repeated", "count", "kept"), [("", 400, KEPT_SMALL), (".{100}", 60, KEPT_LARGE)])
def test_a_namespace_cannot_drive_the_patterns_of_others_out(
    repeated: str, count: int, kept: FairCache[str, Pattern], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither with constant ones nor with those that are computed."""
    monkeypatch.setattr(KEPT_SMALL, "max_bytes", KEPT_SMALL.max_bytes // 8)
    compile_expression(f"device.driver.matches('^victim{repeated}')", owner="victim").matches(DEVICE)
    compile_expression(f"device.driver.matches('^victims{repeated}' + '')", owner="victim").matches(DEVICE)
    for number in range(count):
        pattern = f"x{number}{repeated}"
        compile_expression(f"device.driver.matches('{pattern}') && [1].exists(x, x == 1)", owner="evil").matches(DEVICE)
        compile_expression(f"device.driver.matches('{pattern}' + 'y')", owner="evil").matches(DEVICE)
    assert kept._bytes.get("evil", 0) > kept.max_bytes // 4
    assert f"^victim{repeated}" in kept
    assert f"^victims{repeated}" in kept


def test_a_constant_pattern_that_is_compiled_again_is_its_namespaces() -> None:
    program = compile_expression("device.driver.matches('^again-[a-z]+x?$')", owner="ours")
    assert program.fast_path is not None
    before = KEPT_SMALL._bytes.get("ours", 0)
    KEPT_SMALL.drop("^again-[a-z]+x?$")
    assert KEPT_SMALL._bytes.get("ours", 0) < before
    program.matches(DEVICE)
    assert KEPT_SMALL._bytes.get("ours", 0) == before


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The patterns that RE2 compiled, in order."""
    patterns: list[str] = []
    original = re2.compile

    def compile_one(pattern: str, options: object) -> object:
        patterns.append(pattern)
        return original(pattern, options)

    monkeypatch.setattr(re2, "compile", compile_one)
    return patterns


def test_evicted_large_patterns_are_charged_to_the_call_each_time_they_are_compiled_again(
    compiled: list[str],
) -> None:
    patterns = [f"^more-{number}-.{{545}}$" for number in range(30)]
    programs = [compile_expression(f"!device.driver.matches('{pattern}')", owner="evil") for pattern in patterns]
    compiled.clear()
    share = 2_000_000
    budget = Budget(share)
    with pytest.raises(CelBudgetError, match="the call has spent its budget for expressions"):
        all(program.matches(DEVICE, budget=budget) for program in programs * 40)
    assert 5 < len(compiled) <= 1 + share // (pattern_cost(patterns[0]) // 2)


def test_a_loop_that_compiles_its_patterns_again_ends_at_the_budget_of_the_call(
    compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patterns, "LARGE_PATTERNS", FairCache(1024 * 1024, parts=1))
    terms = " && ".join(f"!device.driver.matches('^loop-{number}-.{{545}}$')" for number in range(3))
    program = compile_expression(f"lists.range(200).all(i, {terms})", owner="evil")
    compiled.clear()
    share = 2_000_000
    with pytest.raises(CelBudgetError, match="the compilation of a regular expression was not begun"):
        program.matches(DEVICE, budget=Budget(share))
    assert 5 < len(compiled) <= 1 + share // (pattern_cost("^loop-0-.{545}$") // 2)
    compiled.clear()
    with pytest.raises(CelCostError, match="visits more than"):
        program.matches(DEVICE)
    assert 5 < len(compiled) <= WORK_LIMIT // pattern_cost("^loop-0-.{545}$")


def test_a_pattern_is_charged_only_if_it_is_compiled_again(compiled: list[str]) -> None:
    program = compile_expression("device.driver.matches('^once-[a-z]+x?$')", owner="ours")
    assert program.fast_path is not None
    compiled.clear()
    budget = Budget()
    program.matches(DEVICE, budget=budget)
    assert budget.remaining == Budget().remaining - program.fast_path_cost
    KEPT_SMALL.drop("^once-[a-z]+x?$")
    before = budget.remaining
    program.matches(DEVICE, budget=budget)
    assert compiled == ["^once-[a-z]+x?$"]
    assert before - budget.remaining >= pattern_cost("^once-[a-z]+x?$") // 2


def test_a_computed_pattern_is_charged_once_cached_or_not() -> None:
    program = compile_expression("device.driver.matches('^twice-' + '[a-z]+$')", owner="ours")
    KEPT_SMALL.drop("^twice-[a-z]+$")
    compiling, keeping = Budget(), Budget()
    program.matches(DEVICE, budget=compiling)
    program.matches(DEVICE, budget=keeping)
    assert compiling.remaining == keeping.remaining < Budget().remaining - pattern_cost("^twice-[a-z]+$") // 2


_PLAIN = (
    *("a", "k", "\u00e9", "\u4e00", "\U0001f600", ".", r"\d", r"\W", r"\pL", r"\PN", r"\p{Greek}", r"\p{^Lu}"),
    *("[[:alpha:]_]", r"\Qa.b\E", r"\x41", r"\.", "^", r"\b"),
)


def _random_pattern(source: random.Random, depth: int) -> str:
    def one() -> str:
        if depth and source.random() < 0.4:
            return source.choice(["(", "(?:", "(?i:"]) + _random_pattern(source, depth - 1) + ")"
        low = source.randrange(0x21, source.choice([0x7F, 0x7FF, 0xD7FF]))
        high = low + source.choice([0, 3, 60, 2000])
        span = rf"\x{{{low:x}}}-\x{{{high:x}}}"
        return source.choice((*_PLAIN, f"[{span}]", f"[^{span}a-z]"))

    repeats = ["", "", "", "*", "+", "?", "{3}", "{2,5}", "{0,7}", "{4,}", "*?"]
    rows = (
        "".join(one() + source.choice(repeats) for _ in range(source.randint(1, 4)))
        for _ in range(source.randint(1, 2))
    )
    return "|".join(rows)


def test_the_estimate_of_a_pattern_is_an_upper_bound() -> None:
    source = random.Random(20)
    compared = 0
    while compared < 400:
        pattern = source.choice(["", "(?i)", "(?s)"]) + _random_pattern(source, source.randint(0, 2))
        if estimated_size(pattern) > MAX_INSTRUCTIONS:
            continue
        try:
            size = compile_pattern(pattern).size
        except CelRuntimeError:
            continue
        compared += 1
        assert size <= estimated_size(pattern), pattern


def test_long_versions_are_not_cached() -> None:
    text = "1.2.3-" + "a." * 2000 + "b"
    assert parse_semver(text) is not parse_semver(text)
    assert parse_semver("1.2.3-rc.1") is parse_semver("1.2.3-rc.1")


def test_a_native_function_charges_its_work() -> None:
    frame = EvaluationFrame(None, 0, ())
    NativeFunction("examine", len, len).call(frame, "abc")
    assert frame.work == 3
