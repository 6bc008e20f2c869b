"""Devices that are published anew, as far as the extender knows of them."""

from collections.abc import Mapping, Sequence

from tests.controlplane.node.node import Node
from tests.controlplane.objects import Object
from tests.support.node.nodes import RealNodes

SECONDS = 60.0


async def republish(
    nodes: RealNodes, name: str, devices: Sequence[Object], counter_sets: Sequence[Object] = ()
) -> None:
    """Let the driver of a node publish other devices, and wait until the extender has heard of every slice that changed."""
    heard, before = await _heard(nodes), await _versions(nodes[name])
    await nodes[name].publish(devices, counter_sets)
    after = await _versions(nodes[name])
    changed = {each for each, _ in before.items() ^ after.items()}

    async def known() -> bool:
        return await _heard(nodes) >= heard + len(changed)

    await nodes.api.wait_for(known, SECONDS, f"the extender has heard of the slices of {name}")


async def _heard(nodes: RealNodes) -> float:
    return await nodes.world.metric("watch_events_total", kind="resourceslices")


async def _versions(node: Node) -> Mapping[str, str]:
    return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in await node.slices()}
