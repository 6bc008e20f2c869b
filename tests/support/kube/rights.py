from typing import Any, Final

from tests.controlplane import objects
from tests.controlplane.apiclient import ApiClient
from tests.controlplane.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES

Rule = dict[str, Any]


def rule(group: str, resource: str, *verbs: str, names: tuple[str, ...] = ()) -> Rule:
    made: Rule = {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
    return {**made, "resourceNames": list(names)} if names else made


RIGHTS: Final[dict[str, Rule]] = {
    "follow claims": rule("resource.k8s.io", "resourceclaims", "list", "watch"),
    "read a claim": rule("resource.k8s.io", "resourceclaims", "get"),
    "write a claim": rule("resource.k8s.io", "resourceclaims", "patch"),
    "write a claim in its own spelling": rule("resource.k8s.io", "resourceclaims", "update"),
    "make a claim": rule("resource.k8s.io", "resourceclaims", "create"),
    "delete a claim": rule("resource.k8s.io", "resourceclaims", "delete"),
    "write a claim's status": rule("resource.k8s.io", "resourceclaims/status", "update"),
    "allocate a claim": rule("resource.k8s.io", "resourceclaims/binding", "update"),
    "follow slices": rule("resource.k8s.io", "resourceslices", "list", "watch"),
    "follow classes": rule("resource.k8s.io", "deviceclasses", "list", "watch"),
    "follow taint rules": rule("resource.k8s.io", "devicetaintrules", "list", "watch"),
    "wake": rule("resource.k8s.io", "deviceclasses", "patch", names=("wake-up.dra-extender.io",)),
    "follow pod groups": rule("scheduling.k8s.io", "podgroups", "list", "watch"),
    "read a template": rule("resource.k8s.io", "resourceclaimtemplates", "get"),
    "read a pod group": rule("scheduling.k8s.io", "podgroups", "get"),
    "let a pod group go": rule("scheduling.k8s.io", "podgroups", "patch"),
    "record a group's claims": rule("scheduling.k8s.io", "podgroups/status", "patch"),
    "follow pods": rule("", "pods", "list", "watch"),
    "read a pod": rule("", "pods", "get"),
    "bind": rule("", "pods/binding", "create"),
    "nominate": rule("", "pods/status", "patch"),
    "follow nodes": rule("", "nodes", "list", "watch"),
    "record an event": rule("events.k8s.io", "events", "create"),
    "repeat an event": rule("events.k8s.io", "events", "patch"),
    "read gates": {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
}
"""The least rights with which everything in app/dra_extender/kube works, each by what it is for."""


async def grant(api: ApiClient, user: str, *lacking: str) -> None:
    """Give a user all of the least rights except some."""
    rules = [rule for purpose, rule in RIGHTS.items() if purpose not in lacking]
    await api.create(CLUSTER_ROLES, objects.role(user, *rules))
    await api.create(CLUSTER_ROLE_BINDINGS, objects.role_binding(user, user, objects.user(user)))


def user_without(purpose: str) -> str:
    """Name of the user that lacks one right."""
    return "without-" + purpose.replace(" ", "-").replace("'", "")
