"""Indexes by which a long search skips branches that are dead ends.

Pruning never changes the answer: the first solution stays the first, and no branch is skipped that could end in an error.  So
demands with a selector that fails on any device, and claims with mode All and constraints, are not pruned (see `error_safety`).
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple

from dra_extender.allocator.demand.constraints import lookup, value_set
from dra_extender.allocator.demand.demand import ALL, Demand, RequestDemand, SearchableRequest
from dra_extender.allocator.rules.capacity import CapacityMismatch
from dra_extender.allocator.rules.eligibility import DeviceVerdict
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.search.all_mode import AllModeLocations, Option
from dra_extender.allocator.search.bounds import Bounds, DeviceNeed, Mask, exceeds_bounds, locations
from dra_extender.allocator.search.error_safety import FindEligibility
from dra_extender.allocator.search_state import SearchState
from dra_extender.cel.device import Attribute

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


class ExactStateIndex:
    """The index of a search that may end with an error: no two devices are interchangeable, and every device counts.

    So only an identical state is a nogood: it fails without an error if it failed without one before.
    """

    __slots__ = ("_constraints", "_devices", "symmetry_class")

    def __init__(self, demand: Demand, devices: int) -> None:
        self._constraints = [tuple(range(len(claim.constraints))) for claim in demand.claims]
        self._devices: Mask = (1 << devices) - 1
        self.symmetry_class: Sequence[int] = range(devices)

    def remaining_requests(self, claim: int, _request: int) -> RemainingRequests:
        """What decides about the requests from this one on."""
        return RemainingRequests(self._devices, self._constraints[claim])


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
        self,
        demand: Demand,
        node_view: NodeView,
        all_mode: AllModeLocations,
        eligibility: FindEligibility,
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
        for option, wanted in _options(self._demand):
            if option not in self.masks:
                self._find_candidates(option, wanted)
        self._find_symmetry_classes()
        self._consumers_by_pool = self._find_consumers_by_pool()

    def _find_candidates(self, option: Option, wanted: SearchableRequest) -> None:
        count = len(self._node_view.pools.devices)
        equivalence_key = option if wanted.equivalence_key is None else wanted.equivalence_key
        if equivalence_key not in self._verdicts:
            self._node_view.poll_deadline(count)
            found = self._eligibility(*option, wanted).all()
            self._verdicts[equivalence_key] = found, _mask(found)
        verdicts, mask = self._verdicts[equivalence_key]
        derived = list(self._derived(option[0], wanted, verdicts))
        mask = self._joining(option[0], wanted, mask)
        self._derivations += derived
        self.masks[option] = mask
        self._joined = None

    def _joining(self, claim: int, wanted: SearchableRequest, mask: Mask) -> Mask:
        """The devices of the mask that every constraint could admit, each device by itself."""
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
            # A device without a value joins no constraint; matchAttribute needs one value on all devices of the request.
            fewest = 1 if constraint.distinct else wanted.count
            found, mask = self._by_values(wanted, constraint.attribute, mask).values(), 0
            for holders in found:
                if holders.bit_count() >= fewest:
                    mask |= holders
        return mask

    def _by_values(self, wanted: SearchableRequest, name: str, mask: Mask) -> dict[tuple[str, Any], Mask]:
        """The devices of the mask that have a value, by value."""
        found: dict[tuple[str, Any], list[int]] = {}
        for location in locations(mask):
            attribute = self._node_view.attribute(wanted, name, location)
            for value in value_set(attribute) if attribute is not None else ():
                found.setdefault(value, []).append(location)
        return {value: _mask_at(places) for value, places in found.items()}

    def _find_consumers_by_pool(self) -> list[Mask]:
        pools, found = self._node_view.pools, dict[int, Mask]()
        # Devices with rules about their neighbours may concern each other across pools.
        with_rules = self._ids_with_rules
        for location, device in enumerate(pools.devices):
            pool = id(pools.views[location].pool)
            if pool in with_rules or device.consumes_counters:
                pool = 0 if pool in with_rules else pool
                found[pool] = found.get(pool, 0) | 1 << location
        return list(found.values())

    def remaining_requests(self, claim: int, request: int) -> RemainingRequests:
        """What decides about the requests from this one on."""
        known = self._remaining_requests.get((claim, request))
        if known is None:
            rest = self._demand.claims[claim].requests[request:]
            binding = {index for each in rest for wanted in each.options for index in wanted.constraints}
            known = RemainingRequests(self._remaining_devices(claim, request), tuple(sorted(binding)))
            self._remaining_requests[claim, request] = known
        return known

    def _remaining_devices(self, claim: int, request: int) -> Mask:
        devices = 0
        for option, mask in self.masks.items():
            if option[:2] >= (claim, request):
                devices |= mask
        for consumers in self._consumers_by_pool:
            if consumers & devices:
                devices |= consumers
        return devices

    @property
    def is_monotone(self) -> bool:
        """Whether a pick never frees what other picks need: no device draws, and no request asks for, a negative amount."""
        return not any(
            amount < 0
            for device in self._node_view.pools.devices
            for entry in device.consumes_counters
            for _, amount in entry.counters
        ) and not any(
            self._needs_negative_amount(wanted, location)
            for option, wanted in _options(self._demand)
            for location in locations(self.masks[option])
        )

    def _needs_negative_amount(self, wanted: SearchableRequest, location: int) -> bool:
        needed = self._node_view.sharing.needs(wanted, location)
        return not isinstance(needed, CapacityMismatch) and any(amount < 0 for amount in needed)

    def candidates(self, option: Option, state: SearchState) -> Mask:
        """The candidates of an option beside what is picked; a superset of what can be picked."""
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
        """The devices that a constraint in this state might admit: for matchAttribute, those with a value that all picks have."""
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
        """Whether the first so many claims certainly have no solution, whatever the search picks."""
        shareable = _mask_of(
            self._node_view.sharing.is_shareable(each) for each in range(len(self._node_view.pools.devices))
        )
        exclusive: list[DeviceNeed] = []
        for claim, each in enumerate(self._demand.claims[:claims]):
            for request, requested in enumerate(each.requests):
                need = self._need(claim, request, requested)
                if need is None:
                    return True
                if not need[1] & shareable and not any(option.admin for option in requested.options):
                    exclusive.append(need)
        return exceeds_bounds(exclusive, self._bounds)

    def _need(self, claim: int, request: int, requested: RequestDemand) -> DeviceNeed | None:
        """The fewest devices over the options of a request that are possible by themselves; None if none is."""
        counts: list[int] = []
        union = 0
        for option, wanted in enumerate(requested.options):
            count = self._possible_count((claim, request, option), wanted)
            if count is not None:
                counts.append(count)
                union |= self.masks[claim, request, option]
        return (min(counts), union) if counts else None

    def _possible_count(self, option: Option, wanted: SearchableRequest) -> int | None:
        """How many devices an option needs; None if it cannot have them even by itself."""
        mask, count = self.masks[option], wanted.count
        if count == ALL:
            meant = self._all_mode.get(option, ())
            if not meant or any(not mask >> location & 1 for location in meant):
                return None
            count = len(meant)
        return count if self._bounds.upper_bound(mask, admin=wanted.admin) >= count else None

    def _derived(self, claim: int, wanted: SearchableRequest, verdicts: bytes) -> Iterator[list[Attribute | None]]:
        """For each constraint on a derived attribute, the attribute of each device that is eligible for the option."""
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
            # Scalar constraints can depend on the order of devices, so that no two are interchangeable.
            self.symmetry_class = list(range(len(pools.devices)))
            return
        names = sorted({each.attribute for claim in self._demand.claims for each in claim.constraints})
        verdicts = [each for each, _ in self._verdicts.values()]
        begun = len(self.symmetry_class)
        columns = zip(*(each[begun:] for each in verdicts), strict=True) if verdicts else repeat(())
        for location, column in zip(range(begun, len(pools.devices)), columns, strict=False):
            self._node_view.poll_deadline(1 + len(verdicts) // _VERDICTS_PER_DEVICE)
            key = (*self._content(location, names), bytes(column), tuple(each[location] for each in self._derivations))
            self.symmetry_class.append(self._class_numbers.setdefault(key, len(self._class_numbers)))

    def _content(self, location: int, names: Iterable[str]) -> tuple[Hashable, ...]:
        """What the search reads of a device beside the verdicts and what requests derive; `names` are of attributes."""
        pools, sharing = self._node_view.pools, self._node_view.sharing
        device, pool = pools.devices[location], pools.views[location].pool
        consumption, state = device.consumes_counters, sharing.state(location)
        return (
            id(pool) if consumption else None,
            consumption,
            location if id(pool) in self._ids_with_rules else None,
            (device.capacity, state) if state.shares or sharing.is_shareable(location) else None,
            tuple(lookup(name, pool.pool_id[0], device) for name in names),
        )


def _options(demand: Demand) -> Iterator[tuple[Option, SearchableRequest]]:
    for claim, each in enumerate(demand.claims):
        for request, requested in enumerate(each.requests):
            for option, wanted in enumerate(requested.options):
                yield (claim, request, option), wanted


def _mask(verdicts: bytes) -> Mask:
    return _mask_of(each == DeviceVerdict.ELIGIBLE for each in verdicts)


def _mask_at(places: Sequence[int]) -> Mask:
    """The mask of these locations, the lowest first: by shifts if they are few, else by digits, which takes linear time."""
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
