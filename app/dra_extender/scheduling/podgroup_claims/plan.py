"""What is left to be done for the claims that PodGroups have from templates: the rules, without any I/O (KEP-5729).

As the resourceclaim controller of kube-controller-manager 1.37 has it: one claim for each template entry of the group, controlled
by it and recorded in its status, and the same name in the status of each member whose entry equals the group's.  As the KEP's
drafts have it, the status of a member also names the claim of a drafted entry that stands for one of the group's by name.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.state.claim_record import ClaimRecord
from dra_extender.model.pod import Pod, PodResourceClaim
from dra_extender.model.pod_group import POD_GROUP_KIND, PROTECTION_FINALIZER, PodGroup
from dra_extender.model.templated_claim import Owner, generated_name


@dataclass(frozen=True, slots=True)
class CreateClaim:
    """A claim that has to be made from this template, for this entry of its owner."""

    owner: Owner
    entry: str
    template: str


@dataclass(frozen=True, slots=True)
class PublishClaims:
    """A member that has to be told of claims ({entry: claim}): all that it still lacks."""

    pod: Pod
    claims: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ReconcilePlan:
    """What a PodGroup lacks: claims, entries of its status ({entry: claim}), and entries in the status of its members.

    `waiting` are the UIDs of members that have not been told of all claims of the group yet, `told` of those that have.
    """

    makings: tuple[CreateClaim, ...] = ()
    record: Mapping[str, str] | None = None
    tellings: tuple[PublishClaims, ...] = ()
    waiting: frozenset[str] = frozenset()
    told: frozenset[str] = frozenset()

    @property
    def is_done(self) -> bool:
        """Whether nothing is lacking."""
        return not (self.makings or self.record or self.tellings or self.waiting)


def has_claims(group: PodGroup) -> bool:
    """Whether the group has claims, of which something may have to be made or recorded."""
    return bool(group.spec.resource_claims)


def is_kept_by_protection(group: PodGroup) -> bool:
    """Whether the group is being deleted and has upstream's finalizer."""
    return group.metadata.deletion_timestamp is not None and PROTECTION_FINALIZER in group.metadata.finalizers


def is_active(pod: Pod) -> bool:
    """Whether the pod keeps its PodGroup from going away, as upstream has it: it has not ended."""
    return not pod.finished


def owner_of_group(group: PodGroup, api_version: str) -> Owner:
    """The group as the owner of its claims."""
    meta = group.metadata
    return Owner(api_version, POD_GROUP_KIND, meta.namespace, meta.name, meta.uid)


def owner_of_pod(pod: Pod) -> Owner:
    """The pod as the owner of its claims."""
    return Owner("v1", "Pod", pod.namespace, pod.name, pod.uid)


def work_for(group: PodGroup, ledger: Ledger, api_version: str) -> ReconcilePlan:
    """What the group lacks as far as is known; nothing while it is being deleted."""
    if group.metadata.deletion_timestamp is not None:
        return ReconcilePlan()
    owner = owner_of_group(group, api_version)
    makings: list[CreateClaim] = []
    record: dict[str, str] = {}
    known: dict[str, str] = {}
    for entry in group.spec.resource_claims:
        state = _state(group, entry, ledger)
        if isinstance(state, _Lacking):
            makings.append(CreateClaim(owner, entry.name, state.template))
        elif state is not None:
            name, recorded = state
            (known if recorded else record)[entry.name] = name
    templated = {each.name: each for each in group.spec.resource_claims if each.resource_claim_template_name}
    known |= {each.name: each.resource_claim_name for each in group.spec.resource_claims if each.resource_claim_name}
    pods = ledger.pods.members(*group.metadata.key) if has_claims(group) else ()
    members = [_member(pod, templated, known, ledger) for pod in pods if _counts(pod)]
    return ReconcilePlan(
        makings=(*makings, *(making for each in members for making in each.makings)),
        record=record or None,
        tellings=tuple(each.telling for each in members if each.telling is not None),
        waiting=frozenset(each.uid for each in members if each.waits),
        told=frozenset(each.uid for each in members if not each.waits),
    )


@dataclass(frozen=True, slots=True)
class _Lacking:
    template: str


@dataclass(frozen=True, slots=True)
class _Member:
    uid: str
    waits: bool
    makings: tuple[CreateClaim, ...]
    telling: PublishClaims | None


def _counts(pod: Pod) -> bool:
    return not (pod.finished or pod.deleting) and bool(pod.claims)


