"""What is redacted how in each kind of object; a field that is not here is left out."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from dra_extender.inspection.redaction.names import ClusterNames
from dra_extender.inspection.redaction.rules import (
    Rule,
    amount,
    driver,
    each,
    expression,
    name,
    nothing,
    number,
    number_text,
    path,
    qualified,
    record,
    resource,
    sentence,
    table,
    time,
    version,
    word,
)
from dra_extender.ledger.index.guards import DEVICE_ANNOTATION
from dra_extender.model.device import PHYSICAL_DEVICE
from dra_extender.model.resource_claim import EXTENDED_ANNOTATION
from dra_extender.model.snapshot import SNAPSHOT_ANNOTATION
from dra_extender.model.templated_claim import DRAFTED_ENTRY_ANNOTATION, ENTRY_ANNOTATION

_SOURCE: Final = "compatibilityGroups["


def _label_values(value: Any, names: ClusterNames) -> Any:
    if not isinstance(value, Mapping):
        return nothing(value, names)
    return {names.text(key): names.label(key, text) for key, text in value.items() if isinstance(text, str)}


def _requirement(value: Any, names: ClusterNames) -> Any:
    """A requirement of a node selector; with Gt and Lt it compares numbers."""
    found = _REQUIREMENT(value, names)
    if isinstance(value, Mapping) and value.get("operator") in ("Gt", "Lt") and isinstance(value.get("key"), str):
        given = value.get("values")
        found["values"] = [
            names.compared(value["key"], each)
            for each in (given if isinstance(given, list) else ())
            if isinstance(each, str)
        ]
    return found


def _attributes_of(own: str, value: Any, names: ClusterNames) -> Any:
    if not isinstance(value, Mapping):
        return nothing(value, names)
    found = {}
    for key, given in value.items():
        domain, _, short = key.rpartition("/")
        attribute = f"{domain or own}/{short}"

        def text(each: Any, names: ClusterNames, attribute: str = attribute) -> Any:
            return names.value(attribute, each) if isinstance(each, str) else nothing(each, names)

        rule = record(
            string=text,
            strings=each(text),
            version=version,
            versions=each(version),
            int=number,
            ints=each(number),
            bool=number,
            bools=each(number),
        )
        found[names.qualified(key)] = rule(given, names)
    return found


def _slice_spec(value: Any, names: ClusterNames) -> Any:
    """Attributes without a domain are those of the slice's driver."""
    found = _SLICE_SPEC(value, names)
    if not isinstance(value, Mapping) or not isinstance(value.get("devices"), list):
        return found
    own = value.get("driver")
    for given, redacted in zip(value["devices"], found["devices"], strict=True):
        if isinstance(given, Mapping) and "attributes" in given:
            redacted["attributes"] = _attributes_of(own if isinstance(own, str) else "", given["attributes"], names)
    return found


def _annotations(value: Any, names: ClusterNames) -> Any:
    if not isinstance(value, Mapping):
        return nothing(value, names)
    return {key: rule(value[key], names) for key, rule in _ANNOTATIONS.items() if key in value}


def _snapshot(value: Any, names: ClusterNames) -> Any:
    """The annotation that freezes an allocation; `digest` is put right when the allocation is redacted."""
    try:
        given = msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError, TypeError):
        return names.text(value) if isinstance(value, str) else None
    return msgspec.json.encode(_SNAPSHOT(given, names)).decode()


def _counter_set(value: Any, names: ClusterNames) -> Any:
    if not isinstance(value, str):
        return name(value, names)
    prefix = PHYSICAL_DEVICE if value.startswith(PHYSICAL_DEVICE) else ""
    return prefix + path(value.removeprefix(prefix), names)


def _source(value: Any, names: ClusterNames) -> Any:
    """A field of a device that a policy supplied."""
    if isinstance(value, str) and value.startswith(_SOURCE) and value.endswith("]"):
        return f"{_SOURCE}{_counter_set(value[len(_SOURCE) : -1], names)}]"
    return value if value in _SOURCES else name(value, names)


