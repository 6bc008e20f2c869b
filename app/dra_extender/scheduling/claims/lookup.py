"""Which claims a pod needs, and which consumer each of them is to be reserved for."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from dra_extender.allocator.state.rejection import Code, Rejection
from dra_extender.ledger.index.group_starts import GroupEntrySupport
from dra_extender.ledger.index.pod_groups import GroupReservation
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.state.claim_record import ClaimRecord
from dra_extender.model.metadata import OwnerReference
from dra_extender.model.node import Node
from dra_extender.model.pod import Pod, PodResourceClaim
from dra_extender.model.pod_group import GROUP, POD_GROUP_KIND, PodGroup, group_consumer
from dra_extender.model.resource_claim import OWN_ENTRIES, ConsumerReference

PODS: Final = "pods"
MOST_CLAIMS: Final = 1_000
"""How many entries of `spec.resourceClaims` of one pod are served; the API server stores tens of thousands."""
_FEATURE_OFF: Final = "features.pod_group_claims is off"


class FoundClaim(NamedTuple):
    """A claim of a pod: the pod's name for it, what the ledger knows, and the consumer for which it is to be reserved.

    `group`: the PodGroup whose claim by name it is, and which may be reserved instead of the pod.
    """

    label: str
    record: ClaimRecord
    consumer: ConsumerReference
    group: ConsumerReference | None = None

    @property
    def uid(self) -> str:
        """The UID of the claim."""
        return self.record.claim.metadata.uid

    @property
    def name(self) -> str:
        """The claim as namespace/name."""
        return "/".join(self.record.claim.metadata.key)

    @property
    def reserved(self) -> bool:
        """Whether the consumer is in `reservedFor` already."""
        return self.record.claim.reserved_by(self.consumer.uid)


def consumer_of(pod: Pod) -> ConsumerReference:
    """Return how the pod appears in `reservedFor`."""
    return ConsumerReference(resource=PODS, name=pod.name, uid=pod.uid)


def find_claims(pod: Pod, ledger: Ledger, node: Node | None = None) -> tuple[FoundClaim, ...] | Rejection:
    """Return the claims a pod needs, in the order of its spec, or why they cannot be had yet.

    Same steps as upstream: the named claim, or the generated one that `status.resourceClaimStatuses` records (which may say that
    none is needed); the claim must exist, must not be going away, and a generated one must belong to this pod or to its PodGroup.
    An entry that the PodGroup has too, in all its fields, stands for the group's claim (KEP-5729 as released), and so does one
    with `podGroupResourceClaim` (KEP-5729 as drafted); such a claim is reserved for the group if that is so on the `node`, which
    is None as long as it is open, and one that was generated for the group always.  Without the feature PodGroups have no claims.
    """
    if len(pod.claims) > MOST_CLAIMS:
        detail = f"spec.resourceClaims has {len(pod.claims)} entries, {MOST_CLAIMS} are looked at"
        return Rejection(code=Code.TOO_MUCH, detail=detail)
    lookup = _lookup(pod, ledger, node)
    if isinstance(lookup, Rejection):
        return lookup
    found: dict[int, FoundClaim] = {}
    for entry in pod.claims:
        claim = lookup.of(entry)
        if isinstance(claim, Rejection):
            return claim
        if claim is not None:
            found.setdefault(id(claim.record), claim)
    return tuple(found.values())


def claim_names(pod: Pod, ledger: Ledger) -> Iterator[str]:
    """Yield the names of the claims that `find_claims` looks for, as far as they are recorded."""
    lookup = _lookup(pod, ledger, None)
    if isinstance(lookup, Rejection):
        return
    for entry in pod.claims[:MOST_CLAIMS]:
        target = lookup.target(entry)
        if isinstance(target, _Target):
            yield target.name


def is_crowded(found: FoundClaim, ledger: Ledger) -> bool:
    """Return whether the claim has so many entries that further pods are reserved through their PodGroup where they can be."""
    groups = ledger.pod_groups
    return (
        found.group is not None
        and groups.reservation is GroupReservation.AUTO
        and groups.ends_entries
        and len(found.record.claim.status.reserved_for) >= OWN_ENTRIES
    )


def goes_by_group(found: FoundClaim, pod: Pod, node: Node | None, ledger: Ledger) -> bool:
    """Return whether the pod, bound to this node, is to have nothing but its group's entry, because the claim is crowded.

    On a node that is known to be unable it needs an entry of its own.
    """
    return (
        node is not None
        and is_crowded(found, ledger)
        and ledger.group_starts.support_on(pod.namespace, node, pod.uid) is not GroupEntrySupport.UNABLE
    )


def names_missing(pod: Pod) -> bool:
    """Return whether this state of the pod lacks the name of the claim that was created for one of its templates."""
    templated = [each.name for each in pod.claims if not each.resource_claim_name]
    return bool(templated) and not {each.name for each in pod.claim_statuses}.issuperset(templated)


class _Target(NamedTuple):
    """What an entry stands for: the name of the claim, whether it must have been generated, and whether it is the group's."""

    name: str
    generated: bool
    of_group: bool


