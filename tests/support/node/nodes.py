"""A world with real nodes: the product as deploy/ installs it, and kubelets that start what it places."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self

from tests.controlplane.apiclient import ApiClient
from tests.controlplane.cluster import DEFAULT_OPTIONS, ControlPlane
from tests.controlplane.node.node import Node
from tests.controlplane.node.options import NodeOptions
from tests.controlplane.objects import Object
from tests.controlplane.options import ControlPlaneOptions
from tests.controlplane.resources import NODES
from tests.support.e2e.installed_extender import InstalledExtender, Setup

NODE_FLAGS: Final = ("--authorization-mode=Node", "--enable-admission-plugins=NodeRestriction")
"""The mode is added to the others."""
NOT_WITH_KUBELETS: Final = ("node-ipam-controller",)


@dataclass(frozen=True, slots=True)
class NodesSetup:
    """How a module wants its nodes, by their names 127.0.0.2, 127.0.0.3, ..., its world and its control plane.

    With `in_tree`, an unmodified scheduler takes pods of `default-scheduler` beside ours.
    """

    nodes: Mapping[str, NodeOptions] = field(default_factory=lambda: {"127.0.0.2": NodeOptions()})
    world: Setup = field(default_factory=Setup)
    plane: ControlPlaneOptions = DEFAULT_OPTIONS
    in_tree: bool = False

    @property
    def options(self) -> ControlPlaneOptions:
        """The control plane, with users for the kubelets, and controllers that look after nodes."""
        given = self.plane
        users = {f"system:node:{name}": ("system:nodes",) for name in self.nodes}
        return replace(
            given,
            users={**given.users, **users},
            without_controllers=NOT_WITH_KUBELETS,
            apiserver_flags=(*NODE_FLAGS, *given.apiserver_flags),
        )


ADMIN_KUBELET: Final = NodesSetup({"127.0.0.2": NodeOptions(identity="admin")})
"""A node whose kubelet need not wait until the Node authorizer knows of a pod."""


@dataclass(frozen=True, slots=True)
class RealNodes:
    """The nodes of a module, by name, and the world in which they are."""

    world: InstalledExtender
    by_name: Mapping[str, Node]

    @classmethod
    @asynccontextmanager
    async def start(cls, cluster: ControlPlane, folder: Path, setup: NodesSetup) -> AsyncIterator[Self]:
        """Nodes that are Ready, and the extender with its scheduler; everything has ended when the context is left."""
        async with AsyncExitStack() as stack:
            world = await stack.enter_async_context(InstalledExtender.start(cluster, folder, setup.world))
            if setup.in_tree:
                await stack.enter_async_context(cluster.in_tree_scheduler())
            nodes = {
                name: await stack.enter_async_context(Node.start(cluster, folder, name, options))
                for name, options in setup.nodes.items()
            }
            yield cls(world, nodes)

    @property
    def cluster(self) -> ControlPlane:
        return self.world.cluster

    @property
    def api(self) -> ApiClient:
        """The administrator's client."""
        return self.world.api

    async def cordon(self, node: str, wanted: bool) -> None:
        await self.api.patch(NODES, node, {"spec": {"unschedulable": wanted}})

    def __getitem__(self, name: str) -> Node:
        return self.by_name[name]

    def __iter__(self) -> Iterator[Node]:
        return iter(self.by_name.values())

    def tails(self, lines: int = 25) -> str:
        """The ends of the nodes' logs."""
        found = []
        for node in self:
            for name in ("init", "kubelet", "driver"):
                log = node.log(name)
                text = log.read_text(errors="replace").splitlines()[-lines:] if log.exists() else []
                found += [f"The end of {log}:", *text, ""]
        return "\n".join(found)


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
