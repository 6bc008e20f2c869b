"""Nodes without a device that the selectors mean, by what their nearest devices lack."""

from collections.abc import Hashable, Iterator, Sequence
from math import inf
from typing import Final, NamedTuple

from dra_extender.allocator.demand.demand import SearchableRequest
from dra_extender.allocator.explain.selector_reasons import UnmetSelectors
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.why.report import NearestDevice, SelectorOrigin, UnmetSelector
from dra_extender.model.device import Device
from dra_extender.model.resource_slice import ResourceSlice

MOST_COMPARED: Final = 2_000
"""How many different devices are compared with what is asked for."""
_MOST_CANDIDATES: Final = 4


class Miss(NamedTuple):
    """A device that the selectors do not mean: where it is, the first selector that is not true, and how far it is from all."""

    node: str
    published: ResourceSlice
    position: int
    first: int
    distance: float

    @property
    def device(self) -> Device:
        """The device."""
        return self.published.devices[self.position]


class _Lack(NamedTuple):
    first: int | None
    distance: float


class MissGroup(NamedTuple):
    """Nodes whose nearest devices lack the same; `driver`: they have no device of this driver.

    `candidates` are the nearest devices, nearest first; no two of them lack the same.
    """

    nodes: Sequence[str]
    driver: str | None
    candidates: Sequence[Miss]


class NoMatch:
    """Devices of one cluster that one request does not mean."""

    def __init__(self, view: ClusterView, option: SearchableRequest) -> None:
        self._view = view
        self._option = option
        self._unmet = UnmetSelectors(option.selectors, view.budget())
        self._driver = self._unmet.driver
        self._known: dict[Hashable, _Lack] = {}
        self._limited = False

    @property
    def limit(self) -> str:
        """Which limit the comparison reached, as a sentence; empty if none."""
        return f"the nearest of {MOST_COMPARED} different devices is named; there are more" if self._limited else ""

    def groups(self, nodes: Sequence[str]) -> list[MissGroup]:
        """The nodes by what differs: the driver, or the first selector that is false on the nearest device; nearest first."""
        found: dict[int | None, list[str]] = {}
        nearest: dict[int | None, list[Miss]] = {}
        for name in nodes:
            misses = list(self._misses(name))
            first = misses[0].first if misses else None
            found.setdefault(first, []).append(name)
            nearest.setdefault(first, []).extend(misses[:_MOST_CANDIDATES])
        groups = [
            MissGroup(
                names,
                self._driver if first is None and self._is_absent(names) else None,
                self._different(nearest[first]),
            )
            for first, names in found.items()
        ]
        return sorted(groups, key=_closeness)

    def described(self, miss: Miss) -> NearestDevice:
        """The device with the comparison that fails."""
        published = miss.published
        return NearestDevice(
            node=miss.node,
            device=f"{published.driver}/{published.pool}/{miss.device.name}",
            detail=self._unmet.message(published, miss.position),
            selector=self._selector(miss.first),
        )

    def _is_absent(self, nodes: Sequence[str]) -> bool:
        """Return whether the nodes have no pool of the required driver, not even one with a problem."""
        found = (self._view.ledger.nodes.get(name) for name in nodes)
        pools = (self._view.extender.pools_of(node) for node in found if node is not None)
        return not any(pool.pool_id[0] == self._driver for each in pools if each is not None for pool in each.unusable)

    def _misses(self, name: str) -> Iterator[Miss]:
        """The devices of the node, those of the required driver alone if there is one, nearest first."""
        node = self._view.ledger.nodes.get(name)
        pools = None if node is None else self._view.extender.pools_of(node)
        misses: list[Miss] = []
        for view in () if pools is None else {id(each): each for each in pools.views}.values():
            if self._driver in (None, view.published.driver):
                misses += self._of_slice(name, view.published)
        return iter(sorted(misses, key=lambda each: each.distance))

    def _of_slice(self, name: str, published: ResourceSlice) -> Iterator[Miss]:
        for position in range(len(published.devices)):
            lack = self._lack(published, position)
            if lack.first is not None:
                yield Miss(name, published, position, lack.first, lack.distance)

    def _lack(self, published: ResourceSlice, position: int) -> _Lack:
        """What the device lacks, found out once for devices in which the selectors read the same."""
        content = self._unmet.content(published, position)
        known = self._known.get(content)
        if known is None:
            first = self._unmet.first(published, position)
            if len(self._known) >= MOST_COMPARED:
                self._limited = True
                return _Lack(first, inf)
            distance = 0.0 if first is None else self._unmet.distance(published, position)
            known = self._known[content] = _Lack(first, distance)
        return known

    def _different(self, misses: Sequence[Miss]) -> list[Miss]:
        found: dict[object, Miss] = {}
        for each in sorted(misses, key=lambda miss: miss.distance):
            found.setdefault(self._unmet.content(each.published, each.position), each)
            if len(found) == _MOST_CANDIDATES:
                break
        return list(found.values())

    def _selector(self, index: int) -> UnmetSelector:
        own = len(self._option.device_class.spec.selectors)
        of_class = index < own
        return UnmetSelector(
            origin=SelectorOrigin.CLASS if of_class else SelectorOrigin.REQUEST,
            number=index + 1 if of_class else index + 1 - own,
            expression=self._option.selectors.expressions[index],
        )


def _closeness(group: MissGroup) -> tuple[float, int]:
    """Return how far the nearest device of the nodes is from what is asked for; without a device, farthest."""
    return group.candidates[0].distance if group.candidates else inf, -len(group.nodes)
