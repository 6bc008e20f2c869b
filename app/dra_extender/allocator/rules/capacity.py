"""Consumable capacity (KEP-5075): the amounts that a request takes of a device, and whether the device's policy allows them.

Amounts are nano-units.  The arithmetic is upstream's: policies with a step count in whole units, or in thousandths where the
feature FractionalCapacityRange is on and every bound of the range is a whole number of thousandths.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dra_extender.cel.values.quantity import BINARY_EXPONENTS, NANO, format_quantity, parse_quantity
from dra_extender.model.device import DeviceCapacity, RequestPolicy, ValidRange

Capacities = tuple[tuple[str, DeviceCapacity], ...]
"""(name, capacity), as a device lists them."""

_MILLI: Final = NANO // 1000
_MAX: Final = 2**63 - 1


class CapacityError(Exception):
    """An amount cannot be computed or is negative, which ends upstream's search with an error.  The message names the capacity."""


@dataclass(frozen=True, slots=True)
class CapacityMismatch:
    """Why a device can never serve a request; `reason` follows the device's name in a sentence."""

    reason: str


def published_amounts(amounts: Mapping[str, int], capacities: Capacities, driver: str) -> Mapping[str, int]:
    """Return the amounts under the names that a device of the driver publishes; `driver/name` and `name` are one capacity.

    Of two amounts for one capacity, that of the full name counts.
    """
    published = {name for name, _ in capacities}
    if amounts.keys() <= published:
        return amounts
    prefix, renamed = f"{driver}/", dict[str, int]()
    for name, amount in sorted(amounts.items(), key=lambda item: item[0].startswith(prefix)):
        other = name.removeprefix(prefix) if name.startswith(prefix) else f"{prefix}{name}"
        renamed[other if name not in published and other in published else name] = amount
    return renamed


def needs(
    requests: Mapping[str, int], capacities: Capacities, *, fractional: bool
) -> tuple[int, ...] | CapacityMismatch:
    """What these requests take of each capacity of an unused device, in the order of `capacities`.

    A capacity that is not requested counts with the policy's default, or else whole.

    Raises:
        CapacityError: an amount cannot be computed or is negative, even if another capacity does not fit.
    """
    known = {name for name, _ in capacities}
    for name in requests:
        if name not in known:
            return CapacityMismatch(f"has no capacity {name}")
    amounts = [_amount(name, capacity, requests.get(name), fractional=fractional) for name, capacity in capacities]
    for (name, capacity), amount in zip(capacities, amounts, strict=True):
        if not _allowed(amount, capacity.policy, fractional=fractional):
            return CapacityMismatch(
                f"does not give {amount_text(amount, capacity.text)} of {name}, its request policy says"
            )
        if amount > capacity.value:
            asked = amount_text(amount, capacity.text)
            return CapacityMismatch(f"has {capacity.text} of {name} in all, {asked} would be needed")
    return tuple(amounts)


def amount_text(amount: int, like: str) -> str:
    """An amount as a quantity, spelled like `like` where that is exact: the same text, else binary or decimal as it is."""
    if amount == parse_quantity(like):
        return like
    units, rest = divmod(amount, NANO)
    if like.endswith("i") and not rest and units:
        for suffix, exponent in reversed(BINARY_EXPONENTS.items()):
            if units % (1 << exponent) == 0:
                return f"{units >> exponent}{suffix}"
        return str(units)
    return format_quantity(amount)


def _amount(name: str, capacity: DeviceCapacity, requested: int | None, *, fractional: bool) -> int:
    policy = capacity.policy
    if requested is None:
        amount = capacity.value if policy is None or policy.default is None else policy.default
    elif policy is None:
        amount = requested
    elif policy.valid_range is not None and policy.valid_range.min is not None:
        amount = _rounded(name, requested, policy.valid_range, policy.valid_range.min, fractional=fractional)
    else:
        amount = next((value for value in policy.valid_values or () if requested <= value), requested)
    if amount < 0:
        raise CapacityError(f"capacity {name}: {format_quantity(amount)} is negative")
    return amount


def _rounded(name: str, requested: int, bounds: ValidRange, least: int, *, fractional: bool) -> int:
    """The request moved up to the least amount, or to the next step above it."""
    if requested < least:
        return least
    if bounds.step is None:
        return requested
    unit = _unit(bounds, fractional=fractional)
    step, first = _count(bounds.step, unit), _count(least, unit)
    if step <= 0:
        raise CapacityError(f"capacity {name}: its request policy has a step that is not positive")
    if requested > _MAX * unit or (unit == _MILLI and requested % unit):
        raise CapacityError(f"capacity {name}: {format_quantity(requested)} cannot be rounded to its steps")
    steps = -(-(_count(requested, unit) - first) // step)
    if first + steps * step > _MAX:
        raise CapacityError(f"capacity {name}: the step above {format_quantity(requested)} cannot be represented")
    return (first + steps * step) * unit


def _allowed(amount: int, policy: RequestPolicy | None, *, fractional: bool) -> bool:
    if policy is None or amount == policy.default:
        return True
    bounds = policy.valid_range
    if bounds is None:
        return not policy.valid_values or amount in policy.valid_values
    if bounds.max is not None and amount > bounds.max:
        return False
    if bounds.step is None:
        return True
    unit = _unit(bounds, fractional=fractional)
    step = _count(bounds.step, unit)
    if step <= 0 or (unit == _MILLI and amount % unit):
        return False
    return (_count(amount, unit) - _count(bounds.min or 0, unit)) % step == 0


def _unit(bounds: ValidRange, *, fractional: bool) -> int:
    """In what the steps of a range count: thousandths or whole units."""
    given = [each for each in (bounds.min, bounds.max, bounds.step) if each is not None]
    if fractional and all(each % _MILLI == 0 and abs(each) <= _MAX * _MILLI for each in given):
        return _MILLI
    return NANO


def _count(amount: int, unit: int) -> int:
    """An amount in units, rounded away from zero."""
    return -(-amount // unit) if amount >= 0 else amount // unit
