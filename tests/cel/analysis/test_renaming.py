"""Expressions with other names: what is renamed, what has to stay, and that the meaning stays."""

import pytest
from dra_extender.cel.analysis.renaming import NOTHING, UnrenamableParts, renamed, unrenamable_parts


class Marked:
    """Marks what was renamed as what."""

    def text(self, text: str) -> str:
        return f"T{text}"

    def member(self, name: str) -> str:
        return f"M{name}"

    def amount(self, text: str) -> str:
        return f"A{text}"

    def version(self, text: str) -> str:
        return f"V{text}"


@pytest.mark.parametrize(
    ("expression", "other"),
    [
        ('device.driver == "d"', 'device.driver == "Td"'),
        ('device.attributes["d"].model == "x"', 'device.attributes["Td"].Mmodel == "Tx"'),
        ('device.attributes["d"]["model"] in ["x", "y"]', 'device.attributes["Td"]["Mmodel"] in ["Tx", "Ty"]'),
        ('"model" in device.attributes["d"]', '"Mmodel" in device.attributes["Td"]'),
        ('has(device.attributes["d"].model)', 'has(device.attributes["Td"].Mmodel)'),
        ('"d" in device.attributes', '"Td" in device.attributes'),
        (
            'device.capacity["d"].memory.compareTo(quantity("4Gi")) >= 0',
            'device.capacity["Td"].Mmemory.compareTo(quantity("A4Gi")) >= 0',
        ),
        (
            'device.attributes["d"].v.isGreaterThan(semver("1.2.3")) && !device.allowMultipleAllocations',
            'device.attributes["Td"].Mv.isGreaterThan(semver("V1.2.3")) && !device.allowMultipleAllocations',
        ),
        ("device.attributes[device.driver].size > 4", "device.attributes[device.driver].Msize > 4"),
    ],
)
def test_what_is_compared_for_equality_is_renamed_and_nothing_has_to_stay(expression: str, other: str) -> None:
    assert renamed(expression, Marked()) == other
    assert unrenamable_parts(expression) == NOTHING


@pytest.mark.parametrize(
    ("expression", "stays"),
    [
        (
            'device.driver == "d" && device.attributes["d"].model.startsWith("A1")',
            UnrenamableParts(frozenset({"A1"}), frozenset({"d/model"}), drivers=False),
        ),
        (
            'device.attributes["d"].model < "x"',
            UnrenamableParts(frozenset({"x"}), frozenset({"d/model"}), drivers=False),
        ),
        (
            "device.attributes[device.driver].model.size() == 4",
            UnrenamableParts(frozenset(), frozenset({"*/model"}), drivers=False),
        ),
        ('device.driver.endsWith("com")', UnrenamableParts(frozenset({"com"}), frozenset(), drivers=True)),
        (
            'device.attributes["d"].exists(k, k == "x")',
            UnrenamableParts(frozenset({"x"}), None, drivers=True),
        ),
    ],
)
def test_what_a_function_looks_into_has_to_stay(expression: str, stays: UnrenamableParts) -> None:
    assert unrenamable_parts(expression) == stays


def test_text_that_is_no_expression_is_left_to_the_caller() -> None:
    assert renamed("device.", Marked()) is None
    assert unrenamable_parts("device.") == NOTHING
