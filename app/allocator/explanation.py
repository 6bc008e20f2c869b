"""Words for "does not fit": what stood in the way where the search got furthest."""

from collections.abc import Iterable
from typing import Final

from app.allocator.attempt import Attempt
from app.allocator.demand import Demand, Wanted
from app.allocator.eligibility import Eligibility, NodeFacts, Standing
from app.allocator.features import why_off
from app.allocator.rejections import closed_set_words, counter_words, group_words, listed, taint_words
from app.allocator.requests import MAX_RESULTS
from app.model.device import Device
from app.model.rejection import Code, Rejection

_CODES: Final = {
    Standing.TAKEN: Code.IN_USE,
    Standing.BINDING_CONDITIONS_OFF: Code.REQUEST_UNSUPPORTED,
    Standing.NODE_OPERATIONS: Code.NODE_OPERATIONS,
    Standing.PARTITIONABLE_OFF: Code.REQUEST_UNSUPPORTED,
    Standing.TAINTED: Code.TAINTED,
}
_NEEDED: Final = {
    Standing.BINDING_CONDITIONS_OFF: "device_binding_and_status",
    Standing.PARTITIONABLE_OFF: "partitionable_devices",
}
_TELLING: Final = (
    Code.GROUPS,
    Code.COUNTERS,
    Code.CONSTRAINT,
    Code.TAINTED,
    Code.NODE_OPERATIONS,
    Code.REQUEST_UNSUPPORTED,
    Code.IN_USE,
    Code.COMBINATION,
)
"""What a device that was nearly taken failed at, the nearest miss first."""

_PLAIN: Final = {Code.COMBINATION: "wanted by other requests of the pod: "}


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
        self,
        claim: int,
        request: int,
        picked: int,
        wanted: Wanted,
        eligibility: Eligibility,
        only: int | None = None,
    ) -> None:
        """No device fills place `picked` of this request; with `only`, no other than that location was allowed."""
        if not self._is_deeper(claim, request, picked):
            return
        locations = range(len(self._facts.pools.devices)) if only is None else (only,)
        found: dict[Code, tuple[list[str], str]] = {}
        for location in locations:
            self._collect(found, claim, wanted, eligibility, location)
        if not found:
            self.rejections = (self._no_match(claim, wanted, picked),)
            return
        progress = f"{picked} of {wanted.count} devices found; " if picked and wanted.count > 0 else ""
        self.rejections = tuple(
            Rejection(
                code=code,
                claim=self._demand.claims[claim].label,
                request=wanted.name,
                device=found[code][0][0],
                detail=progress + (found[code][1] or _PLAIN.get(code, "") + listed(found[code][0])),
            )
            for code in _TELLING
            if code in found
        )

    def note_too_many(self, claim: int, request: int, picked: int, wanted: Wanted, total: int) -> None:
        """The claim would get `total` devices."""
        if self._is_deeper(claim, request, picked):
            detail = f"the claim would have {total} devices, it may have {MAX_RESULTS}"
            label = self._demand.claims[claim].label
            self.rejections = (Rejection(code=Code.TOO_MANY_DEVICES, claim=label, request=wanted.name, detail=detail),)

    def constraint_refuses(self, claim: int, wanted: Wanted, location: int) -> Rejection:
        """Mode All has to take a device that a constraint refuses."""
        return Rejection(
            code=Code.CONSTRAINT,
            claim=self._demand.claims[claim].label,
            request=wanted.name,
            device=self._facts.pools.devices[location].name,
            detail=self._constraint_words(claim, wanted, location),
        )

    def _is_deeper(self, claim: int, request: int, picked: int) -> bool:
        place = (claim, request, picked)
        if place <= self._deepest:
            return False
        self._deepest = place
        return True

    def _collect(
        self,
        found: dict[Code, tuple[list[str], str]],
        claim: int,
        wanted: Wanted,
        eligibility: Eligibility,
        location: int,
    ) -> None:
        device = self._facts.pools.devices[location]
        standing = eligibility.told(location)
        if standing is Standing.ELIGIBLE and self._attempt.is_picked(claim, wanted, location):
            picked_here = any(pick.location == location and pick.wanted is wanted for pick in self._attempt.picks)
            code, words = (None, "") if picked_here else (Code.COMBINATION, "")
        elif standing is Standing.ELIGIBLE:
            code, words = self._refusal(claim, wanted, location)
        else:
            code = _CODES.get(standing)
            words = self._standing_words(standing, device, wanted)
        if code is not None:
            names, _ = found.setdefault(code, ([], words))
            names.append(device.name)

    def _standing_words(self, standing: Standing, device: Device, wanted: Wanted) -> str:
        if standing is Standing.TAINTED:
            return taint_words(device, wanted.tolerations)
        feature = _NEEDED.get(standing)
        return f"{device.name} needs {why_off(feature)}" if feature else ""

    def _refusal(self, claim: int, wanted: Wanted, location: int) -> tuple[Code | None, str]:
        """What refuses an eligible device now; nothing when it only comes too early in the order of picks."""
        pools = self._facts.pools
        device, pool = pools.devices[location], pools.views[location].pool
        if device.consumes_counters:
            tables = self._attempt.tables(pool)
            if tables.groups is not None:
                conflict = tables.groups.refusal(device.consumes_counters)
                if conflict is not None:
                    return Code.GROUPS, group_words(device, conflict, self._members(location, conflict[0].counter_set))
            elif tables.grouped is not None:
                closed = tables.grouped.closed(device.consumes_counters)
                if closed is not None:
                    return Code.GROUPS, closed_set_words(device, closed)
            shortage = tables.counters.shortage(device.consumes_counters)
            if shortage is not None:
                return Code.COUNTERS, counter_words(device, shortage)
        words = self._constraint_words(claim, wanted, location)
        return (Code.CONSTRAINT, words) if words else (None, "")

    def _members(self, location: int, counter_set: str) -> Iterable[tuple[str, tuple[str, ...]]]:
        """(device, groups) of everything on a counter set: held first, then picked by this attempt."""
        pools = self._facts.pools
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

    def _constraint_words(self, claim: int, wanted: Wanted, location: int) -> str:
        pools = self._facts.pools
        device, driver = pools.devices[location], pools.views[location].pool.pool_id[0]
        refusing = self._attempt.refusing_constraint(claim, wanted, driver, device)
        return "" if refusing is None else f"{device.name} does not satisfy {refusing.words()}"

    def _no_match(self, claim: int, wanted: Wanted, picked: int) -> Rejection:
        count = len(self._facts.pools.devices)
        label = self._demand.claims[claim].label
        if not count:
            return Rejection(code=Code.NO_DEVICES, claim=label, request=wanted.name)
        criteria = f"match class {wanted.device_class.name} and the selectors of the request"
        if picked:
            detail = f"{wanted.count} devices wanted, {picked} of {count} {criteria}"
            return Rejection(code=Code.COMBINATION, claim=label, request=wanted.name, detail=detail)
        detail = f"none of {count} devices {criteria}"
        return Rejection(code=Code.NO_MATCH, claim=label, request=wanted.name, detail=detail)
