"""Pods that ask for more than is looked at are admitted by the API server, told so, and delay nobody."""

import pytest

from tests.controlplane import objects
from tests.controlplane.resources import PODS, RESOURCE_CLAIMS
from tests.support.e2e.namespace_fixture import NamespaceFixture

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

_CONTAINERS = 1_500
_ALTERNATIVES = 8
_REQUESTS = 32
_CLAIMS = 17
_MUCH = "more is asked for than is looked at"


async def test_thousands_of_containers_with_extended_resources_are_refused_in_words(scene: NamespaceFixture) -> None:
    """Each init container could use the devices of each container: they are not matched."""
    node = await scene.node_with_devices("a", objects.device("gpu-0"), objects.device("gpu-1"))
    resource = f"deviceclass.resource.kubernetes.io/{scene.name}"
    body = objects.pod("many", scene.name)

    def containers(prefix: str, amount: str) -> list[objects.Object]:
        asked = {resource: amount}
        return [
            {"name": f"{prefix}{index}", "image": "x", "resources": {"requests": asked, "limits": asked}}
            for index in range(_CONTAINERS)
        ]

    body["spec"] |= {"initContainers": containers("i", "1000"), "containers": containers("c", "1")}
    await scene.api.create(PODS, body)
    await scene.wait_for_event("many", "more devices than one claim may have", f"asks for {_CONTAINERS} devices")
    await scene.template("one")
    await scene.pod("neighbour", template="one")
    assert await scene.wait_until_bound("neighbour") == node


async def test_claims_with_thousands_of_alternatives_are_refused_in_words(scene: NamespaceFixture) -> None:
    node = await scene.node_with_devices("a", objects.device("gpu-0"), objects.device("gpu-1"))
    alternative = {"deviceClassName": scene.name, "count": 1}
    alternatives = [{**alternative, "name": f"a{index}"} for index in range(_ALTERNATIVES)]
    wishes = [{"name": f"r{index}", "firstAvailable": alternatives} for index in range(_REQUESTS)]
    for index in range(_CLAIMS):
        await scene.api.create(RESOURCE_CLAIMS, objects.resource_claim(f"c{index}", scene.name, *wishes))
    body = objects.pod("many", scene.name)
    body["spec"]["resourceClaims"] = [
        {"name": f"c{index}", "resourceClaimName": f"c{index}"} for index in range(_CLAIMS)
    ]
    await scene.api.create(PODS, body)
    await scene.wait_for_event("many", _MUCH, f"{_CLAIMS * _REQUESTS * _ALTERNATIVES} requests and alternatives")
    await scene.template("one")
    await scene.pod("neighbour", template="one")
    assert await scene.wait_until_bound("neighbour") == node
