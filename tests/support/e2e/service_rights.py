"""What the account of the service may do: asked of the API server, and taken away for a while."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from tests.controlplane.apiclient import ApiClient
from tests.controlplane.audit import SERVICE_USER
from tests.controlplane.objects import Object
from tests.controlplane.resources import CLUSTER_ROLES, SUBJECT_ACCESS_REVIEWS
from tests.support.e2e.installed_extender import ACCOUNT, NAMESPACE, InstalledExtender
from tests.support.e2e.namespace_fixture import SECONDS

_GROUPS: Final = ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated")


async def service_may(api: ApiClient, attributes: Object) -> bool:
    """What the API server says now; `attributes` are those of a SubjectAccessReview about a resource or a path."""
    return await may(api, {"user": SERVICE_USER, "groups": [*_GROUPS], **attributes})


async def may(api: ApiClient, asked: Object) -> bool:
    """What the API server says now; `asked` is the spec of a SubjectAccessReview."""
    review = {"apiVersion": SUBJECT_ACCESS_REVIEWS.group_version, "kind": "SubjectAccessReview", "spec": asked}
    return bool((await api.create(SUBJECT_ACCESS_REVIEWS, review))["status"]["allowed"])


@asynccontextmanager
async def without_right(world: InstalledExtender, verb: str, group: str, resource: str) -> AsyncIterator[None]:
    """Take one right from the role of the service, and give it back at the end; its log may say that something is forbidden."""
    rules = (await world.api.get(CLUSTER_ROLES, ACCOUNT))["rules"]
    world.tolerated.append("orbidden")
    await _set_rules(world, [each for rule in rules for each in _without(rule, verb, group, resource)])
    await _until(world, verb, group, resource, allowed=False)
    try:
        yield
    finally:
        await _set_rules(world, rules)
        await _until(world, verb, group, resource, allowed=True)


def _without(rule: Object, verb: str, group: str, resource: str) -> list[Object]:
    """What is left of a rule: its other resources as they are, and the resource with its other verbs."""
    resources = rule.get("resources", ())
    if verb not in rule["verbs"] or group not in rule.get("apiGroups", ()) or resource not in resources:
        return [rule]
    others = {**rule, "resources": [each for each in resources if each != resource]}
    rest = {**rule, "resources": [resource], "verbs": [each for each in rule["verbs"] if each != verb]}
    return [each for each in (others, rest) if each["resources"] and each["verbs"]]


async def _set_rules(world: InstalledExtender, rules: list[Object]) -> None:
    await world.api.patch(CLUSTER_ROLES, ACCOUNT, {"rules": rules})


async def _until(world: InstalledExtender, verb: str, group: str, resource: str, *, allowed: bool) -> None:
    """Wait until the API server has loaded the role."""
    kind, _, part = resource.partition("/")
    attributes = {"verb": verb, "group": group, "resource": kind, "subresource": part, "namespace": "default"}

    async def loaded() -> bool:
        return await service_may(world.api, {"resourceAttributes": attributes}) is allowed

    await world.api.wait_for(loaded, SECONDS, f"{verb} {resource} is allowed: {allowed}")
