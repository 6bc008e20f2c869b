"""Pruning of long searches: skip states that failed before, interchangeable devices, and slots without enough candidates.

Pruning never changes the answer: the first solution stays the first, and no branch is skipped that could end in an error.  So
demands with a selector that fails on any device, and claims with mode All and constraints, are not pruned (see `feasibility`).
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple

from dra_extender.allocator.demand.constraints import lookup, value_set
from dra_extender.allocator.demand.demand import Demand, SearchableRequest
from dra_extender.allocator.rules.eligibility import DeviceVerdict, Eligibility
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.search.all_mode import OptionKey
from dra_extender.allocator.search_state import SearchState
from dra_extender.cel.device import Attribute

Mask = int
"""A set of locations, one bit each."""

FindEligibility = Callable[[int, int, int, SearchableRequest], Eligibility]
"""The eligibility for (claim, request, index of the option, option)."""

_VERDICTS_PER_DEVICE: Final = 64
"""So many verdicts of a device take as long to compare as the device takes to read."""
_MAX_NOGOODS: Final = 12_000
"""A nogood of twelve picks takes 1.4 KB, so that a search keeps about 16 MiB; it searches further states again."""
_MOST_SHIFTS: Final = 64
_SET_DIGIT: Final = ord("1")


class RemainingRequests(NamedTuple):
    """The part of a state that decides about the requests from one on.

    `devices` are their candidates, and all devices that draw on a pool on which a candidate draws.  `constraints` are the indexes
    of the constraints of the claim that bind these requests.
    """

    devices: Mask
    constraints: tuple[int, ...]


class PruningIndex:
    """The candidates of each option, and the symmetry classes of the devices.

    `masks[key]` is the set of an option's candidates beside what is held.  `symmetry_class[location]` is a number: devices with
    the same number are equal in everything that the search reads.
    """

    def __init__(self, demand: Demand, node_view: NodeView, eligibility: FindEligibility) -> None:
        """Nothing is known before `find`."""
        self._demand = demand
        self._node_view = node_view
        self._eligibility = eligibility
        self._verdicts: dict[Hashable, tuple[bytes, Mask]] = {}
        self._derivations: list[list[Attribute | None]] = []
        # What an option goes on with after a pause: the number of constraints that are done, and the candidates that they left.
        self._joined: tuple[int, Mask] | None = None
        self._class_numbers: dict[Hashable, int] = {}
        self._ids_with_rules = {id(pool) for pool in node_view.pools_with_rules}
        self.masks: dict[OptionKey, Mask] = {}
        self._by_value: dict[tuple[OptionKey, int], dict[tuple[str, Any], Mask]] = {}
        self.symmetry_class: list[int] = []
        self._consumers_by_pool: list[Mask] = []
        self._remaining_requests: dict[tuple[int, int], RemainingRequests] = {}

    def find(self) -> None:
        """Find the candidates of every option and the symmetry class of every device; after an error the index cannot be used."""
        for key, option in self.options():
            if key not in self.masks:
                self._find_candidates(key, option)
        self._find_symmetry_classes()
        consumers: dict[int, Mask] = {}
        for location, device in enumerate(self._node_view.pools.devices):
            pool = id(self._node_view.pools.views[location].pool)
            if pool in self._ids_with_rules or device.consumes_counters:
                # Devices with rules about their neighbours may concern each other across pools.
                pool = 0 if pool in self._ids_with_rules else pool
                consumers[pool] = consumers.get(pool, 0) | 1 << location
        self._consumers_by_pool = list(consumers.values())

    def options(self) -> Iterator[tuple[OptionKey, SearchableRequest]]:
        """Yield every option of the demand."""
        for claim, claim_demand in enumerate(self._demand.claims):
            for request, requested in enumerate(claim_demand.requests):
                for option_index, option in enumerate(requested.options):
                    yield (claim, request, option_index), option

    def _find_candidates(self, key: OptionKey, option: SearchableRequest) -> None:
        node_view, constraints = self._node_view, self._demand.claims[key[0]].constraints
        equivalence_key = key if option.equivalence_key is None else option.equivalence_key
        if equivalence_key not in self._verdicts:
            node_view.poll_deadline(len(node_view.pools.devices))
            verdicts = self._eligibility(*key, option).verdicts()
            mask = mask_of(verdict == DeviceVerdict.ELIGIBLE for verdict in verdicts)
            self._verdicts[equivalence_key] = verdicts, mask
        verdicts, mask = self._verdicts[equivalence_key]
        # For each constraint on a derived attribute, the attribute of each device that is eligible for the option.
        derived: list[list[Attribute | None]] = [
            [
                node_view.attribute(option, constraints[index].attribute, location)
                if verdict == DeviceVerdict.ELIGIBLE
                else None
                for location, verdict in enumerate(verdicts)
            ]
            for index in option.constraints
            if constraints[index].attribute in option.derived
        ]
        # Of the eligible devices, those that every constraint could admit, each device by itself.
        compared, mask = self._joined or (0, mask)
        for position, index in enumerate(option.constraints[compared:], compared):
            self._joined = position, mask
            node_view.poll_deadline(mask.bit_count())
            constraint = constraints[index]
            if not constraint.lists:
                mask = _mask_at(
                    [
                        location
                        for location in locations(mask)
                        if node_view.attribute(option, constraint.attribute, location)
                    ]
                )
                continue
            # A device without a value joins no constraint; matchAttribute needs one value on all devices of the request.
            fewest = 1 if constraint.distinct else option.count
            by_value, mask = self._by_values(option, constraint.attribute, mask), 0
            for holders in by_value.values():
                if holders.bit_count() >= fewest:
                    mask |= holders
        self._derivations += derived
        self.masks[key] = mask
        self._joined = None

    def _by_values(self, option: SearchableRequest, name: str, mask: Mask) -> dict[tuple[str, Any], Mask]:
        """Return the devices of the mask that have a value, by value."""
        holders: dict[tuple[str, Any], list[int]] = {}
        for location in locations(mask):
            attribute = self._node_view.attribute(option, name, location)
            for value in value_set(attribute) if attribute is not None else ():
                holders.setdefault(value, []).append(location)
        return {value: _mask_at(places) for value, places in holders.items()}

    def _find_symmetry_classes(self) -> None:
        pools, sharing = self._node_view.pools, self._node_view.sharing
        if self._demand.constrained and not self._node_view.features.list_type_attributes:
            # Scalar constraints can depend on the order of devices, so that no two are interchangeable.
            self.symmetry_class = list(range(len(pools.devices)))
            return
        names = sorted({constraint.attribute for claim in self._demand.claims for constraint in claim.constraints})
        verdicts = [verdicts for verdicts, _ in self._verdicts.values()]
        classified = len(self.symmetry_class)
        columns = zip(*(row[classified:] for row in verdicts), strict=True) if verdicts else repeat(())
        for location, column in zip(range(classified, len(pools.devices)), columns, strict=False):
            self._node_view.poll_deadline(1 + len(verdicts) // _VERDICTS_PER_DEVICE)
            device, pool = pools.devices[location], pools.views[location].pool
            consumption, shares = device.consumes_counters, sharing.consumed(location)
            key = (
                id(pool) if consumption else None,
                consumption,
                location if id(pool) in self._ids_with_rules else None,
                (device.capacity, shares) if shares.shares or sharing.is_shareable(location) else None,
                tuple(lookup(name, pool.pool_id[0], device) for name in names),
                bytes(column),
                tuple(attributes[location] for attributes in self._derivations),
            )
            self.symmetry_class.append(self._class_numbers.setdefault(key, len(self._class_numbers)))

    def remaining_requests(self, claim: int, request: int) -> RemainingRequests:
        """Return what decides about the requests from this one on."""
        remaining = self._remaining_requests.get((claim, request))
        if remaining is None:
            requests = self._demand.claims[claim].requests[request:]
            binding = {index for requested in requests for option in requested.options for index in option.constraints}
            devices = 0
            for key, mask in self.masks.items():
                if key[:2] >= (claim, request):
                    devices |= mask
            for consumers in self._consumers_by_pool:
                if consumers & devices:
                    devices |= consumers
            remaining = self._remaining_requests[claim, request] = RemainingRequests(devices, tuple(sorted(binding)))
        return remaining

    def candidates(self, key: OptionKey, state: SearchState) -> Mask:
        """Return the candidates of an option beside what is picked; a superset of what can be picked."""
        claim, request, option_index = key
        option = self._demand.claims[claim].requests[request].options[option_index]
        mask = self.masks[key]
        for location in state.claims_by_device:
            if state.is_picked(claim, option, location):
                mask &= ~(1 << location)
        states = state.constraint_states(claim)
        for constraint in option.constraints:
            if states[constraint] is not None:
                mask &= self._holders(key, option, constraint, states[constraint])
        return mask

    def _holders(self, key: OptionKey, option: SearchableRequest, index: int, state: Any) -> Mask:
        """Return the devices that a constraint in this state might admit: for matchAttribute, those with a value of all picks."""
        constraint = self._demand.claims[key[0]].constraints[index]
        if constraint.distinct or not constraint.lists:
            return self.masks[key]
        by_value = self._by_value.get((key, index))
        if by_value is None:
            by_value = self._by_values(option, constraint.attribute, self.masks[key])
            self._by_value[key, index] = by_value
        mask = 0
        for value in state:
            mask |= by_value.get(value, 0)
        return mask


class Nogoods:
    """States that failed without an error, by key.

    With a pruning index, states are equal up to interchangeable devices, and only what the remaining requests read counts.  A
    search that may end with an error has none: it knows again only the very same state, which then fails without an error too.
    """

    def __init__(self, demand: Demand, devices: int, index: PruningIndex | None) -> None:
        self._keys: set[Hashable] = set()
        self._index = index
        self._symmetry_class: Sequence[int] = range(devices) if index is None else index.symmetry_class
        self._every_device = (1 << devices) - 1
        self._constraints = [tuple(range(len(claim.constraints))) for claim in demand.claims]

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._keys

    def add(self, key: Hashable) -> None:
        """Record that the requests failed in this state, unless too much is recorded."""
        if len(self._keys) < _MAX_NOGOODS:
            self._keys.add(key)

    def key(self, state: SearchState, claim: int, request: int) -> Hashable:
        """Return all of a state that decides whether the requests from this one on can be met."""
        if self._index is None:
            remaining = RemainingRequests(self._every_device, self._constraints[claim])
        else:
            remaining = self._index.remaining_requests(claim, request)
        symmetry_class, devices = self._symmetry_class, remaining.devices
        exclusive = sorted(
            (symmetry_class[location], claims.bit_count(), claims >> claim & 1, state.is_member(location))
            for location, claims in state.claims_by_device.items()
            if devices >> location & 1
        )
        shared = sorted(
            (symmetry_class[location], total, state.is_member(location))
            for location, total in state.shares.items()
            if devices >> location & 1
        )
        states = state.constraint_states(claim)
        binding = tuple(states[constraint] for constraint in remaining.constraints)
        return claim, request, state.sizes.get(claim, 0), binding, tuple(exclusive), tuple(shared)


def locations(mask: Mask) -> Iterable[int]:
    """Return the locations in a mask, lowest first."""
    text = bin(mask)[:1:-1]
    return (index for index, bit in enumerate(text) if bit == "1")


def _mask_at(places: Sequence[int]) -> Mask:
    """Return the mask of these ascending locations: by shifts if they are few, else by digits, which takes linear time."""
    mask = 0
    if len(places) < _MOST_SHIFTS:
        for place in places:
            mask |= 1 << place
        return mask
    digits = bytearray(b"0" * (places[-1] + 1))
    for place in places:
        digits[~place] = _SET_DIGIT
    return int(digits, 2)


def mask_of(members: Iterable[bool]) -> Mask:
    """Return the mask of the locations, in order, for which this is true."""
    return int("".join("1" if member else "0" for member in reversed(list(members))) or "0", 2)
