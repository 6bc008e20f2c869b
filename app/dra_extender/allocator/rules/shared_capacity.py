"""Shares of devices (KEP-5075): what a request consumes of each capacity, what allocated claims consume, what remains."""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from dra_extender.allocator.demand.demand import SearchableRequest
from dra_extender.allocator.pools.pools import NodePools
from dra_extender.allocator.rules.capacity import CapacityMismatch, needs, published_amounts
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.device import Device

Amounts = tuple[int, ...]
"""One amount in nano-units for each capacity of a device, in the device's order."""


class CapacityShortage(NamedTuple):
    """A capacity that does not suffice: what remains and what is asked, in nano-units."""

    name: str
    remaining: int
    asked: int


class SharedConsumption(NamedTuple):
    """Whether allocated claims have shares of a device, and the sums of their amounts; no amounts without shares."""

    shares: bool
    amounts: Amounts


_NOTHING: Final = SharedConsumption(shares=False, amounts=())


class Sharing:
    """The shares on one node before a search picks anything; with the feature off there are none and every device fits."""

    __slots__ = ("_consumed", "_fractional", "_holdings", "_needs", "_pools", "_qualifies", "enabled")

    def __init__(
        self, pools: NodePools, holdings: Callable[[int], tuple[DeviceHolding, ...]], *, qualifies: bool = True
    ) -> None:
        """`holdings` returns what allocated claims have of the device at a location.

        `qualifies`: a capacity with and without the driver's name before it is the same (see `Rules.qualified_capacities`).
        """
        self._pools = pools
        self._holdings = holdings
        self.enabled = pools.features.consumable_capacity
        self._fractional = pools.features.fractional_capacity_range
        self._qualifies = qualifies
        self._needs: dict[tuple[int, int, str], Amounts | CapacityMismatch] = {}
        self._consumed: dict[int, SharedConsumption] = {}

    def is_shareable(self, location: int) -> bool:
        """Whether several requests may share the device."""
        return self.enabled and self._pools.devices[location].allow_multiple_allocations

    def needs(self, wanted: SearchableRequest, location: int) -> Amounts | CapacityMismatch:
        """What a request takes of an unused device, or why it never fits.

        Raises:
            CapacityError: an amount cannot be computed.
        """
        capacity = self._pools.devices[location].capacity
        if not self.enabled or not (capacity or wanted.capacity):
            return ()
        driver = self._pools.views[location].published.driver
        # Devices share equal lists of capacities; both objects outlive the search.
        key = (id(wanted), id(capacity), driver)
        found = self._needs.get(key)
        if found is None:
            requested = published_amounts(wanted.capacity, capacity, driver) if self._qualifies else wanted.capacity
            found = self._needs[key] = needs(requested, capacity, fractional=self._fractional)
        return found

    def is_shared(self, location: int) -> bool:
        """Whether allocated claims have shares of the device."""
        return self.enabled and self._known(location).shares

    def state(self, location: int) -> SharedConsumption:
        """What allocated claims consume of the device."""
        return self._known(location)

    def exhausted(self, wanted: SearchableRequest, location: int, picked: Amounts = ()) -> CapacityShortage | None:
        """The first capacity that does not suffice beside what allocated claims consume and this search has `picked`."""
        asked = self.needs(wanted, location)
        if isinstance(asked, CapacityMismatch) or not asked:
            return None
        known = self._known(location)
        if not known.shares and not picked:
            return None
        for index, (name, capacity) in enumerate(self._pools.devices[location].capacity):
            remaining = capacity.value
            if known.shares:
                remaining -= known.amounts[index]
            if picked:
                remaining -= picked[index]
            if asked[index] > remaining:
                return CapacityShortage(name, remaining, asked[index])
        return None

    def _known(self, location: int) -> SharedConsumption:
        found = self._consumed.get(location)
        if found is not None:
            return found
        holdings = self._holdings(location)
        if not holdings:
            return _NOTHING
        found = self._consumed[location] = _consumed(self._pools.devices[location], holdings)
        return found


def _consumed(device: Device, holdings: Iterable[DeviceHolding]) -> SharedConsumption:
    shares = [each for each in holdings if each.share_id is not None and not each.admin]
    if not shares:
        return _NOTHING
    totals = dict.fromkeys((name for name, _ in device.capacity), 0)
    for share in shares:
        for name, amount in share.consumed_capacity:
            if name in totals:
                totals[name] += amount
    return SharedConsumption(shares=True, amounts=tuple(totals.values()))
