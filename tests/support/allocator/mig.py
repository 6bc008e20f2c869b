"""GPUs with the partitions of an 80 GB card, as NVIDIA's DRA driver publishes them: a counter for each slice of memory."""

from collections.abc import Iterator, Sequence
from typing import Final

from dra_extender.model.resource_slice import ResourceSlice

from tests.support.allocator.building import DRIVER, Json, exactly, slice_of

PROFILES: Final = {
    "1g.10gb": (1, 1, range(7)),
    "1g.20gb": (1, 2, (0, 2, 4, 6)),
    "2g.20gb": (2, 2, (0, 2, 4)),
    "3g.40gb": (3, 4, (0, 4)),
    "4g.40gb": (4, 4, (0,)),
    "7g.80gb": (7, 8, (0,)),
}
"""By profile: compute slices, memory slices, and the memory slices at which a partition may start."""
_COMPUTE: Final = 7
_MEMORY: Final = 8


def gpus(count: int) -> Sequence[ResourceSlice]:
    """The slices of a node with so many GPUs."""
    sets = [{"name": f"gpu-{number}", "counters": _counters(_COMPUTE, range(_MEMORY))} for number in range(count)]
    devices = [device for number in range(count) for device in _partitions(number)]
    return [
        slice_of(name="counters", count=2, sharedCounters=sets),
        slice_of(*devices, name="devices", count=2),
    ]


def profile(name: str) -> Json:
    return exactly(expression=f'device.attributes["{DRIVER}"].profile == "{name}"')


def _partitions(gpu: int) -> Iterator[Json]:
    for name, (compute, memory, starts) in PROFILES.items():
        for start in starts:
            drawn = {"counterSet": f"gpu-{gpu}", "counters": _counters(compute, range(start, start + memory))}
            attributes = {"profile": {"string": name}}
            yield {
                "name": f"gpu-{gpu}-{name}-{start}".replace(".", "-"),
                "consumesCounters": [drawn],
                "attributes": attributes,
            }


def _counters(compute: int, memory: range) -> Json:
    return {"compute": {"value": str(compute)}, **{f"memory-slice-{each}": {"value": "1"} for each in memory}}