class _Lookup:
    def __init__(self, pod: Pod, group: PodGroup | None, ledger: Ledger, node: Node | None) -> None:
        self._pod = pod
        self._group = group
        self._ledger = ledger
        self._node = node
        self._recorded: Mapping[str, str | None] = {each.name: each.resource_claim_name for each in pod.claim_statuses}

    def of(self, entry: PodResourceClaim) -> FoundClaim | Rejection | None:
        """Return the claim of one entry, None if it needs none."""
        target = self.target(entry)
        if target is None or isinstance(target, Rejection):
            return target
        pod = self._pod
        record = self._ledger.claims.by_key(pod.namespace, target.name)
        if record is None:
            return Rejection(code=Code.CLAIM_MISSING, claim=entry.name, detail=f"{pod.namespace}/{target.name}")
        if record.claim.metadata.deletion_timestamp is not None:
            return Rejection(code=Code.CLAIM_DELETING, claim=entry.name, detail=f"{pod.namespace}/{target.name}")
        if not record.has_status:
            return Rejection(code=Code.CLAIM_UNREADABLE, claim=entry.name, detail=record.unreadable)
        if not (target.generated or target.of_group):
            return FoundClaim(entry.name, record, consumer_of(pod))
        controller = record.claim.metadata.controller
        owned = controller is not None and controller.uid == pod.uid
        if target.generated and not owned:
            return self._generated(entry, target, record, controller)
        alone = owned or record.claim.reserved_by(pod.uid)
        return self._shared(entry, target, record, alone=alone)

    def _generated(
        self, entry: PodResourceClaim, target: _Target, record: ClaimRecord, controller: OwnerReference | None
    ) -> FoundClaim | Rejection:
        """Return a claim that was not generated for the pod itself: the group's.

        A kubelet that does not accept reservations for a group does not accept this claim with any reservation.
        """
        pod, name = self._pod, "/".join(record.claim.metadata.key)
        if controller is None or not _is_group(controller, pod) or not self._ledger.pod_groups.have_claims:
            whose = "this pod" if pod.pod_group is None else "this pod or its PodGroup"
            detail = f"{name} is not controlled by {whose}"
            if _is_group(controller, pod):
                detail = f"{name} is controlled by the PodGroup of this pod, and {_FEATURE_OFF}"
            return Rejection(code=Code.CLAIM_FOREIGN, claim=entry.name, detail=detail)
        if not self._ledger.pod_groups.reservation.may_apply:
            detail = f"{name}; the setting scheduling.reserve_for_pod_groups says so"
            return Rejection(code=Code.CLAIM_NOT_STARTED, claim=entry.name, detail=detail)
        if record.claim.reserved_by(pod.uid):
            return FoundClaim(entry.name, record, consumer_of(pod))
        if target.of_group and self._group is not None:
            return FoundClaim(entry.name, record, self._group.consumer)
        return FoundClaim(entry.name, record, group_consumer(controller.name, controller.uid))

    def target(self, entry: PodResourceClaim) -> _Target | Rejection | None:
        """Return what the entry stands for, or why that is not known; None if it needs no claim."""
        if entry.pod_group_resource_claim:
            return self._drafted(entry, entry.pod_group_resource_claim)
        of_group = self._group is not None and entry in self._group.spec.resource_claims
        if entry.resource_claim_name:
            return _Target(entry.resource_claim_name, generated=False, of_group=of_group)
        if not entry.resource_claim_template_name:
            return Rejection(code=Code.CLAIM_UNSUPPORTED, claim=entry.name)
        if entry.name in self._recorded:
            name = self._recorded[entry.name]
            return _Target(name, generated=True, of_group=of_group) if name else None
        detail = f"from template {entry.resource_claim_template_name}"
        if of_group and self._group is not None:
            detail += f" for PodGroup {self._group.metadata.name}"
        return Rejection(code=Code.CLAIM_NOT_CREATED, claim=entry.name, detail=detail)

    def _drafted(self, entry: PodResourceClaim, wanted: str) -> _Target | Rejection | None:
        """Read an entry that names one of the group's, as drafts of KEP-5729 have it."""
        if entry.resource_claim_name or entry.resource_claim_template_name:
            detail = "podGroupResourceClaim excludes resourceClaimName and resourceClaimTemplateName"
            return Rejection(code=Code.CLAIM_UNSUPPORTED, claim=entry.name, detail=detail)
        group = self._group
        if not self._ledger.pod_groups.have_claims:
            detail = f"podGroupResourceClaim, and {_FEATURE_OFF}"
            return Rejection(code=Code.CLAIM_UNSUPPORTED, claim=entry.name, detail=detail)
        if group is None:
            detail = "podGroupResourceClaim needs a PodGroup" + (
                f" {self._pod.pod_group}" if self._pod.pod_group else ""
            )
            return Rejection(code=Code.POD_GROUP_MISSING, claim=entry.name, detail=detail)
        declared = next((each for each in group.spec.resource_claims if each.name == wanted), None)
        if declared is None:
            detail = f"PodGroup {group.metadata.name} has no resource claim {wanted}"
            return Rejection(code=Code.CLAIM_MISSING, claim=entry.name, detail=detail)
        if declared.resource_claim_name:
            return _Target(declared.resource_claim_name, generated=False, of_group=True)
        recorded = {each.name: each.resource_claim_name for each in group.status.resource_claim_statuses}
        if entry.name in self._recorded or wanted in recorded:
            name = self._recorded.get(entry.name, recorded.get(wanted))
            return _Target(name, generated=True, of_group=True) if name else None
        detail = f"from template {declared.resource_claim_template_name} for PodGroup {group.metadata.name}"
        return Rejection(code=Code.CLAIM_NOT_CREATED, claim=entry.name, detail=detail)

    def _shared(self, entry: PodResourceClaim, target: _Target, record: ClaimRecord, *, alone: bool) -> FoundClaim:
        """Return a claim that is reserved for the group if it is the group's, else for the pod.

        A claim that was generated for the pod alone (`alone`) is the pod's in any case, and so is one that is reserved for it
        already, from a time when groups were not reserved: that suffices everywhere.
        """
        if not target.of_group or self._group is None or alone:
            return FoundClaim(entry.name, record, consumer_of(self._pod))
        group = self._group.consumer
        claim = FoundClaim(entry.name, record, consumer_of(self._pod), group)
        if self._ledger.pod_groups.reservation.applies_on(self._node) or goes_by_group(
            claim, self._pod, self._node, self._ledger
        ):
            return claim._replace(consumer=group)
        return claim


def _lookup(pod: Pod, ledger: Ledger, node: Node | None) -> _Lookup | Rejection:
    """Return the lookup of a pod's entries, or why none is possible."""
    group = None
    if pod.pod_group is not None and ledger.pod_groups.have_claims:
        group = ledger.pod_groups.get(pod.namespace, pod.pod_group)
        if group is None and ledger.pod_groups.served:
            return Rejection(code=Code.POD_GROUP_MISSING, detail=f"{pod.namespace}/{pod.pod_group}")
    return _Lookup(pod, group, ledger, node)


def _is_group(controller: OwnerReference | None, pod: Pod) -> bool:
    """Return whether the owner is the pod's PodGroup; pods know no UID of it, so the name decides (KEP-5729)."""
    return (
        controller is not None
        and controller.kind == POD_GROUP_KIND
        and controller.group == GROUP
        and controller.name == pod.pod_group
    )
