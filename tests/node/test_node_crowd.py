"""Thirty pods at once on nodes whose kubelets may read what is bound to them and nothing else, as kubeadm sets them up."""

import asyncio

import pytest

from tests.controlplane.node.options import NodeOptions, gpus
from tests.support.node.nodes import NodesSetup, RealNodes
from tests.support.node.pod_scene import PodScene

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]
NAMES = ("127.0.0.2", "127.0.0.3")
PODS = 30
RUN_SECONDS = 240.0
"""The Node authorizer learns of a claim up to half a minute after the kubelet, which then tries again."""


@pytest.fixture(scope="module")
def setup() -> NodesSetup:
    return NodesSetup(nodes={each: NodeOptions(identity="own", devices=gpus(PODS // 2)) for each in NAMES})


async def test_thirty_pods_at_once_have_a_device_each(scene: PodScene, nodes: RealNodes) -> None:
    await scene.template("one")
    names = [f"p{number}" for number in range(PODS)]
    await asyncio.gather(*(scene.pod(name, template="one") for name in names))
    await asyncio.gather(*(scene.wait_until_running(name, RUN_SECONDS) for name in names))

    found = await asyncio.gather(*(scene.expect_devices(name) for name in names))

    assert sorted(device for each in found for device in each.values()) == sorted(
        f"{node}/gpu-{number}" for node in NAMES for number in range(PODS // 2)
    )
    prepared = [device for node in nodes for devices in node.prepared().values() for device in devices]
    assert len(prepared) == len(set(prepared)) == PODS
