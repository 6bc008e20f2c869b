"""KEP-5963's table of version skew: what the API server keeps of a driver's slices, against our own switch.

The driver publishes one GPU as a MIG and a vGPU partition that exclude each other.  What is asked each time: may a vGPU be
allocated beside the MIG partition that another claim holds?
"""

import copy
import dataclasses
from collections.abc import Callable

import pytest
from dra_extender.allocator.overlay.policy import PolicyOverlay, PolicyRule
from dra_extender.allocator.state.features import Features
from dra_extender.allocator.state.reasons import Code, NoFit
from dra_extender.cel.program import compile_expression
from dra_extender.cel.values.quantity import NANO
from dra_extender.model.allocation import DeviceHolding, Placement
from dra_extender.model.device import PHYSICAL_DEVICE, CounterConsumption
from dra_extender.model.resource_slice import ResourceSlice

from tests.support.allocator.building import ask, claim_of, consuming, counters_of, exactly, held, picks, slice_of

OFF = dataclasses.replace(Features(), compatibility_groups=False)
KIND = 'device.attributes["gpu.example.com"].kind'
VGPU = claim_of(exactly(expression=f'{KIND} == "vgpu"'))
DEVICES = [
    consuming(f"{kind}-0", kind, attributes={"kind": {"string": kind}, "gpu": {"string": "gpu-0"}})
    for kind in ("mig", "vgpu")
]


def groups_served() -> list[ResourceSlice]:
    return [counters_of(set=9), slice_of(*DEVICES, count=2)]


def groups_stripped() -> list[ResourceSlice]:
    """A server without the field, or with its gate off, drops it on writes."""
    devices = copy.deepcopy(DEVICES)
    for each in devices:
        del each["consumesCounters"][0]["compatibilityGroups"]
    return [counters_of(set=9), slice_of(*devices, count=2)]


def counters_stripped() -> list[ResourceSlice]:
    """A server without partitionable devices keeps neither counters nor what draws on them."""
    return [slice_of(*({key: each[key] for key in ("name", "attributes")} for each in DEVICES))]


def policy() -> PolicyOverlay:
    """The same in a policy file: partitions of one GPU belong together, each kind with a group of its own."""
    gpu = compile_expression('device.attributes["gpu.example.com"].gpu', derived=True)
    kinds = [
        PolicyRule(name=kind, devices=compile_expression(f'{KIND} == "{kind}"'), compatibility_groups=(kind,))
        for kind in ("mig", "vgpu")
    ]
    return PolicyOverlay([PolicyRule(name="gpus", physical_device=gpu), *kinds])


def frozen(counter_set: str, *counters: tuple[str, int]) -> tuple[CounterConsumption, ...]:
    return (CounterConsumption(counter_set=counter_set, counters=counters, compatibility_groups=("mig",)),)


SNAPSHOT = held("mig-0", consumption=frozen("set", ("c", NANO)))
NAMED = held("mig-0", consumption=frozen(f"{PHYSICAL_DEVICE}gpu-0"))
FITS: tuple[Code, ...] = ()

Served = Callable[[], list[ResourceSlice]]


@pytest.mark.parametrize(
    ("served", "holding", "on", "off"),
    [
        # Another scheduler allocated the holder and keeps no snapshot: only the slices as published now are known.
        (groups_served, held("mig-0"), (Code.GROUPS,), (Code.GROUPS_OFF,)),
        (groups_stripped, held("mig-0"), FITS, FITS),
        (counters_stripped, held("mig-0"), FITS, FITS),
        # The holder was allocated by us while groups were served: they count whatever became of server and switch.
        (groups_served, SNAPSHOT, (Code.GROUPS,), (Code.GROUPS_OFF,)),
        (groups_stripped, SNAPSHOT, (Code.GROUPS,), (Code.GROUPS,)),
        (counters_stripped, SNAPSHOT, FITS, FITS),
    ],
)
def test_table_without_a_policy(
    served: Served, holding: DeviceHolding, on: tuple[Code, ...], off: tuple[Code, ...]
) -> None:
    """On: the full feature where groups are served. Off: slices with groups are skipped, and so are counter sets on which
    a holder is known to have groups. Where the server does not serve groups, all is as before the KEP."""
    assert verdict(ask(served(), VGPU, usage=[holding])) == on
    assert verdict(ask(served(), VGPU, usage=[holding], features=OFF)) == off


@pytest.mark.parametrize(
    ("served", "holding"),
    [
        (groups_served, SNAPSHOT),
        (groups_stripped, SNAPSHOT),
        (counters_stripped, NAMED),
        (groups_stripped, held("mig-0")),
    ],
)
def test_policy_gives_the_full_feature_on_every_server(served: Served, holding: DeviceHolding) -> None:
    slices = [policy().apply(each).effective for each in served()]
    assert verdict(ask(slices, VGPU, usage=[holding])) == (Code.GROUPS,)
    mig = claim_of(exactly(expression=f'{KIND} == "mig"'))
    assert picks(ask(slices, mig)) == [["mig-0"]]
    assert picks(ask(slices, VGPU)) == [["vgpu-0"]]


def test_groups_that_were_frozen_outlive_a_switch_off_and_on_again() -> None:
    """Off and on again: the holder's groups are effective again, those of nobody were lost."""
    found = ask(groups_served(), claim_of(exactly(expression=f'{KIND} == "mig"')))
    assert isinstance(found, Placement)
    usage = found.claims[0].holdings
    for features, expected in ((OFF, (Code.GROUPS_OFF,)), (Features(), (Code.GROUPS,))):
        assert verdict(ask(groups_served(), VGPU, usage=usage, features=features)) == expected


def verdict(found: Placement | NoFit) -> tuple[Code, ...]:
    """Nothing if it fits, else the first reason."""
    return () if isinstance(found, Placement) else (found.rejections[0].code,)
