"""Consumable capacity (KEP-5075): what a request takes of a device, whether the device's policy allows it, and what remains.

Amounts are nano-units.  The arithmetic is upstream's: policies with a step count in whole units, or in thousandths where the
feature FractionalCapacityRange is on and every bound of the range is a whole number of thousandths.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from dra_extender.allocator.demand.demand import SearchableRequest
from dra_extender.allocator.pools.pools import NodePools
from dra_extender.cel.values.quantity import NANO, binary_text, format_quantity, parse_quantity
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.api_json import listed
from dra_extender.model.device import DeviceCapacity, RequestPolicy, ValidRange

Capacities = tuple[tuple[str, DeviceCapacity], ...]
"""(name, capacity), as a device lists them."""

Amounts = tuple[int, ...]
"""One amount for each capacity of a device, in the device's order."""

_MILLI: Final = NANO // 1000
_MAX: Final = 2**63 - 1


class CapacityError(Exception):
    """An amount cannot be computed or is negative, which ends upstream's search with an error.  The message names the capacity."""


@dataclass(frozen=True, slots=True)
class CapacityMismatch:
    """The reason why a device can never serve a request; `reason` follows the device's name in a sentence."""

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
        alias = name.removeprefix(prefix) if name.startswith(prefix) else f"{prefix}{name}"
        renamed[alias if name not in published and alias in published else name] = amount
    return renamed


def needs(requests: Mapping[str, int], capacities: Capacities, *, fractional: bool) -> Amounts | CapacityMismatch:
    """Return what these requests take of each capacity of an unused device, in the order of `capacities`.

    A capacity that is not requested counts with the policy's default, or else whole.

    Raises:
        CapacityError: an amount cannot be computed or is negative, even if another capacity does not fit.
    """
    names = {name for name, _ in capacities}
    for name in requests:
        if name not in names:
            return CapacityMismatch(f"has no capacity {name}" + (f"; it has {listed(sorted(names))}" if names else ""))
    amounts = [_amount(name, capacity, requests.get(name), fractional=fractional) for name, capacity in capacities]
    for (name, capacity), amount in zip(capacities, amounts, strict=True):
        if not _allowed(amount, capacity.policy, fractional=fractional):
            return CapacityMismatch(_policy_mismatch(name, capacity, requests.get(name), amount))
        if amount > capacity.value:
            needed = amount_text(amount, capacity.text)
            return CapacityMismatch(f"has {capacity.text} of {name} in all, {needed} would be needed")
    return tuple(amounts)


def _policy_mismatch(name: str, capacity: DeviceCapacity, requested: int | None, amount: int) -> str:
    """Return for example `does not give 18Gi of memory (17Gi asked for): its request policy allows 2Gi to 16Gi in steps of 2Gi`."""
    policy, spelling = capacity.policy or RequestPolicy(), capacity.text
    bounds = policy.valid_range
    if bounds is None:
        allowed = ", ".join(amount_text(value, spelling) for value in policy.valid_values or ())
    else:
        smallest, largest = amount_text(bounds.min or 0, spelling), bounds.max
        allowed = f"{smallest} and more" if largest is None else f"{smallest} to {amount_text(largest, spelling)}"
        allowed += "" if bounds.step is None else f" in steps of {amount_text(bounds.step, spelling)}"
    rounded = "all of it" if requested is None else f"{amount_text(requested, spelling)} asked for"
    return (
        f"does not give {amount_text(amount, spelling)} of {name}{'' if requested == amount else f' ({rounded})'}: "
        f"its request policy allows {allowed}"
    )


def amount_text(amount: int, spelling: str) -> str:
    """Return an amount as a quantity, in this spelling where that is exact: the same text, otherwise binary or decimal as it is."""
    if amount == parse_quantity(spelling):
        return spelling
    units, remainder = divmod(amount, NANO)
    if spelling.endswith("i") and not remainder and units:
        return binary_text(units) or str(units)
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
    """Return the request moved up to the least amount, or to the next step above it."""
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


def most_allowed(capacity: DeviceCapacity, left: int | None = None) -> int:
    """Return the largest amount, in nano-units, that one request may take of a capacity; 0 if it may take none.

    `left`: how much is left of it, None if nobody has a share.
    """
    policy = capacity.policy or RequestPolicy()
    most, bounds = capacity.value if left is None else min(left, capacity.value), policy.valid_range
    if policy.valid_values:
        return max((value for value in policy.valid_values if value <= most), default=0)
    if bounds is None:
        return most
    least, most = bounds.min or 0, most if bounds.max is None else min(most, bounds.max)
    if most < least:
        return 0
    return most if not bounds.step else least + (most - least) // bounds.step * bounds.step


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
    """Return in what the steps of a range count: thousandths or whole units."""
    amounts = [amount for amount in (bounds.min, bounds.max, bounds.step) if amount is not None]
    if fractional and all(amount % _MILLI == 0 and abs(amount) <= _MAX * _MILLI for amount in amounts):
        return _MILLI
    return NANO