def _state(group: PodGroup, entry: PodResourceClaim, ledger: Ledger) -> tuple[str, bool] | _Lacking | None:
    """The claim of a template entry and whether it is recorded; None if there is nothing to be made for the entry."""
    if not entry.resource_claim_template_name:
        return None
    recorded = {each.name: each.resource_claim_name for each in group.status.resource_claim_statuses}
    if entry.name in recorded:
        name = recorded[entry.name]
        if not name:
            return None
        stored = ledger.claims.by_key(group.metadata.namespace, name)
        if stored is not None and _controlled_by(stored, group.metadata.uid):
            return name, True
    made = oldest(ledger, group.metadata.namespace, group.metadata.uid, entry.name)
    return _Lacking(entry.resource_claim_template_name) if made is None else (made, False)


def oldest(ledger: Ledger, namespace: str, owner_uid: str, entry: str) -> str | None:
    """Name of the claim that was made for an entry and is not being deleted, of several the oldest."""
    made = [each.claim.metadata for each in ledger.claims.made_for(namespace, owner_uid, entry)]
    standing = [each for each in made if each.deletion_timestamp is None]
    return min(((each.creation_timestamp or "", each.name) for each in standing), default=("", None))[1]


def unrecorded(group: PodGroup, ledger: Ledger) -> Iterator[ClaimRecord]:
    """The claims under names that we give, of which the group's status does not tell."""
    recorded = {each.resource_claim_name for each in group.status.resource_claim_statuses}
    owner = owner_of_group(group, "")
    for entry in group.spec.resource_claims:
        ours = generated_name(owner, entry.name)
        for record in ledger.claims.made_for(owner.namespace, owner.uid, entry.name):
            if record.claim.metadata.name == ours and ours not in recorded:
                yield record


def _controlled_by(record: ClaimRecord, uid: str) -> bool:
    controller = record.claim.metadata.controller
    return controller is not None and controller.uid == uid


def _member(pod: Pod, templated: Mapping[str, PodResourceClaim], known: Mapping[str, str], ledger: Ledger) -> _Member:
    """What a member lacks, `templated` being the group's entries with templates, and `known` the claims of all its entries.

    A member with a claim of the group is served as a whole and at once: the resourceclaim controller of
    kube-controller-manager gives up on such a pod at the group's claim while its gate is off, and records no other, either.
    """
    recorded = {each.name: each.resource_claim_name for each in pod.claim_statuses}
    claims: dict[str, str] = {}
    makings: list[CreateClaim] = []
    waits = missing = False
    matched = dict(_matched(pod, templated, known))
    for entry, theirs in matched.items():
        name = known.get(theirs)
        if theirs not in templated and recorded.get(entry) == name:
            continue
        if (
            theirs in templated
            and entry in recorded
            and (not recorded[entry] or _exists(pod, recorded[entry], ledger) or name is None)
        ):
            continue
        waits = True
        if name is None:
            missing = True
        else:
            claims[entry] = name
    for own in _own(pod, matched):
        if own.name in recorded and (not recorded[own.name] or _exists(pod, recorded[own.name], ledger)):
            continue
        made = oldest(ledger, pod.namespace, pod.uid, own.name)
        if made is None:
            makings.append(CreateClaim(owner_of_pod(pod), own.name, own.resource_claim_template_name or ""))
        else:
            claims[own.name] = made
    complete = bool(claims) and not makings and not missing
    return _Member(pod.uid, waits, tuple(makings), PublishClaims(pod, claims) if complete else None)


def _exists(pod: Pod, name: str | None, ledger: Ledger) -> bool:
    return bool(name) and ledger.claims.by_key(pod.namespace, name or "") is not None


def _matched(
    pod: Pod, templated: Mapping[str, PodResourceClaim], known: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Entries whose claim is to be recorded because it is the group's: the pod's name for it and the group's.

    Those for a claim from a template, and drafted ones for a claim by name.
    """
    for entry in pod.claims:
        drafted = entry.pod_group_resource_claim
        if drafted:
            if (drafted in templated or drafted in known) and not (
                entry.resource_claim_name or entry.resource_claim_template_name
            ):
                yield entry.name, drafted
        elif templated.get(entry.name) == entry:
            yield entry.name, entry.name


def _own(pod: Pod, matched: Mapping[str, str]) -> Iterator[PodResourceClaim]:
    """Template entries of the pod's own, if it has one of the group's beside them."""
    if matched:
        yield from (each for each in pod.claims if each.resource_claim_template_name and each.name not in matched)
