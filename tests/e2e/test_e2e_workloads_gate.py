"""All claims of a gang are written, and minCount of its binds have come, before its first Binding; a kill on either side of that
leaves all or nothing."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import pytest
import pytest_asyncio

from tests.controlplane.objects import Object, device
from tests.controlplane.planes import SECOND_DEFAULTS
from tests.controlplane.resources import PODS, RESOURCE_CLAIMS, Resource
from tests.support.e2e.api_relay import BINDING, Answer, ApiCall, ApiRelay, Forward, pass_on
from tests.support.e2e.checker import expect_rest, forbidden_findings
from tests.support.e2e.installed_extender import InstalledExtender, Setup
from tests.support.e2e.namespace_fixture import SECONDS, NamespaceFixture, devices_of
from tests.support.e2e.workloads import bound_members, clear_groups, create_group, member

pytestmark = [pytest.mark.e2e, pytest.mark.plane(SECOND_DEFAULTS), pytest.mark.asyncio(loop_scope="module")]

MEMBERS: Final = 4
GANGS: Final = 6
CLAIMS: Final = MEMBERS + 1
"""Of a gang: one for each member, and one that they share."""


@pytest.fixture(scope="module")
def setup() -> Setup:
    settings = {
        "RESERVE_FOR_POD_GROUPS": "always",
        "BINDING_TIMEOUT_SECONDS": 5,
        # Longer than kube-scheduler backs off: what a killed extender wrote is still there when the pods are tried again.
        "RECLAIM_GRACE_SECONDS": 20,
        "RECLAIM_INTERVAL_SECONDS": 0.5,
    }
    environment = {f"DRA_EXTENDER_SCHEDULING__{name}": str(value) for name, value in settings.items()}
    return Setup(api_relayed=True, environment=environment)


@pytest.fixture
def relay(world: InstalledExtender) -> ApiRelay:
    assert world.api_relay is not None
    return world.api_relay


@pytest_asyncio.fixture(loop_scope="module")
async def groups(scene: NamespaceFixture, relay: ApiRelay) -> AsyncIterator[NamespaceFixture]:
    """A scene with nodes whose devices suffice for every gang, and devices that all nodes reach."""
    for suffix in ("a", "b", "c"):
        devices = (device(f"gpu-{index}", attributes={"shared": False}) for index in range(MEMBERS * GANGS // 2))
        await scene.node_with_devices(suffix, *devices)
    domains = [device(f"domain-{index}", attributes={"shared": True}) for index in range(GANGS)]
    await scene.publish(scene.slice_of("fabric", allNodes=True, pool="fabric", devices=domains))
    await scene.template("own", f"!{scene.attribute('shared')}")
    await scene.template("shared", scene.attribute("shared"))
    yield scene
    relay.handler = pass_on
    await clear_groups(scene)


class Turnstile:
    """Lets so many Bindings through, and keeps all that follow until the process that posts them has gone."""

    def __init__(self, lets_through: int) -> None:
        self.came = 0
        self._left = lets_through

    async def __call__(self, call: ApiCall, forward: Forward) -> Answer:
        """See Handler."""
        if call.write is None or call.write.step != BINDING:
            return await forward()
        self.came += 1
        if self._left > 0:
            self._left -= 1
            return await forward()
        await asyncio.Event().wait()
        raise AssertionError


def names(gang: str) -> list[str]:
    return [f"{gang}-{index}" for index in range(MEMBERS)]


async def gang(scene: NamespaceFixture, name: str) -> None:
    """A gang of which all members are needed."""
    await create_group(scene, name, min_count=MEMBERS, templates={"shared": "shared"})
    await asyncio.gather(*(add(scene, name, each) for each in names(name)))


async def add(scene: NamespaceFixture, gang: str, name: str) -> None:
    await member(scene, gang, name, templates={"gpu": "own", "shared": "shared"})


async def allocations(scene: NamespaceFixture) -> dict[str, Object]:
    """Allocation and reservations of each claim that has them, by name."""
    found = await scene.api.list(RESOURCE_CLAIMS, scene.name)
    return {
        each["metadata"]["name"]: {key: each["status"][key] for key in ("allocation", "reservedFor")}
        for each in found
        if each.get("status", {}).get("allocation")
    }


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


def first(states: Sequence[Object], name: str, part: str, field: str) -> int:
    """The resource version with which an object got this field of its spec or status."""
    return min(
        int(each["metadata"]["resourceVersion"])
        for each in states
        if each["metadata"]["name"] == name and each.get(part, {}).get(field)
    )


async def used_by(scene: NamespaceFixture, gang: str) -> set[str]:
    """The claims of which the members of a gang were told."""
    pods = [await scene.read(name) for name in names(gang)]
    return {entry["resourceClaimName"] for pod in pods for entry in pod["status"]["resourceClaimStatuses"]}


async def test_every_claim_of_a_gang_is_written_before_its_first_binding(groups: NamespaceFixture) -> None:
    """Of several gangs at once, in the order in which the API server stored it."""
    gangs = [f"gang-{index}" for index in range(GANGS)]
    async with following(groups, PODS) as pods, following(groups, RESOURCE_CLAIMS) as claims:
        await asyncio.gather(*(gang(groups, each) for each in gangs))
        await asyncio.gather(*(groups.wait_until_bound(name) for each in gangs for name in names(each)))

        async def told() -> bool:
            return {each["metadata"]["name"] for each in pods if each["spec"].get("nodeName")} == {
                name for each in gangs for name in names(each)
            }

        await groups.api.wait_for(told, SECONDS, "the watch tells of every Binding")
        claims_of = {each: await used_by(groups, each) for each in gangs}
        every = {name for used in claims_of.values() for name in used}

        async def reserved() -> bool:
            return every <= {each["metadata"]["name"] for each in claims if each.get("status", {}).get("reservedFor")}

        await groups.api.wait_for(reserved, SECONDS, "the watch tells of every allocation")
    for each, used in claims_of.items():
        assert len(used) == CLAIMS
        written = [first(claims, claim, "status", field) for claim in used for field in ("allocation", "reservedFor")]
        assert max(written) < min(first(pods, name, "spec", "nodeName") for name in names(each))


async def test_killed_before_its_first_binding_nobody_is_bound_and_all_is_released(
    groups: NamespaceFixture, relay: ApiRelay
) -> None:
    """One member is gone when the extender is back, and the others wait for it in vain until the time to bind is over.

    With another in its place the gang is bound as a whole.
    """
    gate = relay.handler = Turnstile(0)
    await gang(groups, "gang")

    async def written() -> bool:
        # None is on its way: the relay would pass it on after the kill.
        return gate.came == MEMBERS

    await groups.api.wait_for(written, SECONDS, "every Binding has come to the relay")
    assert len(await allocations(groups)) == CLAIMS
    groups.world.extender.kill()
    assert await bound_members(groups) == {}
    await groups.delete_pod("gang-0")
    relay.handler = pass_on
    await groups.world.extender.start()
    await groups.wait_until_free()
    assert await bound_members(groups) == {}
    claims = await groups.api.list(RESOURCE_CLAIMS, groups.name)
    assert not any(each.get("status", {}).get("reservedFor") for each in claims)
    await add(groups, "gang", "gang-0")
    await asyncio.gather(*map(groups.wait_until_bound, names("gang")))


@pytest.mark.parametrize("posted", [1, MEMBERS - 1])
async def test_killed_after_its_first_binding_the_rest_is_bound_as_written(
    groups: NamespaceFixture, relay: ApiRelay, posted: int
) -> None:
    """The same devices on the same nodes, from the same moment on."""
    gate = relay.handler = Turnstile(posted)
    await gang(groups, "gang")

    async def begun() -> bool:
        return gate.came == MEMBERS and len(await bound_members(groups)) == posted

    await groups.api.wait_for(begun, SECONDS, "some members are bound")
    before = await allocations(groups)
    assert len(before) == CLAIMS
    groups.world.extender.kill()
    bound = await bound_members(groups)
    assert len(bound) == posted
    assert await forbidden_findings(groups.api, groups.world.kubelets) == []
    relay.handler = pass_on
    await groups.world.extender.start()
    for name in names("gang"):
        (pool, _, _) = (await groups.device_of(name)).partition("/")
        assert await groups.wait_until_bound(name) == pool == bound.get(name, pool)
    assert await allocations(groups) == before
    assert devices_of(await shared_claim(groups))[0].startswith("fabric/")
    await expect_rest(groups.api, groups.world.kubelets)


async def shared_claim(scene: NamespaceFixture) -> Object:
    """The claim that the members share."""
    (found,) = [
        each
        for each in await scene.api.list(RESOURCE_CLAIMS, scene.name)
        if each["metadata"]["ownerReferences"][0]["kind"] == "PodGroup"
    ]
    return found
