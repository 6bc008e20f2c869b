import pytest
from dra_extender.cel.device import Attribute, attribute_value, prepare_device
from dra_extender.cel.errors import CelRuntimeError
from dra_extender.cel.program import compile_expression

DRIVER = "gpu.example.com"


def matches(expression: str, attributes: dict[str, Attribute], capacity: dict[str, str] | None = None) -> bool:
    device = prepare_device(DRIVER, attributes, capacity or {}, allow_multiple_allocations=True)
    return compile_expression(expression).matches(device)


@pytest.mark.parametrize(
    "attribute", [Attribute(), Attribute(version_value="1.2"), Attribute(version_values=("1.0.0", "v1"))]
)
def test_an_attribute_without_a_usable_value_fails_every_evaluation_even_if_not_mentioned(attribute: Attribute) -> None:
    with pytest.raises(CelRuntimeError, match="attribute broken: "):
        matches("true", {"fine": Attribute(int_value=1), "broken": attribute})


def test_a_device_with_a_defect_can_be_prepared() -> None:
    device = prepare_device(DRIVER, {"broken": Attribute()}, {}, allow_multiple_allocations=False)
    assert device.defect is not None


def test_a_name_without_a_domain_belongs_to_the_driver_and_is_split_at_the_first_slash() -> None:
    attributes = {"plain": Attribute(int_value=1), "other.example.com/a/b": Attribute(int_value=2)}
    assert matches(f"device.attributes['{DRIVER}'].plain == 1", attributes)
    assert matches("device.attributes['other.example.com']['a/b'] == 2", attributes)


def test_the_qualified_spelling_of_a_name_wins() -> None:
    qualified, plain = Attribute(int_value=1), Attribute(int_value=2)
    for attributes in ({f"{DRIVER}/a": qualified, "a": plain}, {"a": plain, f"{DRIVER}/a": qualified}):
        assert matches(f"device.attributes['{DRIVER}'].a == 1", attributes)


def test_lists_go_before_scalars_and_an_empty_list_counts() -> None:
    both = Attribute(int_value=1, string_values=())
    assert attribute_value(both) == ()
    assert matches(f"device.attributes['{DRIVER}'].both.size() == 0", {"both": both})


def test_capacity_is_the_quantity_that_was_published() -> None:
    expression = f"device.capacity['{DRIVER}'].memory.compareTo(quantity('1500m')) == 0"
    assert matches(expression, {}, {"memory": "1.5"})
    assert matches(f"!device.capacity['{DRIVER}'].memory.isInteger()", {}, {"memory": "1000m"})
    assert matches(f"device.capacity['{DRIVER}'].memory.asInteger() == 1024", {}, {"memory": "1Ki"})


def test_one_program_serves_many_devices_and_keeps_nothing_of_them() -> None:
    program = compile_expression(f"device.attributes['{DRIVER}'].index == 1")
    devices = [
        prepare_device(DRIVER, {"index": Attribute(int_value=index)}, {}, allow_multiple_allocations=False)
        for index in range(3)
    ]
    assert [program.matches(device) for device in (*devices, *devices)] == [False, True, False] * 2


def test_a_result_that_is_no_bool_is_an_error() -> None:
    with pytest.raises(CelRuntimeError, match="CEL result of type int could not be converted to bool"):
        matches(f"device.attributes['{DRIVER}'].index", {"index": Attribute(int_value=1)})
