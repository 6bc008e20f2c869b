"""The kinds of API objects that the model describes."""

from collections.abc import Mapping
from typing import Final

from dra_extender.model.api_json import Value
from dra_extender.model.device_class import DeviceClass
from dra_extender.model.device_taint_rule import DeviceTaintRule
from dra_extender.model.event import EventObject
from dra_extender.model.node import WholeNode
from dra_extender.model.pod import PodObject
from dra_extender.model.pod_group import PodGroup
from dra_extender.model.resource_claim import ResourceClaim
from dra_extender.model.resource_slice import SliceObject
from dra_extender.model.templated_claim import ClaimTemplate
from dra_extender.model.workloads import Job, ReplicasObject, Workload

WATCHED: Final[Mapping[str, type[Value]]] = {
    "nodes": WholeNode,
    "deviceclasses": DeviceClass,
    "devicetaintrules": DeviceTaintRule,
    "resourceslices": SliceObject,
    "resourceclaims": ResourceClaim,
    "resourceclaimtemplates": ClaimTemplate,
    "podgroups": PodGroup,
    "events": EventObject,
    "pods": PodObject,
}
"""The structs of what is read from a cluster, by plural kind."""
LABELLED: Final = frozenset({"nodes", "resourceclaims", "pods"})
"""The kinds whose labels decisions read."""
WRITTEN: Final[Mapping[str, type[Value]]] = {
    "Node": WholeNode,
    "ResourceSlice": SliceObject,
    "DeviceClass": DeviceClass,
    "DeviceTaintRule": DeviceTaintRule,
    "ResourceClaimTemplate": ClaimTemplate,
    "ResourceClaim": ResourceClaim,
    "PodGroup": PodGroup,
    "Pod": PodObject,
    "Deployment": ReplicasObject,
    "ReplicaSet": ReplicasObject,
    "StatefulSet": ReplicasObject,
    "Job": Job,
    "Workload": Workload,
}
"""The structs of what people write in manifests, by kind."""
