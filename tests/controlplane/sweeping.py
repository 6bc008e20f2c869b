"""Removes from a control plane what a test module left there, so that the next module finds it as it was at first."""

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

from tests.controlplane.apiclient import ApiClient
from tests.controlplane.apierror import ApiError
from tests.controlplane.objects import Object
from tests.controlplane.resources import (
    ADMISSION_POLICIES,
    ADMISSION_POLICY_BINDINGS,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    CRON_JOBS,
    DEPLOYMENTS,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    ENDPOINT_SLICES,
    LEASES,
    MUTATING_POLICIES,
    MUTATING_POLICY_BINDINGS,
    NETWORK_POLICIES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    WORKLOADS,
    Resource,
)

_STAGES: Final = (
    (
        *(ADMISSION_POLICY_BINDINGS, ADMISSION_POLICIES, MUTATING_POLICY_BINDINGS, MUTATING_POLICIES),
        *(DEPLOYMENTS, CRON_JOBS),
    ),
    (REPLICA_SETS,),
    (PODS,),
    (
        *(RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES, POD_GROUPS, WORKLOADS, RESOURCE_SLICES, DEVICE_CLASSES),
        *(DEVICE_TAINT_RULES, NODES, PRIORITY_CLASSES, LEASES, ENDPOINT_SLICES),
        *(CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES),
        *(SERVICE_ACCOUNTS, SERVICES, CONFIG_MAPS, SECRETS, NETWORK_POLICIES, POD_DISRUPTION_BUDGETS),
    ),
)
"""One after the other: policies protect claims, controllers make pods anew, claims stay until their pods are gone."""
_NAMESPACES_OF_THE_SYSTEM: Final = frozenset({"kube-node-lease", "kube-public", "kube-system"})
_MADE_BY_THE_SYSTEM: Final = frozenset({"kubernetes", "kube-root-ca.crt"})
"""Names of what each namespace, or that called default, has from the beginning."""
_BOOTSTRAPPED: Final = "kubernetes.io/bootstrapping"
_SECONDS: Final = 15.0


async def sweep(api: ApiClient) -> None:
    """Delete what is not the system's, except for namespaces and Events, which would take longer than a start.

    Raises:
        TimeoutError: something stays.
    """
    for stage in _STAGES:
        await asyncio.gather(*(_delete_all(api, each) for each in stage))


async def _delete_all(api: ApiClient, resource: Resource) -> None:
    async def gone() -> bool:
        found = await _own(api, resource)
        await asyncio.gather(*(_delete(api, resource, each) for each in found))
        return not found

    await api.wait_for(gone, _SECONDS, f"all {resource.plural} of the module are gone")


async def _delete(api: ApiClient, resource: Resource, thing: Object) -> None:
    metadata = thing["metadata"]
    # A bound pod that is being deleted waits for a kubelet, which there is not.
    if resource is PODS:
        await api.delete(resource, metadata["name"], metadata["namespace"], grace_seconds=0)
    elif not metadata.get("deletionTimestamp"):
        await api.delete(resource, metadata["name"], metadata.get("namespace"))


async def _own(api: ApiClient, resource: Resource) -> Sequence[Object]:
    try:
        things = await api.list(resource)
    except ApiError as refused:
        if refused.status == HTTPStatus.NOT_FOUND:  # this control plane does not serve the kind
            return []
        raise
    return [thing for thing in things if not _is_of_the_system(resource, thing)]


def _is_of_the_system(resource: Resource, thing: Object) -> bool:
    metadata = thing["metadata"]
    if metadata.get("namespace") in _NAMESPACES_OF_THE_SYSTEM or _BOOTSTRAPPED in metadata.get("labels", {}):
        return True
    if resource is SERVICE_ACCOUNTS:
        return bool(metadata["name"] == "default")
    if resource is PRIORITY_CLASSES:
        return str(metadata["name"]).startswith("system-")
    return metadata["name"] in _MADE_BY_THE_SYSTEM
