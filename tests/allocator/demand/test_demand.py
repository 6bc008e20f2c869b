"""Which attributes can matter for a demand, and whether a published one is among them."""

import pytest
from dra_extender.allocator.demand.demand import is_read, reads_of

from tests.support.allocator.building import claim_of, demand_of, exactly

DRIVER = "gpu.example.com"
TYPE = f'device.attributes["{DRIVER}"].type == "x"'


def test_selectors_constraints_and_derived_attributes_are_read() -> None:
    derived = [{"name": "x.example.com/side", "expression": f'device.attributes["{DRIVER}"].numa % 2'}]
    request = exactly(expression=TYPE, derivedAttributes=derived)
    constraints = [{"matchAttribute": "x.example.com/side"}, {"distinctAttribute": f"{DRIVER}/slot"}]
    found = reads_of(demand_of(claim_of(request, constraints=constraints)))
    assert found == frozenset({f"{DRIVER}/type", f"{DRIVER}/numa", f"{DRIVER}/slot", "x.example.com/side"})


def test_one_expression_that_may_read_any_attribute_is_enough() -> None:
    wishes = claim_of(exactly(expression=TYPE), exactly(name="s", expression='"x" in device.attributes'))
    assert reads_of(demand_of(wishes)) is None


def test_an_expression_that_does_not_compile_reads_nothing() -> None:
    assert reads_of(demand_of(claim_of(exactly(expression="device.nothing.like.this(")))) == frozenset()


@pytest.mark.parametrize(
    ("attribute", "read"),
    [
        ("type", True),
        (f"{DRIVER}/type", True),
        ("x.example.com/type", False),
        ("model", False),
        ("own", True),
        (f"{DRIVER}/own", True),
        ("x.example.com/own", False),
    ],
)
def test_bare_names_belong_to_the_driver(attribute: str, read: bool) -> None:
    assert is_read(frozenset({f"{DRIVER}/type", "*/own"}), DRIVER, attribute) is read
