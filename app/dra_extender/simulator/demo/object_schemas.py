"""What each kind of manifest looks like in resource.k8s.io/v1 and v1 of Kubernetes 1.37 (limits of the API server included)."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final, NamedTuple

from pydantic import Field, ValidationError

from dra_extender.manifests.documents import FieldPath
from dra_extender.manifests.problems import YAML_TYPES, sentence_of, unknown_field
from dra_extender.simulator.apiserver.objects import StoredKind
from dra_extender.simulator.demo.claim_schemas import ClaimSpecFields, OpaqueFields, Selectors
from dra_extender.simulator.demo.field_types import (
    EXPECTED,
    INVALID_EXPRESSION,
    Count,
    DnsLabel,
    DriverName,
    ObjectFields,
    OpenFields,
    PoolName,
    QuantityByName,
    Subdomain,
    each_once,
)
from dra_extender.simulator.demo.slice_schemas import SliceSpecFields, TaintFields


class SchemaProblem(NamedTuple):
    """What is wrong at a path; `is_expression` marks a CEL expression that does not compile."""

    path: FieldPath
    sentence: str
    is_expression: bool


class OwnerFields(OpenFields):
    """An entry of `metadata.ownerReferences`."""

    api_version: str
    kind: str
    name: str
    uid: str


class MetadataFields(OpenFields):
    """`metadata` of every kind."""

    name: Subdomain
    generate_name: str | None = None
    namespace: DnsLabel | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: list[str] | None = None
    uid: str | None = None
    owner_references: list[OwnerFields] | None = None


class TemplateSpecFields(ObjectFields):
    """`spec` of a ResourceClaimTemplate."""

    metadata: Any = None
    spec: ClaimSpecFields


class ClassConfigurationFields(ObjectFields):
    """An entry of `config` of a DeviceClass."""

    opaque: OpaqueFields


class ClassSpecFields(ObjectFields):
    """`spec` of a DeviceClass."""

    selectors: Selectors | None = None
    config: Annotated[list[ClassConfigurationFields], Field(max_length=32)] | None = None
    extended_resource_name: str | None = None


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


class PodGroupSpecFields(OpenFields):
    """`spec` of a PodGroup."""

    scheduling_policy: SchedulingPolicyFields | None = None
    resource_claims: Annotated[list[GroupClaimFields], Field(max_length=4), each_once("name")] | None = None


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


_MANIFESTS: Final[Mapping[StoredKind, type[WholeObjectFields]]] = {
    StoredKind.NODE: NodeManifest,
    StoredKind.SLICE: SliceManifest,
    StoredKind.CLASS: ClassManifest,
    StoredKind.TAINT_RULE: TaintRuleManifest,
    StoredKind.TEMPLATE: TemplateManifest,
    StoredKind.CLAIM: ClaimManifest,
    StoredKind.POD_GROUP: PodGroupManifest,
    StoredKind.POD: PodManifest,
}


def schema_problems(kind: StoredKind, value: Mapping[str, Any]) -> Iterator[SchemaProblem]:
    """What is wrong with the fields of a manifest.  Rules between fields are checked once each of the fields is right."""
    model = _MANIFESTS[kind]
    try:
        model.model_validate(value)
    except ValidationError as invalid:
        for error in invalid.errors():
            path = error["loc"]
            unknown = error["type"] == "extra_forbidden"
            sentence = unknown_field(model, path) if unknown else sentence_of(error, {**YAML_TYPES, **EXPECTED})
            yield SchemaProblem(path, sentence, error["type"] == INVALID_EXPRESSION)
