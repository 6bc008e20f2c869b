"""Bugs of kube-scheduler: on one control plane the in-tree plugin fails where the extender succeeds, with the same objects.

docs/reference/differences.md lists them. Bugs that 1.37.1 no longer has are shown with kube-scheduler 1.36.0.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from tests.controlplane.build import EARLIER_SCHEDULER, ensure
from tests.controlplane.objects import (
    consumption,
    counter_set,
    device,
    device_class,
    request,
    resource_claim,
    resource_slice,
)
from tests.controlplane.options import default_gates
from tests.controlplane.resources import DEVICE_CLASSES, RESOURCE_CLAIMS
from tests.controlplane.schedulers import IN_TREE
from tests.support.e2e.namespace_fixture import SECONDS, NamespaceFixture, devices_of
from tests.support.e2e.scenes import Scenes
from tests.support.e2e.workloads import clear_groups, create_group, member
from tests.support.side_by_side import side_by_side

BUILD_SECONDS: Final = 1800.0
"""For a test that builds the earlier kube-scheduler."""
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(BUILD_SECONDS), pytest.mark.asyncio(loop_scope="module")]

CARD: Final = "card"


async def wait_for_failure(scene: NamespaceFixture, pod: str, *words: str) -> None:
    """Wait until a scheduler reports on the pod, as condition or Event, that it failed with all these words."""

    async def reported() -> bool:
        notes = [str((await scene.condition(pod)).get("message", ""))]
        notes += [str(event.get("note", "")) for event in await scene.events(pod)]
        return any(all(word in note for word in words) for note in notes)

    await scene.api.wait_for(reported, SECONDS, f"{scene.scheduler} says {words} of pod {pod}")
    assert await scene.node_of(pod) == ""


async def fabric_and_cards(scene: NamespaceFixture, cards: int) -> None:
    """Create two nodes with cards of their own, and a claim `shared` for a device that all nodes reach."""
    for suffix in ("a", "b"):
        devices = (device(f"gpu-{index}", attributes={"fabric": False}) for index in range(cards))
        await scene.node_with_devices(suffix, *devices)
    domain = device("domain", attributes={"fabric": True})
    await scene.publish(scene.slice_of("fabric", allNodes=True, pool="fabric", devices=[domain]))
    await scene.claim("shared", scene.attribute("fabric"))


async def own_claims(scene: NamespaceFixture, *names: str) -> dict[str, str]:
    for name in names:
        await scene.claim(name, f"!{scene.attribute('fabric')}")
    return {name: name for name in names}


async def misplaced(scene: NamespaceFixture) -> dict[str, list[str]]:
    """Return the claims of the scene that hold a device which their selector refuses."""
    return {
        claim["metadata"]["name"]: devices
        for claim in await scene.api.list(RESOURCE_CLAIMS, scene.name)
        if (devices := devices_of(claim)) and ("fabric/domain" in devices) != (claim["metadata"]["name"] == "shared")
    }


async def members_of_a_gang_get_the_devices_that_their_claims_ask_for(
    rival: NamespaceFixture, scene: NamespaceFixture
) -> None:
    """The leader is reserved first, and has more to write: the worker writes the shared claim, with the device of its own."""
    for place in (rival, scene):
        await fabric_and_cards(place, 6)
        await create_group(place, "team", min_count=2)
        await member(place, "team", "leader", claims={**await own_claims(place, *"abcd"), "shared": "shared"})
        await member(place, "team", "worker", claims={"shared": "shared", **await own_claims(place, "own")})
        for name in ("leader", "worker"):
            await place.wait_until_bound(name)
    assert (await misplaced(rival))["own"] == ["fabric/domain"]
    assert await misplaced(scene) == {}


async def halves_and_wholes(scene: NamespaceFixture) -> None:
    """Create a node with one card, which is had whole or in halves."""
    parts = [("whole", "2"), ("half-0", "1"), ("half-1", "1")]
    devices = [
        device(name, attributes={"size": name.partition("-")[0]}, consumes=[consumption(CARD, memory=memory)])
        for name, memory in parts
    ]
    await scene.node_with_counters("a", [counter_set(CARD, memory="2")], devices)


async def a_gang_that_fits_with_later_alternatives_is_placed(rival: NamespaceFixture, scene: NamespaceFixture) -> None:
    for place in (rival, scene):
        await halves_and_wholes(place)
        await create_group(place, "team", min_count=2)
        for name in ("one", "two"):
            alternatives = [
                {
                    "name": size,
                    "deviceClassName": place.name,
                    "selectors": [{"cel": {"expression": f"{place.attribute('size')} == '{size}'"}}],
                }
                for size in ("whole", "half")
            ]
            body = resource_claim(name, place.name, {"name": "gpu", "firstAvailable": alternatives})
            await place.api.create(RESOURCE_CLAIMS, body)
            await member(place, "team", name, claim=name)
    await wait_for_failure(rival, "one", "minCount (2) cannot be satisfied")
    assert {await scene.device_of(name) for name in ("one", "two") if await scene.wait_until_bound(name)} == {
        f"{scene.name}-a/half-0",
        f"{scene.name}-a/half-1",
    }
    assert [await rival.node_of(name) for name in ("one", "two")] == ["", ""]


async def a_pool_that_is_incomplete_on_one_node_keeps_no_pod_from_another(
    rival: NamespaceFixture, scene: NamespaceFixture
) -> None:
    for place in (rival, scene):
        node = await place.node_with_devices("whole", device("gpu-0"))
        await place.publish(
            place.slice_of("torn", node=await place.node("torn"), slice_count=2, devices=[device("gpu-0")])
        )
        exactly = {"deviceClassName": place.name, "allocationMode": "All"}
        await place.api.create(
            RESOURCE_CLAIMS, resource_claim("every", place.name, {"name": "gpu", "exactly": exactly})
        )
        await place.pod("worker", claim="every")
    await wait_for_failure(rival, "worker", "asks for all devices", "is currently being updated")
    assert await scene.wait_until_bound("worker") == node


async def a_capacity_may_be_requested_with_the_name_of_its_driver(
    rival: NamespaceFixture, scene: NamespaceFixture
) -> None:
    for place in (rival, scene):
        shareable = device("nic-0", capacity={"bandwidth": "10"}, allowMultipleAllocations=True)
        node = await place.node_with_devices("a", shareable)
        await place.claim("some", capacity={"requests": {f"{place.driver}/bandwidth": "4"}})
        await place.pod("worker", claim="some")
    await wait_for_failure(rival, "worker", "cannot allocate all claims")
    assert await scene.wait_until_bound("worker") == node
    (result,) = (await scene.stored_claim("some"))["status"]["allocation"]["devices"]["results"]
    assert result["consumedCapacity"] == {"bandwidth": "4"}


async def a_pod_with_a_shared_claim_of_several_nodes_gets_its_own_device_too(
    rival: NamespaceFixture, scene: NamespaceFixture
) -> None:
    for place in (rival, scene):
        await fabric_and_cards(place, 2)
        for name in ("first", "second"):
            await place.pod(name, claims={"shared": "shared", **await own_claims(place, f"own-{name}")})
            if name == "first":
                await place.wait_until_bound(name)
    await wait_for_failure(rival, "second", "number of allocations 1 is smaller than number of claims")
    await scene.wait_until_bound("second")
    assert len(await scene.allocated()) == 3


async def counters_of_a_shared_device_are_not_given_away_again(
    rival: NamespaceFixture, scene: NamespaceFixture
) -> None:
    for place in (rival, scene):
        shareable = device(
            "whole",
            attributes={"half": False},
            capacity={"memory": "2"},
            consumes=[consumption(CARD, memory="2")],
            allowMultipleAllocations=True,
        )
        half = device("half", attributes={"half": True}, consumes=[consumption(CARD, memory="1")])
        node = await place.node_with_counters("a", [counter_set(CARD, memory="2")], [shareable, half])
        await place.claim("share", f"!{place.attribute('half')}", capacity={"requests": {"memory": "1"}})
        await place.pod("sharer", claim="share")
        assert await place.wait_until_bound("sharer") == node
        await place.claim("half", place.attribute("half"))
        await place.pod("second", claim="half")
    assert await rival.wait_until_bound("second")
    assert len(await rival.allocated()) == 2
    await scene.wait_until_unschedulable("second", "shared counters")
    await scene.delete_pod("sharer")
    assert await scene.wait_until_bound("second") == node


async def a_device_that_is_refused_returns_its_counters(rival: NamespaceFixture, scene: NamespaceFixture) -> None:
    for place in (rival, scene):
        taint = {"key": "example.com/broken", "effect": "NoSchedule"}
        devices = [
            device("broken", consumes=[consumption(CARD, memory="2")], taints=[taint]),
            device("sound", consumes=[consumption(CARD, memory="2")]),
        ]
        node = await place.node_with_counters("a", [counter_set(CARD, memory="2")], devices)
        await place.claim("one")
        await place.pod("worker", claim="one")
    await wait_for_failure(rival, "worker", "cannot allocate all claims")
    assert await scene.wait_until_bound("worker") == node


async def pools_of_one_name_of_two_drivers_have_counters_of_their_own(
    rival: NamespaceFixture, scene: NamespaceFixture
) -> None:
    for place in (rival, scene):
        node = await place.node("a")
        requests = []
        for word in ("gpu", "nic"):
            name, driver = f"{place.name}-{word}", f"{word}.{place.driver}"
            await place.api.create(DEVICE_CLASSES, device_class(name, f'device.driver == "{driver}"'))
            only = device(f"{word}-0", consumes=[consumption(CARD, ports="1")])
            sets = [counter_set(CARD, ports="1")]
            await place.publish(
                resource_slice(f"{name}-sets", driver=driver, node=node, slice_count=2, counter_sets=sets),
                resource_slice(f"{name}-devices", driver=driver, node=node, slice_count=2, devices=[only]),
            )
            requests.append(request(word, name))
        await place.api.create(RESOURCE_CLAIMS, resource_claim("both", place.name, *requests))
        await place.pod("worker", claim="both")
    await wait_for_failure(rival, "worker", "cannot allocate all claims")
    assert await scene.wait_until_bound("worker") == node


async def a_claim_for_all_devices_with_counters_stops_no_scheduler(
    rival: NamespaceFixture, scene: NamespaceFixture
) -> None:
    """The rival is a process of its own, which ends."""
    cluster, name = scene.world.cluster, rival.scheduler

    async def ended() -> bool:
        return name not in cluster.pids

    for place in (rival, scene):
        sets = [counter_set(CARD, memory="1")]
        node = await place.node_with_counters("a", sets, [device("gpu-0", consumes=[consumption(CARD, memory="1")])])
        exactly = {"deviceClassName": place.name, "allocationMode": "All"}
        await place.api.create(
            RESOURCE_CLAIMS, resource_claim("every", place.name, {"name": "gpu", "exactly": exactly})
        )
        await place.pod("worker", claim="every")
    await scene.api.wait_for(ended, SECONDS, "kube-scheduler 1.36.0 has ended")
    assert "invalid memory address or nil pointer dereference" in cluster.logs(name).read_text()
    assert await scene.wait_until_bound("worker") == node
    assert await rival.node_of("worker") == ""


Row = Callable[[NamespaceFixture, NamespaceFixture], Awaitable[None]]
IN_NEWEST: Final[tuple[Row, ...]] = (
    members_of_a_gang_get_the_devices_that_their_claims_ask_for,
    a_gang_that_fits_with_later_alternatives_is_placed,
    a_pool_that_is_incomplete_on_one_node_keeps_no_pod_from_another,
    a_capacity_may_be_requested_with_the_name_of_its_driver,
)
IN_EARLIER: Final[tuple[Row, ...]] = (
    a_pod_with_a_shared_claim_of_several_nodes_gets_its_own_device_too,
    counters_of_a_shared_device_are_not_given_away_again,
    a_device_that_is_refused_returns_its_counters,
    pools_of_one_name_of_two_drivers_have_counters_of_their_own,
)


async def carry_out_rows(scenes: Scenes, scheduler: str, *rows: Row) -> None:
    """Carry out the rows, each in a scene of the rival and in one of the extender."""

    async def carried_out(row: Row) -> None:
        await row(await scenes.open(row.__name__, scheduler), await scenes.open(row.__name__))

    try:
        await side_by_side({row.__name__: carried_out(row) for row in rows})
    finally:
        for scene in scenes.opened:
            await clear_groups(scene)


async def test_extender_succeeds_where_the_newest_release_fails(scenes: Scenes) -> None:
    async with scenes.world.cluster.in_tree_scheduler(feature_gates=default_gates()):
        await carry_out_rows(scenes, IN_TREE, *IN_NEWEST)


async def test_extender_succeeds_where_an_earlier_release_fails(scenes: Scenes) -> None:
    cluster = scenes.world.cluster
    programs = await asyncio.to_thread(ensure, EARLIER_SCHEDULER)
    panics = a_claim_for_all_devices_with_counters_stops_no_scheduler
    async with (
        cluster.in_tree_scheduler("earlier", feature_gates={}, programs=programs),
        cluster.in_tree_scheduler("panicking", feature_gates={}, programs=programs),
    ):
        await carry_out_rows(scenes, "earlier", *IN_EARLIER)
        await carry_out_rows(scenes, "panicking", panics)
