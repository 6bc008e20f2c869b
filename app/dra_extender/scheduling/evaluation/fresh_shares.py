from collections.abc import Callable
from uuid import uuid4

import msgspec

from dra_extender.model.allocation import ClaimPlacement


def new_share_id() -> str:
    """A name for a share that no other share has, anywhere."""
    return str(uuid4())


def with_fresh_shares(placement: ClaimPlacement, new_share_id: Callable[[], str]) -> ClaimPlacement:
    """The placement with share ids of its own (KEP-5075); the very same object if it shares nothing.

    An answer of the allocator is remembered and given to every replica of a workload, but a share id names one share alone.
    """
    results = placement.allocation.devices.results
    for each in results:
        if each.share_id is not None:
            break
    else:
        return placement
    names = [None if each.share_id is None else new_share_id() for each in results]
    replace = msgspec.structs.replace
    renamed = tuple(replace(each, share_id=name) for each, name in zip(results, names, strict=True))
    devices = replace(placement.allocation.devices, results=renamed)
    return ClaimPlacement(
        allocation=replace(placement.allocation, devices=devices),
        holdings=tuple(replace(each, share_id=name) for each, name in zip(placement.holdings, names, strict=True)),
    )
