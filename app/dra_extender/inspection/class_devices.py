"""Which devices a DeviceClass means: those of which all its selectors are true."""

from collections import defaultdict
from typing import Final

from dra_extender.allocator.demand.selectors import SelectionTimeoutError, SelectorError, SelectorList, activation_of
from dra_extender.cel.program import ProgramCache
from dra_extender.inspection.audit.published import device_kind
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.model.device import DeviceId
from dra_extender.model.resource_slice import ResourceSlice

MOST_JUDGED: Final = 20_000
"""Kinds of devices that are judged for all classes together."""


class ClassDevices:
    """The published devices that each class means.  Devices that expressions cannot tell apart are judged once."""

    def __init__(self, view: ClusterView) -> None:
        self._classes = view.ledger.classes
        self._programs = ProgramCache()
        self._left = MOST_JUDGED
        self._by_class: dict[str, frozenset[DeviceId] | None] = {}
        self._kinds: dict[object, tuple[ResourceSlice, int]] = {}
        self._devices: defaultdict[object, list[DeviceId]] = defaultdict(list)
        for pool_id in {published.pool_id for published in view.ledger.slices.by_name.values()}:
            for published in view.published_pool(pool_id).published:
                for position, device in enumerate(published.devices):
                    kind = device_kind(published, device)
                    self._kinds.setdefault(kind, (published, position))
                    self._devices[kind].append((*pool_id, device.name))

    def of_class(self, name: str) -> frozenset[DeviceId] | None:
        """Return the devices of a class; None if there is no such class, or if too many kinds of devices have been judged."""
        if name not in self._by_class:
            device_class = self._classes.get(name)
            expressions = [
                selector.cel.expression
                for selector in (device_class.spec.selectors if device_class else ())
                if selector.cel is not None
            ]
            self._left -= len(self._kinds) if expressions else 0
            selectors = SelectorList(expressions, self._programs)
            self._by_class[name] = (
                None
                if device_class is None or self._left < 0
                else frozenset(
                    device
                    for kind, (published, position) in self._kinds.items()
                    if _means(selectors, published, position)
                    for device in self._devices[kind]
                )
            )
        return self._by_class[name]


def _means(selectors: SelectorList, published: ResourceSlice, position: int) -> bool:
    activation = activation_of(published, published.devices[position])
    try:
        return selectors.evaluate(published, position, None, activation)
    except (SelectorError, SelectionTimeoutError):
        return False