_SOURCES: Final = (
    "bindingConditions",
    "bindingFailureConditions",
    "bindsToNode",
    "compatibleOnlyWith",
    "compatibilityGroups",
)
_OWNER: Final = record(apiVersion=word, kind=word, name=name, uid=name, controller=number)
_PLAIN_METADATA: Final[Mapping[str, Rule]] = {
    "name": name,
    "namespace": name,
    "uid": name,
    "resourceVersion": number_text,
    "generation": number,
    "creationTimestamp": time,
    "deletionTimestamp": time,
    "finalizers": each(word),
    "annotations": _annotations,
    "ownerReferences": each(_OWNER),
}
_METADATA: Final = record(**_PLAIN_METADATA, labels=_label_values)
_REQUIREMENT: Final = record(key=word, operator=word, values=each(name))
_TERM: Final = record(matchExpressions=each(_requirement), matchFields=each(_requirement))
_NODE_SELECTOR: Final = record(nodeSelectorTerms=each(_TERM))
_CONDITIONS: Final = each(record(type=word, status=word, reason=word, message=sentence, lastTransitionTime=time))
_TAINT: Final = record(key=word, value=name, effect=word, timeAdded=time)
_TOLERATIONS: Final = each(record(key=word, operator=word, value=name, effect=word, tolerationSeconds=number))
_COUNTERS: Final = table(name, record(value=amount))
_CONSUMPTION: Final = record(counterSet=_counter_set, counters=_COUNTERS, compatibilityGroups=each(name))
_RANGE: Final = record(min=amount, max=amount, step=amount)
_CAPACITY: Final = record(
    value=amount, requestPolicy=record(default=amount, validValues=each(amount), validRange=_RANGE)
)
_DEVICE: Final = record(
    name=name,
    capacity=table(qualified, _CAPACITY),
    consumesCounters=each(_CONSUMPTION),
    taints=each(_TAINT),
    nodeName=name,
    nodeSelector=_NODE_SELECTOR,
    allNodes=number,
    bindsToNode=number,
    bindingConditions=each(word),
    bindingFailureConditions=each(word),
    allowMultipleAllocations=number,
    nodeAllocatableResources=table(resource, nothing),
    nodeAllocatableResourceMappings=table(resource, nothing),
    compatibleOnlyWith=record(expression=expression),
)
_SLICE_SPEC: Final = record(
    driver=driver,
    pool=record(name=name, generation=number, resourceSliceCount=number),
    nodeName=name,
    nodeSelector=_NODE_SELECTOR,
    allNodes=number,
    perDeviceNodeSelection=number,
    skipNodeOperations=each(word),
    sharedCounters=each(record(name=name, counters=_COUNTERS)),
    devices=each(_DEVICE),
)
_SELECTORS: Final = each(record(cel=record(expression=expression)))
_CONFIG: Final = each(record(requests=each(path), source=word, opaque=record(driver=driver)))
_REQUEST_FIELDS: Final[Mapping[str, Rule]] = {
    "name": name,
    "deviceClassName": name,
    "selectors": _SELECTORS,
    "allocationMode": word,
    "count": number,
    "adminAccess": number,
    "tolerations": _TOLERATIONS,
    "capacity": record(requests=table(qualified, amount)),
    "derivedAttributes": each(record(name=qualified, expression=expression)),
}
_REQUEST: Final = record(name=name, exactly=record(**_REQUEST_FIELDS), firstAvailable=each(record(**_REQUEST_FIELDS)))
_CONSTRAINT: Final = record(requests=each(path), matchAttribute=qualified, distinctAttribute=qualified)
_CLAIM_SPEC: Final = record(devices=record(requests=each(_REQUEST), constraints=each(_CONSTRAINT), config=_CONFIG))
_RESULT: Final = record(
    request=path,
    driver=driver,
    pool=name,
    device=name,
    adminAccess=number,
    tolerations=_TOLERATIONS,
    shareID=name,
    consumedCapacity=table(qualified, amount),
    bindingConditions=each(word),
    bindingFailureConditions=each(word),
    skipNodeOperations=each(word),
    compatibilityGroups=table(_counter_set, each(name)),
)
_CLAIM_STATUS: Final = record(
    reservedFor=each(record(apiGroup=word, resource=word, name=name, uid=name)),
    allocation=record(
        nodeSelector=_NODE_SELECTOR,
        allocationTimestamp=time,
        devices=record(results=each(_RESULT), config=_CONFIG),
    ),
    devices=each(record(driver=driver, pool=name, device=name, shareID=name, conditions=_CONDITIONS)),
)
_SNAPSHOT: Final = record(
    version=number,
    digest=lambda _value, _names: "",
    allocationTimestamp=time,
    devices=each(
        record(
            consumesCounters=each(
                record(counterSet=_counter_set, counters=table(name, amount), compatibilityGroups=each(name))
            ),
            compatibleOnlyWith=expression,
            neighboursOn=name,
            bindingConditions=each(word),
            bindingFailureConditions=each(word),
            shareId=name,
            consumedCapacity=table(qualified, amount),
            sources=table(_source, name),
        )
    ),
)
_ANNOTATIONS: Final[Mapping[str, Rule]] = {
    SNAPSHOT_ANNOTATION: _snapshot,
    ENTRY_ANNOTATION: name,
    DRAFTED_ENTRY_ANNOTATION: name,
    EXTENDED_ANNOTATION: word,
    DEVICE_ANNOTATION: path,
}
_ENTRIES: Final = each(
    record(
        name=name, resourceClaimName=name, resourceClaimTemplateName=name, podGroupResourceClaim=name, podGroupName=name
    )
)
_STATUSES: Final = each(record(name=name, resourceClaimName=name))
_RESOURCES: Final = record(
    requests=table(resource, amount),
    limits=table(resource, amount),
    claims=each(record(name=name, request=path)),
)
_PORTS: Final = each(record(containerPort=number, hostPort=number, hostIP=word, protocol=word))
_CONTAINERS: Final = each(record(name=name, restartPolicy=word, ports=_PORTS, resources=_RESOURCES))
_PREFERRED: Final = each(record(weight=number, preference=_TERM))
_POD_TERMS: Final = record(requiredDuringSchedulingIgnoredDuringExecution=each(record(topologyKey=word)))
_POD_SPEC: Final = record(
    nodeName=name,
    schedulerName=name,
    priority=number,
    priorityClassName=name,
    schedulingGates=each(record(name=name)),
    schedulingGroup=record(podGroupName=name),
    workloadRef=record(name=name, podGroup=name, podGroupName=name, podGroupReplicaKey=name),
    resourceClaims=_ENTRIES,
    nodeSelector=_label_values,
    overhead=table(resource, amount),
    tolerations=_TOLERATIONS,
    hostNetwork=number,
    topologySpreadConstraints=each(record(whenUnsatisfiable=word)),
    volumes=each(record(name=name, ephemeral=nothing, persistentVolumeClaim=record(claimName=name))),
    affinity=record(
        podAffinity=_POD_TERMS,
        podAntiAffinity=_POD_TERMS,
        nodeAffinity=record(
            requiredDuringSchedulingIgnoredDuringExecution=_NODE_SELECTOR,
            preferredDuringSchedulingIgnoredDuringExecution=_PREFERRED,
        ),
    ),
    containers=_CONTAINERS,
    initContainers=_CONTAINERS,
    resources=_RESOURCES,
)
_POD_STATUS: Final = record(
    phase=word,
    startTime=time,
    nominatedNodeName=name,
    resourceClaimStatuses=_STATUSES,
    extendedResourceClaimStatus=record(
        resourceClaimName=name,
        requestMappings=each(record(containerName=name, resourceName=resource, requestName=path)),
    ),
    conditions=_CONDITIONS,
)
_NODE_STATUS: Final = record(
    allocatable=table(resource, amount),
    declaredFeatures=each(word),
    nodeInfo=record(bootID=name, kubeletVersion=version),
    conditions=_CONDITIONS,
)
_EVENT: Final = record(
    metadata=record(name=name, namespace=name, uid=name),
    reason=word,
    message=sentence,
    type=word,
    reportingComponent=name,
    firstTimestamp=time,
    lastTimestamp=time,
    eventTime=time,
    involvedObject=record(kind=word, namespace=name, name=name, uid=name),
    source=record(component=name),
    series=record(count=number, lastObservedTime=time),
)
_TAINT_SELECTOR: Final = record(driver=driver, pool=name, device=name, deviceClassName=name, selectors=_SELECTORS)

