"""Expressions that want to take the scheduler's time or memory: each ends by a counted limit, never by luck."""

import pytest

from app.cel import (
    CelCompileError,
    CelCostError,
    CelDeadlineError,
    CelRuntimeError,
    compile_expression,
    prepare_device,
)
from app.cel.cost import COST_LIMIT, WORK_LIMIT, Frame

DEVICE = prepare_device("gpu.example.com", {}, {}, allow_multiple_allocations=False)


def bound(depth: int, first: str, again: str, last: str) -> str:
    """Bind v0 to `first`, each next variable to `again` of the one before it, and evaluate `last` of the final one."""
    names = [f"v{place}" for place in range(depth)]
    opened = [
        f"cel.bind({name}, {again.format(names[place - 1]) if place else first}, " for place, name in enumerate(names)
    ]
    return "".join(opened) + last.format(names[-1]) + ")" * depth


REFUSED_AT_ONCE = {
    "parentheses": "(" * 4000 + "true" + ")" * 4000,
    "brackets": "[" * 2000 + "]" * 2000,
    "braces": "{1:" * 1500 + "1" + "}" * 1500,
    "ternaries": "true ? true : " * 600 + "true",
    "sums": "1" + " + 1" * 2000 + " == 1",
    "selections": "device" + ".a" * 3000,
    "indexes": "[1]" + "[0]" * 2000 + " == 1",
    "calls": "dyn(" * 2000 + "1" + ")" * 2000,
    "methods": "'a'" + ".trim()" * 1400 + " == 'a'",
    "macros": "[1].all(x, " * 300 + "true" + ")" * 300,
    "bindings": bound(200, "1", "{0}", "{0} == 1"),
    "optional chains": "optional.of(1)" + ".optMap(x, x)" * 300 + ".hasValue()",
    "unfinished string": '"""' + "\\" * 8000,
    "quotes": '"' * 9999,
    "length": "true" + " " * 11000,
    "lone surrogates": "'" + "\ud800" * 4000 + "'",
    "huge number": "9" * 9000 + " == 1",
    "bad pattern": "'a'.matches('" + "(" * 5000 + "')",
    "huge repetition": "'a'.matches('((a{1000}){1000}){1000}')",
    "deep pattern": f"'a'.matches('{'(' * 2000}a{')*' * 2000}')",
    "map keys": "{" * 2000,
    "huge double": "1e999999999 > 0.0",
    "huge hexadecimal": "0x" + "F" * 9000 + " == 1",
    "huge conversion": "int('" + "9" * 9000 + "') == 1",
    "huge duration": "duration('" + "9" * 9000 + "h') == duration('1h')",
    "mixed prefixes": "!-" * 4000 + "true",
    "bad escapes": "'" + "\\q" * 4000 + "'",
    "bad escapes in bytes": "b'" + "\\u0041" * 1500 + "' == b''",
    "conditionals in conditions": "(" * 59 + "true" + " ? true : true)" * 59 + " ? 1" * 100,
    "member calls": "x" + ".f()" * 2400,
    "nothing but dots": "." * 10_000,
    "nothing but commas": "[" + "," * 9_000 + "]",
    "optional selections": "device" + ".?a" * 2000,
    "many names": " ".join(f"a{place}" for place in range(1500)),
}


@pytest.mark.parametrize("expression", REFUSED_AT_ONCE.values(), ids=REFUSED_AT_ONCE.keys())
def test_what_is_too_deep_too_long_or_malformed_is_a_compile_error(expression: str) -> None:
    with pytest.raises(CelCompileError):
        compile_expression(expression)


def test_types_that_double_with_each_variable_are_refused() -> None:
    with pytest.raises(CelCompileError, match="the types in the expression are too large"):
        compile_expression(bound(40, "{'a': 'a'}", "{{{0}: {0}}}", "{0}.size() == 1"))


