"""Overlays: what is laid over a published slice before anything decides by it.

An overlay is a pure function of a slice.  It returns the slice itself where it changes nothing, so that everything remembered about
a slice object stays good.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from dra_extender.model.resource_slice import ResourceSlice


class OverlaidSlice(NamedTuple):
    """The slice with an overlay on it, and sentences about what could not be applied."""

    effective: ResourceSlice
    problems: tuple[str, ...] = ()


class Overlay(Protocol):
    """Changes what devices of a slice are taken to be."""

    def apply(self, published: ResourceSlice) -> OverlaidSlice:
        """The slice with this overlay; the same object if nothing changes.  Pure."""
        ...


def apply_all(published: ResourceSlice, overlays: Iterable[Overlay]) -> OverlaidSlice:
    """One overlay after the other."""
    effective, problems = published, list[str]()
    for overlay in overlays:
        overlaid = overlay.apply(effective)
        effective = overlaid.effective
        problems.extend(overlaid.problems)
    return OverlaidSlice(effective, tuple(problems))