def _count(amount: int, unit: int) -> int:
    """Return an amount in units, rounded away from zero."""
    return -(-amount // unit) if amount >= 0 else amount // unit


class CapacityShortage(NamedTuple):
    """A capacity that does not suffice: what remains and what is requested."""

    name: str
    remaining: int
    requested: int


class SharedConsumption(NamedTuple):
    """The amounts of the shares that claims have or hold of a device; without `shares` there are none."""

    shares: bool
    amounts: Amounts


_NOTHING: Final = SharedConsumption(shares=False, amounts=())


class Sharing:
    """The shares on one node before a search picks anything; with the feature off there are none and every device fits."""

    __slots__ = ("_consumed", "_fractional", "_holdings", "_needs", "_pools", "_qualifies", "enabled")

    def __init__(self, pools: NodePools, holdings: Callable[[int], tuple[DeviceHolding, ...]]) -> None:
        """`holdings` returns what claims have or hold of the device at a location."""
        self._pools = pools
        self._holdings = holdings
        self.enabled = pools.features.consumable_capacity
        self._fractional = pools.features.fractional_capacity_range
        # Whether a capacity with and without the driver's name before it is the same.
        self._qualifies = not pools.release.as_upstream
        self._needs: dict[tuple[int, int, str], Amounts | CapacityMismatch] = {}
        self._consumed: dict[int, SharedConsumption] = {}

    def is_shareable(self, location: int) -> bool:
        """Return whether several requests may share the device."""
        return self.enabled and self._pools.devices[location].allow_multiple_allocations

    def needs(self, request: SearchableRequest, location: int) -> Amounts | CapacityMismatch:
        """Return what a request takes of an unused device, or why it never fits."""
        capacity = self._pools.devices[location].capacity
        if not self.enabled or not (capacity or request.capacity):
            return ()
        driver = self._pools.views[location].published.driver
        # Devices share equal lists of capacities; both objects outlive the search.
        key = (id(request), id(capacity), driver)
        amounts = self._needs.get(key)
        if amounts is None:
            requested = published_amounts(request.capacity, capacity, driver) if self._qualifies else request.capacity
            amounts = self._needs[key] = needs(requested, capacity, fractional=self._fractional)
        return amounts

    def is_shared(self, location: int) -> bool:
        """Return whether claims have or hold shares of the device."""
        return self.enabled and self.consumed(location).shares

    def consumed(self, location: int) -> SharedConsumption:
        """Return the amounts of the shares that claims have or hold of the device."""
        consumed = self._consumed.get(location)
        if consumed is not None:
            return consumed
        holdings = self._holdings(location)
        if not holdings:
            return _NOTHING
        shares = [holding for holding in holdings if holding.share_id is not None and not holding.admin]
        totals = dict.fromkeys((name for name, _ in self._pools.devices[location].capacity), 0)
        for share in shares:
            for name, amount in share.consumed_capacity:
                if name in totals:
                    totals[name] += amount
        consumed = SharedConsumption(shares=True, amounts=tuple(totals.values())) if shares else _NOTHING
        self._consumed[location] = consumed
        return consumed

    def exhausted(self, request: SearchableRequest, location: int, picked: Amounts = ()) -> CapacityShortage | None:
        """Return the first capacity that does not suffice beside the shares in use and what this search has `picked`."""
        return next(self.shortages(request, location, picked), None)

    def shortages(self, request: SearchableRequest, location: int, picked: Amounts = ()) -> Iterator[CapacityShortage]:
        """Yield every capacity that does not suffice."""
        needed = self.needs(request, location)
        if isinstance(needed, CapacityMismatch) or not needed:
            return
        consumed = self.consumed(location)
        if not consumed.shares and not picked:
            return
        for index, (name, capacity) in enumerate(self._pools.devices[location].capacity):
            remaining = capacity.value
            if consumed.shares:
                remaining -= consumed.amounts[index]
            if picked:
                remaining -= picked[index]
            if needed[index] > remaining:
                yield CapacityShortage(name, remaining, needed[index])
