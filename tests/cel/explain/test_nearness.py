"""How far a device is from satisfying an expression, and which constants would let it."""

import pytest
from dra_extender.cel.device import Attribute, DeviceActivation, prepare_device
from dra_extender.cel.explain.evaluation import ExplainableExpression
from dra_extender.cel.explain.nearness import distance, relaxed
from dra_extender.cel.program import compile_expression

DRIVER = "gpu.example.com"
ATTRIBUTES = f'device.attributes["{DRIVER}"]'
MEMORY = f'device.capacity["{DRIVER}"].memory'


def gpu(memory: str = "40Gi", model: str = "a100", index: int = 1) -> DeviceActivation:
    attributes = {
        "model": Attribute(string_value=model),
        "index": Attribute(int_value=index),
        "shared": Attribute(bool_value=False),
        "healthy": Attribute(bool_value=True),
        "driverVersion": Attribute(version_value="11.4.0"),
    }
    return prepare_device(DRIVER, attributes, {"memory": memory}, allow_multiple_allocations=False)


def at_least(amount: str) -> str:
    return f'{MEMORY}.compareTo(quantity("{amount}")) >= 0'


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (at_least("40Gi"), 0.0),
        (at_least("80Gi"), 1.5),
        (f'{ATTRIBUTES}.model == "h100"', 2.0),
        (f'{at_least("80Gi")} && {ATTRIBUTES}.model == "h100"', 3.5),
        (f'{at_least("80Gi")} || {ATTRIBUTES}.model == "h100"', 1.5),
        (f'!({ATTRIBUTES}.model == "a100")', 2.0),
        (f"{ATTRIBUTES}.index >= 4", 1.75),
        (f"{ATTRIBUTES}.absent >= 4", 2.0),
        ('has(device.attributes["other.example.com"].model)', 3.0),
    ],
)
def test_distance_counts_unmet_conditions_and_by_how_much_amounts_differ(expression: str, expected: float) -> None:
    assert distance(ExplainableExpression(expression), gpu()) == pytest.approx(expected)


def test_of_two_devices_the_one_with_the_larger_amount_is_nearer() -> None:
    expression = ExplainableExpression(at_least("80Gi"))
    assert distance(expression, gpu("60Gi")) < distance(expression, gpu("40Gi")) < distance(expression, gpu("1Gi"))


