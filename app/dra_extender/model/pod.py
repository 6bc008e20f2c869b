"""Pods, as far as decisions read them."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

import msgspec

from dra_extender.cel.values.quantity import NANO, QuantityError, parse_quantity
from dra_extender.model.api_json import ModelError, Value, reader
from dra_extender.model.compressed import packed
from dra_extender.model.device_class import IMPLICIT_RESOURCE_PREFIX
from dra_extender.model.fields import (
    Amount,
    Described,
    DnsLabel,
    Format,
    Gate,
    Items,
    Labels,
    Mark,
    Name,
    RequestName,
    Resource,
    Subdomain,
    Time,
    Word,
)
from dra_extender.model.metadata import MOST_VERSION_DIGITS, Condition, ObjectMeta
from dra_extender.model.names import NATIVE_DOMAIN, QUOTA_PREFIX
from dra_extender.model.pod_placement import Affinity, SpreadConstraint, Toleration, Volume

FINISHED_PHASES: Final = frozenset({"Succeeded", "Failed"})
"""The phases in which a pod has ended for good."""
NO_COUNT: Final = -1
"""An amount that is no whole number, so that no devices can be counted for it."""


class GroupResourceClaim(Value, frozen=True):
    """An entry of `spec.resourceClaims` of a PodGroup."""

    name: Annotated[DnsLabel, Mark.REQUIRED] = ""
    resource_claim_name: Subdomain | None = None
    resource_claim_template_name: Subdomain | None = None


class PodResourceClaim(GroupResourceClaim, frozen=True):
    """An entry of `spec.resourceClaims`; `pod_group_resource_claim` exists in drafts of KEP-5729 only."""

    pod_group_resource_claim: Annotated[DnsLabel, Mark.DRAFT] | None = None


class PodClaimStatus(Value, frozen=True):
    """The claim that was generated for an entry; no name means that none is needed."""

    name: DnsLabel = ""
    resource_claim_name: Subdomain | None = None


class ResourceRequest(Value, frozen=True, rename=None, array_like=True):
    """An amount of one extended resource (or NO_COUNT); `place` counts the container's requests of any kind by name, from 0."""

    resource: str
    amount: int
    place: int


class ContainerRequests(Value, frozen=True, rename=None, array_like=True):
    """The requests of one container for extended resources.

    `index` counts init containers and then containers, from 0.  `long_lived` are all but init containers that run to their end
    before the next one starts.
    """

    index: int
    name: str
    long_lived: bool
    requests: tuple[ResourceRequest, ...]


