"""Configuration entries of an allocation: first from the classes, then from the claim."""

from collections.abc import Sequence
from typing import Final

from dra_extender.allocator.demand.demand import ClaimDemand, SearchableRequest
from dra_extender.allocator.state.result import SearchEndedError
from dra_extender.model.allocation import AllocationConfiguration
from dra_extender.model.rejection import Code, Rejection

MAX_CONFIGURATIONS: Final = 64
"""Entries that an API server stores in one allocation."""


def configuration(claim: ClaimDemand, chosen: Sequence[SearchableRequest]) -> tuple[AllocationConfiguration, ...]:
    """The entries for a claim whose request i was served by option `chosen[i]`.

    Each class appears once, with the names of all requests that use it.  An entry of the claim is kept if it is meant for
    all requests, or names a request or a chosen alternative.  An entry that covers every request loses its list.

    Raises:
        SearchEndedError: an API server would not store so many entries.
    """
    config = claim.claim.spec.devices.config
    if not config and not any(wanted.device_class.spec.config for wanted in chosen):
        return ()
    names_of_class: dict[str, list[str]] = {}
    for wanted in chosen:
        names_of_class.setdefault(wanted.device_class.name, []).append(wanted.name)
    classes = {wanted.device_class.name: wanted.device_class for wanted in chosen}
    entries = [
        AllocationConfiguration(source="FromClass", requests=tuple(names), opaque=each.opaque)
        for class_name, names in names_of_class.items()
        for each in classes[class_name].spec.config
    ]
    served = {request.name for request in claim.requests} | {wanted.name for wanted in chosen}
    entries += [
        AllocationConfiguration(source="FromClaim", requests=each.requests, opaque=each.opaque)
        for each in config
        if not each.requests or not served.isdisjoint(each.requests)
    ]
    if len(entries) > MAX_CONFIGURATIONS:
        detail = (
            f"classes and claim configure it {len(entries)} times, an API server stores {MAX_CONFIGURATIONS} at most"
        )
        raise SearchEndedError(Rejection(code=Code.REQUEST_UNSUPPORTED, claim=claim.label, detail=detail))
    return tuple(_collapsed(entry, claim, chosen) for entry in entries)


def _collapsed(
    entry: AllocationConfiguration, claim: ClaimDemand, chosen: Sequence[SearchableRequest]
) -> AllocationConfiguration:
    covers_all = entry.requests and all(
        request.name in entry.requests or wanted.name in entry.requests
        for request, wanted in zip(claim.requests, chosen, strict=True)
    )
    if not covers_all:
        return entry
    return AllocationConfiguration(source=entry.source, opaque=entry.opaque)
