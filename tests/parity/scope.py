"""Which scenarios the allocator must answer as upstream does, decided from what a scenario contains."""

from collections.abc import Iterator, Mapping
from typing import Any

from app.allocator.features import NOT_IMPLEMENTED

Json = Mapping[str, Any]


def out_of_scope(scenario: Json) -> str | None:
    """Why this scenario needs something that is not implemented, in a few words; None if it is in scope."""
    for feature, reason in _needs(scenario):
        if feature in NOT_IMPLEMENTED:
            return reason
    return None


def _needs(scenario: Json) -> Iterator[tuple[str, str]]:
    switches = scenario.get("features")
    bodies = list(_bodies(scenario))
    if _is_on(switches, "ConsumableCapacity"):
        if any(device.get("allowMultipleAllocations") for device in _devices(scenario)):
            yield "consumable_capacity", "shareable devices"
        if any("capacity" in body for body in bodies):
            yield "consumable_capacity", "capacity requests"
    if any("shareID" in result for result in _held(scenario)):
        yield "consumable_capacity", "held shares"
    if _is_on(switches, "DerivedAttributes") and any(body.get("derivedAttributes") for body in bodies):
        yield "derived_attributes", "derived attributes"


def _is_on(switches: Json | None, feature: str) -> bool:
    return True if switches is None else bool(switches.get(feature))


def _devices(scenario: Json) -> Iterator[Json]:
    for published in scenario["slices"]:
        yield from published["spec"].get("devices") or ()


def _bodies(scenario: Json) -> Iterator[Json]:
    for claim in scenario["claims"]:
        for request in claim["spec"]["devices"].get("requests") or ():
            yield from request.get("firstAvailable") or ()
            if request.get("exactly"):
                yield request["exactly"]


def _held(scenario: Json) -> Iterator[Json]:
    for claim in scenario.get("allocated") or ():
        allocation = (claim.get("status") or {}).get("allocation") or {}
        yield from (allocation.get("devices") or {}).get("results") or ()
