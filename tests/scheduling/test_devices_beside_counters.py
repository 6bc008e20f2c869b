"""Whether devices beside counter sets count is decided by the API server's release, or by the setting."""

import pytest
from dra_extender.allocator.state.reasons import Code
from dra_extender.scheduling.ports.errors import FilterResponse
from dra_extender.scheduling.ports.options import DevicesBesideCounters, Options
from dra_extender.simulator.apiserver.objects import StoredKind
from dra_extender.simulator.apiserver.served_fields import Served

from tests.support.scheduling.world import DRIVER, InMemoryExtender

BOTH = {
    "sharedCounters": [{"name": "gpu-0", "counters": {"units": {"value": "3"}}}],
    "devices": [
        {"name": name, "consumesCounters": [{"counterSet": "gpu-0", "counters": {"units": {"value": "2"}}}]}
        for name in ("a", "b")
    ],
}


def world_of(setting: DevicesBesideCounters, *, release_has_them: bool) -> InMemoryExtender:
    world = InMemoryExtender(Options(hold_wait_seconds=0.0, devices_beside_counters=setting))
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    world.node("n1")
    world.device_class()
    world.cluster.store._served = Served(devices_beside_counters=True)
    spec = {"driver": DRIVER, "pool": pool, "nodeName": "n1", **BOTH}
    world.create(StoredKind.SLICE, {"metadata": {"name": "n1"}, "spec": spec})
    world.cluster.has_devices_beside_counters = release_has_them
    world.start()
    world.sync()
    for index in range(2):
        world.add_claim(f"c{index}")
        world.add_pod(f"p{index}", f"c{index}")
    return world


@pytest.mark.parametrize(
    ("setting", "release_has_them", "counted"),
    [
        (DevicesBesideCounters.AUTO, True, True),
        (DevicesBesideCounters.AUTO, False, False),
        (DevicesBesideCounters.ALWAYS, False, True),
        (DevicesBesideCounters.NEVER, True, False),
    ],
)
async def test_devices_beside_counters_are_offered_where_they_count(
    setting: DevicesBesideCounters, *, release_has_them: bool, counted: bool
) -> None:
    world = world_of(setting, release_has_them=release_has_them)
    answer = await world.filter("p0", "n1")
    assert ("n1" in answer.fitting) is counted
    if not counted:
        assert Code.NO_DEVICES in told(answer)
        return
    async with world.watching():
        await world.bind("p0", "n1")
    assert world.devices("c0") == ["n1/a"]
    second = await world.filter("p1", "n1")
    assert Code.COUNTERS in told(second)


def told(answer: FilterResponse) -> str:
    """Why the one node does not fit."""
    return " ".join((*answer.failed.values(), *answer.unresolvable.values()))
