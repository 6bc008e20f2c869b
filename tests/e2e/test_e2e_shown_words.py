"""The words of the in-tree scheduler that the documents show beside ours: a real kube-scheduler says them of the same pod."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Final

import msgspec
import pytest
import pytest_asyncio

from tests.controlplane.apiclient import ApiClient
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.objects import Object
from tests.controlplane.planes import SECOND_DEFAULTS
from tests.controlplane.resources import (
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    SERVICE_ACCOUNTS,
)
from tests.support.e2e.namespace_fixture import SECONDS
from tests.support.inspection.example_snapshot import example
from tests.support.shown_runs import in_tree_words

pytestmark = [pytest.mark.e2e, pytest.mark.plane(SECOND_DEFAULTS), pytest.mark.asyncio(loop_scope="module")]

POD: Final = ("ml", "infer-1")
_MADE_BY_THE_SERVER: Final = ("uid", "creationTimestamp", "resourceVersion", "ownerReferences")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(cluster: ControlPlane) -> AsyncIterator[ApiClient]:
    async with cluster.in_tree_scheduler(
        feature_gates={"DRADeviceCompatibilityGroups": True, "DRADeviceTaintRules": True}
    ):
        yield cluster.api


async def test_the_in_tree_scheduler_says_what_the_documents_show(api: ApiClient) -> None:
    await _load(api)

    async def message() -> str:
        found = await api.get(PODS, POD[1], POD[0])
        conditions = found.get("status", {}).get("conditions", ())
        return next((str(each.get("message", "")) for each in conditions if each["type"] == "PodScheduled"), "")

    async def as_shown() -> bool:
        return await message() == in_tree_words()

    # It says other words of a part of the cluster, as long as it knows no more.
    try:
        await api.wait_for(as_shown, SECONDS, "the in-tree scheduler says what the documents show")
    except TimeoutError:
        assert await message() == in_tree_words()
        raise


async def _load(api: ApiClient) -> None:
    """Put the example cluster into the API server: what is allocated there is allocated here, the pod that waits comes last."""
    objects: dict[str, list[Object]] = {
        kind: [msgspec.json.decode(each) for each in found] for kind, found in example().by_kind.items()
    }
    for namespace in sorted({each["metadata"]["namespace"] for each in objects["pods"]}):
        await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        await api.wait_for(partial(api.list, SERVICE_ACCOUNTS, namespace), SECONDS, f"the account of {namespace}")
    for kind, resource in (("nodes", NODES), ("deviceclasses", DEVICE_CLASSES), ("resourceslices", RESOURCE_SLICES)):
        for each in objects[kind]:
            status = each.get("status")
            await api.create(resource, _new(each))
            if status:
                await api.patch(resource, each["metadata"]["name"], {"status": status}, subresource="status")
    running = [each for each in objects["pods"] if each["spec"].get("nodeName")]
    waiting = [each for each in objects["pods"] if (each["metadata"]["namespace"], each["metadata"]["name"]) == POD]
    claims = {(each["metadata"]["namespace"], each["metadata"]["name"]): each for each in objects["resourceclaims"]}
    for each in [*running, *waiting]:
        namespace = each["metadata"]["namespace"]
        claim = claims[namespace, each["spec"]["resourceClaims"][0]["resourceClaimName"]]
        stored = await api.create(RESOURCE_CLAIMS, _new(claim))
        each["spec"].pop("schedulerName", None)
        made = await api.create(PODS, _new(each))
        if status := claim.get("status"):
            for consumer in status["reservedFor"]:
                consumer["uid"] = made["metadata"]["uid"]
            await api.replace(RESOURCE_CLAIMS, {**stored, "status": status}, subresource="status")


def _new(item: Object) -> Object:
    metadata: dict[str, Any] = {key: value for key, value in item["metadata"].items() if key not in _MADE_BY_THE_SERVER}
    return {**{key: value for key, value in item.items() if key != "status"}, "metadata": metadata}