@pytest.mark.parametrize(
    ("expression", "conditions"),
    [
        (at_least("80Gi"), ("memory >= 40Gi",)),
        (f"{ATTRIBUTES}.index > 1", ("index >= 1",)),
        (f"4 <= {ATTRIBUTES}.index", ("index >= 1",)),
        (f'{ATTRIBUTES}.model == "h100" && {at_least("80Gi")}', ('model == "a100"', "memory >= 40Gi")),
        (f'{ATTRIBUTES}.model == "a100" && {at_least("80Gi")}', ("memory >= 40Gi",)),
        (f'{ATTRIBUTES}.driverVersion.compareTo(semver("12.0.0")) >= 0', ("driverVersion >= 11.4.0",)),
        (f'{ATTRIBUTES}.driverVersion.isGreaterThan(semver("12.0.0"))', ("driverVersion >= 11.4.0",)),
        (f'{ATTRIBUTES}.driverVersion.isLessThan(semver("11.0.0"))', ("driverVersion <= 11.4.0",)),
        (f'semver("11.0.0").isGreaterThan({ATTRIBUTES}.driverVersion)', ("driverVersion <= 11.4.0",)),
        (f'{MEMORY}.isGreaterThan(quantity("40Gi"))', ("memory >= 40Gi",)),
        (f'{ATTRIBUTES}.model in ["h100", "b200"]', ('model == "a100"',)),
        (f'{ATTRIBUTES}.model.startsWith("h")', ('model == "a100"',)),
        (f'{ATTRIBUTES}.model.matches("^h")', ('model == "a100"',)),
        (f'{ATTRIBUTES}.model != "a100"', ('model == "a100"',)),
        (f'!({ATTRIBUTES}.model == "a100")', ('model == "a100"',)),
        (f'!({ATTRIBUTES}.model in ["a100"])', ('model == "a100"',)),
        (f"!({ATTRIBUTES}.index >= 1)", ("index <= 1",)),
        (f"{ATTRIBUTES}.shared", ("shared == false",)),
        (f'"model" in {ATTRIBUTES} ? {ATTRIBUTES}.model == "h100" : false', ('model == "a100"',)),
        (f'"absent" in {ATTRIBUTES} ? {ATTRIBUTES}.absent == 1 : {at_least("80Gi")}', ("memory >= 40Gi",)),
        (f"!{ATTRIBUTES}.healthy", ("healthy == true",)),
        (f'{ATTRIBUTES}.model == "h100" || {at_least("80Gi")}', ("memory >= 40Gi",)),
        (f"{ATTRIBUTES}.absent == 1 || {ATTRIBUTES}.index > 1", ("index >= 1",)),
        (f'!({ATTRIBUTES}.model == "a100" || {ATTRIBUTES}.index == 1)', ('model == "a100"', "index == 1")),
        (f'({ATTRIBUTES}.model == "b" && {ATTRIBUTES}.index == 2) || {ATTRIBUTES}.index == 3', ("index == 1",)),
        (f'0 <= {MEMORY}.compareTo(quantity("80Gi"))', ("memory >= 40Gi",)),
        (f'0 >= quantity("80Gi").compareTo({MEMORY})', ("memory >= 40Gi",)),
        (f'{MEMORY}.compareTo(quantity("80Gi")) > -1', ("memory >= 40Gi",)),
        (f'{MEMORY}.compareTo(quantity("80Gi")) == 1', ("memory >= 40Gi",)),
        (f'1 > {MEMORY}.compareTo(quantity("20Gi"))', ("memory <= 40Gi",)),
        (f'{MEMORY}.compareTo(quantity("80Gi")) != -1', ("memory >= 40Gi",)),
        (f'[{ATTRIBUTES}.model].exists(m, m == "h100")', ('m == "a100"',)),
        (f"[3, 2].exists(n, n == {ATTRIBUTES}.index) || {ATTRIBUTES}.index > 1", ("index >= 1",)),
        (f"has({ATTRIBUTES}.index) && {ATTRIBUTES}.index > 1", ("index >= 1",)),
        (f'cel.bind(m, {ATTRIBUTES}.model, m == "h100" || m == "b200")', ('model == "a100"',)),
        (f'cel.bind(a, {ATTRIBUTES}, a.model == "h100" && a.index > 1)', ('model == "a100"', "index >= 1")),
        (f'cel.bind(a, {ATTRIBUTES}, cel.bind(m, a.model, m == "h100"))', ('model == "a100"',)),
        (f'cel.bind(m, {ATTRIBUTES}.model, cel.bind(m, m, m == "h100"))', ('model == "a100"',)),
        (f'cel.bind(wanted, "h100", {ATTRIBUTES}.model == wanted)', ('model == "a100"',)),
        (f"cel.bind(s, {ATTRIBUTES}.shared, s)", ("shared == false",)),
        (f'cel.bind(m, {MEMORY}, m.compareTo(quantity("80Gi")) >= 0)', ("memory >= 40Gi",)),
        (f'["h100", "b200"].exists(m, {ATTRIBUTES}.model == m)', ('model == "a100"',)),
        (
            f'["h100", "b200"].exists(m, m == {ATTRIBUTES}.model && {ATTRIBUTES}.index > 1)',
            ('model == "a100"', "index >= 1"),
        ),
        (f'cel.bind(l, ["h100"], l.exists(m, {ATTRIBUTES}.model.startsWith(m)))', ('model == "a100"',)),
    ],
)
def test_relaxed_expression_is_true_for_the_device_and_says_what_it_asks_for(
    expression: str, conditions: tuple[str, ...]
) -> None:
    found = relaxed(ExplainableExpression(expression), gpu())
    assert found is not None
    assert found.conditions == conditions
    assert compile_expression(found.expression).matches(gpu())


def test_relaxed_condition_spells_a_text_with_quotes_as_cel_does() -> None:
    relaxation = relaxed(ExplainableExpression(f'{ATTRIBUTES}.model == "h100"'), gpu(model='15" "wide"'))
    assert relaxation is not None
    assert relaxation.conditions == ("""model == '15" "wide"'""",)


@pytest.mark.parametrize(
    "expression",
    [
        f"{ATTRIBUTES}.absent == 1",
        f"{ATTRIBUTES}.absent == 1 ? true : false",
        f"{ATTRIBUTES}.absent == 1 || {ATTRIBUTES}.gone == 1",
        f"{ATTRIBUTES}.index == 2 && {ATTRIBUTES}.absent == 1",
        f"has({ATTRIBUTES}.absent)",
        f'{ATTRIBUTES}.?absent.orValue("") == "a"',
        f"!has({ATTRIBUTES}.model)",
        f'cel.bind(a, {ATTRIBUTES}.?absent, cel.bind(v, a.orValue(""), v == "a"))',
        'cel.bind(a, "x", cel.bind(b, a + a, b == "y"))',
        '["h100"].exists(m, m == "b200")',
        '"x" in ["y"]',
        f"[].exists(n, n == {ATTRIBUTES}.index)",
        "false",
    ],
)
def test_what_no_other_constant_helps_is_not_relaxed(expression: str) -> None:
    assert relaxed(ExplainableExpression(expression), gpu()) is None
