"""Words for "does not fit": what stood in the way where the search got furthest."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from app.allocator.attempt import Attempt, Refusal
from app.allocator.capacity import Misfit
from app.allocator.demand import Demand, Wanted
from app.allocator.eligibility import Eligibility, Standing
from app.allocator.features import why_off
from app.allocator.neighbours import Site, conflict_words
from app.allocator.node_facts import NodeFacts
from app.allocator.outcome import Fatal
from app.allocator.rejections import capacity_words, closed_set_words, counter_words, group_words, listed, taint_words
from app.allocator.requests import MAX_RESULTS
from app.model.device import CounterConsumption
from app.model.rejection import Code, Rejection

_CODES: Final = {
    Standing.TAKEN: Code.IN_USE,
    Standing.BINDING_CONDITIONS_OFF: Code.REQUEST_UNSUPPORTED,
    Standing.NODE_OPERATIONS: Code.NODE_OPERATIONS,
    Standing.PARTITIONABLE_OFF: Code.REQUEST_UNSUPPORTED,
    Standing.TAINTED: Code.TAINTED,
    Standing.MISFIT: Code.CAPACITY,
    Standing.EXHAUSTED: Code.CAPACITY,
}
_NEEDED: Final = {
    Standing.BINDING_CONDITIONS_OFF: "device_binding_and_status",
    Standing.PARTITIONABLE_OFF: "partitionable_devices",
}
_REFUSALS: Final = {
    Refusal.NONE: None,
    Refusal.PICKED: Code.COMBINATION,
    Refusal.GROUPS: Code.GROUPS,
    Refusal.COUNTERS: Code.COUNTERS,
    Refusal.CONSTRAINT: Code.CONSTRAINT,
    Refusal.CAPACITY: Code.CAPACITY,
    Refusal.NEIGHBOURS: Code.NEIGHBOURS,
}
_TELLING: Final = (
    Code.GROUPS,
    Code.NEIGHBOURS,
    Code.COUNTERS,
    Code.CAPACITY,
    Code.CONSTRAINT,
    Code.TAINTED,
    Code.NODE_OPERATIONS,
    Code.REQUEST_UNSUPPORTED,
    Code.IN_USE,
    Code.COMBINATION,
)
"""What a device that was nearly taken failed at, the nearest miss first."""

_PLAIN: Final = {Code.COMBINATION: "wanted by other requests of the pod: "}


class Place(NamedTuple):
    """A place to be filled: the device number `picked` of a request."""

    claim: int
    request: int
    picked: int
    wanted: Wanted


class Shortfall:
    """Remembers why the place that the search reached last could not be filled, the first time it was reached."""

    __slots__ = ("_attempt", "_deepest", "_demand", "_facts", "rejections")

    def __init__(self, demand: Demand, facts: NodeFacts, attempt: Attempt) -> None:
        self._demand = demand
        self._facts = facts
        self._attempt = attempt
        self._deepest = (-1, 0, 0)
        self.rejections: tuple[Rejection, ...] = ()

    def note(
        self, place: Place, eligibility: Eligibility, refusals: Mapping[int, Refusal], only: int | None = None
    ) -> None:
        """No device fills this place; `refusals` says what refused devices just now, as far as they were tried.

        With `only`, no device but the one at that location was allowed.
        """
        if not self._is_deeper(place):
            return
        wanted, picked = place.wanted, place.picked
        locations = range(len(self._facts.pools.devices)) if only is None else (only,)
        found: dict[Code, tuple[list[str], str]] = {}
        for location in locations:
            standing = eligibility.told(location)
            code = self._code(place, eligibility, location, standing, refusals.get(location))
            if code is not None:
                if code not in found:
                    found[code] = ([], self._words(code, place, location, standing))
                found[code][0].append(self._facts.pools.devices[location].name)
        if not found:
            self.rejections = (self._no_match(place),)
            return
        progress = f"{picked} of {wanted.count} devices found; " if picked and wanted.count > 0 else ""
        self.rejections = tuple(
            Rejection(
                code=code,
                claim=self._demand.claims[place.claim].label,
                request=wanted.name,
                device=found[code][0][0],
                detail=progress + (found[code][1] or _PLAIN.get(code, "") + listed(found[code][0])),
            )
            for code in _TELLING
            if code in found
        )

    def note_too_many(self, place: Place, total: int) -> None:
        """The claim would get `total` devices."""
        if self._is_deeper(place):
            detail = f"the claim would have {total} devices, it may have {MAX_RESULTS}"
            label = self._demand.claims[place.claim].label
            self.rejections = (
                Rejection(code=Code.TOO_MANY_DEVICES, claim=label, request=place.wanted.name, detail=detail),
            )

    def constraint_refuses(self, claim: int, wanted: Wanted, location: int) -> Rejection:
        """Mode All has to take a device that a constraint refuses."""
        return Rejection(
            code=Code.CONSTRAINT,
            claim=self._demand.claims[claim].label,
            request=wanted.name,
            device=self._facts.pools.devices[location].name,
            detail=self._constraint_words(claim, wanted, location),
        )

    def _is_deeper(self, place: Place) -> bool:
        depth = place[:3]
        if depth <= self._deepest:
            return False
        self._deepest = depth
        return True

    def _code(
        self, place: Place, eligibility: Eligibility, location: int, standing: Standing, refusal: Refusal | None
    ) -> Code | None:
        """What speaks against a device now; None if it is not meant, is picked here, or only comes too early in the order."""
        if standing is Standing.TAKEN:
            return Code.IN_USE if eligibility.means(location) else None
        if standing is not Standing.ELIGIBLE:
            return _CODES.get(standing)
        if self._attempt.is_picked(place.claim, place.wanted, location):
            mine = any(pick.location == location and pick.wanted is place.wanted for pick in self._attempt.picks)
            return None if mine else Code.COMBINATION
        return _REFUSALS[self._refusal(place, location) if refusal is None else refusal]

    def _refusal(self, place: Place, location: int) -> Refusal:
        try:
            return self._attempt.refusal(place.claim, place.wanted, location)
        except Fatal:
            # The search did not get there, so this is no error.
            return Refusal.NONE

    def _words(self, code: Code, place: Place, location: int, standing: Standing) -> str:
        """A sentence about one device; empty where a list of names says it all."""
        pools = self._facts.pools
        device, pool = pools.devices[location], pools.views[location].pool
        match code:
            case Code.GROUPS:
                return self._group_words(location)
            case Code.NEIGHBOURS:
                return self._neighbour_words(location)
            case Code.COUNTERS:
                shortage = self._attempt.tables(pool).counters.shortage(device.consumes_counters)
                return counter_words(device, shortage) if shortage is not None else ""
            case Code.CONSTRAINT:
                return self._constraint_words(place.claim, place.wanted, location)
            case Code.CAPACITY:
                return self._capacity_words(place.wanted, location)
            case Code.TAINTED:
                return taint_words(device, place.wanted.tolerations)
        feature = _NEEDED.get(standing)
        return f"{device.name} needs {why_off(feature)}" if feature else ""

    def _group_words(self, location: int) -> str:
        pools = self._facts.pools
        device = pools.devices[location]
        tables = self._attempt.tables(pools.views[location].pool)
        if tables.groups is not None:
            conflict = tables.groups.refusal(device.consumes_counters)
            return "" if conflict is None else group_words(device, conflict, self._members(location, conflict[0]))
        closed = tables.grouped.closed(device.consumes_counters) if tables.grouped is not None else None
        return "" if closed is None else closed_set_words(device, closed)

    def _neighbour_words(self, location: int) -> str:
        pools = self._facts.pools
        view = pools.views[location]
        neighbours = self._attempt.tables(view.pool).neighbours
        conflict = neighbours.refusal(Site(view.published, location - view.base)) if neighbours is not None else None
        return "" if conflict is None else conflict_words(pools.devices[location], conflict)

    def _members(self, location: int, refused: CounterConsumption) -> Iterable[tuple[str, tuple[str, ...]]]:
        """(device, groups) of everything on the counter set: held first, then picked by this attempt."""
        pools, counter_set = self._facts.pools, refused.counter_set
        pool = pools.views[location].pool
        for name, entry in self._attempt.tables(pool).held:
            if entry.counter_set == counter_set:
                yield f"{name} (allocated)", entry.compatibility_groups
        for pick in self._attempt.picks:
            if pools.views[pick.location].pool is pool:
                device = pools.devices[pick.location]
                for entry in device.consumes_counters:
                    if entry.counter_set == counter_set:
                        yield f"{device.name} (for the same pod)", entry.compatibility_groups

    def _capacity_words(self, wanted: Wanted, location: int) -> str:
        sharing, device = self._facts.sharing, self._facts.pools.devices[location]
        needed = sharing.needs(wanted, location)
        if isinstance(needed, Misfit):
            return f"{device.name} {needed.reason}"
        exhausted = sharing.exhausted(wanted, location, self._attempt.shared(location) or ())
        return "" if exhausted is None else capacity_words(device, exhausted)

    def _constraint_words(self, claim: int, wanted: Wanted, location: int) -> str:
        device = self._facts.pools.devices[location]
        refusing = self._attempt.refusing_constraint(claim, wanted, location)
        return "" if refusing is None else f"{device.name} does not satisfy {refusing.words()}"

    def _no_match(self, place: Place) -> Rejection:
        wanted, picked = place.wanted, place.picked
        count = len(self._facts.pools.devices)
        label = self._demand.claims[place.claim].label
        if not count:
            return Rejection(code=Code.NO_DEVICES, claim=label, request=wanted.name)
        criteria = f"match class {wanted.device_class.name} and the selectors of the request"
        if picked:
            detail = f"{wanted.count} devices wanted, {picked} of {count} {criteria}"
            return Rejection(code=Code.COMBINATION, claim=label, request=wanted.name, detail=detail)
        detail = f"none of {count} devices {criteria}"
        return Rejection(code=Code.NO_MATCH, claim=label, request=wanted.name, detail=detail)
