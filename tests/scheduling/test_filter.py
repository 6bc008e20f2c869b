import asyncio

import pytest
from dra_extender.allocator.state.reasons import Code
from dra_extender.scheduling.ports.filter_response import FilterResponse
from dra_extender.scheduling.ports.options import DevicesBesideCounters, Options
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind
from dra_extender.simulator.apiserver.served_fields import Served

from tests.support.scheduling.world import DRIVER, InMemoryExtender


def gpus(nodes: int, each: int, options: Options | None = None, **pods: str) -> InMemoryExtender:
    return InMemoryExtender(options).furnish(**{f"n{index}": each for index in range(nodes)}, **pods)


def names(count: int) -> tuple[str, ...]:
    return tuple(f"n{index}" for index in range(count))


async def test_a_pod_without_claims_gets_every_node_echoed() -> None:
    world = gpus(1, 1)
    world.add_pod("plain")

    answer = await world.filter("plain", "n0", "unknown")

    assert list(answer.fitting) == ["n0", "unknown"]
    assert answer.unresolvable == {}


async def test_at_most_the_configured_number_of_nodes_is_offered_and_held() -> None:
    world = gpus(6, 1, Options(offered_nodes=2), p1="c1")

    answer = await world.filter("p1", *names(6))

    assert len(answer.fitting) == 2
    hold = world.ledger.holds.of_pod(world.uid("p1"))[0]
    assert set(hold.placements) == set(answer.fitting)


async def test_what_is_held_for_one_pod_is_not_given_to_another() -> None:
    world = gpus(2, 1, p1="c1", p2="c2")

    first = await world.filter("p1", "n0", "n1")
    second = await world.filter("p2", "n0", "n1")

    assert set(first.fitting) == {"n0", "n1"}
    assert list(second.fitting) == []
    assert set(second.unresolvable.values()) == {"node(s): devices are held for pods that are being bound"}


async def test_a_later_pod_waits_a_moment_for_the_bind_before() -> None:
    world = gpus(2, 1, Options(hold_wait_seconds=5.0), p1="c1", p2="c2")
    await world.filter("p1", "n0", "n1")

    async with world.watching():
        waiting = asyncio.create_task(world.filter("p2", "n0", "n1"))
        await asyncio.sleep(0)
        await world.bind("p1", "n1")
        answer = await waiting

    assert list(answer.fitting) == ["n0"]


async def test_a_further_filter_call_of_the_same_pod_replaces_its_holds() -> None:
    world = gpus(2, 1, p1="c1")

    await world.filter("p1", "n0", "n1")
    answer = await world.filter("p1", "n0")

    assert list(answer.fitting) == ["n0"]
    assert len(world.ledger.holds) == 1


async def test_a_joined_hold_offers_only_its_nodes() -> None:
    world = gpus(3, 1, p1="shared", p2="shared")
    await world.filter("p1", "n1")

    answer = await world.filter("p2", *names(3))

    assert list(answer.fitting) == ["n1"]
    assert set(answer.unresolvable.values()) == {'node(s): claim "shared" is being allocated on another node'}


async def test_a_nomination_settles_the_hold_and_its_end_releases_it() -> None:
    world = gpus(3, 1, p1="c1")
    await world.filter("p1", *names(3))
    key = Key(StoredKind.POD, "default", "p1")

    def nominate(node: str | None) -> None:
        def edit(pod: Json) -> None:
            pod["status"]["nominatedNodeName"] = node or ""

        world.cluster.store.edit_unchecked(key, edit)
        world.sync()

    nominate("n1")
    hold = world.ledger.holds.of_pod(world.uid("p1"))[0]
    assert set(hold.placements) == {"n1"}
    world.clock.seconds += world.options.hold_seconds + world.options.binding_timeout_seconds - 1
    assert world.ledger.hold_book.expire(world.clock.monotonic()) == 0
    nominate(None)
    assert len(world.ledger.holds) == 0


@pytest.mark.parametrize(
    ("claims", "text"),
    [
        (("missing",), 'claim "missing" does not exist'),
        (("no-class",), 'claim "no-class", request "req": device class does not exist'),
        (("bad-selector",), 'claim "bad-selector", request "req": selector does not compile'),
    ],
)
async def test_what_is_wrong_with_a_claim_is_said_for_every_node(claims: tuple[str, ...], text: str) -> None:
    world = gpus(2, 1)
    world.add_claim("no-class", class_name="none")
    world.add_claim("bad-selector", selector="device.driver ==")
    world.add_claim("fine")
    world.add_pod("p1", *claims)
    world.add_pod("p2", "fine")

    answer = await world.filter("p1", "n0", "n1")

    assert list(answer.fitting) == []
    assert set(answer.unresolvable.values()) == {f"node(s): {text}"}
    assert text in world.messages("p1")[0]
    assert set((await world.filter("p2", "n0", "n1")).fitting) == {"n0", "n1"}