class Pod(Value, frozen=True, rename=None):
    """A pod as far as decisions read it.

    `extended_resources` are the names in `extended_requests`, sorted; `extended_claim` is the name of the claim that
    `status.extendedResourceClaimStatus` names.  `has_started`: its kubelet reports PodReadyToStartContainers, for which
    the pod's claims must be prepared.  `parts` are its entries of `spec.resourceClaims` and its containers' requests for
    extended resources: the size of the question.

    `attempted`: a scheduler has bound the pod or reported on it.  `gates` are the scheduling gates of a pod without a node.
    `unschedulable` is read only of pods that name a PodGroup and have no node: what kube-scheduler reports as long as no node
    takes the pod.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str = ""
    scheduler_name: str = ""
    node_name: str = ""
    nominated_node_name: str = ""
    phase: str = ""
    deleting: bool = False
    priority: int = 0
    claims: Sequence[PodResourceClaim] = ()
    claim_statuses: Sequence[PodClaimStatus] = ()
    extended_resources: Sequence[str] = ()
    extended_requests: Sequence[ContainerRequests] = ()
    extended_claim: str = ""
    pod_group: str | None = None
    has_started: bool = False
    parts: int = 0
    attempted: bool = False
    gates: tuple[str, ...] = ()
    unschedulable: str = ""

    @property
    def key(self) -> str:
        """namespace/name, for messages."""
        return f"{self.namespace}/{self.name}"

    @property
    def needs_devices(self) -> bool:
        """Return whether the pod asks for devices, so that the extender decides about it."""
        return bool(self.claims or self.extended_resources)

    @property
    def finished(self) -> bool:
        """Return whether the pod has ended for good and uses nothing any more."""
        return self.phase in FINISHED_PHASES

    @property
    def ending(self) -> bool:
        """Return whether the pod has ended, or is being deleted."""
        return self.finished or self.deleting

    @property
    def waits_for_node(self) -> bool:
        """Return whether the pod is still to be scheduled."""
        return not (self.node_name or self.ending)


class ResourceClaimUse(Value, frozen=True):
    """An entry of `resources.claims`."""

    name: Name = ""
    request: RequestName = ""


Amounts = dict[Resource, Amount]


class Resources(Value, frozen=True):
    """`resources` of a container, or of a pod as a whole."""

    in_part: ClassVar[bool] = True
    unread: ClassVar[Mapping[str, Any]] = {"claims": Annotated[tuple[ResourceClaimUse, ...], Mark.UNCHECKED]}
    requests: Amounts | None = None
    limits: Amounts | None = None


class Port(Value, frozen=True):
    """A port of a container; 0 and None stand for fields that are left out."""

    name: Annotated[Word, Mark.LEFT_OUT] | None = None
    container_port: int = 0
    host_port: int | None = None
    host_ip: Word | None = msgspec.field(name="hostIP", default=None)
    protocol: Word | None = None


class Container(Value, frozen=True):
    """A container, as far as decisions read it."""

    in_part: ClassVar[bool] = True
    unread: ClassVar[Mapping[str, Any]] = {"image": Annotated[str, Format.PLAIN, Mark.REQUIRED, Mark.LEFT_OUT]}
    name: Annotated[DnsLabel, Mark.REQUIRED] = ""
    restart_policy: Annotated[Word, Mark.UNCHECKED] | None = None
    resources: Resources | None = None


class WholeContainer(Container, frozen=True):
    """A container, as far as explanations read it."""

    ports: Annotated[tuple[Port, ...], Mark.UNCHECKED] | None = None


class SchedulingGroup(Value, frozen=True):
    """The PodGroup of a pod."""

    pod_group_name: Annotated[Subdomain, Mark.REQUIRED] | None = None


class WorkloadReference(Value, frozen=True):
    """The PodGroup of a pod in 1.35 and in drafts of KEP-5729."""

    unread: ClassVar[Mapping[str, Any]] = {"name": Name, "podGroupReplicaKey": Name}
    pod_group_name: Name | None = None
    pod_group: Name | None = None


class SchedulingGate(Value, frozen=True):
    """A reason not to schedule a pod yet."""

    name: Name = ""


class PodSpec(Value, frozen=True):
    """`spec` of a pod, as far as decisions read it."""

    in_part: ClassVar[bool] = True
    unread: ClassVar[Mapping[str, Any]] = {"priorityClassName": Annotated[Name, Mark.UNCHECKED]}
    containers: Annotated[tuple[Container, ...], Items(min_items=1, once="name"), Mark.REQUIRED] | None = None
    init_containers: Annotated[tuple[Container, ...], Items(once="name")] | None = None
    scheduler_name: Name | None = None
    node_name: Name | None = None
    priority: Annotated[int, Mark.UNCHECKED] | None = None
    resource_claims: Annotated[tuple[PodResourceClaim, ...], Items(once="name"), Mark.WHOLE] | None = None
    scheduling_group: Annotated[SchedulingGroup, Mark.WHOLE] | None = None
    scheduling_gates: Annotated[tuple[SchedulingGate, ...], Mark.UNCHECKED, Mark.WHOLE] | None = None
    workload_ref: Annotated[WorkloadReference, Mark.UNCHECKED, Mark.WHOLE, Mark.DRAFT] | None = None


class WholePodSpec(PodSpec, frozen=True):
    """`spec` of a pod, as far as explanations and kube-scheduler's own filters read it."""

    containers: Annotated[tuple[WholeContainer, ...], Items(min_items=1, once="name"), Mark.REQUIRED] | None = None
    init_containers: Annotated[tuple[WholeContainer, ...], Items(once="name")] | None = None
    node_selector: Annotated[dict[Word, Name], Labels.LABELS] | None = None
    tolerations: Annotated[tuple[Toleration, ...], Mark.UNCHECKED, Mark.WHOLE] | None = None
    affinity: Annotated[Affinity, Mark.UNCHECKED] | None = None
    overhead: Annotated[Amounts, Mark.UNCHECKED] | None = None
    preemption_policy: Annotated[Word, Mark.UNCHECKED] | None = None
    host_network: Annotated[bool, Mark.UNCHECKED] | None = None
    topology_spread_constraints: Annotated[tuple[SpreadConstraint, ...], Mark.UNCHECKED] | None = None
    volumes: Annotated[tuple[Volume, ...], Mark.UNCHECKED] | None = None
    resources: Annotated[Resources, Mark.UNCHECKED] | None = None


