"""Which attributes can decide what an expression says of a device."""

import pytest
from dra_extender.cel.analysis.attributes import read_attributes
from dra_extender.cel.device import Attribute, prepare_device
from dra_extender.cel.errors import CelRuntimeError
from dra_extender.cel.program import ProgramCache, compile_expression
from dra_extender.cel.syntax.parser import parse
from hypothesis import given
from hypothesis import strategies as st

DRIVER = "d.example.com"
A = f'device.attributes["{DRIVER}"]'


def read_by(expression: str) -> frozenset[str] | None:
    return read_attributes(parse(expression))


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ('device.driver == "x"', set()),
        ("device.allowMultipleAllocations || true", set()),
        (f'{A}.model == "a" && has({A}.size)', {"model", "size"}),
        (f'{A}["model"] == "a" || {A}.?size.orValue(1) == 2', {"model", "size"}),
        (f"{A}.list.exists(each, each == 1)", {"list"}),
        (f'{A}.model.lowerAscii().startsWith("x")', {"model"}),
    ],
)
def test_attributes_under_constant_names_are_found(expression: str, names: set[str]) -> None:
    assert read_by(expression) == frozenset(f"{DRIVER}/{name}" for name in names)


def test_a_capacity_is_no_attribute_that_others_would_be_mistaken_for() -> None:
    expression = 'device.capacity["x.example.com"].memory.compareTo(quantity("1Gi")) > 0'
    assert read_by(expression) == frozenset({"x.example.com/memory"})


def test_the_domain_of_the_device_itself_stands_for_any() -> None:
    assert read_by("device.attributes[device.driver].model == 'a'") == frozenset({"*/model"})


@pytest.mark.parametrize(
    "expression",
    [
        f'"model" in {A}',
        'device.attributes.exists(domain, domain == "x")',
        f"cel.bind(mine, {A}, mine.model == 'a')",
        f'{A} == device.attributes["other.example.com"]',
        f'{A}[device.driver] == "a"',
        "[device].exists(each, each.driver == 'a')",
    ],
)
def test_what_takes_attributes_as_a_whole_may_read_any(expression: str) -> None:
    assert read_by(expression) is None


def test_a_program_tells_what_it_reads_and_counts_the_bytes_of_the_names() -> None:
    both = compile_expression(f'{A}.model == "a" && {A}.size > 1')
    assert both.reads == frozenset({f"{DRIVER}/model", f"{DRIVER}/size"})
    assert compile_expression(f'"model" in {A}').reads is None
    long = "n" * 5_000
    assert (
        compile_expression(f'{A}["{long}"] == "a"').size
        > compile_expression(f'{A}["n"] == "a"').size + 3 * len(long) // 2
    )


EXPRESSIONS = (
    f'{A}.model == "a"',
    f"has({A}.model) && {A}.size > 1",
    f'{A}.?model.orValue("b") == "b"',
    f'{A}.model == "a" ? {A}.size == 1 : {A}.other == "x"',
    'device.attributes[device.driver].model.startsWith("a")',
    f'{A}.size + 1 == 2 || {A}.model == "a"',
)
values = st.one_of(
    st.builds(Attribute, string_value=st.sampled_from(("a", "b", "x"))),
    st.builds(Attribute, int_value=st.integers(0, 2)),
)
devices = st.dictionaries(st.sampled_from(("model", "size", "other", f"{DRIVER}/model", "z.example.com/q")), values)


def said(expression: str, attributes: dict[str, Attribute]) -> str:
    device = prepare_device(DRIVER, attributes, {}, False)
    try:
        return str(ProgramCache().compile(expression).matches(device))
    except CelRuntimeError as problem:
        return str(problem)


@given(expression=st.sampled_from(EXPRESSIONS), device=devices, data=st.data())
def test_other_values_of_what_is_not_read_change_nothing(
    expression: str, device: dict[str, Attribute], data: st.DataObject
) -> None:
    names = read_by(expression)
    assert names is not None
    bare = {name.rpartition("/")[2] for name in names}
    other = {name: value if name.rpartition("/")[2] in bare else data.draw(values) for name, value in device.items()}
    assert said(expression, device) == said(expression, other)
