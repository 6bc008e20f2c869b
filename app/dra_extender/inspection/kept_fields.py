"""The fields that a snapshot keeps of each object: those that decisions and their explanations read, and no others.

No environment, arguments, commands, contents of volumes or opaque parameters of drivers: these may hold secrets, and no decision
reads them.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Union

from dra_extender.model.resource_claim import EXTENDED_ANNOTATION
from dra_extender.model.templated_claim import DRAFTED_ENTRY_ANNOTATION, ENTRY_ANNOTATION

Fields = Mapping[str, Union["Fields", None]]
"""Names of fields that are kept; None keeps the whole value.  Fields of the elements of a list are named as the list's own."""

_OUR_ANNOTATIONS: Final = "dra-extender.io/"
_KEPT_ANNOTATIONS: Final = frozenset({ENTRY_ANNOTATION, DRAFTED_ENTRY_ANNOTATION, EXTENDED_ANNOTATION})


def _fields(*names: str, **nested: "Fields | None") -> "Fields":
    return MappingProxyType({**dict.fromkeys(names), **nested})


_OWNERS: Final = _fields("apiVersion", "kind", "name", "uid", "controller")
_METADATA: Final = _fields(
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "finalizers",
    annotations=None,
    ownerReferences=_OWNERS,
)
_LABELLED: Final = _fields(
    *(name for name in _METADATA if name not in ("annotations", "ownerReferences")),
    "labels",
    annotations=None,
    ownerReferences=_OWNERS,
)
_RESOURCES: Final = _fields("requests", "limits", claims=_fields("name", "request"))
_PORTS: Final = _fields("containerPort", "hostPort", "hostIP", "protocol")
_CONTAINER: Final = _fields("name", "restartPolicy", ports=_PORTS, resources=_RESOURCES)
_POD_TERMS: Final = _fields(requiredDuringSchedulingIgnoredDuringExecution=_fields("topologyKey"))
_CONDITIONS: Final = _fields("type", "status", "reason", "message", "lastTransitionTime")
_CONFIG: Final = _fields("requests", "source", opaque=_fields("driver"))
_CLAIM_DEVICES: Final = _fields("requests", "constraints", config=_CONFIG)

KEPT: Final[Mapping[str, Fields]] = MappingProxyType(
    {
        "nodes": _fields(
            metadata=_LABELLED,
            spec=_fields("unschedulable", taints=_fields("key", "value", "effect")),
            status=_fields(
                "allocatable",
                "declaredFeatures",
                nodeInfo=_fields("bootID", "kubeletVersion"),
                conditions=_CONDITIONS,
            ),
        ),
        "deviceclasses": _fields(
            metadata=_METADATA, spec=_fields("selectors", "extendedResourceName", "managementFields", config=_CONFIG)
        ),
        "devicetaintrules": _fields(metadata=_METADATA, spec=None),
        "resourceslices": _fields(metadata=_METADATA, spec=None),
        "resourceclaims": _fields(
            metadata=_LABELLED,
            spec=_fields(devices=_CLAIM_DEVICES),
            status=_fields(
                "reservedFor",
                allocation=_fields("nodeSelector", "allocationTimestamp", devices=_fields("results", config=_CONFIG)),
                devices=_fields("driver", "pool", "device", "shareID", conditions=_CONDITIONS),
            ),
        ),
        "resourceclaimtemplates": _fields(metadata=_METADATA, spec=_fields(spec=_fields(devices=_CLAIM_DEVICES))),
        "podgroups": _fields(
            metadata=_METADATA, spec=None, status=_fields("resourceClaimStatuses", conditions=_CONDITIONS)
        ),
        "events": _fields(
            "reason",
            "message",
            "type",
            "reportingComponent",
            "firstTimestamp",
            "lastTimestamp",
            "eventTime",
            metadata=_fields("name", "namespace", "uid"),
            involvedObject=_fields("kind", "namespace", "name", "uid"),
            source=_fields("component"),
            series=_fields("count", "lastObservedTime"),
        ),
        "pods": _fields(
            metadata=_LABELLED,
            spec=_fields(
                "nodeName",
                "schedulerName",
                "priority",
                "priorityClassName",
                "schedulingGates",
                "schedulingGroup",
                "workloadRef",
                "resourceClaims",
                "nodeSelector",
                "overhead",
                "tolerations",
                "hostNetwork",
                affinity=_fields("nodeAffinity", podAffinity=_POD_TERMS, podAntiAffinity=_POD_TERMS),
                topologySpreadConstraints=_fields("whenUnsatisfiable"),
                volumes=_fields("name", ephemeral=_fields(), persistentVolumeClaim=_fields("claimName")),
                containers=_CONTAINER,
                initContainers=_CONTAINER,
                resources=_RESOURCES,
            ),
            status=_fields(
                "phase",
                "startTime",
                "nominatedNodeName",
                "resourceClaimStatuses",
                "extendedResourceClaimStatus",
                conditions=_CONDITIONS,
            ),
        ),
    }
)


def kept(kind: str, item: Mapping[str, Any]) -> dict[str, Any]:
    """The object with the fields that a snapshot keeps, and no others."""
    found: dict[str, Any] = cut_to(item, KEPT[kind])
    metadata = found.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if isinstance(metadata, dict) and isinstance(annotations, dict):
        metadata["annotations"] = {
            name: text
            for name, text in annotations.items()
            if name.startswith(_OUR_ANNOTATIONS) or name in _KEPT_ANNOTATIONS
        }
    return found


def cut_to(value: Any, fields: Fields) -> Any:
    """The fields of a value, or of the elements of a list, that are named, and no others."""
    if isinstance(value, list):
        return [cut_to(each, fields) for each in value]
    if not isinstance(value, Mapping):
        return value
    found = {}
    for name, nested in fields.items():
        if name in value:
            found[name] = value[name] if nested is None else cut_to(value[name], nested)
    return found