async def test_a_generated_claim_must_exist_and_belong_to_the_pod() -> None:
    world = gpus(1, 1)
    spec = {
        "containers": [{"name": "main", "image": "pause"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "template"}],
    }
    world.create(StoredKind.POD, {"metadata": {"name": "p1"}, "spec": spec})
    assert set((await world.filter("p1", "n0")).unresolvable.values()) == {'node(s): claim "gpu" is not created yet'}

    world.add_claim("p1-gpu-x")

    def record(pod: Json) -> None:
        pod["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "p1-gpu-x"}]

    world.cluster.store.edit_unchecked(Key(StoredKind.POD, "default", "p1"), record)
    world.sync()
    assert set((await world.filter("p1", "n0")).unresolvable.values()) == {
        'node(s): claim "gpu" belongs to another object'
    }


async def test_selectors_of_design_documents_can_be_read_as_they_were_meant() -> None:
    for rewrite in (False, True):
        world = InMemoryExtender(Options(rewrite_attribute_suffixes=rewrite))
        world.node("n0")
        world.slice("n0", [{"name": "gpu-0", "attributes": {"type": {"string": "mig-1g"}}}])
        world.device_class()
        world.add_claim("c1", selector="device.attributes['type'].string == 'mig-1g'")
        world.add_pod("p1", "c1")

        answer = await world.filter("p1", "n0")

        assert list(answer.fitting) == (["n0"] if rewrite else [])


MODEL = 'device.attributes["gpu.example.com"].model == "a"'


def two_nodes(trouble: str) -> InMemoryExtender:
    """n0 has something wrong with its pool, n1 is sound."""
    world = InMemoryExtender()
    world.device_class()
    for node in ("n0", "n1"):
        world.node(node)
    device: Json = {"name": "gpu-0", "attributes": {"model": {"string": "a"}}}
    first = {"name": "gpu-0"} if trouble == "selector" else device
    count = 2 if trouble == "incomplete" else 1
    devices = [device, device] if trouble == "invalid" else [first]
    pool = {"name": "n0", "generation": 1, "resourceSliceCount": count}
    spec = {"driver": DRIVER, "pool": pool, "nodeName": "n0", "devices": devices}
    world.create(StoredKind.SLICE, {"metadata": {"name": "n0-devices"}, "spec": spec})
    world.slice("n1", [device])
    return world


def claim(world: InMemoryExtender, **body: object) -> None:
    world.add_claim_of("c", {"name": "req", "exactly": {"deviceClassName": "gpu", **body}})
    world.add_pod("p", "c")


@pytest.mark.parametrize(
    ("trouble", "body", "why"),
    [
        ("selector", {"count": 1, "selectors": [{"cel": {"expression": MODEL}}]}, "selector failed on a device"),
        ("incomplete", {"allocationMode": "All"}, "resource pool is being updated"),
        ("invalid", {"allocationMode": "All"}, "resource pool is invalid"),
        ("invalid", {"count": 1}, "resource pool is invalid"),
        ("incomplete", {"count": 1}, "resource pool is being updated"),
    ],
)
async def test_trouble_on_one_node_leaves_the_others(trouble: str, body: Json, why: str) -> None:
    world = two_nodes(trouble)
    claim(world, **body)

    answer = await world.filter("p", "n0", "n1")

    assert list(answer.fitting) == ["n1"]
    assert answer.unresolvable == {"n0": f'node(s): claim "c", request "req": {why}'}


BOTH = {
    "sharedCounters": [{"name": "gpu-0", "counters": {"units": {"value": "3"}}}],
    "devices": [
        {"name": name, "consumesCounters": [{"counterSet": "gpu-0", "counters": {"units": {"value": "2"}}}]}
        for name in ("a", "b")
    ],
}


def world_of(setting: DevicesBesideCounters, *, release_has_them: bool) -> InMemoryExtender:
    world = InMemoryExtender(Options(hold_wait_seconds=0.0, devices_beside_counters=setting))
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    world.node("n1")
    world.device_class()
    world.cluster.store._served = Served(devices_beside_counters=True)
    spec = {"driver": DRIVER, "pool": pool, "nodeName": "n1", **BOTH}
    world.create(StoredKind.SLICE, {"metadata": {"name": "n1"}, "spec": spec})
    world.cluster.has_devices_beside_counters = release_has_them
    world.start()
    world.sync()
    for index in range(2):
        world.add_claim(f"c{index}")
        world.add_pod(f"p{index}", f"c{index}")
    return world


@pytest.mark.parametrize(
    ("setting", "release_has_them", "counted"),
    [
        (DevicesBesideCounters.AUTO, True, True),
        (DevicesBesideCounters.AUTO, False, False),
        (DevicesBesideCounters.ALWAYS, False, True),
        (DevicesBesideCounters.NEVER, True, False),
    ],
)
async def test_devices_beside_counters_are_offered_where_they_count(
    setting: DevicesBesideCounters, *, release_has_them: bool, counted: bool
) -> None:
    world = world_of(setting, release_has_them=release_has_them)
    answer = await world.filter("p0", "n1")
    assert ("n1" in answer.fitting) is counted
    if not counted:
        assert Code.NO_DEVICES in told(answer)
        return
    await world.bind_through("p0", "n1")
    assert world.devices("c0") == ["n1/a"]
    second = await world.filter("p1", "n1")
    assert Code.COUNTERS in told(second)


def told(answer: FilterResponse) -> str:
    """Why the one node does not fit."""
    return " ".join(answer.unresolvable.values())
