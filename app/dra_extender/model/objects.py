"""Objects that no decision about devices reads: Events, disruption budgets, makers of pods; and the kinds that are described."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

from dra_extender.model.api_json import Value
from dra_extender.model.device_class import DeviceClass
from dra_extender.model.device_taint_rule import DeviceTaintRule
from dra_extender.model.fields import (
    DnsLabel,
    Items,
    LabelKey,
    Labels,
    LabelValue,
    Mark,
    Name,
    Replicas,
    Sentence,
    Time,
    Word,
)
from dra_extender.model.metadata import ObjectMeta, TemplateMeta
from dra_extender.model.node import WholeNode
from dra_extender.model.node_selector import NodeSelectorRequirement, check_label_requirement, label_matches
from dra_extender.model.pod import PodObject, WholePodSpec
from dra_extender.model.pod_group import GroupClaims, PodGroup, SchedulingPolicy
from dra_extender.model.resource_claim import ResourceClaim
from dra_extender.model.resource_slice import SliceObject
from dra_extender.model.templated_claim import ClaimTemplate


class PodTemplate(Value, frozen=True, kw_only=True):
    """The template of a workload for its pods."""

    in_part: ClassVar[bool] = True
    metadata: TemplateMeta | None = None
    spec: WholePodSpec


class ReplicasSpec(Value, frozen=True, kw_only=True):
    """`spec` of a Deployment, ReplicaSet or StatefulSet."""

    in_part: ClassVar[bool] = True
    replicas: Replicas | None = None
    template: PodTemplate


class JobSpec(Value, frozen=True, kw_only=True):
    """`spec` of a Job."""

    in_part: ClassVar[bool] = True
    parallelism: Replicas | None = None
    completions: Replicas | None = None
    suspend: bool | None = None
    template: PodTemplate


class DaemonSetSpec(Value, frozen=True, kw_only=True):
    """`spec` of a DaemonSet."""

    in_part: ClassVar[bool] = True
    template: PodTemplate


class JobTemplate(Value, frozen=True, kw_only=True):
    """The template of a CronJob for its Jobs."""

    in_part: ClassVar[bool] = True
    metadata: TemplateMeta | None = None
    spec: JobSpec


class CronJobSpec(Value, frozen=True, kw_only=True):
    """`spec` of a CronJob."""

    in_part: ClassVar[bool] = True
    job_template: JobTemplate


class GroupTemplate(Value, frozen=True):
    """A template of a Workload for PodGroups; drafts and 1.35 have `policy`."""

    in_part: ClassVar[bool] = True
    name: DnsLabel
    scheduling_policy: SchedulingPolicy | None = None
    policy: Annotated[SchedulingPolicy, Mark.DRAFT] | None = None
    resource_claims: GroupClaims | None = None


_Templates = Annotated[tuple[GroupTemplate, ...], Items(1, 8, once="name")]


class WorkloadSpec(Value, frozen=True):
    """`spec` of a Workload; 1.35 has `podGroups`."""

    in_part: ClassVar[bool] = True
    pod_group_templates: _Templates | None = None
    pod_groups: Annotated[_Templates, Mark.DRAFT] | None = None


class _PodMaker(Value, frozen=True):
    metadata: ObjectMeta
    status: Annotated[Any, Mark.UNCHECKED] = None


class ReplicasObject(_PodMaker, frozen=True, kw_only=True):
    """A Deployment, ReplicaSet or StatefulSet."""

    spec: ReplicasSpec


class Job(_PodMaker, frozen=True, kw_only=True):
    """A Job."""

    spec: JobSpec


class DaemonSet(_PodMaker, frozen=True, kw_only=True):
    """A DaemonSet."""

    spec: DaemonSetSpec


class CronJob(_PodMaker, frozen=True, kw_only=True):
    """A CronJob."""

    spec: CronJobSpec


class Workload(Value, frozen=True):
    """A Workload."""

    metadata: ObjectMeta
    spec: WorkloadSpec


class ObjectReference(Value, frozen=True):
    """The object that an Event is about."""

    kind: Word = ""
    namespace: Name = ""
    name: Name = ""
    uid: Name = ""


class EventSeries(Value, frozen=True):
    """The number of times that an Event was repeated, and the last time."""

    count: int = 0
    last_observed_time: Time | None = None


class EventSource(Value, frozen=True):
    """The reporter of an Event."""

    component: Name = ""


class EventMeta(Value, frozen=True):
    """`metadata` of an Event."""

    name: Name = ""
    namespace: Name = ""
    uid: Name = ""


class EventObject(Value, frozen=True):
    """An Event as the API server sends it."""

    unread: ClassVar[Mapping[str, Any]] = {"metadata": EventMeta, "type": Word}
    involved_object: ObjectReference = ObjectReference()
    reason: Word = ""
    message: Sentence = ""
    reporting_component: Name = ""
    source: EventSource = EventSource()
    count: Annotated[int, Mark.LEFT_OUT] = 0
    series: EventSeries | None = None
    event_time: Time | None = None
    first_timestamp: Time | None = None
    last_timestamp: Time | None = None


class PodSelector(Value, frozen=True):
    """A label selector: all of its requirements must hold; one without any selects everything."""

    match_labels: Annotated[dict[LabelKey, LabelValue], Labels.LABELS] = {}
    match_expressions: tuple[NodeSelectorRequirement, ...] = ()

    def check(self) -> None:
        """Refuse a malformed selector.

        Raises:
            ModelError: a requirement is malformed.
        """
        for requirement in self.match_expressions:
            check_label_requirement(requirement)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels are selected by a selector that `check` does not refuse."""
        return self.match_labels.items() <= labels.items() and all(
            label_matches(requirement, labels) for requirement in self.match_expressions
        )


class DisruptionBudgetSpec(Value, frozen=True):
    """`spec` of a PodDisruptionBudget; without a selector it is about no pod."""

    selector: PodSelector | None = None


class DisruptionBudgetStatus(Value, frozen=True):
    """The number of pods that may still be evicted now."""

    disruptions_allowed: int = 0


class DisruptionBudget(Value, frozen=True):
    """A PodDisruptionBudget as the API server sends it (policy/v1)."""

    metadata: ObjectMeta
    spec: DisruptionBudgetSpec = DisruptionBudgetSpec()
    status: DisruptionBudgetStatus = DisruptionBudgetStatus()


WATCHED: Final[Mapping[str, type[Value]]] = {
    "nodes": WholeNode,
    "deviceclasses": DeviceClass,
    "devicetaintrules": DeviceTaintRule,
    "resourceslices": SliceObject,
    "resourceclaims": ResourceClaim,
    "resourceclaimtemplates": ClaimTemplate,
    "podgroups": PodGroup,
    "events": EventObject,
    "poddisruptionbudgets": DisruptionBudget,
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
    "DaemonSet": DaemonSet,
    "Job": Job,
    "CronJob": CronJob,
    "Workload": Workload,
}
"""The structs of what people write in manifests, by kind."""
