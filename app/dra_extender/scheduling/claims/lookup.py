"""The claims that a pod needs, and the consumer for which each of them is to be reserved."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.ledger.claim_record import ClaimRecord
from dra_extender.ledger.group_entry_trials import GroupEntrySupport
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.pod_groups import GroupEntryPolicy
from dra_extender.model.metadata import OwnerReference
from dra_extender.model.node import Node
from dra_extender.model.pod import Pod, PodResourceClaim
from dra_extender.model.pod_group import GROUP, POD_GROUP_KIND, PodGroup, group_consumer
from dra_extender.model.resource_claim import OWN_ENTRIES, ConsumerReference

PODS: Final = "pods"
MOST_CLAIMS: Final = 1_000
"""The most entries of `spec.resourceClaims` of one pod that are served; the API server stores tens of thousands."""
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
        return self.record.claim.metadata.uid

    @property
    def name(self) -> str:
        return self.record.claim.metadata.full_name

    @property
    def reserved(self) -> bool:
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
    group = _claiming_group(pod, ledger)
    if isinstance(group, Rejection):
        return group
    lookup = _Lookup(pod, group, ledger)
    claims: dict[int, FoundClaim] = {}
    for entry in pod.claims:
        target = lookup.target(entry)
        if target is None:
            continue
        claim = target if isinstance(target, Rejection) else lookup.claim(entry, target, node)
        if isinstance(claim, Rejection):
            return claim
        claims.setdefault(id(claim.record), claim)
    return tuple(claims.values())


def claim_names(pod: Pod, ledger: Ledger) -> Iterator[str]:
    """Yield the names of the claims that `find_claims` looks for, as far as they are recorded."""
    group = _claiming_group(pod, ledger)
    if isinstance(group, Rejection):
        return
    lookup = _Lookup(pod, group, ledger)
    for entry in pod.claims[:MOST_CLAIMS]:
        target = lookup.target(entry)
        if isinstance(target, _Target):
            yield target.name


def named_claims(pod: Pod, ledger: Ledger) -> Iterator[tuple[PodResourceClaim, ClaimRecord]]:
    """Yield the existing claims that entries of the pod name, or that its status records for them."""
    recorded = {status.name: status.resource_claim_name for status in pod.claim_statuses}
    for entry in pod.claims:
        name = entry.resource_claim_name or recorded.get(entry.name)
        record = ledger.claims.by_key(pod.namespace, name) if name else None
        if record is not None:
            yield entry, record


def gang_of(pod: Pod, ledger: Ledger) -> PodGroup | None:
    """Return the pod's group if that is a gang."""
    if pod.pod_group is None:
        return None
    group = ledger.pod_groups.get(pod.namespace, pod.pod_group)
    return group if group is not None and group.min_count is not None else None


def names_missing(pod: Pod) -> bool:
    """Return whether this state of the pod lacks the name of the claim that was created for one of its templates."""
    templated = [entry.name for entry in pod.claims if not entry.resource_claim_name]
    return bool(templated) and not {status.name for status in pod.claim_statuses}.issuperset(templated)


def is_crowded(claim: FoundClaim, ledger: Ledger) -> bool:
    """Return whether the claim has so many entries that further pods are reserved through their PodGroup where they can be."""
    groups = ledger.pod_groups
    return (
        claim.group is not None
        and groups.entry_policy is GroupEntryPolicy.AUTO
        and groups.ends_entries
        and len(claim.record.claim.status.reserved_for) >= OWN_ENTRIES
    )


def _claiming_group(pod: Pod, ledger: Ledger) -> PodGroup | Rejection | None:
    """Return the pod's PodGroup as far as it may have claims; a rejection if it is not known."""
    if pod.pod_group is None or not ledger.pod_groups.have_claims:
        return None
    group = ledger.pod_groups.get(pod.namespace, pod.pod_group)
    if group is None and ledger.pod_groups.served:
        return Rejection(code=Code.POD_GROUP_MISSING, detail=f"{pod.namespace}/{pod.pod_group}")
    return group


class _Target(NamedTuple):
    """The name of the claim of an entry; `generated`: from a template; `of_group`: the entry is the group's, too."""

    name: str
    generated: bool
    of_group: bool


