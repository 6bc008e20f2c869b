"""What a long search learns about its node, to skip branches that are dead ends.

Pruning never changes the answer: the first solution stays the first, and no branch is skipped that could end in an error.  So
demands with a selector that fails on any device, and claims with mode All and constraints, are not pruned (see `error_safety`).
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple

from dra_extender.allocator.demand.constraints import lookup, value_set
from dra_extender.allocator.demand.demand import ALL, Demand, RequestDemand, SearchableRequest
from dra_extender.allocator.rules.capacity import CapacityMismatch
from dra_extender.allocator.rules.eligibility import DeviceVerdict, Eligibility
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.search.all_mode import AllModeLocations
from dra_extender.allocator.search.bounds import Bounds, CapacityBound, Mask, is_infeasible, locations
from dra_extender.allocator.search_state import SearchState
from dra_extender.model.device import Attribute

Option = tuple[int, int, int]

_VERDICTS_PER_DEVICE: Final = 64
"""Comparing so many verdicts of a device takes as long as reading the device."""
_FEW: Final = 64
_ONE: Final = ord("1")


class RemainingRequests(NamedTuple):
    """What matters to the requests from one on.

    `devices` are those that they can take, and those that draw on the pools that these draw on; `constraints` the indexes of those
    of its claim that bind them.
    """

    devices: Mask
    constraints: tuple[int, ...]


class ExactStateIndex:
    """The index of a search that may end with an error: no two devices are interchangeable, and every device matters.

    Only an identical state is a nogood, and it fails without an error if it failed without one before.
    """

    __slots__ = ("_constraints", "_devices", "symmetry_class")

    def __init__(self, demand: Demand, devices: int) -> None:
        self._constraints = [tuple(range(len(claim.constraints))) for claim in demand.claims]
        self._devices: Mask = (1 << devices) - 1
        self.symmetry_class: Sequence[int] = range(devices)

    def remaining_requests(self, claim: int, _request: int) -> RemainingRequests:
        """What matters from this request on."""
        return RemainingRequests(self._devices, self._constraints[claim])


class PruningIndex:
    """Which devices each option can take, and which devices are interchangeable.

    `alike[location]` is a number; devices with the same number are equal in everything that the rest of the search reads.
    """

    __slots__ = (
        "_all_mode",
        "_bounds",
        "_by_value",
        "_consumers_by_pool",
        "_demand",
        "_derivations",
        "_eligibility",
        "_interchange_key",
        "_joined",
        "_node_view",
        "_numbers",
        "_remaining_requests",
        "masks",
        "symmetry_class",
    )

    def __init__(
        self,
        demand: Demand,
        node_view: NodeView,
        all_mode: AllModeLocations,
        eligibility: Callable[[int, int, int, SearchableRequest], Eligibility],
    ) -> None:
        """Nothing is known before `find`."""
        self._demand = demand
        self._node_view = node_view
        self._all_mode = all_mode
        self._eligibility = eligibility
        self._interchange_key: dict[Hashable, tuple[bytes, Mask]] = {}
        self._derivations: list[list[Attribute | None]] = []
        # How far an option has come, if it was interrupted: constraints that were looked at, and what they left.
        self._joined: tuple[int, Mask] | None = None
        self._numbers: dict[Hashable, int] = {}
        self._bounds = Bounds(node_view)
        self.masks: dict[Option, Mask] = {}
        self._by_value: dict[tuple[Option, int], dict[tuple[str, Any], Mask]] = {}
        self.symmetry_class: list[int] = []
        self._consumers_by_pool: list[Mask] = []
        self._remaining_requests: dict[tuple[int, int], RemainingRequests] = {}

    def find(self) -> None:
        """Find the verdict about every device for every option.

        Raises:
            SearchEndedError: a selector or a derived attribute fails somewhere, or the time is up; the search
                then goes on without an index.
            SearchPaused: the deadline raised it; a further call goes on.
        """
        for claim, wish in enumerate(self._demand.claims):
            for request, each in enumerate(wish.requests):
                for option, wanted in enumerate(each.options):
                    if (claim, request, option) not in self.masks:
                        self._find((claim, request, option), wanted)
        self._find_symmetry_classes()
        self._consumers_by_pool = self._find_consumers_by_pool()

    def _find(self, option: Option, wanted: SearchableRequest) -> None:
        count = len(self._node_view.pools.devices)
        equivalence_key = option if wanted.equivalence_key is None else wanted.equivalence_key
        if equivalence_key not in self._interchange_key:
            self._node_view.poll_deadline(count)
            found = self._eligibility(*option, wanted).all()
            self._interchange_key[equivalence_key] = found, _mask(found)
        verdicts, mask = self._interchange_key[equivalence_key]
        derived = list(self._derived(option[0], wanted, verdicts))
        mask = self._joining(option[0], wanted, mask)
        self._derivations += derived
        self.masks[option] = mask
        self._joined = None

    def _joining(self, claim: int, wanted: SearchableRequest, mask: Mask) -> Mask:
        """Those of the devices that every constraint could admit, each seen by itself."""
        done, mask = self._joined or (0, mask)
        for place, index in enumerate(wanted.constraints[done:], done):
            self._joined = place, mask
            self._node_view.poll_deadline(mask.bit_count())
            constraint = self._demand.claims[claim].constraints[index]
            if not constraint.lists:
                having = [
                    each for each in locations(mask) if self._node_view.attribute(wanted, constraint.attribute, each)
                ]
                mask = _mask_at(having)
                continue
            # Without a value a device joins nothing, and with matchAttribute one value has to be on all devices of the request.
            fewest = 1 if constraint.distinct else wanted.count
            found, mask = self._by_values(wanted, constraint.attribute, mask).values(), 0
            for holders in found:
                if holders.bit_count() >= fewest:
                    mask |= holders
        return mask

    def _by_values(self, wanted: SearchableRequest, name: str, mask: Mask) -> dict[tuple[str, Any], Mask]:
        """Those of the devices that have a value, by value."""
        found: dict[tuple[str, Any], list[int]] = {}
        for location in locations(mask):
            attribute = self._node_view.attribute(wanted, name, location)
            for value in value_set(attribute) if attribute is not None else ():
                found.setdefault(value, []).append(location)
        return {value: _mask_at(places) for value, places in found.items()}

    def _find_consumers_by_pool(self) -> list[Mask]:
        pools, found = self._node_view.pools, dict[int, Mask]()
        # Where devices depend on their neighbours, all of them matter to each other.
        has_compatibility_rules = {id(pool) for pool in self._node_view.pools_with_rules}
        for location, device in enumerate(pools.devices):
            pool = id(pools.views[location].pool)
            if pool in has_compatibility_rules or device.consumes_counters:
                pool = 0 if pool in has_compatibility_rules else pool
                found[pool] = found.get(pool, 0) | 1 << location
        return list(found.values())

    def remaining_requests(self, claim: int, request: int) -> RemainingRequests:
        """What matters from this request on."""
        known = self._remaining_requests.get((claim, request))
        if known is None:
            options = [option for option in self.masks if option[:2] >= (claim, request)]
            devices = 0
            for option in options:
                devices |= self.masks[option]
            for drawing in self._consumers_by_pool:
                if drawing & devices:
                    devices |= drawing
            wishes = self._demand.claims[claim].requests[request:]
            bound = {index for wish in wishes for wanted in wish.options for index in wanted.constraints}
            known = self._remaining_requests[claim, request] = RemainingRequests(devices, tuple(sorted(bound)))
        return known

    @property
    def is_monotone(self) -> bool:
        """Whether a pick never frees what other picks need: no device draws, and no request asks for, a negative amount."""
        demand, sharing, devices = self._demand, self._node_view.sharing, self._node_view.pools.devices
        for device in devices:
            if any(amount < 0 for entry in device.consumes_counters for _, amount in entry.counters):
                return False
        for (claim, request, option), mask in self.masks.items():
            wanted = demand.claims[claim].requests[request].options[option]
            for location in locations(mask):
                needed = sharing.needs(wanted, location)
                if not isinstance(needed, CapacityMismatch) and any(amount < 0 for amount in needed):
                    return False
        return True

    def candidates(self, option: Option, state: SearchState) -> Mask:
        """The devices that an option could take beside what this attempt has, at most."""
        claim, request, index = option
        wanted = self._demand.claims[claim].requests[request].options[index]
        mask = self.masks[option]
        for location, _ in state.picked_devices():
            if state.is_picked(claim, wanted, location):
                mask &= ~(1 << location)
        states = state.constraint_states(claim)
        for constraint in wanted.constraints:
            if states[constraint] is not None:
                mask &= self._holders(option, constraint, states[constraint])
        return mask

    def _holders(self, option: Option, index: int, state: Any) -> Mask:
        """The devices that a constraint in this state might admit: with matchAttribute, those with a value that all have so far."""
        claim, request, chosen = option
        constraint = self._demand.claims[claim].constraints[index]
        if constraint.distinct or not constraint.lists:
            return self.masks[option]
        by_value = self._by_value.get((option, index))
        if by_value is None:
            wanted = self._demand.claims[claim].requests[request].options[chosen]
            by_value = self._by_values(wanted, constraint.attribute, self.masks[option])
            self._by_value[option, index] = by_value
        mask = 0
        for value in state:
            mask |= by_value.get(value, 0)
        return mask

    def is_infeasible(self, claims: int) -> bool:
        """Whether it is certain that the first so many claims have no solution, whatever the search picks."""
        demand, bounds = self._demand, self._bounds
        separate: list[CapacityBound] = []
        shareable = _mask_of(
            self._node_view.sharing.is_shareable(each) for each in range(len(self._node_view.pools.devices))
        )
        for claim, each in enumerate(demand.claims[:claims]):
            for request, wish in enumerate(each.requests):
                least = self._least(claim, request, wish, bounds)
                if least is None:
                    return True
                if not any(option.admin for option in wish.options) and not least[1] & shareable:
                    separate.append(least)
        return is_infeasible(separate, bounds)

    def _least(self, claim: int, request: int, wish: RequestDemand, bounds: Bounds) -> CapacityBound | None:
        """What a request needs at least and where from, over the options that could work; None if none could."""
        needs: list[int] = []
        union = 0
        for option, wanted in enumerate(wish.options):
            key = (claim, request, option)
            mask, every = self.masks[key], self._all_mode.get(key, ())
            count = len(every) if wanted.count == ALL else wanted.count
            impossible = wanted.count == ALL and (not every or any(not mask >> location & 1 for location in every))
            if not impossible and bounds.upper_bound(mask) >= count:
                needs.append(count)
                union |= mask
        return (min(needs), union) if needs else None

    def _derived(self, claim: int, wanted: SearchableRequest, verdicts: bytes) -> Iterator[list[Attribute | None]]:
        """For each constraint of an option, what the option derives for it from each device that it can take."""
        for index in wanted.constraints:
            name = self._demand.claims[claim].constraints[index].attribute
            if name in wanted.derived:
                yield [
                    self._node_view.attribute(wanted, name, location) if verdict == DeviceVerdict.ELIGIBLE else None
                    for location, verdict in enumerate(verdicts)
                ]

    def _find_symmetry_classes(self) -> None:
        pools = self._node_view.pools
        if self._demand.constrained and not self._node_view.features.list_type_attributes:
            # Scalar constraints can depend on the order of devices, so nothing is interchangeable.
            self.symmetry_class = list(range(len(pools.devices)))
            return
        names = sorted({each.attribute for claim in self._demand.claims for each in claim.constraints})
        sharing, derived, found = self._node_view.sharing, self._derivations, self.symmetry_class
        has_compatibility_rules = {id(pool) for pool in self._node_view.pools_with_rules}
        verdicts = [each for each, _ in self._interchange_key.values()]
        begun = len(found)
        columns = zip(*(each[begun:] for each in verdicts), strict=True) if verdicts else repeat(())
        for location, column in zip(range(begun, len(pools.devices)), columns, strict=False):
            self._node_view.poll_deadline(1 + len(verdicts) // _VERDICTS_PER_DEVICE)
            device, pool = pools.devices[location], pools.views[location].pool
            consumption = device.consumes_counters
            values: tuple[Any, ...] = tuple(lookup(name, pool.pool_id[0], device) for name in names)
            state = sharing.state(location)
            shared = (device.capacity, state) if state.shares or sharing.is_shareable(location) else None
            key = (
                id(pool) if consumption else None,
                consumption,
                location if id(pool) in has_compatibility_rules else None,
                shared,
                bytes(column),
                values,
                tuple(each[location] for each in derived),
            )
            found.append(self._numbers.setdefault(key, len(self._numbers)))


def _mask(verdicts: bytes) -> Mask:
    return _mask_of(each == DeviceVerdict.ELIGIBLE for each in verdicts)


def _mask_at(places: Sequence[int]) -> Mask:
    """A mask of some places, the lowest first: by shifts if they are few, else by digits, which takes linear time."""
    mask = 0
    if len(places) < _FEW:
        for place in places:
            mask |= 1 << place
        return mask
    digits = bytearray(b"0" * (places[-1] + 1))
    for place in places:
        digits[~place] = _ONE
    return int(digits, 2)


def _mask_of(members: Iterable[bool]) -> Mask:
    return int("".join("1" if each else "0" for each in reversed(list(members))) or "0", 2)
