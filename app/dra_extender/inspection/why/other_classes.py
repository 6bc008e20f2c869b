"""Classes that a request may use instead of its own: wider ones, and those of the devices that its own selectors mean."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final, NamedTuple

from dra_extender.allocator.availability import taken_devices
from dra_extender.allocator.demand.demand import SearchableRequest
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
_MOST_MEANT: Final = 256
"""Devices that a request means and that are looked at for other classes."""
_NO_DRIVER: Final = ""
"""No driver has this name: selectors that may mean its devices do not say of which driver a device is."""
_ANY: Final = ""
"""Stands for all names, where it is not known which ones a condition reads."""

_PlacedDevice = tuple[ResourceSlice, int]
_Conditions = Mapping[str, frozenset[str] | None]


def wider_classes(view: ClusterView, device_class: DeviceClass, budget: Budget) -> Iterator[tuple[str, int]]:
    """Yield the first classes that leave open what `device_class` asks for, with the number of their free devices.

    Such a class has conditions of `device_class` and others that read nothing that its other conditions read, is only for drivers
    for which `device_class` may be, and means a free device.  The classes that share most conditions come first.  Yield none if a
    device of the cluster is of `device_class`, or if the budget is spent.
    """
    programs, conditions = ProgramCache(), _conditions(_expressions(device_class))
    devices = _published(view)
    present = class_selectors(device_class, programs)
    drivers = {published.driver for published, _ in devices}
    other_drivers = [driver for driver in drivers if not present.may_select(driver)]
    ranked = list[tuple[int, str, SelectorList]]()
    for name, other in islice(sorted(view.ledger.classes.items()), _MOST_CLASSES):
        others_conditions = _conditions(_expressions(other))
        if _is_wider(others_conditions, conditions):
            selectors = class_selectors(other, programs)
            if not any(map(selectors.may_select, other_drivers)):
                ranked.append((-len(others_conditions.keys() & conditions.keys()), name, selectors))
    with suppress(SelectionTimeoutError):
        if not ranked or next(_matching(present, devices, budget), None) is not None:
            return
        yield from (entry for entry in _with_free_devices(view, ranked, devices, budget) if entry[1])


class MeantDevices(NamedTuple):
    """The devices that a request's own selectors mean: the first one, empty without any, and the classes that have some of them.

    Each class has the number of its devices that are meant and free.
    """

    first: str = ""
    classes: Sequence[tuple[str, int]] = ()


def meant_devices(view: ClusterView, option: SearchableRequest, budget: Budget) -> MeantDevices | None:
    """Return which devices the selectors of a request mean that contradicts its class, and the classes of these devices.

    The request contradicts its class if its selectors mean devices of drivers that the class excludes, or if a condition of the
    class that is false for all of these devices reads what its selectors read.  The classes with most conditions come first.
    Return None if the request does not contradict its class, or has no selectors, or if the budget is spent.
    """
    own, programs = option.selectors.expressions[len(option.device_class.spec.selectors) :], ProgramCache()
    devices = _published(view)
    present, selectors = class_selectors(option.device_class, programs), SelectorList(own, programs)

    with suppress(SelectionTimeoutError):
        meant = list(_matching(selectors, devices, budget)) if own else []
        if not own or next(_matching(present, meant, budget), None) is not None:
            return None
        if not meant:
            return MeantDevices()
        some, drivers = meant[:_MOST_MEANT], {published.driver for published, _ in meant}
        by_driver = not selectors.may_select(_NO_DRIVER) and not any(map(present.may_select, drivers))
        if not by_driver:
            reads_of_own = list(_conditions(own).values())
            conditions = _conditions(_expressions(option.device_class)).items()
            contested = (text for text, reads in conditions if _overlap([reads], reads_of_own))
            met = (next(_matching(SelectorList([text], programs), some, budget), None) for text in contested)
            if None not in met:
                return None
        ranked = list[tuple[int, str, SelectorList]]()
        for name, other in islice(sorted(view.ledger.classes.items()), _MOST_CLASSES):
            of_class = class_selectors(other, programs)
            if next(_matching(of_class, some, budget), None) is not None:
                ranked.append((-len(_conditions(_expressions(other))), name, of_class))
        classes = _with_free_devices(view, ranked, meant, budget)
        return MeantDevices("/".join(_id_of(meant[0])), list(classes))
    return None


def _expressions(device_class: DeviceClass) -> Sequence[str]:
    return [selector.cel.expression if selector.cel else "" for selector in device_class.spec.selectors]


def _conditions(expressions: Iterable[str]) -> _Conditions:
    """Return what each condition of selectors reads, by its text."""
    return {text: reads for expression in expressions for text, reads in reads_by_condition(expression).items()}


def _is_wider(wider: _Conditions, narrower: _Conditions) -> bool:
    """Return whether only the narrower conditions ask for something, and the further wider ones read nothing of that."""
    left_open = [narrower[text] for text in narrower.keys() - wider.keys()]
    further = [wider[text] for text in wider.keys() - narrower.keys()]
    if not left_open or None in further:
        return False
    return not _overlap(further, left_open)


def _overlap(reads: Sequence[frozenset[str] | None], other_reads: Sequence[frozenset[str] | None]) -> bool:
    """Return whether conditions read a name that others read; None stands for any."""
    names, other_names = _names(reads), _names(other_reads)
    return bool(names and other_names and (not names.isdisjoint(other_names) or _ANY in names | other_names))


def _names(reads: Iterable[frozenset[str] | None]) -> set[str]:
    """Return the names without their domains, which an expression may leave open."""
    return {name.rpartition("/")[2] for names in reads for name in ({_ANY} if names is None else names)}


def _published(view: ClusterView) -> Sequence[_PlacedDevice]:
    slices = newest_generations(list(view.ledger.slices.by_name.values()))
    return [(published, position) for published in slices for position in range(len(published.devices))]


def _id_of(device: _PlacedDevice) -> DeviceId:
    published, position = device
    return (*published.pool_id, published.devices[position].name)


def _matching(selectors: SelectorList, devices: Iterable[_PlacedDevice], budget: Budget) -> Iterator[_PlacedDevice]:
    """Yield the devices for which all selectors are true; those that expressions cannot tell apart are evaluated once."""
    verdicts = dict[object, bool]()
    for published, position in devices:
        kind = device_kind(published, published.devices[position])
        if kind not in verdicts:
            verdicts[kind] = False
            with suppress(SelectorError):
                verdicts[kind] = selectors.evaluate(published, position, budget)
        if verdicts[kind]:
            yield published, position


def _with_free_devices(
    view: ClusterView, ranked: Sequence[tuple[int, str, SelectorList]], devices: Sequence[_PlacedDevice], budget: Budget
) -> Iterator[tuple[str, int]]:
    """Yield the first classes by rank and name, each with the number of these devices that it means and that are free."""
    usage, pools = view.ledger.usage(), {published.pool_id for published, _ in devices}
    taken = {(*pool_id, name) for pool_id in pools for name in taken_devices(usage.pool(pool_id))}
    for _, name, selectors in sorted(ranked, key=lambda entry: entry[:2])[:_MOST_ADVISED]:
        yield name, sum(_id_of(device) not in taken for device in _matching(selectors, devices, budget))