ACCEPTED = {
    "many alternatives": " || ".join(f"device.driver == 'd{place}'" for place in range(300)) + " || true",
    "many prefixes": "!" * 8000 + "true",
    "many negations of a number": "-" * 8001 + "1 < 0",
    "long list": f"2 in [{', '.join(['1'] * 3000)}, 2]",
    "long string": "'" + "a" * 10_000 + "' != ''",
    "many comments": "//\n" * 3000 + "true",
    "many time units": f"duration('{'1ns' * 3000}') == duration('3us')",
    "many octets": f"!isIP('{'1.' * 4000}')",
    "many colons": f"!isIP('{'1:' * 4000}')",
    "many slashes": f"isURL('{'/' * 9000}')",
    "many labels": f"format.dns1123Subdomain().validate('{'a-' * 2000}').hasValue()",
    "many segments": f"url('/{'%41' * 3000}').getEscapedPath().size() == 9001",
    "many parameters": f"url('/?{'a=b&' * 2000}').getQuery()['a'].size() == 2000",
    "many digits of a quantity": f"isQuantity('{'1' * 400}') || true",
    "many dots of a version": f"!isSemver('{'1.' * 4000}')",
    "many dashes of a version": f"isSemver('1.0.0-{'-' * 4000}') || true",
    "unfinished clauses": f"'{'%' * 8000}'.size() == 8000",
    "many escapes": "'" + "\\x41" * 2400 + "'.size() == 2400",
    "many characters of four bytes": "'" + "\\U0001F600" * 900 + "'.size() == 900",
    "patterns over long texts": bound(18, "'aaaaaaaaaa'", "{0} + {0}", "!{0}.matches('(a|aa)*b')"),
    "pattern with a bad name among backtrackers": "'" + "a" * 3000 + "'.matches('^(a*)*b$') == false",
}


