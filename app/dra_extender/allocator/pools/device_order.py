"""In which order a search tries the devices of a pool: those that are ready before those with binding conditions (KEP-5007)."""

from collections.abc import Sequence
from typing import NamedTuple

from dra_extender.model.device import Device


class DeviceOrder(NamedTuple):
    """The locations in the order in which they are tried, and the place of each location in that order."""

    locations: tuple[int, ...]
    ranks: tuple[int, ...]

    def ranked(self, mask: int) -> int:
        """A set of locations, one bit each, as the set of their ranks."""
        bits = f"{mask:0{len(self.locations)}b}"[::-1]
        return int("".join(bits[location] for location in reversed(self.locations)), 2)


def ready_first(pools: Sequence[Sequence[Device]]) -> DeviceOrder | None:
    """The devices of each pool with those without binding conditions first, else in order; None if that changes nothing.

    The pools come in the order of their locations and stay in it.
    """
    locations: list[int] = []
    for devices in pools:
        start = len(locations)
        ready = [start + place for place, device in enumerate(devices) if not device.binding_conditions]
        waiting = [start + place for place, device in enumerate(devices) if device.binding_conditions]
        locations += ready
        locations += waiting
    if all(rank == location for rank, location in enumerate(locations)):
        return None
    ranks = [0] * len(locations)
    for rank, location in enumerate(locations):
        ranks[location] = rank
    return DeviceOrder(tuple(locations), tuple(ranks))
