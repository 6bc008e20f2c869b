"""Queues of pods in PodGroups, as scheduler_perf's workload resource claims have them, and gangs."""

from collections.abc import Sequence
from typing import Any, Final

from dra_extender.model.pod_group import PodGroup
from dra_extender.model.resource_claim import ResourceClaim

from tests.bench import workload
from tests.bench.load import Load, create_all
from tests.controlplane import objects
from tests.controlplane.apiclient import ApiClient
from tests.controlplane.resources import (
    DEVICE_CLASSES,
    NODES,
    POD_GROUPS,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)

_PODS_PER_NODE: Final = 100
_FABRIC: Final = "fabric"
_TEMPLATE: Final = "domain"


def one_shared_claim(pods: int) -> Load:
    """One group whose members all name the same claim of a device that every node reaches."""

    async def populate(api: ApiClient) -> None:
        await _fabric(api, devices=1, nodes=_nodes_for(pods))
        claims = {"domain": "shared"}
        await api.create(RESOURCE_CLAIMS, objects.resource_claim("shared", workload.NAMESPACE, _request()))
        await api.create(POD_GROUPS, objects.pod_group(_group(0), workload.NAMESPACE, claims=claims))
        await create_all(api, PODS, (_member(0, number, claims=claims) for number in range(pods)))

    return Load(f"1 group of {pods} pods, a shared claim", pods, populate)


def claims_from_a_template(groups: int, pods: int) -> Load:
    """Groups whose members share a claim that is generated for their group, of devices that every node reaches."""

    async def populate(api: ApiClient) -> None:
        await _fabric(api, devices=groups, nodes=_nodes_for(groups * pods))
        templates = {"domain": _TEMPLATE}
        template = objects.resource_claim_template(_TEMPLATE, workload.NAMESPACE, _request())
        await api.create(RESOURCE_CLAIM_TEMPLATES, template)
        made = (objects.pod_group(_group(index), workload.NAMESPACE, templates=templates) for index in range(groups))
        await create_all(api, POD_GROUPS, made)
        members = (_member(group, number, templates=templates) for group in range(groups) for number in range(pods))
        await create_all(api, PODS, members)

    return Load(f"{groups} groups of {pods} pods, a claim each", groups * pods, populate)


def gangs(count: int, pods: int) -> Load:
    """Gangs, all members needed, each with a claim of its own for one device of a node; a quarter of the devices stays free."""
    total = count * pods
    nodes = -(-total * 4 // (3 * workload.DEVICES_PER_NODE))

    async def populate(api: ApiClient) -> None:
        await api.create(DEVICE_CLASSES, workload.device_class())
        await create_all(api, NODES, (workload.node(index) for index in range(nodes)))
        await create_all(api, RESOURCE_SLICES, (workload.node_slice(index) for index in range(nodes)))
        await create_all(api, RESOURCE_CLAIMS, (workload.claim(index) for index in range(total)))
        made = (objects.pod_group(_group(index), workload.NAMESPACE, min_count=pods) for index in range(count))
        await create_all(api, POD_GROUPS, made)
        members = (
            _member(index // pods, index % pods, claims={"gpu": workload.claim_name(index)}) for index in range(total)
        )
        await create_all(api, PODS, members)

    return Load(f"{count} gangs of {pods} pods", total, populate)


def wrong_reservations(claims: Sequence[ResourceClaim], groups: Sequence[PodGroup]) -> list[str]:
    """A sentence for each claim of a PodGroup that has anything but the one reservation for the group."""
    by_name = {each.metadata.key: each for each in claims}
    wrong = []
    for group in groups:
        recorded = {each.name: each.resource_claim_name for each in group.status.resource_claim_statuses}
        for entry in group.spec.resource_claims:
            name = entry.resource_claim_name or recorded.get(entry.name) or ""
            claim = by_name.get((group.metadata.namespace, name))
            reserved = () if claim is None else claim.status.reserved_for
            if tuple(reserved) != (group.consumer,):
                told = ", ".join(f"{each.resource}/{each.name}" for each in reserved) or "nobody"
                wrong.append(f"claim {name!r} of PodGroup {group.metadata.name} is reserved for {told}")
    return wrong


async def _fabric(api: ApiClient, devices: int, nodes: int) -> None:
    """Nodes, and a pool that all of them reach."""
    await api.create(DEVICE_CLASSES, objects.device_class(_FABRIC))
    await create_all(api, NODES, (workload.node(index) for index in range(nodes)))
    domains = [objects.device(f"domain-{index}") for index in range(devices)]
    await api.create(RESOURCE_SLICES, objects.resource_slice(_FABRIC, pool=_FABRIC, devices=domains, allNodes=True))


def _nodes_for(pods: int) -> int:
    return -(-pods // _PODS_PER_NODE)


def _request() -> workload.Object:
    return objects.request("domain", _FABRIC)


def _group(index: int) -> str:
    return f"group-{index:03}"


def _member(group: int, number: int, **claims: Any) -> workload.Object:
    name = f"{_group(group)}-{number:04}"
    return workload.small_pod(name, schedulingGroup={"podGroupName": _group(group)}, **claims)
