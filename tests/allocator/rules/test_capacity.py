"""Amounts of consumable capacity and request policies (KEP-5075)."""

from typing import Any

import pytest
from dra_extender.allocator.rules.capacity import CapacityError, CapacityMismatch, amount_text, most_allowed, needs
from dra_extender.cel.values.quantity import parse_quantity
from dra_extender.model.device import DeviceCapacity, RequestPolicy, ValidRange
from hypothesis import given
from hypothesis import strategies as st


def capacity(value: str, default: str | None = None, values: list[str] | None = None, **bounds: str) -> DeviceCapacity:
    limits = {name: parse_quantity(text) for name, text in bounds.items()}
    policy = None
    if default is not None or values is not None or limits:
        policy = RequestPolicy(
            default=None if default is None else parse_quantity(default),
            valid_values=None if values is None else tuple(map(parse_quantity, values)),
            valid_range=ValidRange(**limits) if limits else None,
        )
    return DeviceCapacity(value=parse_quantity(value), text=value, policy=policy)


def asked(request: str | None, of: DeviceCapacity, *, fractional: bool = True) -> Any:
    """What the request takes as a quantity, or why it does not fit."""
    requests = {} if request is None else {"m": parse_quantity(request)}
    found = needs(requests, (("m", of),), fractional=fractional)
    return found.reason if isinstance(found, CapacityMismatch) else amount_text(found[0], "1")


PLAIN = capacity("8")
STEPS = capacity("8", "2", min="2", step="2", max="4")
VALUES = capacity("8", "1", ["1", "4", "8"])
TENTHS = capacity("2", "500m", min="500m", step="100m", max="1500m")


@pytest.mark.parametrize(
    ("of", "left", "most"),
    [
        (PLAIN, None, "8"),
        (PLAIN, "3", "3"),
        (STEPS, None, "4"),
        (STEPS, "3", "2"),
        (STEPS, "1", "0"),
        (VALUES, None, "8"),
        (VALUES, "7", "4"),
        (VALUES, "0", "0"),
        (TENTHS, "750m", "700m"),
    ],
)
def test_most_that_one_request_may_take_is_granted(of: DeviceCapacity, left: str | None, most: str) -> None:
    amount = most_allowed(of, None if left is None else parse_quantity(left))
    assert amount == parse_quantity(most)
    if amount:
        assert asked(most, of) == most


@pytest.mark.parametrize(
    ("request_", "of", "taken"),
    [
        (None, PLAIN, "8"),
        ("0", PLAIN, "0"),
        ("3", PLAIN, "3"),
        (None, capacity("8", "3"), "3"),
        ("5", capacity("8", "3"), "5"),
        (None, STEPS, "2"),
        ("1", STEPS, "2"),
        ("3", STEPS, "4"),
        ("4", STEPS, "4"),
        (None, VALUES, "1"),
        ("2", VALUES, "4"),
        ("8", VALUES, "8"),
        ("5", capacity("8", min="2"), "5"),
        ("1", capacity("8", min="2"), "2"),
        ("510m", TENTHS, "600m"),
        ("1500m", TENTHS, "1500m"),
        ("1500m", capacity("8", "1", min="1", step="1"), "2"),
    ],
)
def test_request_takes_the_next_amount_that_the_policy_offers(
    request_: str | None, of: DeviceCapacity, taken: str
) -> None:
    assert asked(request_, of) == taken


@pytest.mark.parametrize(
    ("request_", "of", "reason"),
    [
        ("9", PLAIN, "has 8 of m in all, 9 would be needed"),
        ("5", STEPS, "does not give 6 of m (5 asked for): its request policy allows 2 to 4 in steps of 2"),
        ("9", VALUES, "does not give 9 of m: its request policy allows 1, 4, 8"),
        ("1600m", TENTHS, "does not give 1600m of m: its request policy allows 500m to 1500m in steps of 100m"),
        ("9", capacity("8", max="4"), "does not give 9 of m: its request policy allows 0 to 4"),
        (None, capacity("8", "9", max="9"), "has 8 of m in all, 9 would be needed"),
    ],
)
def test_device_that_does_not_hand_out_the_amount_is_left_out_with_a_reason(
    request_: str | None, of: DeviceCapacity, reason: str
) -> None:
    assert asked(request_, of) == reason


