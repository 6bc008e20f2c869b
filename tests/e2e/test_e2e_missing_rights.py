"""Rights that are taken away while the service runs: each is missed by name, nothing is done by halves, and work goes on later."""

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.controlplane.objects import Object, device
from tests.controlplane.resources import CLUSTER_ROLES, Resource
from tests.support.e2e.scene import SECONDS, NamespaceFixture
from tests.support.e2e.world import EXTENDER_USER, NAMESPACE, InstalledExtender

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

ROLE = "dra-extender"
REVIEWS = Resource("authorization.k8s.io/v1", "subjectaccessreviews", namespaced=False)


@asynccontextmanager
async def without(world: InstalledExtender, verb: str, group: str, resource: str) -> AsyncIterator[None]:
    """Take one right from the role of the service, and give it back at the end."""
    role = await world.api.get(CLUSTER_ROLES, ROLE)
    rules = copy.deepcopy(role["rules"])
    for rule in rules:
        if resource in rule.get("resources", ()) and group in rule.get("apiGroups", ()) and verb in rule["verbs"]:
            rule["resources"] = [each for each in rule["resources"] if each != resource]
            kept = [each for each in role_verbs(role, group, resource) if each != verb]
            if kept:
                rules.append({**rule, "resources": [resource], "verbs": kept})
    rules = [rule for rule in rules if rule.get("resources") or rule.get("nonResourceURLs")]
    world.tolerated.append("orbidden")
    await world.api.patch(CLUSTER_ROLES, ROLE, {"rules": rules})
    await until(world, verb, group, resource, allowed=False)
    try:
        yield
    finally:
        await world.api.patch(CLUSTER_ROLES, ROLE, {"rules": role["rules"]})
        await until(world, verb, group, resource, allowed=True)


def role_verbs(role: Object, group: str, resource: str) -> list[str]:
    """The verbs of the rule about a resource."""
    return next(
        list(rule["verbs"])
        for rule in role["rules"]
        if resource in rule.get("resources", ()) and group in rule.get("apiGroups", ())
    )


async def until(world: InstalledExtender, verb: str, group: str, resource: str, *, allowed: bool) -> None:
    """Wait until the API server has loaded the role."""
    kind, _, part = resource.partition("/")
    attributes = {"verb": verb, "group": group, "resource": kind, "subresource": part, "namespace": "default"}
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated"]
    review = {
        "apiVersion": REVIEWS.group_version,
        "kind": "SubjectAccessReview",
        "spec": {"user": EXTENDER_USER, "groups": groups, "resourceAttributes": attributes},
    }

    async def loaded() -> bool:
        return bool((await world.api.create(REVIEWS, review))["status"]["allowed"] is allowed)

    await world.api.wait_for(loaded, SECONDS, f"{verb} {resource} is allowed: {allowed}")


async def until_logged(world: InstalledExtender, *words: str) -> None:
    """Wait for a line of the service's log with all these words."""

    async def found() -> bool:
        return any(all(word in str(line) for word in words) for line in world.log_lines())

    await world.api.wait_for(found, SECONDS, f"a line of the log says {words}")


@pytest.mark.parametrize(
    ("verb", "group", "resource"),
    [
        ("create", "", "pods/binding"),
        ("update", "resource.k8s.io", "resourceclaims/status"),
        ("update", "resource.k8s.io", "resourceclaims/binding"),
        ("patch", "resource.k8s.io", "resourceclaims"),
    ],
)
async def test_a_pod_waits_with_the_name_of_the_right_and_is_bound_when_it_is_back(
    scene: NamespaceFixture, world: InstalledExtender, verb: str, group: str, resource: str
) -> None:
    node = await scene.node_with_devices("a", device("gpu-0"))
    await scene.template("one")
    async with without(world, verb, group, resource):
        await scene.pod("worker", template="one")

        async def refused() -> bool:
            notes = [str(each.get("note", "")) for each in await scene.events("worker")]
            return any("forbidden" in note.lower() and resource.partition("/")[0] in note for note in notes)

        await scene.api.wait_for(refused, SECONDS, f"an Event names {resource}")
        assert await scene.node_of("worker") == ""
    assert await scene.wait_until_bound("worker") == node
    assert await scene.allocated() == [f"{node}/gpu-0"]


async def test_a_pod_is_bound_although_nothing_may_be_said_of_it(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    await scene.template("one")
    await scene.node("a")
    async with without(world, "create", "events.k8s.io", "events"):
        await scene.pod("worker", template="one")
        await until_logged(world, "orbidden", "events")
        node = await scene.node_with_devices("b", device("gpu-0"))
        assert await scene.wait_until_bound("worker") == node
