"""What upstream takes for an error of the whole pod rules out the node that it is about, with the reason."""

import pytest
from dra_extender.simulator.apiserver.objects import Json, StoredKind

from tests.support.scheduling.world import DRIVER, InMemoryExtender

MODEL = 'device.attributes["gpu.example.com"].model == "a"'


def two_nodes(trouble: str) -> InMemoryExtender:
    """n0 has something wrong with its pool, n1 is sound."""
    world = InMemoryExtender()
    world.device_class()
    for node in ("n0", "n1"):
        world.node(node)
    device: Json = {"name": "gpu-0", "attributes": {"model": {"string": "a"}}}
    first = {"name": "gpu-0"} if trouble == "selector" else device
    count = 2 if trouble == "incomplete" else 1
    devices = [device, device] if trouble == "invalid" else [first]
    pool = {"name": "n0", "generation": 1, "resourceSliceCount": count}
    spec = {"driver": DRIVER, "pool": pool, "nodeName": "n0", "devices": devices}
    world.create(StoredKind.SLICE, {"metadata": {"name": "n0-devices"}, "spec": spec})
    world.slice("n1", [device])
    return world


def claim(world: InMemoryExtender, **body: object) -> None:
    request = {"name": "req", "exactly": {"deviceClassName": "gpu", **body}}
    world.create(StoredKind.CLAIM, {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}})
    world.add_pod("p", "c")


@pytest.mark.parametrize(
    ("trouble", "body", "why"),
    [
        ("selector", {"count": 1, "selectors": [{"cel": {"expression": MODEL}}]}, "selector failed on a device"),
        ("incomplete", {"allocationMode": "All"}, "resource pool is being updated"),
        ("invalid", {"allocationMode": "All"}, "resource pool is invalid"),
        ("invalid", {"count": 1}, "resource pool is invalid"),
        ("incomplete", {"count": 1}, "resource pool is being updated"),
    ],
)
async def test_trouble_on_one_node_leaves_the_others(trouble: str, body: Json, why: str) -> None:
    world = two_nodes(trouble)
    claim(world, **body)

    answer = await world.filter("p", "n0", "n1")

    assert list(answer.fitting) == ["n1"]
    assert answer.unresolvable == {"n0": f'node(s): claim "c", request "req": {why}'}
