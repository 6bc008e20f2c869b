"""Classes that leave open what a request's own class asks for, where no device of the cluster is of that class."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final

from dra_extender.allocator.availability import taken_devices
from dra_extender.allocator.demand.selectors import SelectionTimeoutError, SelectorError, SelectorList
from dra_extender.cel.analysis.attributes import reads_by_condition
from dra_extender.cel.budget import Budget
from dra_extender.cel.program import ProgramCache
from dra_extender.inspection.audit.published import class_selectors, device_kind, newest_generations
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.model.device import DeviceId
from dra_extender.model.device_class import DeviceClass
from dra_extender.model.resource_slice import ResourceSlice

_MOST_CLASSES: Final = 256
_MOST_ADVISED: Final = 3

_Conditions = Mapping[str, frozenset[str] | None]


def wider_classes(view: ClusterView, device_class: DeviceClass, budget: Budget) -> Iterator[tuple[str, int]]:
    """Yield the first classes that leave open what `device_class` asks for, with the number of their free devices.

    Such a class has conditions of `device_class` and others that read nothing that its other conditions read, is only for drivers
    for which `device_class` may be, and means a free device.  The classes that share most conditions come first.  Yield none if a
    device of the cluster is of `device_class`, or if the budget is spent.
    """
    programs, conditions = ProgramCache(), _conditions(device_class)
    slices = newest_generations(list(view.ledger.slices.by_name.values()))
    present = class_selectors(device_class, programs)
    other_drivers = {part.driver for part in slices if not present.may_select(part.driver)}
    ranked = list[tuple[int, str, SelectorList]]()
    for name, other in islice(sorted(view.ledger.classes.items()), _MOST_CLASSES):
        others_conditions = _conditions(other)
        if _is_wider(others_conditions, conditions):
            selectors = class_selectors(other, programs)
            if not any(map(selectors.may_select, other_drivers)):
                ranked.append((-len(others_conditions.keys() & conditions.keys()), name, selectors))
    with suppress(SelectionTimeoutError):
        if not ranked or next(_matching(present, slices, budget), None) is not None:
            return
        taken = _taken(view, slices)
        for _, name, selectors in islice(sorted(ranked, key=lambda entry: entry[:2]), _MOST_ADVISED):
            free = sum(device_id not in taken for device_id in _matching(selectors, slices, budget))
            if free:
                yield name, free


def _conditions(device_class: DeviceClass) -> _Conditions:
    """Return what each condition of a class reads, by its text."""
    expressions = (selector.cel.expression if selector.cel else "" for selector in device_class.spec.selectors)
    return {text: reads for expression in expressions for text, reads in reads_by_condition(expression).items()}


def _is_wider(wider: _Conditions, narrower: _Conditions) -> bool:
    """Return whether only the narrower conditions ask for something, and the further wider ones read nothing of that."""
    left_open = [narrower[text] for text in narrower.keys() - wider.keys()]
    further = [wider[text] for text in wider.keys() - narrower.keys()]
    if not left_open or None in further:
        return False
    names = _names(further)
    return not names or (None not in left_open and names.isdisjoint(_names(left_open)))


def _names(reads: Iterable[frozenset[str] | None]) -> set[str]:
    """Return the names without their domains, which an expression may leave open."""
    return {name.rpartition("/")[2] for names in reads for name in names or ()}


def _matching(selectors: SelectorList, slices: Sequence[ResourceSlice], budget: Budget) -> Iterator[DeviceId]:
    """Yield the devices for which all selectors are true; those that expressions cannot tell apart are evaluated once."""
    verdicts = dict[object, bool]()
    for published in slices:
        for position, device in enumerate(published.devices):
            kind = device_kind(published, device)
            if kind not in verdicts:
                verdicts[kind] = False
                with suppress(SelectorError):
                    verdicts[kind] = selectors.evaluate(published, position, budget)
            if verdicts[kind]:
                yield (*published.pool_id, device.name)


def _taken(view: ClusterView, slices: Sequence[ResourceSlice]) -> Collection[DeviceId]:
    usage, pools = view.ledger.usage(), {published.pool_id for published in slices}
    return {(*pool_id, name) for pool_id in pools for name in taken_devices(usage.pool(pool_id))}
