"""Builders of API objects, as plain dictionaries. Everything beyond the usual is added by the caller to what they return."""

from collections.abc import Mapping, Sequence
from typing import Any

Object = dict[str, Any]
DRA = "resource.k8s.io/v1"
RBAC = "rbac.authorization.k8s.io"
SCHEDULER_NAME = "dra-extender-scheduler"
DRIVER = "gpu.example.com"


def namespace(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def node(
    name: str,
    *,
    cpu: str = "64",
    memory: str = "256Gi",
    pods: int = 200,
    extended: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> Object:
    """A node that is Ready with these resources; the API server accepts the status in the create.

    `extended` are resources as a device plugin would list them.
    """
    amounts = {"cpu": cpu, "memory": memory, "pods": str(pods), **(extended or {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Test", "message": "no kubelet"}],
        },
    }


def role(name: str, *rules: Object, namespace: str = "") -> Object:
    """A ClusterRole, or a Role of the namespace."""
    kind, metadata = ("Role", {"name": name, "namespace": namespace}) if namespace else ("ClusterRole", {"name": name})
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": metadata, "rules": list(rules)}


def user(name: str) -> Object:
    """The subject of a binding."""
    return {"apiGroup": RBAC, "kind": "User", "name": name}


def role_binding(name: str, role: str, *subjects: Object, namespace: str = "", of: str = "ClusterRole") -> Object:
    """A ClusterRoleBinding, or a RoleBinding of the namespace; `of` is the kind of the role."""
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": RBAC, "kind": of, "name": role},
        "subjects": list(subjects),
    }


def counter_set(name: str, **counters: str) -> Object:
    """A shared counter set of a slice: `counter_set("gpu-0", memory="80Gi")`."""
    return {"name": name, "counters": amounts(counters)}


def consumption(counter_set: str, *, groups: Sequence[str] = (), **counters: str) -> Object:
    """What a device takes from a counter set, and the compatibility groups in which it may."""
    consumed: Object = {"counterSet": counter_set, "counters": amounts(counters)}
    return {**consumed, "compatibilityGroups": list(groups)} if groups else consumed


def amounts(quantities: Mapping[str, str]) -> Object:
    """Quantities as counters and capacities hold them: {name: {"value": quantity}}."""
    return {name: {"value": quantity} for name, quantity in quantities.items()}


def device(
    name: str,
    *,
    attributes: Mapping[str, str | int | bool] | None = None,
    capacity: Mapping[str, str] | None = None,
    consumes: Sequence[Object] = (),
    **fields: Any,
) -> Object:
    """A device; `fields` are those of the API by their own names (taints, bindingConditions, allowMultipleAllocations, ...)."""
    built: Object = {"name": name, **fields}
    if attributes:
        built["attributes"] = {key: _attribute(value) for key, value in attributes.items()}
    if capacity:
        built["capacity"] = amounts(capacity)
    if consumes:
        built["consumesCounters"] = list(consumes)
    return built


def _attribute(value: str | int | bool) -> Object:
    if isinstance(value, bool):
        return {"bool": value}
    return {"int": value} if isinstance(value, int) else {"string": value}


def resource_slice(
    name: str,
    *,
    node: str | None = None,
    devices: Sequence[Object] = (),
    counter_sets: Sequence[Object] = (),
    driver: str = DRIVER,
    pool: str | None = None,
    generation: int = 1,
    slice_count: int = 1,
    **fields: Any,
) -> Object:
    """A slice of one node (the pool is called like it), or with `allNodes=True` or `nodeSelector` among `fields`, of several.

    The API server takes counter sets and devices only in slices of their own: give both slices the same pool, `slice_count=2`.
    """
    spec: Object = {
        "driver": driver,
        "pool": {"name": pool or node or name, "generation": generation, "resourceSliceCount": slice_count},
        **fields,
    }
    if node is not None:
        spec["nodeName"] = node
    if devices:
        spec["devices"] = list(devices)
    if counter_sets:
        spec["sharedCounters"] = list(counter_sets)
    return {"apiVersion": DRA, "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


def device_class(name: str, *expressions: str, **fields: Any) -> Object:
    """A class whose devices fulfil all CEL expressions (none: those of our driver); `fields`: extendedResourceName, config."""
    selectors = [{"cel": {"expression": text}} for text in expressions or (f'device.driver == "{DRIVER}"',)]
    return {
        "apiVersion": DRA,
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": selectors, **fields},
    }


def request(name: str, device_class: str, *expressions: str, count: int = 1, **fields: Any) -> Object:
    """A request for exactly `count` devices of a class; `fields` go beside the count (allocationMode, tolerations, capacity)."""
    exactly: Object = {"deviceClassName": device_class, "count": count, **fields}
    if expressions:
        exactly["selectors"] = [{"cel": {"expression": text}} for text in expressions]
    return {"name": name, "exactly": exactly}


def taint_rule(name: str, taint: Object, *, version: str = DRA, **selector: str) -> Object:
    """A DeviceTaintRule for the devices with this driver, pool and device, of which any may be left out."""
    spec = {"deviceSelector": selector, "taint": taint}
    return {"apiVersion": version, "kind": "DeviceTaintRule", "metadata": {"name": name}, "spec": spec}


def claim_spec(*requests: Object, **fields: Any) -> Object:
    """Spec of a claim; `fields`: constraints, config."""
    return {"devices": {"requests": list(requests), **fields}}


def resource_claim(name: str, namespace: str, *requests: Object, **fields: Any) -> Object:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": DRA, "kind": "ResourceClaim", "metadata": metadata, "spec": claim_spec(*requests, **fields)}


def resource_claim_template(name: str, namespace: str, *requests: Object, **fields: Any) -> Object:
    metadata = {"name": name, "namespace": namespace}
    spec = {"spec": claim_spec(*requests, **fields)}
    return {"apiVersion": DRA, "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": spec}


def on_node(name: str) -> Object:
    """A node selector that means one node."""
    field = {"key": "metadata.name", "operator": "In", "values": [name]}
    return {"nodeSelectorTerms": [{"matchFields": [field]}]}


def consumer(name: str, uid: str) -> Object:
    """A pod for which a claim is reserved."""
    return {"resource": "pods", "name": name, "uid": uid}


def allocated(*results: Object, consumers: Sequence[Object] = (), **fields: Any) -> Object:
    """Status of a claim with these devices; `fields` are those of the allocation (nodeSelector, allocationTimestamp)."""
    allocation = {"allocation": {"devices": {"results": list(results)}, **fields}}
    return {**allocation, "reservedFor": list(consumers)} if consumers else allocation


def pod_group(
    name: str,
    namespace: str,
    *,
    min_count: int | None = None,
    claims: Mapping[str, str] | None = None,
    templates: Mapping[str, str] | None = None,
) -> Object:
    """A PodGroup, a gang if `min_count` is given, with claims by name and from templates as pods have them."""
    references = [
        *({"name": own, "resourceClaimName": claim} for own, claim in (claims or {}).items()),
        *({"name": own, "resourceClaimTemplateName": template} for own, template in (templates or {}).items()),
    ]
    policy: Object = {"basic": {}} if min_count is None else {"gang": {"minCount": min_count}}
    spec: Object = {"schedulingPolicy": policy, **({"resourceClaims": references} if references else {})}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": metadata, "spec": spec}


def binding(pod: str, namespace: str, node: str) -> Object:
    metadata, target = {"name": pod, "namespace": namespace}, {"apiVersion": "v1", "kind": "Node", "name": node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}


def pod(
    name: str,
    namespace: str,
    *,
    claims: Mapping[str, str] | None = None,
    templates: Mapping[str, str] | None = None,
    scheduler: str = SCHEDULER_NAME,
    cpu: str = "100m",
    extended: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    **fields: Any,
) -> Object:
    """A pod of one container that uses all its claims: {name in the pod: claim}, {name in the pod: template}.

    `extended` are extended resources by name; `fields` are those of the pod's spec (nodeSelector, priorityClassName, ...).
    """
    references = [
        *({"name": own, "resourceClaimName": claim} for own, claim in (claims or {}).items()),
        *({"name": own, "resourceClaimTemplateName": template} for own, template in (templates or {}).items()),
    ]
    resources: Object = {"requests": {"cpu": cpu, **(extended or {})}, "limits": dict(extended or {})}
    spec: Object = {"schedulerName": scheduler, "terminationGracePeriodSeconds": 0, **fields}
    if references:
        spec["resourceClaims"] = references
        resources["claims"] = [{"name": reference["name"]} for reference in references]
    spec["containers"] = [{"name": "main", "image": "pause:3.10", "resources": resources}]
    metadata = {"name": name, "namespace": namespace, "labels": dict(labels or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
