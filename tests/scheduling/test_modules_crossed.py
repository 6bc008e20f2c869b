"""How many modules a filter call runs through: a reader who follows one has to open them all."""

from tests.support.scheduling.world import World
from tests.support.tracing import modules_crossed

MOST_COLD = 84
MOST_WARM = 42


async def test_a_filter_call_crosses_few_modules() -> None:
    world = World()
    world.device_class()
    for name in ("n0", "n1"):
        world.node(name)
        world.gpus(name, 4)
    for index in range(2):
        world.add_claim(f"c{index}")
        world.add_pod(f"p{index}", f"c{index}")

    with modules_crossed() as cold:
        first = await world.filter("p0", "n0", "n1")
    with modules_crossed() as warm:
        second = await world.filter("p0", "n0", "n1")

    assert first.fitting
    assert second.fitting
    assert "scheduling/filter.py" in warm
    assert len(cold) <= MOST_COLD, f"{len(cold)}: {cold}"
    assert len(warm) <= MOST_WARM, f"{len(warm)}: {warm}"
