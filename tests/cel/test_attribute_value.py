import pytest
from dra_extender.cel.device import Attribute, prepare_device
from dra_extender.cel.errors import CelCompileError, CelRuntimeError
from dra_extender.cel.program import ProgramCache, compile_expression

DRIVER = "gpu.example.com"
DEVICE = prepare_device(
    DRIVER,
    {"model": Attribute(string_value="a100"), "versions": Attribute(version_values=("1.2.3", "2.0.0+b"))},
    {},
    allow_multiple_allocations=False,
)


def value_of(expression: str) -> Attribute:
    return compile_expression(expression, derived=True).attribute(DEVICE)


@pytest.mark.parametrize(
    ("expression", "attribute"),
    [
        ("true", Attribute(bool_value=True)),
        ("1 + 2", Attribute(int_value=3)),
        ("device.driver + '!'", Attribute(string_value=f"{DRIVER}!")),
        ("semver('v1.2', true)", Attribute(version_value="1.2.0")),
        ("[true, false]", Attribute(bool_values=(True, False))),
        ("lists.range(3)", Attribute(int_values=(0, 1, 2))),
        ("'a-b'.split('-')", Attribute(string_values=("a", "b"))),
        (f"device.attributes['{DRIVER}'].versions", Attribute(version_values=("1.2.3", "2.0.0+b"))),
        (f"device.attributes['{DRIVER}'].model", Attribute(string_value="a100")),
        ("[]", Attribute(string_values=())),
    ],
)
def test_a_scalar_or_a_list_of_scalars_is_an_attribute(expression: str, attribute: Attribute) -> None:
    assert value_of(expression) == attribute


@pytest.mark.parametrize("expression", ["1u", "1.5", "b'a'", "[[1]]", "{'a': 1}", "duration('1s')", "[1u]", "null"])
def test_what_can_never_be_an_attribute_is_not_compiled(expression: str) -> None:
    with pytest.raises(CelCompileError, match="must evaluate to a primitive scalar"):
        compile_expression(expression, derived=True)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("dyn(1.5)", "unsupported CEL return type: double"),
        ("[dyn(1), dyn('a')]", "expected list element at index 1 to be int, got string"),
        ("dyn([1u])", "unsupported list element type: uint"),
        ("dyn(optional.of([1]))", "unsupported CEL return type: list"),
        ("device.attributes['x'].y", "no such key"),
    ],
)
def test_a_value_of_another_type_or_a_mixed_list_is_an_error(expression: str, reason: str) -> None:
    with pytest.raises(CelRuntimeError, match=reason):
        value_of(expression)


def test_selectors_and_derived_attributes_of_the_same_text_are_different_programs() -> None:
    programs = ProgramCache()
    assert programs.compile("1", derived=True).attribute(DEVICE) == Attribute(int_value=1)
    with pytest.raises(CelCompileError, match="must evaluate to bool"):
        programs.compile("1")
