"""Objects that make pods and PodGroups.  They are described so that manifests of them can be checked; nothing decodes them."""

from typing import Annotated, Any, ClassVar

from dra_extender.model.api_json import Value
from dra_extender.model.fields import DnsLabel, Items, Mark, Replicas
from dra_extender.model.metadata import ObjectMeta, TemplateMeta
from dra_extender.model.pod import WholePodSpec
from dra_extender.model.pod_group import GroupClaims, SchedulingPolicy


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


class Workload(Value, frozen=True):
    """A Workload."""

    metadata: ObjectMeta
    spec: WorkloadSpec
