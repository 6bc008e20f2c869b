"""The control planes of `make e2e`, by name. A plane starts once in a run, and modules use it one after the other.

A module says which plane it needs:

    pytestmark = [pytest.mark.e2e, pytest.mark.plane(V1_36), pytest.mark.asyncio(loop_scope="module")]

DEFAULTS is the plane of a module that says nothing. A module to which gates do not matter takes a plane on which others spend
little time. Tests that differ in the plane are parametrized:

    @pytest.mark.parametrize("plane", [V1_34, V1_35], indirect=True, scope="module")

A variation of gates and API versions, `replace(V1_34, feature_gates=...)`, restarts components of the plane; the next module has
the plane as it names it. All planes have the same users. What runs beside a plane (schedulers, replicas, relays) is started by the
module.
"""

import os
from functools import partial
from typing import Final

import pytest

from tests.controlplane.options import ControlPlaneOptions, default_gates
from tests.support.kube.rights import RIGHTS, user_without

GATES: Final = (
    "GenericWorkload",
    "DRAWorkloadResourceClaims",
    "DRADeviceCompatibilityGroups",
    "DRADeviceBindingConditions",
    "DRAPartitionableDevices",
    "DRAConsumableCapacity",
)
"""Features of 1.37 that a control plane can lack."""
LATER: Final = (
    "DRADerivedAttributes",
    "DRAFractionalCapacityRange",
    "DRAListTypeAttributes",
    "DRANodeAllocatableResources",
    "DRAOptionalNodeOperations",
    "DRAPartitionableDevicesType",
    "DRAResourcePoolStatus",
)
"""Alpha features of 1.37."""

_plane: Final = partial(ControlPlaneOptions, users={user_without(purpose): () for purpose in RIGHTS})
DEFAULTS: Final = _plane("defaults")
SECOND_DEFAULTS: Final = _plane("second-defaults")
"""The same: with one of them, all other workers would wait for one."""
BROKEN: Final = _plane("broken")
"""Tests stop its API server, change its gates, take away roles of the system, or install the whole chart and remove it."""
GATES_OFF: Final = _plane("gates-off", feature_gates=dict.fromkeys(GATES, False), runtime_config={})
LATER_GATES: Final = _plane("later-gates", feature_gates=default_gates() | dict.fromkeys(LATER, True))
EMULATED: Final = not os.environ.get("ALL_RELEASES")
"""Whether the newest programs emulate the releases between the oldest and the newest; `make e2e RELEASES=all` builds them."""
V1_36: Final = _plane("1.36", "1.36", EMULATED, feature_gates={}, runtime_config={})
V1_35: Final = _plane("1.35", "1.35", EMULATED, feature_gates={}, runtime_config={})
V1_34: Final = _plane("1.34", "1.34", feature_gates={}, runtime_config={})

PLANES: Final = (SECOND_DEFAULTS, DEFAULTS, BROKEN, V1_36, GATES_OFF, V1_35, V1_34, LATER_GATES)
"""In the order in which workers take them: the longest first."""


def plane_of(node: pytest.Item | pytest.Module) -> ControlPlaneOptions:
    """Return the plane that a test names by a parameter, or its module by a mark."""
    parameters = node.callspec.params if isinstance(node, pytest.Function) and hasattr(node, "callspec") else {}
    named = parameters.get("plane")
    if isinstance(named, ControlPlaneOptions):
        return named
    mark = node.get_closest_marker("plane")
    return mark.args[0] if mark is not None else DEFAULTS
