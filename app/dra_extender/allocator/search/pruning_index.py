"""What a long search may skip: the candidates of each request, and devices that are interchangeable.

Pruning never changes the answer: the first solution stays the first, and no branch is skipped that could end in an error.  So
demands with a selector that fails on any device, and claims with mode All and constraints, are not pruned (see `feasibility`).
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple

from dra_extender.allocator.demand.constraints import lookup, value_set
from dra_extender.allocator.demand.demand import ALL, Demand, SearchableRequest
from dra_extender.allocator.rules.capacity import CapacityMismatch
from dra_extender.allocator.rules.eligibility import DeviceVerdict, Eligibility
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.search.all_mode import AllModeLocations, Option
from dra_extender.allocator.search.bounds import Bounds, DeviceNeed, Mask, locations
from dra_extender.allocator.search_state import SearchState
from dra_extender.cel.device import Attribute

FindEligibility = Callable[[int, int, int, SearchableRequest], Eligibility]
"""The eligibility for (claim, request, option, wanted)."""

_VERDICTS_PER_DEVICE: Final = 64
"""So many verdicts of a device take as long to compare as the device takes to read."""
_FEW: Final = 64
_ONE: Final = ord("1")


class RemainingRequests(NamedTuple):
    """What decides about the requests from one on.

    `devices` are their candidates, and all devices that draw on a pool on which a candidate draws.  `constraints` are the indexes
    of the constraints of the claim that bind these requests.
    """

    devices: Mask
    constraints: tuple[int, ...]


class PruningIndex:
    """The candidates of each option, and the symmetry classes of the devices.

    `masks[option]` is the set of the option's candidates beside what is held.  `symmetry_class[location]` is a number: devices with
    the same number are equal in everything that the search reads.
    """

    __slots__ = (
        "_all_mode",
        "_bounds",
        "_by_value",
        "_class_numbers",
        "_consumers_by_pool",
        "_demand",
        "_derivations",
        "_eligibility",
        "_ids_with_rules",
        "_joined",
        "_node_view",
        "_remaining_requests",
        "_verdicts",
        "masks",
        "symmetry_class",
    )

    def __init__(
        self, demand: Demand, node_view: NodeView, all_mode: AllModeLocations, eligibility: FindEligibility
    ) -> None:
        """Nothing is known before `find`."""
        self._demand = demand
        self._node_view = node_view
        self._all_mode = all_mode
        self._eligibility = eligibility
        self._verdicts: dict[Hashable, tuple[bytes, Mask]] = {}
        self._derivations: list[list[Attribute | None]] = []
        # What an option goes on with after a pause: the number of constraints that are done, and the candidates that they left.
        self._joined: tuple[int, Mask] | None = None
        self._class_numbers: dict[Hashable, int] = {}
        self._bounds = Bounds(node_view)
        self._ids_with_rules = {id(pool) for pool in node_view.pools_with_rules}
        self.masks: dict[Option, Mask] = {}
        self._by_value: dict[tuple[Option, int], dict[tuple[str, Any], Mask]] = {}
        self.symmetry_class: list[int] = []
        self._consumers_by_pool: list[Mask] = []
        self._remaining_requests: dict[tuple[int, int], RemainingRequests] = {}

    def find(self) -> None:
        """Find the candidates of every option and the symmetry class of every device.

        Raises:
            SearchEndedError: a selector or a derived attribute fails on a device, or the time is up; the index cannot be used then.
            SearchPaused: the deadline raised it; a further call goes on.
        """
        for option, wanted in self._options():
            if option not in self.masks:
                self._find_candidates(option, wanted)
        self._find_symmetry_classes()
        consumers: dict[int, Mask] = {}
        for location, device in enumerate(self._node_view.pools.devices):
            pool = id(self._node_view.pools.views[location].pool)
            if pool in self._ids_with_rules or device.consumes_counters:
                # Devices with rules about their neighbours may concern each other across pools.
                pool = 0 if pool in self._ids_with_rules else pool
                consumers[pool] = consumers.get(pool, 0) | 1 << location
        self._consumers_by_pool = list(consumers.values())

    def _options(self) -> Iterator[tuple[Option, SearchableRequest]]:
        for claim, claim_demand in enumerate(self._demand.claims):
            for request, requested in enumerate(claim_demand.requests):
                for option, wanted in enumerate(requested.options):
                    yield (claim, request, option), wanted

    def _find_candidates(self, option: Option, wanted: SearchableRequest) -> None:
        node_view, constraints = self._node_view, self._demand.claims[option[0]].constraints
        equivalence_key = option if wanted.equivalence_key is None else wanted.equivalence_key
        if equivalence_key not in self._verdicts:
            node_view.poll_deadline(len(node_view.pools.devices))
            verdicts = self._eligibility(*option, wanted).verdicts()
            mask = _mask_of(verdict == DeviceVerdict.ELIGIBLE for verdict in verdicts)
            self._verdicts[equivalence_key] = verdicts, mask
        verdicts, mask = self._verdicts[equivalence_key]
        # For each constraint on a derived attribute, the attribute of each device that is eligible for the option.
        derived: list[list[Attribute | None]] = [
            [
                node_view.attribute(wanted, constraints[index].attribute, location)
                if verdict == DeviceVerdict.ELIGIBLE
                else None
                for location, verdict in enumerate(verdicts)
            ]
            for index in wanted.constraints
            if constraints[index].attribute in wanted.derived
        ]
        # Of the eligible devices, those that every constraint could admit, each device by itself.
        done, mask = self._joined or (0, mask)
        for place, index in enumerate(wanted.constraints[done:], done):
            self._joined = place, mask
            node_view.poll_deadline(mask.bit_count())
            constraint = constraints[index]
            if not constraint.lists:
                mask = _mask_at(
                    [place for place in locations(mask) if node_view.attribute(wanted, constraint.attribute, place)]
                )
                continue
            # A device without a value joins no constraint; matchAttribute needs one value on all devices of the request.
            fewest = 1 if constraint.distinct else wanted.count
            by_value, mask = self._by_values(wanted, constraint.attribute, mask), 0
            for holders in by_value.values():
                if holders.bit_count() >= fewest:
                    mask |= holders
        self._derivations += derived
        self.masks[option] = mask
        self._joined = None

    def _by_values(self, wanted: SearchableRequest, name: str, mask: Mask) -> dict[tuple[str, Any], Mask]:
        """Return the devices of the mask that have a value, by value."""
        holders: dict[tuple[str, Any], list[int]] = {}
        for location in locations(mask):
            attribute = self._node_view.attribute(wanted, name, location)
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
        begun = len(self.symmetry_class)
        columns = zip(*(row[begun:] for row in verdicts), strict=True) if verdicts else repeat(())
        for location, column in zip(range(begun, len(pools.devices)), columns, strict=False):
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
            rest = self._demand.claims[claim].requests[request:]
            binding = {index for requested in rest for wanted in requested.options for index in wanted.constraints}
            devices = 0
            for option, mask in self.masks.items():
                if option[:2] >= (claim, request):
                    devices |= mask
            for consumers in self._consumers_by_pool:
                if consumers & devices:
                    devices |= consumers
            remaining = self._remaining_requests[claim, request] = RemainingRequests(devices, tuple(sorted(binding)))
        return remaining

    def candidates(self, option: Option, state: SearchState) -> Mask:
        """Return the candidates of an option beside what is picked; a superset of what can be picked."""
        claim, request, index = option
        wanted = self._demand.claims[claim].requests[request].options[index]
        mask = self.masks[option]
        for location, _ in state.picked_devices():
            if state.is_picked(claim, wanted, location):
                mask &= ~(1 << location)
        states = state.constraint_states(claim)
        for constraint in wanted.constraints:
            if states[constraint] is not None:
                mask &= self._holders(option, wanted, constraint, states[constraint])
        return mask

    def _holders(self, option: Option, wanted: SearchableRequest, index: int, state: Any) -> Mask:
        """Return the devices that a constraint in this state might admit: for matchAttribute, those with a value of all picks."""
        constraint = self._demand.claims[option[0]].constraints[index]
        if constraint.distinct or not constraint.lists:
            return self.masks[option]
        by_value = self._by_value.get((option, index))
        if by_value is None:
            by_value = self._by_values(wanted, constraint.attribute, self.masks[option])
            self._by_value[option, index] = by_value
        mask = 0
        for value in state:
            mask |= by_value.get(value, 0)
        return mask

    @property
    def is_monotone(self) -> bool:
        """Whether a pick never frees what other picks need: no device draws, and no request asks for, a negative amount."""
        for device in self._node_view.pools.devices:
            if any(amount < 0 for entry in device.consumes_counters for _, amount in entry.counters):
                return False
        for option, wanted in self._options():
            for location in locations(self.masks[option]):
                needs = self._node_view.sharing.needs(wanted, location)
                if not isinstance(needs, CapacityMismatch) and any(amount < 0 for amount in needs):
                    return False
        return True

    def is_infeasible(self, claims: int) -> bool:
        """Return whether the first so many claims certainly have no solution, whatever the search picks."""
        devices, sharing = range(len(self._node_view.pools.devices)), self._node_view.sharing
        shareable = _mask_of(sharing.is_shareable(location) for location in devices)
        exclusive: list[DeviceNeed] = []
        for claim, claim_demand in enumerate(self._demand.claims[:claims]):
            for request, requested in enumerate(claim_demand.requests):
                # The fewest devices over the options that are possible by themselves.
                counts: list[int] = []
                union = 0
                for option, wanted in enumerate(requested.options):
                    count = self._possible_count((claim, request, option), wanted)
                    if count is not None:
                        counts.append(count)
                        union |= self.masks[claim, request, option]
                if not counts:
                    return True
                if not union & shareable and not any(option.admin for option in requested.options):
                    exclusive.append((min(counts), union))
        return self._bounds.are_exceeded_by(exclusive)

    def _possible_count(self, option: Option, wanted: SearchableRequest) -> int | None:
        """Return how many devices an option needs; None if it cannot have them even by itself."""
        mask, count = self.masks[option], wanted.count
        if count == ALL:
            selected = self._all_mode.get(option, ())
            if not selected or any(not mask >> location & 1 for location in selected):
                return None
            count = len(selected)
        return count if self._bounds.upper_bound(mask, admin=wanted.admin) >= count else None


def _mask_at(places: Sequence[int]) -> Mask:
    """Return the mask of these ascending locations: by shifts if they are few, else by digits, which takes linear time."""
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
    return int("".join("1" if member else "0" for member in reversed(list(members))) or "0", 2)
