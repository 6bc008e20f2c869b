"""Emulated releases: their differences from 1.37 were read from the API of those releases and asked of upstream's compiler."""

import pytest
from dra_extender.cel.device import Attribute, prepare_device
from dra_extender.cel.environment import Release
from dra_extender.cel.errors import CelCompileError, CelRuntimeError
from dra_extender.cel.program import compile_expression

DRIVER = "gpu.example.com"
LINKS = f"device.attributes['{DRIVER}'].links"
DEVICE = prepare_device(
    DRIVER,
    {"links": Attribute(string_values=("a", "b")), "model": Attribute(string_value="a100")},
    {},
    allow_multiple_allocations=False,
)
SCALAR = (Release.V1_34, Release.V1_35)
LISTS = (Release.V1_36, Release.V1_37)


@pytest.mark.parametrize("release", Release)
@pytest.mark.parametrize(
    "expression",
    [
        f"device.attributes['{DRIVER}'].model == 'a100'",
        f"'a' in {LINKS}",
        "device.allowMultipleAllocations == false",
        "[3, 1].sort() == [1, 3] && ip('::1').isLoopback() && semver('1.0.0').major() == 1",
        "[1].first().value() == 1",
        f"cel.bind(d, device.attributes['{DRIVER}'], d.model.startsWith('a'))",
    ],
)
def test_what_all_releases_know_means_the_same_in_each(release: Release, expression: str) -> None:
    assert compile_expression(expression, emulate=release).matches(DEVICE)


@pytest.mark.parametrize("expression", [f"{LINKS}.exists(x, x == 'a')", f"{LINKS}.includes('a')", "dyn(true)"])
def test_lists_and_includes_and_dynamic_results_came_with_list_attributes(expression: str) -> None:
    for release in SCALAR:
        with pytest.raises(CelCompileError):
            compile_expression(expression, emulate=release)
    for release in LISTS:
        assert compile_expression(expression, emulate=release).matches(DEVICE)


def test_includes_is_capped_in_1_36_and_not_in_1_37() -> None:
    assert compile_expression("lists.range(100).includes(47)", emulate=Release.V1_36).matches(DEVICE)
    with pytest.raises(CelRuntimeError, match="longer than 48 values"):
        compile_expression("lists.range(100).includes(48)", emulate=Release.V1_36).matches(DEVICE)
    assert compile_expression("lists.range(100).includes(48)", emulate=Release.V1_37).matches(DEVICE)


def test_an_attribute_of_a_release_without_lists_is_a_verdict_of_its_own() -> None:
    flag = prepare_device(DRIVER, {"ok": Attribute(bool_value=True)}, {}, allow_multiple_allocations=False)
    for release in Release:
        assert compile_expression(f"device.attributes['{DRIVER}'].ok", emulate=release).matches(flag)
