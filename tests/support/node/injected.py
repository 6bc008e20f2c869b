"""Which devices a container has: what its environment says, and what the allocations of its pod's claims let expect."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tests.controlplane.objects import Object

_NOT_IN_NAMES: Final = re.compile("[^A-Za-z0-9]")
PREFIX: Final = "DRA_"


def injected(text: str) -> dict[str, str]:
    """The variables of the driver in what `box env` printed."""
    variables = (line.partition("=") for line in text.splitlines() if line.startswith(PREFIX))
    return {name: value for name, _, value in variables}


def expected(claims: Mapping[str, Object], container: Object, driver: str) -> dict[str, str]:
    """The variables of a container, given the pod's claims by the names that the pod gives them.

    A container has the devices of the claims, and of the requests in them, that its `resources.claims` name.
    """
    found: dict[str, str] = {}
    for reference in container.get("resources", {}).get("claims", ()):
        found |= dict(_variables(claims[reference["name"]], driver, reference.get("request", "")))
    return found


def expected_of_extended(claim: Object, mappings: Sequence[Object], container: str, driver: str) -> dict[str, str]:
    """The variables of a container for its extended resources: the claim made for them, and the mappings in the pod's status."""
    found: dict[str, str] = {}
    for mapping in mappings:
        if mapping["containerName"] == container:
            found |= dict(_variables(claim, driver, mapping["requestName"]))
    return found


def device_of_result(result: Object) -> str:
    """POOL/DEVICE of a result of an allocation."""
    return f"{result['pool']}/{result['device']}"


def results_of(claim: Object, driver: str) -> Iterator[tuple[int, Object]]:
    """The results of a claim's allocation that are of a driver, with their numbers among those of all drivers."""
    allocation = claim.get("status", {}).get("allocation") or {}
    for number, result in enumerate(allocation.get("devices", {}).get("results", ())):
        if result["driver"] == driver:
            yield number, result


def _variables(claim: Object, driver: str, request: str) -> Iterator[tuple[str, str]]:
    for number, result in results_of(claim, driver):
        if request and request not in (result["request"], result["request"].partition("/")[0]):
            continue
        share = f"#{result['shareID']}" if result.get("shareID") else ""
        admin = "!admin" if result.get("adminAccess") else ""
        name = _NOT_IN_NAMES.sub("_", result["request"]).upper()
        yield f"{PREFIX}{name}_{number}", f"{device_of_result(result)}{share}{admin}"