@pytest.mark.parametrize("expression", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_long_but_flat_expressions_are_evaluated(expression: str) -> None:
    assert compile_expression(expression).matches(DEVICE)


STOPPED = {
    "nested loops": "lists.range(2000).all(x, lists.range(2000).all(y, x * y >= 0))",
    "three nested loops over one list": (
        "cel.bind(l, lists.range(1000), l.exists_one(a, l.exists_one(b, l.exists_one(c, false))))"
    ),
    "string doubling": bound(40, "'aaaaaaaaaa'", "{0} + {0}", "{0} == ''"),
    "list doubling": bound(40, "[1]", "{0} + {0}", "{0} == []"),
    "bytes doubling": bound(40, "b'aaaaaaaaaa'", "{0} + {0}", "{0} == b''"),
    "replace bomb": bound(10, "'aaaaaaaaaa'", "{0}.replace('a', 'aaaaaaaaaa')", "{0} == ''"),
    "join bomb": bound(20, "'aaaaaaaaaa'", "[{0}, {0}, {0}].join({0})", "{0} == ''"),
    "format bomb": bound(20, "'aaaaaaaaaa'", "'%s%s%s'.format([{0}, {0}, {0}])", "{0} == ''"),
    "shared tree compared": bound(40, "[1]", "[{0}, {0}]", "{0} == [{0}, {0}][0]"),
    "shared tree shown": bound(40, "[1]", "[{0}, {0}]", "'%s'.format([{0}]) == ''"),
    "shared tree visited": bound(40, "[dyn(1)]", "[{0}, {0}]", "{0}.includes(1)"),
    "shared tree flattened": bound(30, "[dyn(1)]", "[dyn({0}), dyn({0})]", "{0}.flatten(30) == []"),
    "range": "lists.range(1000000000).size() == 1",
    "long range": "lists.range(999999).map(x, lists.range(999999)).size() == 1",
    "distinct": "lists.range(5000).distinct().size() == 1",
    "sets": "sets.contains(lists.range(5000), lists.range(5000))",
    "sorting": "lists.range(900).sortBy(x, -x).size() == 900",
    "split to nothing": bound(20, "'aaaaaaaaaa'", "{0} + {0}", "{0}.split('').size() == 1"),
    "maps that share": bound(40, "{'a': dyn(1)}", "{{'a': dyn({0}), 'b': dyn({0})}}", "{0} == {0}"),
    "optional maps of optional maps": "optional.of(1)" + ".optMap(x, x)" * 45 + ".hasValue()",
    "three nested quantifiers": "[1, 2, 3].all(a, lists.range(700).all(b, lists.range(700).exists(c, c == 699)))",
    "failing loop": "lists.range(200000).map(x, x / 0).size() == 1 || true",
    "failing count": "lists.range(300000).exists_one(x, x / 0 == 1) || true",
    "map of many": "lists.range(300000).transformMapEntry(i, x, {x: x}).size() == 1",
    "sum of lists": "lists.range(100000).map(x, [x] + lists.range(100)).size() == 1",
    "intersection": "sets.intersects(lists.range(3000), lists.range(3000).map(x, -x - 1))",
    "equivalence": "sets.equivalent(lists.range(2000), lists.range(2000))",
    "unequal elements": bound(20, "[dyn(1.5)]", "{0} + {0}", "{0} == {0} && {0}.indexOf(2.5) == -1"),
    "strings in a list": bound(16, "['aaaaaaaaaaaaaaaa']", "{0} + {0}", "{0}.join(',').split(',').sort() == []"),
    "texts of texts": bound(12, "'aaaaaaaaaa'", "'%s'.format([[{0}, {0}, {0}, {0}]])", "{0} == ''"),
    "bytes of texts": bound(22, "'aaaaaaaaaa'", "{0} + {0}", "bytes({0}).size() == 1"),
    "find everything": bound(17, "'aaaaaaaaaa'", "{0} + {0}", "{0}.findAll('a').size() == 1"),
}


@pytest.mark.parametrize("expression", STOPPED.values(), ids=STOPPED.keys())
def test_what_grows_without_bound_is_stopped_by_the_cost_the_work_or_the_size_limit(expression: str) -> None:
    program = compile_expression(expression)
    with pytest.raises(CelCostError):
        program.matches(DEVICE)


def test_there_are_at_least_sixty_hostile_expressions() -> None:
    assert len(REFUSED_AT_ONCE) + len(ACCEPTED) + len(STOPPED) >= 60


def test_a_cost_error_is_not_absorbed_by_a_logical_operator() -> None:
    program = compile_expression("lists.range(2000).all(x, lists.range(2000).all(y, true)) || true")
    with pytest.raises(CelCostError):
        program.matches(DEVICE)


def test_an_error_of_a_bound_variable_is_computed_once_however_often_it_is_used() -> None:
    program = compile_expression(bound(40, "1 / 0 == 1", "{0} || {0}", "{0}"))
    with pytest.raises(CelRuntimeError, match="division by zero") as caught:
        program.matches(DEVICE)
    assert not isinstance(caught.value, CelCostError)


def test_an_extreme_quantity_is_refused_when_evaluated() -> None:
    with pytest.raises(CelRuntimeError, match="exponent"):
        compile_expression("quantity('1e2147483647').isInteger()").matches(DEVICE)


@pytest.mark.parametrize("expression", STOPPED.values(), ids=STOPPED.keys())
def test_the_deadline_stops_any_evaluation_within_two_hundred_further_steps(
    expression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps are rounds of loops and elements looked at one by one; a single operation on many elements asks before it begins."""
    begun: list[bool] = []
    spent_after: list[int] = []
    original = Frame.spend

    def spend(frame: Frame, elements: int) -> None:
        if begun:
            spent_after.append(elements)
        original(frame, elements)

    def deadline() -> bool:
        if not begun:
            begun.append(True)
            return False
        return True

    monkeypatch.setattr(Frame, "spend", spend)
    with pytest.raises(CelCostError):
        compile_expression(expression).matches(DEVICE, deadline=deadline)
    assert len(spent_after) <= 200


def test_the_deadline_is_asked_every_hundred_rounds_and_stops_the_evaluation() -> None:
    asked: list[int] = []

    def deadline() -> bool:
        asked.append(1)
        return len(asked) == 3

    program = compile_expression("lists.range(100000).all(x, true)")
    with pytest.raises(CelDeadlineError):
        program.matches(DEVICE, deadline=deadline)
    assert len(asked) == 3


def test_a_deadline_that_is_never_reached_changes_nothing() -> None:
    program = compile_expression("lists.range(1000).all(x, x >= 0)")
    assert program.matches(DEVICE, deadline=lambda: False)
    assert program.evaluate(DEVICE, deadline=lambda: False) == program.evaluate(DEVICE)


def test_the_limits_are_those_the_api_promises() -> None:
    assert COST_LIMIT == 1_000_000
    assert WORK_LIMIT >= COST_LIMIT
