"""What repeats is charged for what it takes: a count of instructions bounds the time of an evaluation on any machine."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

import pytest
from dra_extender.cel.device import Attribute, prepare_device
from dra_extender.cel.environment import FUNCTIONS
from dra_extender.cel.errors import CelRuntimeError
from dra_extender.cel.program import compile_expression
from dra_extender.cel.types.declarations import Overload
from dra_extender.cel.types.types import UNSPECIFIC, Type

from tests.hostile.cel_calls import call
from tests.support.cel.instructions import INSTRUCTIONS_PER_UNIT, evaluate_counting, units_of

MOST: Final = 1.2 * INSTRUCTIONS_PER_UNIT
"""The most instructions for each unit that is charged."""
COPIES: Final = 4
DEVICE = prepare_device(
    "gpu.example.com",
    {"model": Attribute(string_value="A100"), "count": Attribute(int_value=7)},
    {"memory": "40Gi"},
    allow_multiple_allocations=True,
)
VALUES: Final[Mapping[str, str]] = {
    "number": "7",
    "unsigned": "5u",
    "double": "1.5",
    "flag": "device.allowMultipleAllocations",
    "text": "'abcabcabcabd'",
    "empty": "''",
    "bytes": "b'abcabcabd'",
    "span": "duration('3661.5s')",
    "moment": "timestamp('2024-02-29T12:34:56.789Z')",
    "amount": "quantity('40Gi')",
    "version": "semver('550.54.15')",
    "address": "ip('fe80::1:2:3')",
    "network": "cidr('fe80::/10')",
    "place": "url('https://user@a.example.com:80/b/c?d=e&f=g#h')",
    "form": "format.dns1123Label()",
    "numbers": "lists.range(10)",
    "unsigneds": "lists.range(10).map(i, uint(i))",
    "doubles": "lists.range(10).map(i, double(i))",
    "flags": "lists.range(10).map(i, i > 5)",
    "texts": "lists.range(10).map(i, 'abc' + string(i))",
    "byte_texts": "lists.range(10).map(i, bytes('abc' + string(i)))",
    "spans": "lists.range(10).map(i, duration(string(i) + 's'))",
    "moments": "lists.range(10).map(i, timestamp(i))",
    "lists_of_numbers": "lists.range(10).map(i, [i, i])",
    "optionals": "lists.range(10).map(i, optional.of(i))",
    "entries": "lists.range(10).transformMapEntry(i, v, {'abc' + string(i): v})",
    "present": "optional.of(7)",
    "absent": "optional.none()",
    "present_list": "optional.of([1, 2, 3, 4, 5, 6, 7, 8])",
    "present_map": "optional.of({'a': 1})",
}
"""The variables of the terms."""
OF_TYPE: Final[Mapping[str, tuple[str, ...]]] = {
    "int": ("x", "number"),
    "uint": ("unsigned",),
    "double": ("double",),
    "bool": ("flag",),
    "string": ("text", "empty"),
    "bytes": ("bytes",),
    "duration": ("span",),
    "timestamp": ("moment",),
    "type": ("type(x)",),
    "map": ("entries",),
    "kubernetes.Quantity": ("amount",),
    "kubernetes.Semver": ("version",),
    "net.IP": ("address",),
    "net.CIDR": ("network",),
    "kubernetes.URL": ("place",),
    "kubernetes.NamedFormat": ("form",),
    "null_type": ("null",),
}
"""The arguments for parameters of a type."""
OF_LIST: Final[Mapping[str, tuple[str, ...]]] = {
    "int": ("numbers",),
    "uint": ("unsigneds",),
    "double": ("doubles",),
    "bool": ("flags",),
    "string": ("texts",),
    "bytes": ("byte_texts",),
    "duration": ("spans",),
    "timestamp": ("moments",),
    "list": ("lists_of_numbers",),
    "optional_type": ("optionals",),
}
OF_OPTIONAL: Final[Mapping[str, tuple[str, ...]]] = {"list": ("present_list",), "map": ("present_map",)}
TERMS: Final = (
    *("x", "device", "text", "device.driver", "device.attributes['gpu.example.com'].model", "[x]", "[x, x, x, x]"),
    *("{x: x}", "{'a': x, 'b': x}", "[?absent, ?present]", "{?'a': present}", "entries.abc3", "entries['abc3']"),
    *("entries.?abc3", "entries.?none", "has(entries.abc3)", "numbers[3]", "numbers[?30]", "dyn(numbers)[x]"),
    *("has(device.attributes['gpu.example.com'].none)", "dyn(entries).abc3", "present_map.a.value()"),
    *("(x == 0 ? 1 : x == 1 ? 2 : 3)", "(flag && x >= 0)", "(x >= 0 && x >= 0 && x >= 0)", "(x < 0 || flag)"),
    *(
        "x == 1",
        "dyn(x) == 1.0",
        "text in entries",
        "text == 'abc'",
        "text == text",
        "amount == amount",
        "numbers == numbers",
    ),
    *("texts == texts", "entries == entries", "present == present", "lists_of_numbers == lists_of_numbers"),
    *("x in [1, 2, 3]", "amount in [amount]", "type(x) == int", "[] == []", "address == address"),
    *("(x / 0 == 1 || true)", "(entries.none == 1 || true)", "(numbers[20] == 1 || true)", "(dyn(x) < 'a' || true)"),
    *("(dyn(x) + 'a' == 'a' || true)", "(absent.value() == 1 || true)", "(quantity(text) == amount || true)"),
    *("[x].all(i, true)", "numbers.all(i, i >= 0)", "numbers.exists(i, i < 0)", "numbers.exists_one(i, i == 3)"),
    *("numbers.all(i, v, i == v)", "entries.all(k, true)", "entries.all(k, v, v >= 0)", "numbers.map(i, i)"),
    *("numbers.map(i, i > 3, i)", "numbers.filter(i, i > 3)", "texts.all(i, i.startsWith('a'))", "[x].map(i, i)"),
    *("numbers.transformList(i, v, v)", "entries.transformMap(k, v, v)", "[x].sortBy(i, i)"),
    *("numbers.transformMapEntry(i, v, {v: v})", "numbers.sortBy(i, -i)", "present.optMap(i, i)"),
    *(
        "present.optFlatMap(i, present)",
        "absent.optMap(i, i)",
        "cel.bind(z, x, z + z)",
        "numbers.exists(i, i / 0 == 1)",
    ),
    *("text.matches('^[a-c]+$')", "text.findAll('b')", "'%s %d %.3f'.format([text, x, double])", "string(x) + text"),
    *("string(x).contains('z') == false", "!string(x).contains('z')", "quantity('1Gi').add(x) == amount"),
    *("int('123' + string(x))", "timestamp('2024-02-29T12:34:56.78' + string(x % 10) + 'Z')", "bool(string(flag))"),
    *("ip('10.0.0.' + string(x % 250))", "string(ip('10.0.0.' + string(x % 250)))", "semver('1.2.' + string(x))"),
)
"""Macros, literals, selections and calls of what the declarations of functions do not say."""


def _arguments(kind: Type) -> tuple[str, ...]:
    """Return the arguments for a parameter; empty where a selector cannot make any."""
    if kind.kind in UNSPECIFIC:
        return ("x", "text")
    if kind.name in {"list", "optional_type"}:
        of, other = (OF_LIST, ("numbers", "texts")) if kind.name == "list" else (OF_OPTIONAL, ("present", "absent"))
        return of.get(kind.parameters[0].name, other)
    return OF_TYPE.get(kind.name, ())


def _calls(name: str, item: Overload) -> Iterator[str]:
    keyed = any(kind.name == "map" or "map" in {each.name for each in kind.parameters} for kind in item.parameters)
    choices = [("text",) if keyed and kind.kind in UNSPECIFIC else _arguments(kind) for kind in item.parameters]
    for turn in range(max(map(len, choices), default=1)):
        if all(choices):
            yield call(name, [each[turn % len(each)] for each in choices], member=item.member)


DECLARED: Final = tuple(
    dict.fromkeys(term for name, each in FUNCTIONS.items() for item in each.overloads for term in _calls(name, item))
)


def _repeated(term: str, rounds: int, opened: bool) -> str:
    """Return a loop over copies of a term; with `opened`, run-time types choose the overloads."""
    variables = {name: value for name, value in VALUES.items() if name in term}
    bound = "".join(f"cel.bind({name}, {f'dyn({value})' if opened else value}, " for name, value in variables.items())
    body = f"[{', '.join([term] * COPIES)}].size() > 0"
    return f"{bound}lists.range({rounds}).all(x, {body} || true){')' * len(variables)}"


def _instructions_per_unit(term: str, opened: bool) -> float:
    """Return the instructions for each unit of a further round, when everything is bound and every overload was chosen once."""
    counts: list[tuple[int, int, int]] = []
    for rounds in (1, 2):
        program = compile_expression(_repeated(term, rounds, opened)).costed_program()
        with suppress(CelRuntimeError):
            program.evaluate(program.frame(DEVICE, None))
        instructions, frame = evaluate_counting(program, DEVICE)
        counts.append((instructions, frame.cost, frame.work))
    (instructions, cost, work), (more_instructions, more_cost, more_work) = counts
    return (more_instructions - instructions) / units_of(more_cost - cost, more_work - work)


@pytest.mark.parametrize("term", [*DECLARED, *TERMS])
def test_each_unit_stands_for_few_instructions(term: str) -> None:
    assert _instructions_per_unit(term, opened=False) <= MOST


@pytest.mark.parametrize(
    "term", ["x + number", "text < text", "text.contains(text)", "size(numbers)", "double == number"]
)
def test_each_unit_stands_for_few_instructions_where_run_time_types_choose_the_overload(term: str) -> None:
    assert _instructions_per_unit(term, opened=True) <= MOST


def test_every_function_that_a_selector_can_call_is_counted() -> None:
    uncalled = {
        kind.name
        for each in FUNCTIONS.values()
        for item in each.overloads
        for kind in item.parameters
        if not _arguments(kind)
    }
    assert all(name.startswith("kubernetes.authorization.") for name in uncalled)
    assert len(DECLARED) > 200


def test_many_terms_in_a_row_are_charged_for_what_they_take() -> None:
    terms = " && ".join(["string(x).contains('z') == false"] * 30)
    program = compile_expression(f"lists.range(30).all(x, {terms})").costed_program()
    instructions, frame = evaluate_counting(program, DEVICE)
    assert instructions <= MOST * units_of(frame.cost, frame.work)


def test_what_is_computed_when_compiling_is_not_charged_in_each_round() -> None:
    def work(body: str) -> int:
        return evaluate_counting(compile_expression(f"[1, 2, 3].all(x, {body})").costed_program(), DEVICE)[1].work

    assert work("x < 'abcabc'.size()") == work("x < 6")
