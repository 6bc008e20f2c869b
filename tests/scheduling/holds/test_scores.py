"""Which of the nodes that fit are better, as kube-scheduler is told and as the nodes to offer are chosen."""

from collections.abc import Sequence
from typing import Any

import pytest
from dra_extender.scheduling.evaluation.scoring import placed_claims
from dra_extender.scheduling.ports.options import Options, PlacementPolicy
from dra_extender.simulator.apiserver.objects import Json

from tests.support.allocator.building import preferring
from tests.support.model.reading import pod_from
from tests.support.scheduling.world import CONDITIONS, DRIVER, InMemoryExtender

MODELS = ("big", "middle", "small")


def world_of(**options: Any) -> InMemoryExtender:
    world = InMemoryExtender(Options(hold_wait_seconds=0.0, **options))
    world.device_class()
    return world


def gpu(name: str, model: str, **fields: object) -> Json:
    return {"name": name, "attributes": {"model": {"string": model}}, **fields}


def add_pod(world: InMemoryExtender, name: str, models: Sequence[str]) -> None:
    """A pod whose claim asks for the first of these models that is available."""
    alternatives = [
        {"name": each, "deviceClassName": "gpu", "selectors": [{"cel": {"expression": selector(each)}}], "count": 1}
        for each in models
    ]
    world.add_claim_of(name, {"name": "req", "firstAvailable": alternatives})
    world.add_pod(name, name)


def selector(model: str) -> str:
    return f'device.attributes["{DRIVER}"].model == "{model}"'


async def scores(world: InMemoryExtender, pod: str, *nodes: str) -> dict[str, int]:
    offered = (await world.filter(pod, *nodes)).fitting
    return dict(await world.extender.prioritize(pod_from(world.pod(pod)), offered))


async def test_nodes_with_earlier_alternatives_score_higher() -> None:
    world = world_of()
    for index, model in enumerate(MODELS):
        world.node(f"n{index}")
        world.slice(f"n{index}", [gpu("gpu-0", model)])
    add_pod(world, "p1", MODELS)

    assert await scores(world, "p1", "n0", "n1", "n2") == {"n0": 10, "n1": 9, "n2": 8}


async def test_the_best_nodes_are_offered_wherever_they_stand_in_the_list() -> None:
    world = world_of(offered_nodes=2)
    names = [f"n{index}" for index in range(12)]
    for index, name in enumerate(names):
        world.node(name)
        world.slice(name, [gpu("gpu-0", "big" if index in (5, 11) else "small")])
    for number in range(4):
        add_pod(world, f"p{number}", MODELS)
        world.ledger.hold_book.expire(1e9)
        assert set((await world.filter(f"p{number}", *names)).fitting) == {"n5", "n11"}


async def test_with_weight_0_alternatives_count_for_nothing() -> None:
    world = world_of(alternatives_weight=0)
    for name, model in (("n0", "big"), ("n1", "small")):
        world.node(name)
        world.slice(name, [gpu("gpu-0", model)])
    add_pod(world, "p1", MODELS)

    assert await scores(world, "p1", "n0", "n1") == {"n0": 0, "n1": 0}


async def test_a_node_whose_device_needs_no_wait_comes_before_one_with_binding_conditions() -> None:
    world = world_of()
    waits = {**CONDITIONS, "bindsToNode": True}
    for name, fields in (("n0", waits), ("n1", {})):
        world.node(name)
        world.slice(name, [gpu("gpu-0", "big", **fields)])
    world.add_claim("p1")
    world.add_pod("p1", "p1")

    assert await scores(world, "p1", "n0", "n1") == {"n0": 0, "n1": 10}


async def test_a_partition_comes_next_to_other_partitions_and_whole_devices_stay_whole() -> None:
    world = world_of(placement=PlacementPolicy.UPSTREAM)
    consumption = [{"counterSet": "card", "counters": {"units": {"value": "1"}}, "compatibilityGroups": ["mig"]}]
    for name in ("n0", "n1", "n2"):
        world.node(name)
        parts = [gpu(f"part-{index}", "mig", consumesCounters=consumption) for index in range(3)]
        world.slice(name, parts, counters={"card": 3})
    for name in ("p1", "p2", "p3"):
        world.add_claim(name)
        world.add_pod(name, name)

    assert await scores(world, "p1", "n0", "n1", "n2") == {"n0": 0, "n1": 0, "n2": 0}
    await world.bind_through("p1", "n1")
    assert await scores(world, "p2", "n0", "n1", "n2") == {"n0": 0, "n1": 10, "n2": 0}