class MappedRequest(Value, frozen=True):
    """The request of the claim that serves an extended resource of a container."""

    container_name: Name = ""
    resource_name: Resource = ""
    request_name: RequestName = ""


class ExtendedClaimStatus(Value, frozen=True):
    """The claim that was made for the extended resources of a pod."""

    unread: ClassVar[Mapping[str, Any]] = {"requestMappings": tuple[MappedRequest, ...]}
    resource_claim_name: Subdomain = ""


_STARTED: Final = ("PodReadyToStartContainers", "True")
_SCHEDULED: Final = "PodScheduled"
_GATED: Final = "SchedulingGated"
_UNSCHEDULABLE: Final = "Unschedulable"
_MOST_MESSAGE: Final = 4_096


class PodStatus(Value, frozen=True):
    """`status` of a pod."""

    unread: ClassVar[Mapping[str, Any]] = {"startTime": Time}
    phase: Word | None = None
    nominated_node_name: Name | None = None
    resource_claim_statuses: Annotated[tuple[PodClaimStatus, ...], Mark.WHOLE] | None = None
    extended_resource_claim_status: Annotated[ExtendedClaimStatus, Mark.WHOLE, Gate.EXTENDED_RESOURCES] | None = None
    conditions: tuple[Condition, ...] | None = None


class PodObject(Value, frozen=True):
    """A pod as the API server sends it; `compact` makes the value that is kept."""

    metadata: Annotated[ObjectMeta, Mark.REQUIRED] = ObjectMeta()
    spec: Annotated[PodSpec, Described(WholePodSpec), Mark.REQUIRED] = PodSpec()
    status: Annotated[PodStatus, Mark.UNCHECKED] = PodStatus()

    def compact(self) -> Pod:
        """Return the pod as far as decisions read it."""
        meta, spec, status = self.metadata, self.spec, self.status
        group = spec.scheduling_group.pod_group_name if spec.scheduling_group else None
        if group is None and spec.workload_ref is not None:
            group = spec.workload_ref.pod_group_name or spec.workload_ref.pod_group
        requesting = _extended(spec.init_containers or (), spec.containers or ())
        requested = sum(len(container.requests) for container in requesting)
        resources = {request.resource for container in requesting for request in container.requests}
        extended = status.extended_resource_claim_status
        scheduled = next(
            (condition for condition in status.conditions or () if condition.type == _SCHEDULED), Condition()
        )
        member_waits = group is not None and not spec.node_name
        return Pod(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            resource_version=meta.resource_version,
            scheduler_name=spec.scheduler_name or "",
            node_name=spec.node_name or "",
            nominated_node_name=status.nominated_node_name or "",
            phase=status.phase or "",
            deleting=meta.deletion_timestamp is not None,
            priority=spec.priority or 0,
            claims=packed(spec.resource_claims or (), PodResourceClaim),
            claim_statuses=packed(status.resource_claim_statuses or (), PodClaimStatus),
            extended_resources=packed(tuple(sorted(resources)), str),
            extended_requests=packed(requesting, ContainerRequests, requested),
            extended_claim=extended.resource_claim_name if extended is not None else "",
            pod_group=group,
            has_started=any((condition.type, condition.status) == _STARTED for condition in status.conditions or ()),
            parts=len(spec.resource_claims or ()) + requested,
            # The API server itself reports on a pod with gates.
            attempted=bool(scheduled.type) and scheduled.reason != _GATED,
            gates=tuple(gate.name for gate in spec.scheduling_gates or ()) if not spec.node_name else (),
            unschedulable=scheduled.message[:_MOST_MESSAGE]
            if member_waits and scheduled.reason == _UNSCHEDULABLE
            else "",
        )