_POD: Final = record(metadata=_METADATA, spec=_POD_SPEC, status=_POD_STATUS)


def _pod(value: Any, names: ClusterNames) -> Any:
    """The UID of a pod that is not bound matters beyond its order."""
    found = _POD(value, names)
    metadata, spec = found.get("metadata"), found.get("spec")
    is_bound = isinstance(spec, dict) and spec.get("nodeName")
    if isinstance(metadata, dict) and isinstance(metadata.get("uid"), str) and not is_bound:
        metadata["uid"] = names.waiting_pod(value["metadata"]["uid"])
    return found


SCHEMAS: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "nodes": record(
            metadata=_METADATA, spec=record(unschedulable=number, taints=each(_TAINT)), status=_NODE_STATUS
        ),
        "deviceclasses": record(
            metadata=_METADATA,
            spec=record(selectors=_SELECTORS, extendedResourceName=resource, config=_CONFIG),
        ),
        "devicetaintrules": record(metadata=_METADATA, spec=record(taint=_TAINT, deviceSelector=_TAINT_SELECTOR)),
        "resourceslices": record(metadata=_METADATA, spec=_slice_spec),
        "resourceclaims": record(metadata=_METADATA, spec=_CLAIM_SPEC, status=_CLAIM_STATUS),
        "resourceclaimtemplates": record(metadata=_METADATA, spec=record(spec=_CLAIM_SPEC)),
        "podgroups": record(
            metadata=_METADATA,
            spec=record(
                resourceClaims=_ENTRIES,
                schedulingPolicy=record(gang=record(minCount=number), basic=nothing),
            ),
            status=record(resourceClaimStatuses=_STATUSES, conditions=_CONDITIONS),
        ),
        "events": _EVENT,
        "pods": _pod,
    }
)