def world_with_roots(**options: Any) -> InMemoryExtender:
    """Pod `p1` prefers two devices that agree in root and side; n0 has none that do, n2 some with one root, n1 some with both."""
    world = world_of(**options)
    for name, roots, sides in (("n0", "xy", "lr"), ("n1", "xx", "ll"), ("n2", "xx", "lr")):
        world.node(name)
        world.slice(
            name,
            [
                {"name": f"gpu-{index}", "attributes": {"root": {"string": root}, "side": {"string": side}}}
                for index, (root, side) in enumerate(zip(roots, sides, strict=True))
            ],
        )
    request = {"name": "req", "exactly": {"deviceClassName": "gpu", "count": 2}}
    world.add_claim_of("p1", request, config=[preferring(f"{DRIVER}/root", f"{DRIVER}/side")])
    world.add_pod("p1", "p1")
    return world


@pytest.mark.parametrize(("weight", "expected"), [(2, {"n0": 0, "n1": 10, "n2": 5}), (0, {"n0": 0, "n1": 0, "n2": 0})])
async def test_a_node_whose_devices_agree_in_what_is_preferred_comes_first(
    weight: int, expected: dict[str, int]
) -> None:
    assert await scores(world_with_roots(alignment_weight=weight), "p1", "n0", "n1", "n2") == expected


@pytest.mark.parametrize("placement", PlacementPolicy)
async def test_devices_that_agree_count_beside_what_stays_possible(placement: PlacementPolicy) -> None:
    """Though one node would be enough, all are compared."""
    world = world_with_roots(placement=placement, offered_nodes=1)
    assert (await world.filter("p1", "n0", "n1", "n2")).fitting == ("n1",)


async def test_claims_of_one_pod_count_together() -> None:
    world = world_of()
    for name, models in (("n0", ("big", "small")), ("n1", ("small", "small"))):
        world.node(name)
        world.slice(name, [gpu(f"gpu-{index}", model) for index, model in enumerate(models)])
    for name in ("c1", "c2"):
        add_pod(world, name, MODELS)
    world.add_pod("both", "c1", "c2")

    found = await scores(world, "both", "n0", "n1")

    # 8 + 6 of the most that there is, and 6 + 6.
    assert found == {"n0": 10, "n1": round(10 * 12 / 14)}


async def test_nodes_that_were_not_offered_and_pods_without_claims_score_nothing() -> None:
    world = world_of()
    world.node("n0")
    world.slice("n0", [gpu("gpu-0", "big")])
    add_pod(world, "p1", MODELS)
    world.add_pod("plain")
    await world.filter("p1", "n0")

    ask = world.extender.prioritize
    assert list(await ask(pod_from(world.pod("p1")), ["n0", "n9"])) == [("n0", 10), ("n9", 0)]
    assert list(await ask(pod_from(world.pod("plain")), ["n0"])) == [("n0", 0)]


async def test_a_second_pod_of_a_shared_claim_is_told_the_scores_of_the_first() -> None:
    world = world_of()
    for name, model in (("n0", "small"), ("n1", "big")):
        world.node(name)
        world.slice(name, [gpu("gpu-0", model)])
    add_pod(world, "p1", MODELS)
    world.add_pod("p2", "p1")

    assert await scores(world, "p1", "n0", "n1") == {"n0": 8, "n1": 10}
    assert await scores(world, "p2", "n0", "n1") == {"n0": 8, "n1": 10}


async def test_what_terms_may_read_is_equal_on_equivalent_nodes_and_differs_with_what_is_in_use() -> None:
    """The nodes of a class share the terms of one of them, so a term may depend on nothing that differs within the class."""
    world = world_of()
    consumption = [{"counterSet": "card", "counters": {"units": {"value": "1"}}, "compatibilityGroups": ["mig"]}]
    for name in ("n0", "n1", "n2"):
        world.node(name, cpu=name[1])
        parts = [gpu(f"part-{index}", "mig", consumesCounters=consumption) for index in range(3)]
        world.slice(name, parts, counters={"card": 3})
    for name in ("p1", "p2"):
        world.add_claim(name)
        world.add_pod(name, name)
    await world.filter("p1", "n2")
    await world.bind_through("p1", "n2")

    result = world.extender.evaluate(pod_from(world.pod("p2")), ["n0", "n1", "n2"])

    assert result.demand is not None
    ledger, read = world.ledger, {}
    for name, fit in result.fits.items():
        assert fit is not None
        assert fit.placement is not None
        read[name] = list(placed_claims(result.demand, fit.placement, ledger.usage(), ledger.slices))
    assert read["n0"] == read["n1"] != read["n2"]
