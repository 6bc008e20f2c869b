"""Whether an expression can be true for some device of a driver, as far as that is known without devices."""

import pytest
from dra_extender.cel.explain.nearness import may_hold

GPU = "gpu.example.com"
NIC = "nic.example.com"
ATTRIBUTES = f'device.attributes["{GPU}"]'


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param(f'device.driver == "{GPU}"', id="equal"),
        pytest.param(f'device.driver != "{NIC}"', id="unequal"),
        pytest.param(f'!(device.driver == "{NIC}")', id="negated"),
        pytest.param(f'device.driver in ["{GPU}", "other"]', id="list"),
        pytest.param('device.driver.startsWith("gpu.")', id="prefix"),
        pytest.param(f'{ATTRIBUTES}.model == "A"', id="attribute"),
        pytest.param(f'{ATTRIBUTES}.?model.orValue("") == "A"', id="optional-attribute"),
        pytest.param(f"has({ATTRIBUTES}.model)", id="has"),
        pytest.param(f'device.capacity["{GPU}"].memory.compareTo(quantity("4Gi")) >= 0', id="capacity"),
        pytest.param(f'cel.bind(own, {ATTRIBUTES}, own.model == "A")', id="binding"),
        pytest.param(f'device.driver == "{GPU}" && device.allowMultipleAllocations', id="and"),
        pytest.param(f'device.driver == "{GPU}" || {ATTRIBUTES}.shared', id="or"),
    ],
)
def test_expression_about_one_driver_can_hold_for_its_devices_alone(expression: str) -> None:
    assert (may_hold(expression, GPU), may_hold(expression, NIC)) == (True, False)


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param("true", id="true"),
        pytest.param("device.allowMultipleAllocations", id="shared"),
        pytest.param('device.attributes["resource.kubernetes.io"].pcieRoot == "pci0"', id="kubernetes-domain"),
        pytest.param('device.attributes["example.com"].rack == "1"', id="domain-above"),
        pytest.param("device.attributes[device.driver].index == 1", id="own-domain"),
        pytest.param(f'"{GPU}" in device.attributes', id="any-domain"),
        pytest.param(f'device.driver == "{GPU}" ? true : device.allowMultipleAllocations', id="alternative"),
        pytest.param("not an expression", id="invalid"),
    ],
)
def test_expression_that_tells_no_driver_can_hold_for_any(expression: str) -> None:
    assert may_hold(expression, GPU)
    assert may_hold(expression, NIC)


def test_expression_that_is_never_true_holds_for_none() -> None:
    assert not may_hold("false", GPU)
    assert not may_hold(f'device.driver == "{GPU}" && device.driver == "{NIC}"', GPU)
