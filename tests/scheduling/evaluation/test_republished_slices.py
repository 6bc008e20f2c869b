"""Nothing keeps an earlier version of a slice, whatever claims were tried on it."""

import gc
from typing import Final

import pytest
from dra_extender.model.resource_slice import ResourceSlice
from dra_extender.scheduling.ports.options import Options, PlacementPolicy
from dra_extender.simulator.apiserver.objects import Json, StoredKind

from tests.support.scheduling.world import DRIVER, InMemoryExtender

ATTRIBUTES: Final = f"device.attributes['{DRIVER}']"
SLICE: Final = "republished"


def _request(expression: str = "true", device_class: str = "gpu", **body: object) -> Json:
    return {"deviceClassName": device_class, "selectors": [{"cel": {"expression": expression}}], **body}


REQUESTS: Final[dict[str, Json]] = {
    "fits": {"exactly": _request(f"{ATTRIBUTES}.version >= 0")},
    "matches-nothing": {"exactly": _request(f"{ATTRIBUTES}.version < 0")},
    "fails": {"exactly": _request(f"{ATTRIBUTES}.missing == 1")},
    "class-fails": {"exactly": _request(device_class="failing")},
    "does-not-compile": {"exactly": _request("device.nope")},
    "too-many": {"exactly": _request(count=9)},
    "too-large": {"exactly": _request(capacity={"requests": {"memory": "80Gi"}})},
    "all": {"exactly": _request(allocationMode="All")},
    "second": {"firstAvailable": [{"name": "a", **_request("false")}, {"name": "b", **_request(count=2)}]},
}


@pytest.mark.parametrize("placement", PlacementPolicy)
async def test_every_earlier_version_of_a_slice_is_let_go(placement: PlacementPolicy) -> None:
    world = InMemoryExtender(Options(hold_wait_seconds=0.0, placement=placement))
    world.device_class()
    world.device_class("failing", f"{ATTRIBUTES}.missing == 1")
    world.node("n1", cpu="8", memory="8Gi")
    for name, request in REQUESTS.items():
        world.add_claim_of(name, {"name": "r", **request})
        world.add_pod(name, name)
    for generation in range(1, 5):
        devices: list[Json] = [
            {
                "name": f"d{index}",
                "attributes": {"version": {"int": generation}},
                "capacity": {"memory": {"value": "8Gi"}},
            }
            for index in range(4)
        ]
        pool: Json = {"name": "n1", "generation": generation, "resourceSliceCount": 1}
        spec: Json = {"driver": DRIVER, "nodeName": "n1", "pool": pool, "devices": devices}
        write = world.create if generation == 1 else world.update
        write(StoredKind.SLICE, {"metadata": {"name": SLICE}, "spec": spec})
        for name in REQUESTS:
            await world.filter(name, "n1")
        world.extender.learn_expected()
    gc.collect()
    assert sum(isinstance(kept, ResourceSlice) and kept.name == SLICE for kept in gc.get_objects()) == 1
