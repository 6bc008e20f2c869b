"""PodGroups: gangs, and claims that their pods share."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

import msgspec

from dra_extender.model.api_json import Value, reader
from dra_extender.model.fields import Count, Described, Empty, Items, Mark, Name
from dra_extender.model.metadata import Condition, ObjectMeta
from dra_extender.model.pod import GroupResourceClaim, PodClaimStatus, PodResourceClaim
from dra_extender.model.resource_claim import ConsumerReference

GROUP: Final = "scheduling.k8s.io"
POD_GROUPS: Final = "podgroups"
POD_GROUP_KIND: Final = "PodGroup"
_GROUP_CONDITIONS: Final = frozenset({"PodGroupScheduled", "PodGroupInitiallyScheduled"})
"""Conditions that kube-scheduler writes with its gate GenericWorkload: that of 1.36, and that of 1.37."""
PROTECTION_FINALIZER: Final = f"{GROUP}/podgroup-protection"
"""Keeps a PodGroup until none of its pods is active: the API server (1.37) puts it on, kube-controller-manager takes it off."""


class Gang(Value, frozen=True):
    """The gang policy of a PodGroup."""

    min_count: Annotated[Count, Mark.REQUIRED] = 0


class SchedulingPolicy(Value, frozen=True):
    """The policy by which the pods of a PodGroup are scheduled."""

    basic: Annotated[Empty, Mark.UNCHECKED] | None = None
    gang: Gang | None = None


GroupClaims = Annotated[
    tuple[PodResourceClaim, ...], Described(tuple[GroupResourceClaim, ...]), Items(max_items=4, once="name")
]


class GroupWorkloadReference(Value, frozen=True):
    """The Workload of a PodGroup; drafts of KEP-5729 have `name`."""

    in_part: ClassVar[bool] = True
    unread: ClassVar[Mapping[str, Any]] = {"name": Annotated[Name, Mark.DRAFT]}


class PodGroupSpec(Value, frozen=True):
    """`spec` of a PodGroup, as far as claims and gangs are concerned."""

    in_part: ClassVar[bool] = True
    unread: ClassVar[Mapping[str, Any]] = {
        # Of 1.36.
        "podGroupTemplateRef": Annotated[Any, Mark.UNCHECKED, Mark.LEFT_OUT, Mark.DRAFT],
        "workloadRef": Annotated[GroupWorkloadReference, Mark.UNCHECKED, Mark.LEFT_OUT],
    }
    scheduling_policy: SchedulingPolicy | None = None
    resource_claims: GroupClaims = ()


class _Condition(Value, frozen=True):
    type: str = ""


class PodGroupStatus(Value, frozen=True):
    """`status` of a PodGroup, as far as claims and gangs are concerned."""

    resource_claim_statuses: Annotated[tuple[PodClaimStatus, ...], Mark.WHOLE] = ()
    conditions: Annotated[tuple[_Condition, ...], Described(tuple[Condition, ...])] | None = None


class PodGroup(Value, frozen=True):
    """A PodGroup of scheduling.k8s.io; the same fields in v1alpha2, v1alpha3 and v1beta1."""

    metadata: Annotated[ObjectMeta, Mark.REQUIRED] = ObjectMeta()
    spec: Annotated[PodGroupSpec, Mark.REQUIRED, Mark.WHOLE] = PodGroupSpec()
    status: Annotated[PodGroupStatus, Mark.UNCHECKED] = PodGroupStatus()

    @property
    def min_count(self) -> int | None:
        """How many members are needed at once; None if the group is no gang."""
        policy = self.spec.scheduling_policy
        return None if policy is None or policy.gang is None else policy.gang.min_count

    @property
    def scheduled_as_group(self) -> bool:
        """Return whether kube-scheduler schedules the group as one: it asks about all members before it binds the first one."""
        return any(condition.type in _GROUP_CONDITIONS for condition in self.status.conditions or ())

    @property
    def consumer(self) -> ConsumerReference:
        """How the group appears in `reservedFor` (KEP-5729)."""
        meta = self.metadata
        return group_consumer(meta.name, meta.uid)


def group_consumer(name: str, uid: str) -> ConsumerReference:
    """Return a PodGroup as it appears in `reservedFor` (KEP-5729)."""
    return ConsumerReference(api_group=GROUP, resource=POD_GROUPS, name=name, uid=uid)


def is_group(consumer: ConsumerReference) -> bool:
    """Return whether this entry of `reservedFor` is a PodGroup."""
    return (consumer.api_group, consumer.resource) == (GROUP, POD_GROUPS)


read_pod_group = reader("PodGroup", PodGroup)


def read_kept_pod_group(data: bytes) -> PodGroup:
    """Return a PodGroup with as much of its metadata as decisions read: for keeping, not for writing."""
    group = read_pod_group(data)
    return msgspec.structs.replace(group, metadata=group.metadata.bare(PROTECTION_FINALIZER))
