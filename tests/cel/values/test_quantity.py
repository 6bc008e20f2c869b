"""Amounts count as integers, and sums come out, by the way Kubernetes stores them; only their order is by value."""

from math import inf, isnan

import pytest
from dra_extender.cel.device import prepare_device
from dra_extender.cel.errors import CelRuntimeError
from dra_extender.cel.program import compile_expression
from dra_extender.cel.values.quantity import (
    NANO,
    Quantity,
    added,
    as_float,
    as_integer,
    parse_quantity,
    read_quantity,
    subtracted,
    whole_number,
)
from hypothesis import given, settings
from hypothesis import strategies as st

DEVICE = prepare_device("a", {}, {"memory": "40Gi", "split": "1000m"}, allow_multiple_allocations=False)
TEXTS = st.from_regex(
    r"[+-]?(0|[1-9][0-9]{0,21})(\.[0-9]{0,12})?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e-?[0-9])?", fullmatch=True
)


def value(expression: str) -> object:
    found, _ = compile_expression(f"[{expression}]", derived=True).evaluate(DEVICE)
    return found[0]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("-0", 0),
        ("7", 7),
        ("-7", -7),
        ("0007", 7),
        ("7.", 7),
        ("1k", 1000),
        ("2e3", 2000),
        ("1.5k", 1500),
        ("9E", 9 * 10**18),
        ("-9E", -9 * 10**18),
        ("1Ki", 1024),
        ("99Ti", 99 * 2**40),
        ("99999Gi", 99999 * 2**30),
        ("999999999999999999", 10**18 - 1),
        ("0e3", 0),
        ("Mi", 0),
        ("k", 0),
        (".", 0),
    ],
)
def test_an_amount_in_few_digits_without_a_fraction_is_an_integer(text: str, number: int) -> None:
    assert value(f"quantity('{text}').isInteger()") is True
    assert value(f"quantity('{text}').asInteger()") == number


@pytest.mark.parametrize(
    "text",
    [
        *("1.0", "0.0", "1000m", "1e-1", "10e-1", "1500u", "5n", "1.0005k", "1.0Ki", "0.5Gi"),
        *(
            "10E",
            "1e19",
            "100Ti",
            "100000Gi",
            "1Pi",
            "1Ei",
            "0Pi",
            "1000000000000000000",
            "0e-10",
            "0.0000000000000000000",
        ),
    ],
)
def test_what_has_a_fraction_or_many_digits_is_no_integer_whatever_its_value(text: str) -> None:
    assert value(f"quantity('{text}').isInteger()") is False
    with pytest.raises(CelRuntimeError, match="cannot convert value to integer"):
        value(f"quantity('{text}').asInteger()")


def test_a_published_capacity_is_stored_as_it_is_written() -> None:
    assert value("device.capacity['a'].memory.asInteger()") == 40 * 2**30
    assert value("device.capacity['a'].split.isInteger()") is False


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("quantity('1').add(quantity('2')).asInteger()", 3),
        ("quantity('1k').add(quantity('1')).asInteger()", 1001),
        ("quantity('5').sub(7).asInteger()", -2),
        ("quantity('0').add(quantity('2k')).asInteger()", 2000),
        ("quantity('0.0').add(3).isInteger()", True),
        ("quantity('1.0').add(0).isInteger()", False),
        ("quantity('1.5').add(quantity('1.5')).isInteger()", False),
        ("quantity('1').add(quantity('1Pi')).isInteger()", False),
        ("quantity('1Pi').sub(quantity('1Pi')).isInteger()", False),
        ("quantity('1').add(9223372036854775806).asInteger()", 2**63 - 1),
        ("quantity('1').add(9223372036854775807).isInteger()", False),
        ("quantity('0').sub(-9223372036854775807).asInteger()", 2**63 - 1),
        ("quantity('3').sub(-9223372036854775808).asInteger()", 3 - 2**63),
        ("quantity('-3').sub(-9223372036854775808).isInteger()", False),
        ("quantity('2').add(quantity('5')).compareTo(quantity('7.0'))", 0),
        ("quantity('1').add(1) == quantity('2')", True),
    ],
)
def test_a_sum_keeps_the_smaller_scale_until_64_bits_do_not_suffice(expression: str, expected: object) -> None:
    assert value(expression) == expected


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("50.703", 50703 * (1 / 1e3)),
        ("8Ei", float(2**63)),
        ("1n", 1 / 1e9),
        ("-1.5Gi", -1610612736 * 1e9 * (1 / 1e9)),
        ("1e40", 1e32 * 1e8),
    ],
)
def test_a_floating_point_number_is_that_of_the_stored_digits_times_a_power_of_ten(text: str, number: float) -> None:
    assert as_float(read_quantity(text)) == number
    assert value(f"quantity('{text}').asApproximateFloat() == {number!r}") is True


def test_numbers_beyond_floating_point_are_infinite_or_none() -> None:
    assert as_float(read_quantity("1e350")) == inf
    assert as_float(Quantity(-(10**409), -(10**409), -9, decimal=True)) == -inf
    assert isnan(as_float(read_quantity("0e400")))
    assert as_float(read_quantity("0e-400")) == 0.0


def test_a_comparison_leaves_both_amounts_as_they_are() -> None:
    expression = "cel.bind(x, quantity('1'), x.compareTo(quantity('1Pi')) < 0 && x.isInteger())"
    assert compile_expression(expression).matches(DEVICE)


def test_a_zero_of_absurd_scale_takes_no_time_to_add() -> None:
    assert added(read_quantity("0e-999999999"), whole_number(1)).nano == NANO
    assert added(read_quantity("0e999999999"), read_quantity("1Pi")).nano == parse_quantity("1Pi")


@pytest.mark.parametrize("text", ["", "Ei", "1Q", "1 Gi", "--1", "1e", "0x1", "1_000"])
def test_a_text_that_is_no_quantity_is_an_error_of_the_expression(text: str) -> None:
    assert value(f"isQuantity('{text}')") is False
    with pytest.raises(CelRuntimeError, match="cannot read quantity"):
        value(f"quantity('{text}').isInteger()")


@given(TEXTS)
@settings(deadline=None)
def test_the_stored_number_is_the_amount(text: str) -> None:
    found = read_quantity(text)
    assert found.value * 10 ** (found.scale + 30) == found.nano * 10**21
    if as_integer(found) is not None:
        assert found.nano == NANO * (as_integer(found) or 0)


@given(TEXTS, TEXTS)
@settings(deadline=None)
def test_sums_are_exact_and_undone_by_differences(one: str, other: str) -> None:
    first, second = read_quantity(one), read_quantity(other)
    total = added(first, second)
    assert total.nano == first.nano + second.nano
    assert subtracted(total, second).nano == first.nano
    assert total.value * 10 ** (total.scale + 30) == total.nano * 10**21