class WholePod(Value, frozen=True):
    """A pod as the API server sends it, with what explanations and kube-scheduler's own filters read."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WholePodSpec = WholePodSpec()
    status: PodStatus = PodStatus()


def _extended(init: Sequence[Container], main: Sequence[Container]) -> tuple[ContainerRequests, ...]:
    """Return the containers that ask for extended resources; amounts of zero do not count."""
    requesting: list[ContainerRequests] = []
    for index, container in enumerate((*init, *main)):
        resources = container.resources
        if resources is None:
            continue
        limits, requested = resources.limits or {}, resources.requests or {}
        if not any("/" in name for name in (*limits, *requested)):
            continue
        # A limit without a request is a request, as the API server has it.
        requests = _requests({**limits, **requested})
        if requests:
            lasting = index >= len(init) or container.restart_policy == "Always"
            requesting.append(
                ContainerRequests(index=index, name=container.name, long_lived=lasting, requests=tuple(requests))
            )
    return tuple(requesting)


def _requests(resources: Mapping[str, str | float]) -> list[ResourceRequest]:
    return [
        ResourceRequest(resource=name, amount=count, place=place)
        for place, name in enumerate(sorted(resources))
        if is_extended(name) and (count := _count(resources[name]))
    ]


def is_extended(name: str) -> bool:
    """Return whether this is an extended resource, or the implicit one of a device class (as kube-scheduler distinguishes them)."""
    if "/" not in name or name.startswith(QUOTA_PREFIX):
        return False
    return NATIVE_DOMAIN not in name or name.startswith(IMPLICIT_RESOURCE_PREFIX)


def _count(amount: str | float) -> int:
    """Return the amount as a number of devices, NO_COUNT if it is none."""
    try:
        units, remainder = divmod(parse_quantity(str(amount)), NANO)
    except QuantityError:
        return NO_COUNT
    return NO_COUNT if remainder or units < 0 else units


class _Identity(Value, frozen=True):
    name: Annotated[str, msgspec.Meta(max_length=253)] = ""
    namespace: Annotated[str, msgspec.Meta(max_length=63)] = ""
    uid: Annotated[str, msgspec.Meta(max_length=128)] = ""
    resource_version: str = ""


class _Head(Value, frozen=True):
    metadata: _Identity = _Identity()


_read_object = reader("Pod", PodObject)
_read_head = reader("Pod", _Head)


def read_pod(data: bytes) -> Pod:
    """Return the pod in `data` (API JSON)."""
    return _read_object(data).compact()


class RequestPod:
    """A pod as a caller sent it: its identity, and everything else undecoded until `read`.

    The caller need not be kube-scheduler, so nothing but the identity of the pod decides anything.
    """

    __slots__ = ("_raw", "name", "namespace", "resource_version", "uid")

    def __init__(self, raw: bytes) -> None:
        """Read the identity in `raw` (API JSON).

        Raises:
            ModelError: not an object, or a field of the identity is no string; the message names the field.
        """
        head = _read_head(raw).metadata
        self._raw = raw
        self.namespace, self.name = head.namespace, head.name
        self.uid, version = head.uid, head.resource_version
        self.resource_version = version if len(version) <= MOST_VERSION_DIGITS and version.isascii() else ""

    @property
    def size(self) -> int:
        """Bytes that the caller sent."""
        return len(self._raw)

    def read(self) -> Pod:
        """Return the whole pod, as sent.

        Raises:
            ModelError: a field has the wrong type.
        """
        try:
            return read_pod(self._raw)
        except RecursionError as problem:
            raise ModelError("Pod: expected JSON of sensible depth") from problem
