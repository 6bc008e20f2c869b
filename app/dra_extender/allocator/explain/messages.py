"""Sentences about single devices, in the terms of the API."""

from collections.abc import Iterable, Sequence
from typing import Final

from dra_extender.allocator.demand.constraints import ConstraintConflict, ValueSet, value_set
from dra_extender.allocator.rules.capacity import amount_text
from dra_extender.allocator.rules.compatibility import GroupState
from dra_extender.allocator.rules.counters import Shortage
from dra_extender.allocator.rules.eligibility import untolerated
from dra_extender.allocator.rules.shared_capacity import CapacityShortage
from dra_extender.cel.values.quantity import format_quantity
from dra_extender.model.allocation import DeviceToleration
from dra_extender.model.api_json import listed
from dra_extender.model.device import CounterConsumption, Device, DeviceTaint

_SHOWN: Final = 3


def groups_message(
    device: Device,
    conflict: tuple[CounterConsumption, GroupState],
    members: Iterable[tuple[str, Sequence[str]]],
) -> str:
    """E.g. `gpu-0-vgpu-0 declares [vgpu] on counter set gpu-0-counters; gpu-0-mig-1g-0 (allocated) has [mig]`."""
    entry, state = conflict
    clauses = [f"{name} has {groups_text(groups)}" for name, groups in members]
    if state is not None and not state:
        clauses.append("they contradict each other, so that nothing may join them")
    elif len(clauses) > 1 and state is not None:
        clauses.append(f"together they leave {groups_text(sorted(state))}")
    declared = groups_text(entry.compatibility_groups)
    return f"{device.name} declares {declared} on counter set {entry.counter_set}; {_joined(clauses)}"


def closed_set_message(device: Device, counter_set: str) -> str:
    """With compatibility groups off."""
    return (
        f"{device.name} draws on counter set {counter_set}, where compatibility groups are declared, "
        "and CompatibilityGroups is off"
    )


def counter_message(device: Device, shortage: Shortage) -> str:
    """E.g. `gpu-0-mig-1g-2 needs 20 of multiprocessors in counter set gpu-0-counters, 10 remain`."""
    remaining, where = format_quantity(shortage.remaining), f"{shortage.counter} in counter set {shortage.counter_set}"
    if shortage.asked == 0:
        return f"{device.name} draws on a pool whose counter {where} is overdrawn ({remaining} remain)"
    return f"{device.name} needs {format_quantity(shortage.asked)} of {where}, {remaining} remain"


def capacity_message(device: Device, exhausted: CapacityShortage) -> str:
    """E.g. `gpu-0 has 2Gi of memory left, 4Gi are needed`."""
    like = dict(device.capacity)[exhausted.name].text
    remaining, asked = amount_text(exhausted.remaining, like), amount_text(exhausted.asked, like)
    return f"{device.name} has {remaining} of {exhausted.name} left, {asked} would be needed"


def bound_message(device: Device, nodes: Iterable[str]) -> str:
    """E.g. `fabric-0 is bound to node node-1 as long as a claim has a share of it there`."""
    names = sorted(nodes)
    where = f"node {names[0]}" if len(names) == 1 else f"nodes {listed(names, _SHOWN)}"
    return f"{device.name} is bound to {where} as long as a claim has a share of it there"


def constraint_message(device: Device, found: ConstraintConflict) -> str:
    """E.g. `gpu-1 does not satisfy matchAttribute example.com/numa: it has 1, the others have 0`."""
    text = f"{device.name} does not satisfy {found.constraint.text()}"
    if found.attribute is None:
        return f"{text}, which it does not have"
    values = value_set(found.attribute)
    if not values:
        return f"{text}, which has no value"
    if not found.constraint.distinct:
        return f"{text}: it has {_values(values)}, the others have {_values(frozenset().union(*found.others))}"
    return f"{text}: another one has {_values(values.intersection(frozenset().union(*found.others)))} too"


def _values(values: ValueSet) -> str:
    return listed([_value(kind, value) for kind, value in sorted(values)])


def _value(kind: str, value: object) -> str:
    return f'"{value}"' if kind == "str" else str(value).lower() if kind == "boo" else str(value)


def taint_message(device: Device, tolerations: Sequence[DeviceToleration]) -> str:
    """E.g. `gpu-3 has taint example.com/broken=yes:NoSchedule`, with all taints that keep it away."""
    taints = [taint_text(each) for each in device.taints if untolerated((each,), tolerations) is not None]
    return f"{device.name} has taint {listed(taints)}" if taints else device.name


def taint_text(taint: DeviceTaint) -> str:
    """E.g. `example.com/broken=yes:NoSchedule`."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def node_allocatable_message(device: Device) -> str:
    """E.g. `cpu-0 counts against cpu, memory of its node (nodeAllocatableResources)`."""
    return f"{device.name} counts against {listed(device.node_allocatable)} of its node (nodeAllocatableResources)"


def groups_text(groups: Iterable[str]) -> str:
    """A group list as `[a, b]`, or `no groups`."""
    text = ", ".join(groups)
    return f"[{text}]" if text else "no groups"


def _joined(clauses: Sequence[str]) -> str:
    if len(clauses) > _SHOWN + 1:
        return "; ".join([*clauses[:_SHOWN], f"{len(clauses) - _SHOWN - 1} more", clauses[-1]])
    return "; ".join(clauses)
