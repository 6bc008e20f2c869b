"""A container has the devices of its pod's allocation, and no other."""

from typing import Final

import pytest

from tests.controlplane import objects
from tests.controlplane.node.options import NodeOptions, gpus
from tests.controlplane.objects import Object
from tests.controlplane.resources import RESOURCE_CLAIM_TEMPLATES
from tests.support.node.nodes import NodesSetup
from tests.support.node.pod_scene import PodScene

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

NODE: Final = "127.0.0.2"
BIG: Final[Object] = {"name": "gpu-big", "attributes": {"size": {"string": "big"}}}


@pytest.fixture(scope="module")
def setup() -> NodesSetup:
    """One node with four devices, and a big one."""
    return NodesSetup(nodes={NODE: NodeOptions(devices=(*gpus(4), BIG))})


async def template_of(scene: PodScene, name: str, *requests: Object) -> None:
    await scene.api.create(RESOURCE_CLAIM_TEMPLATES, objects.resource_claim_template(name, scene.name, *requests))


async def test_the_environment_of_a_container_equals_the_allocation(scene: PodScene) -> None:
    await scene.template("one")
    for name in ("a", "b"):
        await scene.pod(name, template="one")
    first, second = [await scene.expect_devices(name) for name in ("a", "b")]
    assert first.keys() == second.keys() == {"DRA_GPU_0"}
    assert first != second


async def test_containers_of_a_pod_share_its_claim_and_one_without_reference_has_nothing(scene: PodScene) -> None:
    await scene.template("one")
    await scene.pod("sharing", template="one", containers={"left": ["gpu"], "right": ["gpu"], "none": []})
    left = await scene.expect_devices("sharing", "left")
    assert await scene.expect_devices("sharing", "right") == left
    assert await scene.environment("sharing", "none") == {}
    (prepared,) = [each for node in scene.nodes for each in node.prepared().values()]
    assert prepared == set(left.values())


async def test_the_first_alternative_that_is_free_is_in_the_container(scene: PodScene) -> None:
    big = f"has({scene.attribute('size')})"
    small = f"has({scene.attribute('index')})"
    await template_of(scene, "either", alternatives("gpu", scene.name, big=big, small=small))
    await scene.pod("first", template="either")
    assert await scene.expect_devices("first") == {"DRA_GPU_BIG_0": f"{NODE}/gpu-big"}
    await scene.pod("second", template="either")
    found = await scene.expect_devices("second")
    assert found.keys() == {"DRA_GPU_SMALL_0"}
    await scene.delete_pod("first")
    await scene.wait_until_gone("first")
    await scene.pod("third", template="either")
    assert await scene.expect_devices("third") == {"DRA_GPU_BIG_0": f"{NODE}/gpu-big"}
    assert await scene.environment("second") == found


def alternatives(name: str, device_class: str, **expressions: str) -> Object:
    """A request for one device by the first of the alternatives, {name: CEL}, that has one."""
    return {
        "name": name,
        "firstAvailable": [
            {"name": each, "deviceClassName": device_class, "count": 1, "selectors": [{"cel": {"expression": text}}]}
            for each, text in expressions.items()
        ],
    }
