"""Gangs in a small cluster in memory, on cards that can be taken whole or in halves."""

import dataclasses
from collections.abc import Sequence

import msgspec
from dra_extender.ledger.sinks import sinks_of
from dra_extender.scheduling.ports.options import Options

from tests.support.scheduling.world import DRIVER, InMemoryExtender


class GangExtender(InMemoryExtender):
    """A world with PodGroups, and cards that can be taken whole or in halves."""

    def __init__(self) -> None:
        super().__init__()
        self._versions = iter(range(1, 1000))
        self.device_class()

    def short_binding(self) -> Options:
        """The options with a short time to bind."""
        return dataclasses.replace(self.options, binding_timeout_seconds=0.05)

    def gang(self, name: str, min_count: int, size: str = "any", members: Sequence[str] = (), *, uid: str = "") -> None:
        """A PodGroup, with these members as `member` makes them; with a `uid` in place of an earlier PodGroup."""
        meta = {
            "namespace": "default",
            "name": name,
            "uid": uid or f"{name}-uid",
            "resourceVersion": str(next(self._versions)),
        }
        group = {"metadata": meta, "spec": {"schedulingPolicy": {"gang": {"minCount": min_count}}}}
        sinks_of(self.ledger)["podgroups"].changed(msgspec.json.encode(group))
        for member in members:
            self.member(name, member, size)

    def cards(self, node: str, count: int, *, whole: bool = True) -> None:
        """`count` cards, each two halves, and whole ones if they can be had whole."""
        self.node(node)
        sizes = [("half-a", 1), ("half-b", 1), *([("whole", 2)] if whole else [])]
        devices = [
            {
                "name": f"{size}-{index}",
                "attributes": {"size": {"string": size.split("-")[0]}},
                "consumesCounters": [{"counterSet": f"card-{index}", "counters": {"units": {"value": str(units)}}}],
            }
            for index in range(count)
            for size, units in sizes
        ]
        self.slice(node, devices, {f"card-{index}": 2 for index in range(count)})

    def member(self, gang: str, name: str, size: str) -> None:
        """A pod of the gang that wants one device of this size, or any."""
        selector = "" if size == "any" else f'device.attributes["{DRIVER}"].size == "{size}"'
        self.add_claim(name, selector=selector)
        self.add_member(gang, name, name)

    def extended_member(self, gang: str, name: str, resource: str, *claims: str) -> None:
        """A pod of the gang that wants one of an extended resource, and uses these claims."""
        container = {"name": "main", "image": "pause", "resources": {"limits": {resource: "1"}}}
        self.add_member(gang, name, *claims, containers=[container])

    async def ask(self, pods: Sequence[str], *nodes: str) -> dict[str, list[str]]:
        """The nodes that each pod is offered, asked in this order."""
        return {pod: list((await self.filter(pod, *nodes)).fitting) for pod in pods}


def whole_against_halves(world: GangExtender) -> list[str]:
    """Three pods that fit only if those that take anything leave the whole card alone."""
    world.cards("n1", 1)
    world.cards("n2", 1, whole=False)
    world.gang("g", 3)
    for name, size in [("a", "any"), ("b", "any"), ("w", "whole")]:
        world.member("g", name, size)
    return ["a", "b", "w"]