def test_capacity_that_the_device_lacks_is_said_before_any_error() -> None:
    broken = capacity("8", min="0", step="0")
    found = needs({"n": 1, "m": 1}, (("m", broken),), fractional=True)
    assert found == CapacityMismatch("has no capacity n; it has m")


@pytest.mark.parametrize(
    ("request_", "of", "fractional", "text"),
    [
        ("1", capacity("8", min="0", step="0"), True, "a step that is not positive"),
        ("-1", PLAIN, True, "is negative"),
        (None, capacity("-8"), True, "is negative"),
        ("500001u", TENTHS, True, "cannot be rounded to its steps"),
        ("10E", capacity("20E", min="1", step="1"), True, "cannot be rounded to its steps"),
        ("9E", capacity("20E", min="8E", step="8E"), False, "cannot be represented"),
    ],
)
def test_amount_that_cannot_be_computed_is_an_error(
    request_: str | None, of: DeviceCapacity, fractional: bool, text: str
) -> None:
    with pytest.raises(CapacityError, match=text):
        asked(request_, of, fractional=fractional)


@pytest.mark.parametrize(("fractional", "taken"), [(True, "600m"), (False, "1")])
def test_without_fractional_ranges_steps_count_in_whole_units(fractional: bool, taken: str) -> None:
    of = capacity("2", "500m", min="500m", step="100m")
    assert asked("600m", of, fractional=fractional) == taken


def test_range_that_is_finer_than_thousandths_counts_in_whole_units() -> None:
    assert asked("2500u", capacity("2", min="1m", step="1u")) == "1"


@given(
    request=st.integers(0, 6000),
    least=st.integers(0, 2000),
    step=st.integers(1, 900),
    fractional=st.booleans(),
)
def test_range_gives_the_least_step_that_is_enough(request: int, least: int, step: int, fractional: bool) -> None:
    """Amounts in thousandths; the partner counts up step by step."""
    unit = 10**6 if fractional else 10**9
    of = capacity("999k", min=f"{least}m", step=f"{step}m")
    found = needs({"m": request * 10**6}, (("m", of),), fractional=fractional)
    amount, rounded = (-(-each * 10**6 // unit) for each in (least, step))
    while amount * unit < -(-request * 10**6 // unit) * unit:
        amount += rounded
    assert found == ((least * 10**6,) if request < least else (amount * unit,))


@given(st.integers(0, 2**63 - 1), st.sampled_from(["1", "40Gi", "1Ei", "500m", "1Ki", "1e3"]), st.booleans())
def test_amounts_read_back_exactly_however_they_are_spelled(amount: int, like: str, whole: bool) -> None:
    nano = amount * 10**9 if whole else amount
    assert parse_quantity(amount_text(nano, like)) == nano


@pytest.mark.parametrize(
    ("nano", "like", "text"),
    [
        (4 * 2**30 * 10**9, "40Gi", "4Gi"),
        (1536 * 2**20 * 10**9, "40Gi", "1536Mi"),
        (40 * 2**30 * 10**9, "40960Mi", "40960Mi"),
        (7 * 10**9, "40Gi", "7"),
        (5 * 10**8, "40Gi", "500m"),
        (0, "40Gi", "0"),
        (4 * 10**12, "10k", "4k"),
    ],
)
def test_amounts_are_spelled_like_the_published_capacity(nano: int, like: str, text: str) -> None:
    assert amount_text(nano, like) == text


@pytest.mark.parametrize("spelled", ["3", "3000m", "3e0"])
def test_amount_that_equals_the_default_is_allowed_by_value_even_against_the_policy(spelled: str) -> None:
    """Upstream compares how the two are stored inside; validation of the API forbids such a policy."""
    assert asked(spelled, capacity("8", "3", ["1", "2"])) == "3"
    assert "does not give" in asked("4", capacity("8", "3", ["1", "2"]))
