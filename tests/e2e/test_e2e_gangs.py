"""Gangs (KEP-5729) through the real kube-scheduler: placed whole or not at all, also when members lack or the service is killed."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, NamedTuple

import pytest
import pytest_asyncio

from tests.controlplane.objects import Object, device
from tests.controlplane.planes import SECOND_DEFAULTS
from tests.controlplane.resources import EVENTS, NODES, POD_GROUPS, PODS, RESOURCE_CLAIMS, Resource
from tests.support.e2e.api_relay import ApiRelay, pass_on
from tests.support.e2e.boundaries import Turnstile
from tests.support.e2e.checker import expect_rest, forbidden_findings
from tests.support.e2e.gpus import gpu, partition
from tests.support.e2e.installed_extender import InstalledExtender, Setup, shipped_configuration
from tests.support.e2e.namespace_fixture import SECONDS, NamespaceFixture, devices_of
from tests.support.e2e.scenes import carry_out_apart
from tests.support.e2e.settled import QUIET_SECONDS, calls, settled
from tests.support.e2e.workloads import bound_members, clear_groups, create_group, member

pytestmark = [pytest.mark.e2e, pytest.mark.plane(SECOND_DEFAULTS), pytest.mark.asyncio(loop_scope="module")]

MEMBERS: Final = 4
GANGS: Final = 6
CLAIMS: Final = MEMBERS + 1
"""Of a gang: one for each member, and one that they share."""
GRACE: Final = "DRA_EXTENDER_SCHEDULING__RECLAIM_GRACE_SECONDS"
SHORT_GRACE: Final = {GRACE: "5"}
LONG_GRACE: Final = {GRACE: "30"}
"""Longer than kube-scheduler backs off: what a killed extender wrote is still there when the pods are tried again."""
# Two gangs of three: each member is asked about at most once for each thing that may help it, and these are the members as they
# come, as they are told their claims, the claims, and the Bindings of the winner.
MOST_CALLS: Final = 6 * (6 + 6 + 6 + 3)
MOST_EVENTS: Final = 60
GATED: Final = [{"name": "example.com/wait"}]
LACKING: Final = "PodGroup gang: 3 more members needed, 2 can be placed; pod c: "


@pytest.fixture(scope="module")
def setup() -> Setup:
    environment = {
        "DRA_EXTENDER_SCHEDULING__RESERVE_FOR_POD_GROUPS": "always",
        "DRA_EXTENDER_SCHEDULING__RECLAIM_INTERVAL_SECONDS": "0.5",
        **SHORT_GRACE,
    }
    return Setup(api_relayed=True, environment=environment)


@pytest.fixture
def relay(world: InstalledExtender) -> ApiRelay:
    assert world.api_relay is not None
    return world.api_relay


@pytest_asyncio.fixture(loop_scope="module")
async def groups(scene: NamespaceFixture, relay: ApiRelay) -> AsyncIterator[NamespaceFixture]:
    """The scene of a test that makes PodGroups."""
    yield scene
    relay.handler = pass_on
    await clear_groups(scene)


async def cards(scene: NamespaceFixture, suffix: str, *, whole: bool) -> str:
    """A node with one card, in halves, and as a whole if it can be had so."""
    devices = [partition("half", index, "50", groups=()) for index in range(2)]
    if whole:
        devices.append(partition("whole", 0, "100", groups=()))
    return await scene.node_with_counters(suffix, [gpu()], devices)


async def compete(scene: NamespaceFixture, **fields: Any) -> tuple[str, dict[str, str]]:
    """Two gangs of which one fits: two members take anything, the third needs the one card that can be had whole.

    Return the one that waits, and where its members will go, when the other is bound whole.
    """
    whole, halves = await cards(scene, "a", whole=True), await cards(scene, "b", whole=False)
    await scene.template("any")
    await scene.template("whole", f'{scene.attribute("type")} == "whole"')
    placed = {"first": halves, "second": halves, "third": whole}
    for gang in ("x", "y"):
        await create_group(scene, gang, min_count=3)
    for name in placed:
        for gang in ("x", "y"):
            template = "whole" if name == "third" else "any"
            await member(scene, gang, f"{gang}-{name}", template=template, **fields)

    async def one_gang() -> bool:
        return len(await bound_members(scene)) == len(placed)

    await scene.api.wait_for(one_gang, SECONDS, "one gang is bound")
    bound = await bound_members(scene)
    (winner,) = {name.partition("-")[0] for name in bound}
    assert bound == {f"{winner}-{name}": node for name, node in placed.items()}
    loser = "y" if winner == "x" else "x"
    return loser, {f"{loser}-{name}": node for name, node in placed.items()}


async def delete_winner(scene: NamespaceFixture, places: Mapping[str, str]) -> None:
    """Delete the pods that are bound, and expect the others in these places."""
    for name in await bound_members(scene):
        await scene.delete_pod(name)
    for name, node in places.items():
        assert await scene.wait_until_bound(name) == node


async def told(scene: NamespaceFixture) -> int:
    """How often something was said about a pod of the scene, repetitions included."""
    found = await scene.api.list(EVENTS, scene.name)
    return sum(int((each.get("series") or {}).get("count", 1)) for each in found)


async def test_two_gangs_that_compete_end_with_one_whole_and_one_waiting_after_few_calls(
    groups: NamespaceFixture,
) -> None:
    """Pod by pod neither would be placed."""
    before = await calls(groups.world)
    _, places = await compete(groups)
    for name in places:
        await groups.wait_until_unschedulable(name)
    events = await told(groups)

    async def quiet() -> bool:
        nonlocal events
        before, events = events, await told(groups)
        if events != before:
            await asyncio.sleep(QUIET_SECONDS)
        return events == before

    asked = await settled(groups.world, 3)
    # Events are written behind what they tell of.
    await groups.api.wait_for(quiet, SECONDS, "nothing more is said about the pods")
    assert await settled(groups.world, 3) == asked
    assert 6 <= asked - before <= MOST_CALLS
    assert 0 < events <= MOST_EVENTS
    await delete_winner(groups, places)


async def as_a_group(scene: NamespaceFixture, name: str) -> bool:
    """Whether kube-scheduler says that it has scheduled a PodGroup, which it does where it schedules groups itself."""
    group = await scene.api.get(POD_GROUPS, name, scene.name)
    conditions = {each["type"]: each["status"] for each in group.get("status", {}).get("conditions", ())}
    return conditions.get("PodGroupInitiallyScheduled") == "True"


async def test_gang_is_placed_in_one_cycle_of_a_scheduler_that_schedules_groups_itself(
    groups: NamespaceFixture,
) -> None:
    """Its gate GenericWorkload on: it asks about all members before it binds one, and all are answered by the plan."""
    name, cluster = "group-scheduler", groups.world.cluster
    configuration = shipped_configuration(groups.world.extender.url, name)
    await cluster.start_scheduler(configuration, name, feature_gates={"GenericWorkload": True})
    loser, places = await compete(groups, scheduler=name)
    winner = "y" if loser == "x" else "x"
    await groups.api.wait_for(lambda: as_a_group(groups, winner), SECONDS, "the scheduler says so of the PodGroup")
    await delete_winner(groups, places)
    await cluster.stop_scheduler(name)


class Obstacle(NamedTuple):
    """Fields of the member c, what the others say of it, and what takes the obstacle away."""

    fields: dict[str, Any]
    said: str
    clear: Callable[[NamespaceFixture], Awaitable[None]]


async def ungate(scene: NamespaceFixture) -> None:
    await scene.api.patch(PODS, "c", {"spec": {"schedulingGates": None}}, scene.name)


async def label(scene: NamespaceFixture) -> None:
    await scene.api.patch(NODES, f"{scene.name}-n", {"metadata": {"labels": {"zone": "late"}}})


async def create_claim(scene: NamespaceFixture) -> None:
    await scene.claim("late")


OBSTACLES: Final[Mapping[str, Obstacle]] = {
    "gate": Obstacle({"schedulingGates": GATED}, "pod has scheduling gates: example.com/wait", ungate),
    "no-devices": Obstacle({"schedulingGates": GATED, "template": None}, "pod has scheduling gates", ungate),
    "selector": Obstacle({"nodeSelector": {"zone": "late"}}, "node(s) didn't match Pod's node affinity", label),
    "claim": Obstacle({"template": None, "claim": "late"}, 'claim "gpu" does not exist', create_claim),
}


async def three_members(scene: NamespaceFixture, filler: str = "", **last: Any) -> None:
    """A node of one CPU and three devices, and a gang of a, b, and c with these fields, that needs all of them.

    `filler`: CPU that a pod without devices has before.
    """
    await scene.node_with_devices("n", *(device(f"gpu-{index}") for index in range(3)), cpu="1")
    if filler:
        await scene.pod("filler", cpu=filler)
        await scene.wait_until_bound("filler")
    await scene.template("one")
    await create_group(scene, "gang", min_count=3)
    for name in "ab":
        await member(scene, "gang", name, template="one")
    await member(scene, "gang", "c", **{"template": "one", **last})


async def clears(scene: NamespaceFixture, found: Obstacle) -> None:
    """Nothing is held until the member can come."""
    await three_members(scene, **found.fields)
    for name in "ab":
        await scene.wait_for_event(name, LACKING, found.said)
    assert await scene.allocated() == []
    assert await bound_members(scene) == {}
    await found.clear(scene)
    for name in "abc":
        await scene.wait_until_bound(name)
    await clear_groups(scene)


async def test_a_member_that_cannot_come_is_named_and_nothing_held_until_it_can(groups: NamespaceFixture) -> None:
    await carry_out_apart(groups, {name: partial(clears, found=found) for name, found in OBSTACLES.items()})


async def test_a_report_of_kube_scheduler_ends_the_holds_until_it_asks_about_the_member_again(
    groups: NamespaceFixture,
) -> None:
    """The node has too little CPU left for one of them, which kube-scheduler alone finds out; the time to bind is ten minutes."""
    await three_members(groups, filler="600m", cpu="500m")
    for name in "ab":
        await groups.wait_for_event(name, LACKING, "Insufficient cpu")
    await groups.wait_until_free()
    await groups.world.extender.restart()
    assert await bound_members(groups) == {"filler": f"{groups.name}-n"}
    await groups.delete_pod("filler")
    for name in "abc":
        await groups.wait_until_bound(name)


def names(gang: str) -> list[str]:
    return [f"{gang}-{index}" for index in range(MEMBERS)]


async def create_gangs_that_share(scene: NamespaceFixture, *gangs: str) -> None:
    """Gangs of which all members are needed, with a device each and one that they share, and enough of both for all."""
    for suffix in ("a", "b", "c"):
        devices = (device(f"gpu-{index}", attributes={"shared": False}) for index in range(MEMBERS * len(gangs)))
        await scene.node_with_devices(suffix, *devices)
    domains = [device(f"domain-{index}", attributes={"shared": True}) for index in range(len(gangs))]
    await scene.publish(scene.slice_of("fabric", allNodes=True, pool="fabric", devices=domains))
    await scene.template("own", f"!{scene.attribute('shared')}")
    await scene.template("shared", scene.attribute("shared"))
    for gang in gangs:
        await create_group(scene, gang, min_count=MEMBERS, templates={"shared": "shared"})
    sources = {"templates": {"gpu": "own", "shared": "shared"}}
    await asyncio.gather(*(member(scene, gang, name, **sources) for gang in gangs for name in names(gang)))


async def allocations(scene: NamespaceFixture) -> dict[str, Object]:
    """Allocation and reservations of each claim that has them, by name."""
    found = await scene.api.list(RESOURCE_CLAIMS, scene.name)
    return {
        each["metadata"]["name"]: {key: each["status"][key] for key in ("allocation", "reservedFor")}
        for each in found
        if each.get("status", {}).get("allocation")
    }


async def used_by(scene: NamespaceFixture, gang: str) -> set[str]:
    """The claims of which the members of a gang were told."""
    pods = [await scene.read(name) for name in names(gang)]
    return {entry["resourceClaimName"] for pod in pods for entry in pod["status"]["resourceClaimStatuses"]}


async def test_every_claim_of_a_gang_is_written_before_its_first_binding(groups: NamespaceFixture) -> None:
    """Of several gangs at once, in the order in which the API server stored it."""
    gangs = [f"gang{index}" for index in range(GANGS)]
    everybody = {name for gang in gangs for name in names(gang)}
    async with following(groups, PODS) as pods, following(groups, RESOURCE_CLAIMS) as claims:
        await create_gangs_that_share(groups, *gangs)
        await asyncio.gather(*map(groups.wait_until_bound, everybody))
        claims_of = {gang: await used_by(groups, gang) for gang in gangs}
        every = {name for used in claims_of.values() for name in used}

        async def heard() -> bool:
            bound = {each["metadata"]["name"] for each in pods if each["spec"].get("nodeName")}
            reserved = {each["metadata"]["name"] for each in claims if each.get("status", {}).get("reservedFor")}
            return bound == everybody and every <= reserved

        await groups.api.wait_for(heard, SECONDS, "the watches tell of every Binding and every allocation")
    for gang, used in claims_of.items():
        assert len(used) == CLAIMS
        written = [
            first_version(claims, claim, "status", field) for claim in used for field in ("allocation", "reservedFor")
        ]
        assert max(written) < min(first_version(pods, name, "spec", "nodeName") for name in names(gang))


async def test_killed_after_the_first_binding_of_a_gang_the_rest_is_bound_as_written(
    groups: NamespaceFixture, relay: ApiRelay
) -> None:
    """The same devices on the same nodes, from the same moment on; of one gang one is bound then, of the other all but one."""
    posted = {"few": 1, "most": MEMBERS - 1}
    gate = relay.handler = Turnstile(posted)
    await create_gangs_that_share(groups, *posted)

    async def begun() -> bool:
        come = all(gate.came[gang] == MEMBERS for gang in posted)
        return come and len(await bound_members(groups)) == sum(posted.values())

    await groups.api.wait_for(begun, SECONDS, "some members are bound, and every Binding has come to the relay")
    before = await allocations(groups)
    assert len(before) == len(posted) * CLAIMS
    groups.world.extender.kill()
    bound = await bound_members(groups)
    assert Counter(name.partition("-")[0] for name in bound) == posted
    assert await forbidden_findings(groups.api, groups.world.kubelets) == []
    relay.handler = pass_on
    await groups.world.extender.restart(environment=LONG_GRACE)
    for name in (name for gang in posted for name in names(gang)):
        (pool, _, _) = (await groups.device_of(name)).partition("/")
        assert await groups.wait_until_bound(name) == pool == bound.get(name, pool)
    assert await allocations(groups) == before
    owned = [
        claim
        for claim in await groups.api.list(RESOURCE_CLAIMS, groups.name)
        if claim["metadata"]["ownerReferences"][0]["kind"] == "PodGroup"
    ]
    assert [devices_of(claim)[0].partition("/")[0] for claim in owned] == ["fabric"] * len(posted)
    await expect_rest(groups.api, groups.world.kubelets)


async def test_killed_before_its_first_binding_a_gang_that_lost_a_member_is_released_until_there_is_another(
    groups: NamespaceFixture, relay: ApiRelay
) -> None:
    """Every claim is allocated, and one member is gone when the service is back; the time to bind is ten minutes."""
    gate = relay.handler = Turnstile({"gang": 0})
    for suffix in ("a", "b"):
        await groups.node_with_devices(suffix, *(device(f"gpu-{index}") for index in range(MEMBERS // 2)))
    await groups.template("own")
    await create_group(groups, "gang", min_count=MEMBERS)
    await asyncio.gather(*(member(groups, "gang", name, template="own") for name in names("gang")))

    async def written() -> bool:
        # None is on its way: the relay would pass it on after the kill, and a bound member opens the permit for the others.
        return gate.came["gang"] == MEMBERS

    await groups.api.wait_for(written, SECONDS, "every Binding has come to the relay")
    assert len(await groups.allocated()) == MEMBERS
    groups.world.extender.kill()
    relay.handler = pass_on
    lost, *others = names("gang")
    await groups.delete_pod(lost)
    await groups.world.extender.restart(environment=SHORT_GRACE)
    for name in others:
        await groups.wait_until_unschedulable(name, "too few members of the PodGroup can be placed yet")
    await groups.wait_until_free()
    assert await bound_members(groups) == {}
    claims = await groups.api.list(RESOURCE_CLAIMS, groups.name)
    assert not any(claim.get("status", {}).get("reservedFor") for claim in claims)
    await member(groups, "gang", lost, template="own")
    await asyncio.gather(*map(groups.wait_until_bound, names("gang")))
    await expect_rest(groups.api, groups.world.kubelets)


@asynccontextmanager
async def following(scene: NamespaceFixture, resource: Resource) -> AsyncIterator[list[Object]]:
    """Every state of the objects of a kind that there is inside the block."""
    seen: list[Object] = []
    async with scene.api.watch(resource, scene.name) as events:

        async def follow() -> None:
            async for event in events:
                seen.append(event["object"])  # noqa: PERF401 - the stream does not end

        task = asyncio.create_task(follow())
        try:
            yield seen
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def first_version(states: Sequence[Object], name: str, part: str, field: str) -> int:
    """Return the resource version with which an object got this field of its spec or status."""
    return min(
        int(state["metadata"]["resourceVersion"])
        for state in states
        if state["metadata"]["name"] == name and state.get(part, {}).get(field)
    )
