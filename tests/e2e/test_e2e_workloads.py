"""Claims of PodGroups and gangs through the real kube-scheduler, whose own gates stay off (KEP-5729)."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from random import Random

import pytest
import pytest_asyncio

from tests.controlplane.objects import device
from tests.controlplane.planes import SECOND_DEFAULTS
from tests.controlplane.resources import EVENTS, POD_GROUPS, RESOURCE_CLAIMS
from tests.support.e2e.checker import expect_rest
from tests.support.e2e.gpus import gpu, partition
from tests.support.e2e.installed_extender import Setup, shipped_configuration
from tests.support.e2e.namespace_fixture import SECONDS, NamespaceFixture
from tests.support.e2e.random_gangs import create_gangs, random_gangs
from tests.support.e2e.settled import QUIET_SECONDS, calls, settled
from tests.support.e2e.workloads import bound_members, clear_groups, create_group, delete_group, member

pytestmark = [pytest.mark.e2e, pytest.mark.plane(SECOND_DEFAULTS), pytest.mark.asyncio(loop_scope="module")]

MANY = 300
RANDOM = 50
MANY_SECONDS = 240.0
BINDING_SECONDS = 6
# Two gangs of three: each member is asked about at most once for each thing that may help it, and these are the members as they
# come, as they are told their claims, the claims, and the Bindings of the winner.
MOST_CALLS = 6 * (6 + 6 + 6 + 3)
MOST_EVENTS = 60


@pytest.fixture(scope="module")
def setup() -> Setup:
    return Setup(
        environment={
            "DRA_EXTENDER_SCHEDULING__RESERVE_FOR_POD_GROUPS": "always",
            "DRA_EXTENDER_SCHEDULING__BINDING_TIMEOUT_SECONDS": str(BINDING_SECONDS),
            "DRA_EXTENDER_SCHEDULING__RECLAIM_GRACE_SECONDS": "1",
        }
    )


@pytest_asyncio.fixture(loop_scope="module")
async def groups(scene: NamespaceFixture) -> AsyncIterator[NamespaceFixture]:
    """The scene of a test that makes PodGroups."""
    yield scene
    await clear_groups(scene)


async def count(scene: NamespaceFixture) -> int:
    return len(await bound_members(scene))


async def test_group_of_300_pods_runs_under_one_reservation_until_the_group_goes(groups: NamespaceFixture) -> None:
    for suffix in ("a", "b"):
        await groups.node(suffix)
    await groups.publish(groups.slice_of("fabric", allNodes=True, pool="fabric", devices=[device("domain-0")]))
    await groups.template("domain")
    uid = await create_group(groups, "workers", templates={"gpu": "domain"})
    names = [f"worker-{index}" for index in range(MANY)]
    await asyncio.gather(*(member(groups, "workers", name, template="domain", cpu="1m") for name in names))

    async def all_bound() -> bool:
        return await count(groups) == MANY

    await groups.api.wait_for(all_bound, MANY_SECONDS, "all members are bound")
    (claim,) = await groups.api.list(RESOURCE_CLAIMS, groups.name)
    assert claim["status"]["reservedFor"] == [
        {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "workers", "uid": uid}
    ]
    await asyncio.gather(*(groups.delete_pod(name) for name in names[: MANY // 2]))
    assert await groups.allocated() == ["fabric/domain-0"]
    await member(groups, "workers", "late", template="domain", cpu="1m")
    await groups.wait_until_bound("late")
    await asyncio.gather(*(groups.delete_pod(name) for name in (*names[MANY // 2 :], "late")))
    await asyncio.sleep(2)
    assert await groups.allocated() == ["fabric/domain-0"]
    await delete_group(groups, "workers")
    await groups.wait_until_free()


async def cards(scene: NamespaceFixture, suffix: str, *, whole: bool) -> str:
    """A node with one card, in halves, and as a whole if it can be had so."""
    devices = [partition("half", index, "50", groups=()) for index in range(2)]
    if whole:
        devices.append(partition("whole", 0, "100", groups=()))
    return await scene.node_with_counters(suffix, [gpu()], devices)


async def told(scene: NamespaceFixture) -> int:
    """How often something was said about a pod of the scene, repetitions included."""
    found = await scene.api.list(EVENTS, scene.name)
    return sum(int((each.get("series") or {}).get("count", 1)) for each in found)


async def test_gang_is_placed_where_pod_by_pod_would_fail(groups: NamespaceFixture) -> None:
    """Two members take anything, the third needs the one card that can be had whole."""
    whole, halves = await cards(groups, "a", whole=True), await cards(groups, "b", whole=False)
    await groups.template("any")
    await groups.template("whole", f'{groups.attribute("type")} == "whole"')
    await create_group(groups, "gang", min_count=3)
    for name in ("first", "second"):
        await member(groups, "gang", name, template="any")
    await asyncio.sleep(1)
    assert await bound_members(groups) == {}
    await member(groups, "gang", "third", template="whole")
    for name in ("first", "second", "third"):
        await groups.wait_until_bound(name)
    assert await bound_members(groups) == {"first": halves, "second": halves, "third": whole}


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
    whole, halves = await cards(groups, "a", whole=True), await cards(groups, "b", whole=False)
    await groups.template("any")
    await groups.template("whole", f'{groups.attribute("type")} == "whole"')
    for gang in ("gang", "other"):
        await create_group(groups, gang, min_count=3)
        for member_name, template in (("first", "any"), ("second", "any"), ("third", "whole")):
            await member(groups, gang, f"{gang}-{member_name}", template=template, scheduler=name)
    placed = {"first": halves, "second": halves, "third": whole}

    async def one_gang() -> bool:
        return await count(groups) == len(placed)

    await groups.api.wait_for(one_gang, SECONDS, "one gang is bound")
    bound = await bound_members(groups)
    (winner,) = {each.partition("-")[0] for each in bound}
    assert bound == {f"{winner}-{member_name}": node for member_name, node in placed.items()}
    await groups.api.wait_for(lambda: as_a_group(groups, winner), SECONDS, "the scheduler says so of the PodGroup")
    for member_name in placed:
        await groups.delete_pod(f"{winner}-{member_name}")
    loser = "other" if winner == "gang" else "gang"
    for member_name, node in placed.items():
        assert await groups.wait_until_bound(f"{loser}-{member_name}") == node
    await cluster.stop_scheduler(name)


async def test_random_gangs_are_bound_exactly_when_a_planner_that_tries_everything_seats_them(
    groups: NamespaceFixture,
) -> None:
    """All at once, each on nodes of its own; of one that does not fit nobody is bound, and nothing stays allocated."""
    gangs = random_gangs(RANDOM, Random(5729))
    fitting = [each for each in gangs if each.fits()]
    assert RANDOM // 4 <= len(fitting) <= RANDOM * 3 // 4
    await create_gangs(groups, gangs)

    async def seated() -> Counter[str]:
        return Counter(name.partition("-")[0] for name in await bound_members(groups))

    async def as_planned() -> bool:
        found = await seated()
        return all(found[each.name] >= each.min_count for each in fitting)

    await groups.api.wait_for(as_planned, MANY_SECONDS, "every gang that fits is bound")
    await expect_rest(groups.api, groups.world.kubelets)
    assert (await seated()).keys() == {each.name for each in fitting}


async def test_two_gangs_that_compete_end_with_one_whole_and_one_waiting(groups: NamespaceFixture) -> None:
    await groups.node_with_devices("a", *(device(f"gpu-{index}") for index in range(4)))
    await groups.template("one")
    before = await calls(groups.world)
    for gang in ("x", "y"):
        await create_group(groups, gang, min_count=3)
    for index in range(3):
        for gang in ("x", "y"):
            await member(groups, gang, f"{gang}{index}", template="one")

    async def one_gang() -> bool:
        return await count(groups) == 3

    await groups.api.wait_for(one_gang, SECONDS, "one gang is bound")
    winners = {name[0] for name in await bound_members(groups)}
    assert len(winners) == 1
    (winner,) = winners
    loser = "y" if winner == "x" else "x"
    for index in range(3):
        await groups.wait_until_unschedulable(f"{loser}{index}", "not enough members of the PodGroup fit at once")
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
    await asyncio.gather(*(groups.delete_pod(f"{winner}{index}") for index in range(3)))
    for index in range(3):
        await groups.wait_until_bound(f"{loser}{index}")
