"""Claims of PodGroups where the setting says that kubelets accept no reservations for groups: each of 256 pods has its own."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.controlplane.objects import device
from tests.controlplane.planes import SECOND_DEFAULTS
from tests.support.e2e.installed_extender import Setup
from tests.support.e2e.namespace_fixture import NamespaceFixture
from tests.support.e2e.workloads import bound_members, clear_groups, create_group, member

pytestmark = [pytest.mark.e2e, pytest.mark.plane(SECOND_DEFAULTS), pytest.mark.asyncio(loop_scope="module")]

MOST = 256
MANY_SECONDS = 240.0


@pytest.fixture(scope="module")
def setup() -> Setup:
    return Setup(environment={"DRA_EXTENDER_SCHEDULING__RESERVE_FOR_POD_GROUPS": "never"})


@pytest_asyncio.fixture(loop_scope="module")
async def groups(scene: NamespaceFixture) -> AsyncIterator[NamespaceFixture]:
    """The scene of a test that makes PodGroups."""
    yield scene
    await clear_groups(scene)


async def test_pod_257_is_refused_in_words_and_takes_the_place_of_one_that_goes(groups: NamespaceFixture) -> None:
    for suffix in ("a", "b"):
        await groups.node(suffix)
    await groups.publish(groups.slice_of("fabric", allNodes=True, pool="fabric", devices=[device("domain-0")]))
    await groups.claim("domain")
    await create_group(groups, "workers", claims={"gpu": "domain"})
    names = [f"worker-{index}" for index in range(MOST)]
    await asyncio.gather(*(member(groups, "workers", name, claim="domain", cpu="1m") for name in names))

    async def all_bound() -> bool:
        return len(await bound_members(groups)) == MOST

    await groups.api.wait_for(all_bound, MANY_SECONDS, "256 members are bound")
    reserved = (await groups.stored_claim("domain"))["status"]["reservedFor"]
    assert sorted(each["name"] for each in reserved) == sorted(names)
    assert {each["resource"] for each in reserved} == {"pods"}
    await member(groups, "workers", "one-more", claim="domain", cpu="1m")
    await groups.wait_until_unschedulable("one-more", "is reserved by 256 pods already")
    await groups.delete_pod(names[0])
    await groups.wait_until_bound("one-more")
