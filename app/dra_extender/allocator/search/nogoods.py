"""Nogoods: the memo of states in which the requests from one on have failed, so that they are not searched again."""

from collections.abc import Hashable, Sequence
from typing import Final

from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.search.pruning_index import PruningIndex, RemainingRequests
from dra_extender.allocator.search_state import SearchState

_MAX_NOGOODS: Final = 12_000
"""A nogood of twelve picks takes 1.4 KB, so that a search keeps about 16 MiB; it searches further states again."""


class Nogoods:
    """States that failed without an error, by key.

    With a pruning index, states are equal up to interchangeable devices, and only what the remaining requests read counts.  A
    search that may end with an error has none: it knows again only the very same state, which then fails without an error too.
    """

    __slots__ = ("_constraints", "_every_device", "_index", "_keys", "_symmetry_class")

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
        whole = sorted(
            (symmetry_class[location], claims.bit_count(), claims >> claim & 1, state.is_member(location))
            for location, claims in state.picked_devices()
            if devices >> location & 1
        )
        shared = sorted(
            (symmetry_class[location], total, state.is_member(location))
            for location, total in state.shared_devices()
            if devices >> location & 1
        )
        states = state.constraint_states(claim)
        binding = tuple(states[constraint] for constraint in remaining.constraints)
        return claim, request, state.size(claim), binding, tuple(whole), tuple(shared)
