"""Upstream's own driver for its end-to-end tests (k8s.io/kubernetes/test/e2e/dra/test-driver) beside ours, on one node.

It says what a claim was allocated as `claim_CLAIM_REQUEST=true`, and passes on the parameters that the allocation has from the
class (`admin_...`) and from the claim (`user_...`).
"""

import re
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
import pytest_asyncio

from tests.controlplane import objects
from tests.controlplane.node import configuration
from tests.controlplane.node.options import NodeOptions, gpus
from tests.controlplane.objects import Object
from tests.controlplane.resources import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.support.e2e.namespace_fixture import devices_of
from tests.support.node.nodes import NodesSetup, RealNodes
from tests.support.node.pod_scene import PodScene

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

NODE: Final = "127.0.0.2"
UPSTREAM: Final = "upstream.example.com"
PROGRAM: Final = "dra-test-driver"
DEVICES: Final = 2
SECONDS: Final = 120.0


@pytest.fixture(scope="module")
def setup() -> NodesSetup:
    return NodesSetup(nodes={NODE: NodeOptions(devices=gpus(2))})


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def upstream(nodes: RealNodes) -> AsyncIterator[None]:
    """Upstream's driver runs on the node, and its devices are published."""
    await start(nodes)
    yield
    await nodes[NODE].end(PROGRAM)


async def start(nodes: RealNodes) -> None:
    """Start upstream's driver and wait for its devices."""
    root = configuration.KUBELET_ROOT
    # The program expects its own folder there.
    (nodes[NODE].layout.kubelet_root / "plugins" / UPSTREAM).mkdir(exist_ok=True)
    await nodes[NODE].launch(
        PROGRAM,
        [
            PROGRAM,
            f"--kubeconfig={nodes.cluster.admin_kubeconfig}",
            f"--drivername={UPSTREAM}",
            "kubelet-plugin",
            f"--node-name={NODE}",
            f"--num-devices={DEVICES}",
            f"--datadir={root}/plugins",
            f"--plugin-registration-path={root}/plugins_registry",
            f"--cdi-dir={configuration.CDI}",
        ],
    )

    async def published() -> bool:
        slices = await nodes.api.list(RESOURCE_SLICES, fieldSelector=f"spec.driver={UPSTREAM}")
        return sum(len(each["spec"]["devices"]) for each in slices) == DEVICES

    await nodes.api.wait_for(published, SECONDS, f"{PROGRAM} has published; see {nodes[NODE].log(PROGRAM)}")


async def second_class(scene: PodScene, **fields: Any) -> str:
    """A class of upstream's devices."""
    name = f"{scene.name}-upstream"
    await scene.api.create(DEVICE_CLASSES, objects.device_class(name, f'device.driver == "{UPSTREAM}"', **fields))
    return name


async def claim(scene: PodScene, name: str, *requests: Object, **fields: Any) -> None:
    await scene.api.create(RESOURCE_CLAIMS, objects.resource_claim(name, scene.name, *requests, **fields))


def parameters(**words: str) -> Object:
    """What upstream's driver is told by a class or a claim."""
    return {"opaque": {"driver": UPSTREAM, "parameters": words}}


async def variables(scene: PodScene, pod: str, container: str = "main") -> dict[str, str]:
    """What upstream's driver has put into a container of a pod, once it runs."""
    await scene.wait_until_running(pod)
    await scene.environment(pod, container)
    lines = (line.partition("=") for line in (await scene.logs(pod, container)).splitlines())
    return {name: value for name, _, value in lines if re.match("claim_|user_|admin_", name)}


async def test_one_claim_has_devices_of_two_drivers_and_each_prepares_its_own(
    scene: PodScene, nodes: RealNodes
) -> None:
    await claim(scene, "mixed", objects.request("net", await second_class(scene)), scene.request())
    await scene.pod("mixed", claim="mixed")
    given = await scene.expect_devices("mixed")
    assert given.keys() == {"DRA_GPU_1"}
    assert await variables(scene, "mixed") == {"claim_mixed_net": "true"}
    theirs, ours = devices_of(await scene.claim_of("mixed"))
    assert list(nodes[NODE].prepared().values()) == [{ours}]
    assert theirs.startswith(f"{NODE}/device-0")


async def test_parameters_of_class_and_claim_reach_the_container_through_the_allocation(scene: PodScene) -> None:
    """Each request's own alone, beside those of the class."""
    name = await second_class(scene, config=[parameters(mode="exclusive")])
    mine = {**parameters(level="high"), "requests": ["net"]}
    others = {**parameters(level="low"), "requests": ["more"]}
    requests = [objects.request(each, name) for each in ("net", "more")]
    await claim(scene, "tuned", *requests, config=[mine, others])
    await scene.pod("tuned", claims={"gpu": "tuned"}, containers={"main": ["gpu/net"], "other": ["gpu/more"]})
    found = {container: await variables(scene, "tuned", container) for container in ("main", "other")}
    assert found == {
        "main": {"claim_tuned_net": "true", "admin_mode": "exclusive", "user_level": "high"},
        "other": {"claim_tuned_more": "true", "admin_mode": "exclusive", "user_level": "low"},
    }
