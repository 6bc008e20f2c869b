from collections.abc import Iterable
from typing import Any

import msgspec

from app.model.base import ModelError, Value, decode
from app.model.metadata import ObjectMeta
from app.model.quantity import QuantityError, parse_quantity

_NATIVE = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})


class PodResourceClaim(Value, frozen=True):
    """An entry of `spec.resourceClaims`; `pod_group_resource_claim` exists in drafts of KEP-5729 only."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None
    pod_group_resource_claim: str | None = None


class PodClaimStatus(Value, frozen=True):
    """Which claim was generated for an entry; no name means that none is needed."""

    name: str = ""
    resource_claim_name: str | None = None


class Pod(Value, frozen=True, rename=None):
    """A pod as far as decisions read it."""

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
    claims: tuple[PodResourceClaim, ...] = ()
    claim_statuses: tuple[PodClaimStatus, ...] = ()
    extended_resources: tuple[str, ...] = ()
    pod_group: str | None = None

    @property
    def key(self) -> str:
        """namespace/name, for messages."""
        return f"{self.namespace}/{self.name}"

    @property
    def needs_devices(self) -> bool:
        """Whether anything about this pod is ours to decide."""
        return bool(self.claims or self.extended_resources)

    @property
    def finished(self) -> bool:
        """Whether the pod has ended for good and uses nothing any more."""
        return self.phase in ("Succeeded", "Failed")


class _Resources(Value, frozen=True):
    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class _Container(Value, frozen=True):
    resources: _Resources | None = None


class _SchedulingGroup(Value, frozen=True):
    pod_group_name: str | None = None


class _WorkloadRef(Value, frozen=True):
    pod_group_name: str | None = None
    pod_group: str | None = None


class _Spec(Value, frozen=True):
    node_name: str | None = None
    scheduler_name: str | None = None
    priority: int | None = None
    resource_claims: tuple[PodResourceClaim, ...] | None = None
    containers: tuple[_Container, ...] | None = None
    init_containers: tuple[_Container, ...] | None = None
    scheduling_group: _SchedulingGroup | None = None
    workload_ref: _WorkloadRef | None = None


class _Status(Value, frozen=True):
    phase: str | None = None
    nominated_node_name: str | None = None
    resource_claim_statuses: tuple[PodClaimStatus, ...] | None = None


class WirePod(Value, frozen=True):
    """A pod in API JSON; `compact` makes the value that is kept."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()
    status: _Status = _Status()

    def compact(self) -> Pod:
        """The pod as far as decisions read it."""
        meta, spec, status = self.metadata, self.spec, self.status
        group = spec.scheduling_group.pod_group_name if spec.scheduling_group else None
        if group is None and spec.workload_ref is not None:
            group = spec.workload_ref.pod_group_name or spec.workload_ref.pod_group
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
            claims=spec.resource_claims or (),
            claim_statuses=status.resource_claim_statuses or (),
            extended_resources=_extended((*(spec.init_containers or ()), *(spec.containers or ()))),
            pod_group=group,
        )


def _extended(containers: Iterable[_Container]) -> tuple[str, ...]:
    """Names of requested resources that are not native to Kubernetes, sorted; amounts of zero do not count."""
    names: set[str] = set()
    for container in containers:
        resources = container.resources
        if resources is None:
            continue
        for found in (resources.requests, resources.limits):
            names.update(name for name, amount in (found or {}).items() if _is_extended(name) and _positive(amount))
    return tuple(sorted(names))


def _is_extended(name: str) -> bool:
    return name not in _NATIVE and "/" in name and not name.startswith("kubernetes.io/")


def _positive(amount: str | float) -> bool:
    if isinstance(amount, str):
        try:
            return parse_quantity(amount) > 0
        except QuantityError:
            return True
    return amount > 0


_DECODER = msgspec.json.Decoder(WirePod)


def read_pod(data: bytes) -> Pod:
    """The pod in `data` (API JSON).

    Raises:
        ModelError: not a Pod; the message names the field.
    """
    return decode("Pod", _DECODER, data).compact()


def pod_from(raw: Any) -> Pod:
    """As `read_pod`, from decoded JSON."""
    try:
        return msgspec.convert(raw, WirePod).compact()
    except msgspec.ValidationError as problem:
        raise ModelError(f"Pod: {problem}") from problem
