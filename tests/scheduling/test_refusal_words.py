"""The Event about a refused pod says what a person needs to change something."""

from app.simulator.objects import Kind
from tests.scheduling.world import DRIVER, World

TYPE = f'device.attributes["{DRIVER}"].type == "H100"'


def _cluster() -> World:
    world = World()
    world.device_class()
    for node in ("n1", "n2"):
        world.node(node)
        devices = [{"name": f"gpu-{index}", "attributes": {"type": {"string": "A100"}}} for index in range(2)]
        world.slice(node, devices)
    return world


async def test_the_values_a_selector_compared_are_said() -> None:
    world = _cluster()
    world.add_claim("c1", selector=TYPE)
    world.add_pod("p1", "c1")
    await world.filter("p1", "n1")
    (message,) = world.messages("p1")
    refusal = "claim c1: request req: no device matches the selectors"
    why = "none of 2 devices match class gpu and the selectors of the request"
    values = f'2 devices: device.attributes["{DRIVER}"].type is "A100", wanted "H100"'
    assert message == f"1 of 1 nodes: {refusal}: {why}: {values} (on n1)"


async def test_the_same_state_gives_the_same_words() -> None:
    world = _cluster()
    world.add_claim("c1", selector=TYPE)
    world.add_pod("p1", "c1")
    for _ in range(3):
        await world.filter("p1", "n1", "n2")
    assert len(set(world.messages("p1"))) == 1


async def test_words_follow_the_devices() -> None:
    world = _cluster()
    world.add_claim("c1", selector=TYPE)
    world.add_pod("p1", "c1")
    await world.filter("p1", "n1")
    world.delete(Kind.SLICE, "n1-devices")
    world.slice("n1", [{"name": "gpu-0", "attributes": {"type": {"string": "L4"}}}])
    await world.filter("p1", "n1")
    assert 'is "L4", wanted "H100"' in world.messages("p1")[-1]