class _Lookup:
    """The entries of one pod."""

    def __init__(self, pod: Pod, group: PodGroup | None, ledger: Ledger) -> None:
        self._pod = pod
        self._group = group
        self._ledger = ledger
        self._recorded: Mapping[str, str | None] = {
            status.name: status.resource_claim_name for status in pod.claim_statuses
        }

    def target(self, entry: PodResourceClaim) -> _Target | Rejection | None:
        """Return what the entry stands for, or why that is not known; None if it needs no claim."""
        group = self._group
        if entry.pod_group_resource_claim:
            return self._drafted_target(entry, entry.pod_group_resource_claim)
        of_group = group is not None and entry in group.spec.resource_claims
        if entry.resource_claim_name:
            return _Target(entry.resource_claim_name, generated=False, of_group=of_group)
        if not entry.resource_claim_template_name:
            return Rejection(code=Code.CLAIM_UNSUPPORTED, claim=entry.name)
        if entry.name in self._recorded:
            name = self._recorded[entry.name]
            return _Target(name, generated=True, of_group=of_group) if name else None
        detail = f"from template {entry.resource_claim_template_name}"
        if of_group and group is not None:
            detail += f" for PodGroup {group.metadata.name}"
        return Rejection(code=Code.CLAIM_NOT_CREATED, claim=entry.name, detail=detail)

    def _drafted_target(self, entry: PodResourceClaim, group_entry: str) -> _Target | Rejection | None:
        """Return the target of an entry that refers to an entry of the group, as drafts of KEP-5729 have it."""
        if entry.resource_claim_name or entry.resource_claim_template_name:
            detail = "podGroupResourceClaim excludes resourceClaimName and resourceClaimTemplateName"
            return Rejection(code=Code.CLAIM_UNSUPPORTED, claim=entry.name, detail=detail)
        group = self._group
        if not self._ledger.pod_groups.have_claims:
            detail = f"podGroupResourceClaim, and {_FEATURE_OFF}"
            return Rejection(code=Code.CLAIM_UNSUPPORTED, claim=entry.name, detail=detail)
        if group is None:
            name = f" {self._pod.pod_group}" if self._pod.pod_group else ""
            detail = f"podGroupResourceClaim needs a PodGroup{name}"
            return Rejection(code=Code.POD_GROUP_MISSING, claim=entry.name, detail=detail)
        declared = next(
            (claim_entry for claim_entry in group.spec.resource_claims if claim_entry.name == group_entry), None
        )
        if declared is None:
            detail = f"PodGroup {group.metadata.name} has no resource claim {group_entry}"
            return Rejection(code=Code.CLAIM_MISSING, claim=entry.name, detail=detail)
        if declared.resource_claim_name:
            return _Target(declared.resource_claim_name, generated=False, of_group=True)
        recorded = {status.name: status.resource_claim_name for status in group.status.resource_claim_statuses}
        if entry.name in self._recorded or group_entry in recorded:
            claim = self._recorded.get(entry.name, recorded.get(group_entry))
            return _Target(claim, generated=True, of_group=True) if claim else None
        detail = f"from template {declared.resource_claim_template_name} for PodGroup {group.metadata.name}"
        return Rejection(code=Code.CLAIM_NOT_CREATED, claim=entry.name, detail=detail)

    def claim(self, entry: PodResourceClaim, target: _Target, node: Node | None) -> FoundClaim | Rejection:
        """Return the claim of one entry, with the consumer for which it is reserved on this node.

        The consumer is the group if the claim is the group's, and the pod otherwise.  A claim that was generated only for the pod
        is the pod's in any case, and so is one that is reserved for it already, from a time when groups were not reserved: that
        suffices everywhere.
        """
        pod, key = self._pod, (self._pod.namespace, target.name)
        record = self._ledger.claims.by_key(*key)
        if record is None:
            return Rejection(code=Code.CLAIM_MISSING, claim=entry.name, detail="/".join(key))
        if record.claim.metadata.deletion_timestamp is not None:
            return Rejection(code=Code.CLAIM_DELETING, claim=entry.name, detail="/".join(key))
        if not record.has_status:
            return Rejection(code=Code.CLAIM_UNREADABLE, claim=entry.name, detail=record.unreadable)
        pods_claim = FoundClaim(entry.name, record, consumer_of(pod))
        if not (target.generated or target.of_group):
            return pods_claim
        controller = record.claim.metadata.controller
        is_owned = controller is not None and controller.uid == pod.uid
        if target.generated and not is_owned:
            return self._claim_of_group(pods_claim, target, controller)
        if not target.of_group or self._group is None or is_owned or record.claim.reserved_by(pod.uid):
            return pods_claim
        group = self._group.consumer
        claim = pods_claim._replace(group=group)
        by_group = self._ledger.pod_groups.entry_policy.applies_on(node)
        if not by_group and node is not None and is_crowded(claim, self._ledger):
            # On a node that is known to be unable the pod needs an entry of its own.
            support = self._ledger.group_entry_trials.support_on(pod.namespace, node, pod.uid)
            by_group = support is not GroupEntrySupport.UNABLE
        return claim._replace(consumer=group) if by_group else claim

    def _claim_of_group(
        self, pods_claim: FoundClaim, target: _Target, controller: OwnerReference | None
    ) -> FoundClaim | Rejection:
        """Return a claim that was generated for the group.

        A kubelet that does not accept reservations for a group does not accept this claim with any reservation.
        """
        pod, groups = self._pod, self._ledger.pod_groups
        # Pods know no UID of their PodGroup, so the name decides (KEP-5729).
        is_groups = (
            controller is not None
            and (controller.kind, controller.group) == (POD_GROUP_KIND, GROUP)
            and controller.name == pod.pod_group
        )
        if controller is None or not is_groups or not groups.have_claims:
            whose = "this pod" if pod.pod_group is None else "this pod or its PodGroup"
            detail = f"{pods_claim.name} is not controlled by {whose}"
            if is_groups:
                detail = f"{pods_claim.name} is controlled by the PodGroup of this pod, and {_FEATURE_OFF}"
            return Rejection(code=Code.CLAIM_FOREIGN, claim=pods_claim.label, detail=detail)
        if not groups.entry_policy.may_apply:
            detail = f"{pods_claim.name}; the setting scheduling.reserve_for_pod_groups says so"
            return Rejection(code=Code.CLAIM_NOT_STARTED, claim=pods_claim.label, detail=detail)
        if pods_claim.reserved:
            return pods_claim
        if target.of_group and self._group is not None:
            return pods_claim._replace(consumer=self._group.consumer)
        return pods_claim._replace(consumer=group_consumer(controller.name, controller.uid))
