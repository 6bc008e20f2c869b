"""Gangs on devices that several nodes reach: exchanged between members until all have one, where that is possible."""

from dra_extender.simulator.apiserver.objects import StoredKind

from tests.support.scheduling.gangs import GangExtender
from tests.support.scheduling.world import DRIVER


class FabricExtender(GangExtender):
    """Nodes in racks with some devices of their own, and pools that a rack or all nodes reach."""

    def rack_node(self, name: str, rack: str, devices: int) -> None:
        self.create(StoredKind.NODE, {"metadata": {"name": name, "labels": {"rack": rack}}})
        local = [{"name": f"own-{index}", "attributes": {"kind": {"string": "own"}}} for index in range(devices)]
        if local:
            self.slice(name, local)

    def pool(self, name: str, rack: str, devices: int) -> None:
        match = {"key": "rack", "operator": "In", "values": [rack]}
        where = {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [match]}]}} if rack else {}
        far = [{"name": f"far-{index}", "attributes": {"kind": {"string": "far"}}} for index in range(devices)]
        self.fabric(*far, name=name, **where)

    def wants(self, pod: str, kind: str) -> None:
        """A member that wants a device of its node, a far one, or any."""
        selector = "true" if kind == "any" else f'device.attributes["{DRIVER}"].kind == "{kind}"'
        self.add_claim(pod, selector=selector)
        self.add_member("g", pod, pod)


async def test_a_far_device_is_left_to_the_member_that_can_use_no_other() -> None:
    """The first member could have either; the first device that suits it is the only one that the second reaches."""
    world = FabricExtender()
    world.rack_node("n1", "r1", 0)
    world.rack_node("n2", "r2", 0)
    world.pool("a-everywhere", "", 1)
    world.pool("b-rack-1", "r1", 1)
    world.gang("g", 2)
    for pod in "ab":
        world.wants(pod, "far")
    assert await world.ask("a", "n1") == {"a": ["n1"]}
    assert await world.ask("b", "n2") == {"b": []}
    assert await world.ask("a", "n1") == {"a": ["n1"]}
    assert await world.ask("b", "n2") == {"b": ["n2"]}


async def test_a_gang_with_too_few_far_devices_is_refused_as_what_it_is() -> None:
    """On many nodes alike, without trying each of them for each member."""
    world = FabricExtender()
    names = [f"n{index:02}" for index in range(40)]
    for name in names:
        world.rack_node(name, "r1", 0)
    world.pool("everywhere", "", 7)
    world.gang("g", 8)
    pods = [f"p{index}" for index in range(8)]
    for pod in pods:
        world.wants(pod, "far")
    assert await world.ask(pods, *names) == {pod: [] for pod in pods}
    assert "PodGroup g: no placement for 8 of 8 waiting members at once" in world.messages("p0")[0]
