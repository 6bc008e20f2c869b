"""Overlays: what is added to the devices of a slice before the allocator sees them."""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from dra_extender.model.resource_slice import ResourceSlice


class OverlaidSlice(NamedTuple):
    """The slice with an overlay applied, and a sentence for each problem."""

    effective: ResourceSlice
    problems: tuple[str, ...] = ()


class Overlay(Protocol):
    """Changes the devices of a slice."""

    def apply(self, published: ResourceSlice) -> OverlaidSlice:
        """Return the slice with this overlay; the same object if nothing changes.  Pure."""
        ...


def apply_all(published: ResourceSlice, overlays: Iterable[Overlay]) -> OverlaidSlice:
    effective, problems = published, list[str]()
    for overlay in overlays:
        overlaid = overlay.apply(effective)
        effective = overlaid.effective
        problems.extend(overlaid.problems)
    return OverlaidSlice(effective, tuple(problems))
