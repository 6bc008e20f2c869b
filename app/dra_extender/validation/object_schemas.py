"""What each kind of manifest looks like in Kubernetes 1.37 (limits of the API server included)."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final, NamedTuple

from pydantic import AfterValidator, Field, ValidationError

from dra_extender.manifests.documents import FieldPath
from dra_extender.manifests.problems import YAML_TYPES, sentence_of, shown, unknown_field
from dra_extender.validation.claim_schemas import ClaimSpecFields, OpaqueFields, Selectors
from dra_extender.validation.field_types import (
    EXPECTED,
    INVALID_EXPRESSION,
    Count,
    DnsLabel,
    DriverName,
    LabelKey,
    LabelValue,
    ObjectFields,
    OpenFields,
    PoolName,
    QuantityByName,
    Subdomain,
    each_once,
)
from dra_extender.validation.known_fields import wrong_fields
from dra_extender.validation.names import is_extended_resource
from dra_extender.validation.pool_schemas import SliceSpecFields
from dra_extender.validation.slice_schemas import TaintFields

_KEY: Final = "[key]"
"""What pydantic puts behind the name of an entry whose name is wrong."""


class SchemaProblem(NamedTuple):
    """What is wrong at a path; `is_expression` marks a CEL expression that does not compile."""

    path: FieldPath
    sentence: str
    is_expression: bool = False


class OwnerFields(OpenFields):
    """An entry of `metadata.ownerReferences`."""

    api_version: str
    kind: str
    name: str
    uid: str


Labels = dict[LabelKey, LabelValue]
Replicas = Annotated[int, Field(ge=0, lt=2**31)]


class TemplateMetadataFields(OpenFields):
    """`metadata` of a template."""

    labels: Labels | None = None
    annotations: dict[str, str] | None = None
    finalizers: list[str] | None = None
    owner_references: list[OwnerFields] | None = None


class MetadataFields(TemplateMetadataFields):
    """`metadata` of every kind."""

    name: Subdomain
    generate_name: str | None = None
    namespace: DnsLabel | None = None
    uid: str | None = None


class TemplateSpecFields(ObjectFields):
    """`spec` of a ResourceClaimTemplate."""

    metadata: TemplateMetadataFields | None = None
    spec: ClaimSpecFields


class ClassConfigurationFields(ObjectFields):
    """An entry of `config` of a DeviceClass."""

    opaque: OpaqueFields


def _check_resource(value: str) -> str:
    if not is_extended_resource(value):
        raise ValueError(f"expected the name of an extended resource, such as example.com/gpu, got {shown(value)}")
    return value


class ClassSpecFields(ObjectFields):
    """`spec` of a DeviceClass."""

    selectors: Selectors | None = None
    config: Annotated[list[ClassConfigurationFields], Field(max_length=32)] | None = None
    extended_resource_name: Annotated[str, AfterValidator(_check_resource)] | None = None


class DeviceTaintSelectorFields(ObjectFields):
    """Which devices a DeviceTaintRule taints."""

    driver: DriverName | None = None
    pool: PoolName | None = None
    device: DnsLabel | None = None


class TaintRuleSpecFields(ObjectFields):
    """`spec` of a DeviceTaintRule."""

    device_selector: DeviceTaintSelectorFields | None = None
    taint: TaintFields


class ContainerResourceFields(OpenFields):
    """`resources` of a container."""

    requests: QuantityByName | None = None
    limits: QuantityByName | None = None


class ContainerFields(OpenFields):
    """A container of a pod."""

    name: DnsLabel
    image: str
    resources: ContainerResourceFields | None = None


class GroupClaimFields(ObjectFields):
    """A claim that a PodGroup uses."""

    exactly_one_of: ClassVar[tuple[str, ...]] = ("resourceClaimName", "resourceClaimTemplateName")

    name: DnsLabel
    resource_claim_name: Subdomain | None = None
    resource_claim_template_name: Subdomain | None = None


class PodClaimFields(GroupClaimFields):
    """A claim that a pod uses."""

    exactly_one_of: ClassVar[tuple[str, ...]] = (*GroupClaimFields.exactly_one_of, "podGroupResourceClaim")

    # Drafts of KEP-5729 have it; no released API does.
    pod_group_resource_claim: DnsLabel | None = None


class SchedulingGroupFields(ObjectFields):
    """The PodGroup of a pod."""

    pod_group_name: Subdomain


class PodSpecFields(OpenFields):
    """`spec` of a pod."""

    containers: Annotated[list[ContainerFields], Field(min_length=1), each_once("name")]
    init_containers: Annotated[list[ContainerFields], each_once("name")] | None = None
    scheduler_name: str | None = None
    node_name: str | None = None
    node_selector: dict[str, str] | None = None
    priority: int | None = None
    resource_claims: Annotated[list[PodClaimFields], each_once("name")] | None = None
    scheduling_group: SchedulingGroupFields | None = None


class GangFields(ObjectFields):
    """The gang policy of a PodGroup."""

    min_count: Count


class SchedulingPolicyFields(ObjectFields):
    """How the pods of a PodGroup are scheduled."""

    exactly_one_of: ClassVar[tuple[str, ...]] = ("basic", "gang")

    basic: Any = None
    gang: GangFields | None = None


GroupClaims = Annotated[list[GroupClaimFields], Field(max_length=4), each_once("name")]


class PodGroupSpecFields(OpenFields):
    """`spec` of a PodGroup."""

    scheduling_policy: SchedulingPolicyFields | None = None
    resource_claims: GroupClaims | None = None


class GroupTemplateFields(OpenFields):
    """A template of a Workload for PodGroups; drafts and 1.35 have `policy`."""

    name: DnsLabel
    scheduling_policy: SchedulingPolicyFields | None = None
    policy: SchedulingPolicyFields | None = None
    resource_claims: GroupClaims | None = None


GroupTemplates = Annotated[list[GroupTemplateFields], Field(min_length=1, max_length=8), each_once("name")]


class WorkloadSpecFields(OpenFields):
    """`spec` of a Workload; 1.35 has `podGroups`."""

    exactly_one_of: ClassVar[tuple[str, ...]] = ("podGroupTemplates", "podGroups")

    pod_group_templates: GroupTemplates | None = None
    pod_groups: GroupTemplates | None = None


class PodTemplateFields(OpenFields):
    """The template of a workload for its pods."""

    metadata: TemplateMetadataFields | None = None
    spec: PodSpecFields


class ReplicasSpecFields(OpenFields):
    """`spec` of a Deployment, ReplicaSet or StatefulSet."""

    replicas: Replicas | None = None
    template: PodTemplateFields


class JobSpecFields(OpenFields):
    """`spec` of a Job."""

    parallelism: Replicas | None = None
    completions: Replicas | None = None
    suspend: bool | None = None
    template: PodTemplateFields


class NodeSpecFields(OpenFields):
    """`spec` of a node."""

    unschedulable: bool | None = None


class NodeStatusFields(OpenFields):
    """`status` of a node."""

    allocatable: QuantityByName | None = None
    capacity: QuantityByName | None = None


class WholeObjectFields(ObjectFields):
    """What the manifests of all kinds have in common."""

    api_version: str | None = None
    kind: str | None = None
    metadata: MetadataFields


class NodeManifest(WholeObjectFields):
    """A Node."""

    spec: NodeSpecFields | None = None
    status: NodeStatusFields | None = None


class SliceManifest(WholeObjectFields):
    """A ResourceSlice."""

    spec: SliceSpecFields


class ClassManifest(WholeObjectFields):
    """A DeviceClass."""

    spec: ClassSpecFields


class TaintRuleManifest(WholeObjectFields):
    """A DeviceTaintRule."""

    spec: TaintRuleSpecFields
    status: Any = None


class TemplateManifest(WholeObjectFields):
    """A ResourceClaimTemplate."""

    spec: TemplateSpecFields


class ClaimManifest(WholeObjectFields):
    """A ResourceClaim."""

    spec: ClaimSpecFields
    status: Any = None


class PodGroupManifest(WholeObjectFields):
    """A PodGroup."""

    spec: PodGroupSpecFields
    status: Any = None


class PodManifest(WholeObjectFields):
    """A Pod."""

    spec: PodSpecFields
    status: Any = None


class WorkloadManifest(WholeObjectFields):
    """A Workload."""

    spec: WorkloadSpecFields
    status: Any = None


class ReplicasManifest(WholeObjectFields):
    """A Deployment, ReplicaSet or StatefulSet."""

    spec: ReplicasSpecFields
    status: Any = None


class JobManifest(WholeObjectFields):
    """A Job."""

    spec: JobSpecFields
    status: Any = None


_MANIFESTS: Final[Mapping[str, type[WholeObjectFields]]] = {
    "Node": NodeManifest,
    "ResourceSlice": SliceManifest,
    "DeviceClass": ClassManifest,
    "DeviceTaintRule": TaintRuleManifest,
    "ResourceClaimTemplate": TemplateManifest,
    "ResourceClaim": ClaimManifest,
    "PodGroup": PodGroupManifest,
    "Pod": PodManifest,
    "Deployment": ReplicasManifest,
    "ReplicaSet": ReplicasManifest,
    "StatefulSet": ReplicasManifest,
    "Job": JobManifest,
    "Workload": WorkloadManifest,
}


def schema_problems(kind: str, value: Mapping[str, Any]) -> Iterator[SchemaProblem]:
    """What is wrong with the fields of a manifest.  Rules between fields are checked once each of the fields is right."""
    model, found = _MANIFESTS[kind], set()
    try:
        model.model_validate(value)
    except ValidationError as invalid:
        for error in invalid.errors():
            path = error["loc"][:-1] if error["loc"][-1:] == (_KEY,) else error["loc"]
            unknown = error["type"] == "extra_forbidden"
            sentence = unknown_field(model, path) if unknown else sentence_of(error, {**YAML_TYPES, **EXPECTED})
            found.add(path)
            yield SchemaProblem(path, sentence, error["type"] == INVALID_EXPRESSION)
    for path, sentence in wrong_fields(kind, value):
        if path not in found:
            yield SchemaProblem(path, sentence)
