"""Availability of devices to any claim, and the reason against it: the one rule behind `devices`, `usage`, page and metrics.

A device is taken if a claim has all or a share of it (`taken_devices`).  Otherwise the allocator judges it for a claim that asks
for one device of any kind, without selectors and tolerations (`any_device_demand`), and `availability` says what the code means.  A
code that is not named here makes the device unusable.
"""

from collections.abc import Collection
from enum import StrEnum
from typing import Final, NamedTuple

from dra_extender.allocator.demand.build import build_demand
from dra_extender.allocator.demand.demand import Demand, NamedClaim
from dra_extender.allocator.state.features import Features
from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.allocator.state.usage import PoolUsage
from dra_extender.cel.program import ProgramCache
from dra_extender.model.device_class import DeviceClass
from dra_extender.model.resource_claim import ClaimSpec, DeviceClaim, DeviceRequest, DeviceRequestBody, ResourceClaim

_ANY: Final = "any"
ANY_DEVICE: Final = (_ANY, _ANY)
"""The claim and the request of `any_device_demand`."""


class Availability(StrEnum):
    """An answer about a device that no claim has now: a claim can have it, or what keeps claims away."""

    USABLE = "usable"
    COUNTERS = "blocked by counters"
    GROUPS = "blocked by groups"
    UNUSABLE = "unusable"


class DeviceAvailability(NamedTuple):
    """The availability of one device; `reason` says why the device is unusable, otherwise it is empty.

    `depends_on_node`: another node that reaches the device may give another answer.
    """

    availability: Availability
    reason: str = ""
    depends_on_node: bool = False


_BY_CODE: Final = {
    None: Availability.USABLE,
    Code.COUNTERS: Availability.COUNTERS,
    Code.GROUPS: Availability.GROUPS,
    Code.GROUPS_OFF: Availability.GROUPS,
    Code.NEIGHBOURS: Availability.GROUPS,
}
_REASONS: Final = {Code.TAINTED: "tainted"}
_OF_ONE_NODE: Final = frozenset({Code.OTHER_NODE, Code.NODE_OPERATIONS, Code.NEIGHBOURS})


def availability(code: Code | None) -> DeviceAvailability:
    """Return what the code that speaks against a device means for claims; None: nothing speaks against it."""
    meaning = _BY_CODE.get(code, Availability.UNUSABLE)
    reason = "" if code is None or meaning is not Availability.UNUSABLE else _REASONS.get(code, code.value)
    return DeviceAvailability(meaning, reason, depends_on_node=code in _OF_ONE_NODE)


def any_device_demand(features: Features) -> Demand:
    """Return the demand of a claim for one device of any kind; it may be used on every node."""
    request = DeviceRequestBody(device_class_name=_ANY, allocation_mode="ExactCount", count=1)
    devices = DeviceClaim(requests=(DeviceRequest(name=_ANY, exactly=request),))
    claim = NamedClaim(_ANY, ResourceClaim(spec=ClaimSpec(devices=devices)))
    demand = build_demand((claim,), {_ANY: DeviceClass()}, ProgramCache(), features)
    if isinstance(demand, Rejection):
        raise TypeError(demand.text)
    return demand


def taken_devices(usage: PoolUsage) -> Collection[str]:
    """Return the devices of a pool of which a claim has all or a share; administrative access takes nothing."""
    return {name for name, holdings in usage.items() if any(not holding.admin for holding in holdings)}
