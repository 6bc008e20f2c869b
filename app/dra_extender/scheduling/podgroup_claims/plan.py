"""What a PodGroup lacks of the claims that it has from templates: the rules, without any I/O (KEP-5729).

As in the resourceclaim controller of kube-controller-manager 1.37: one claim for each template entry of the group, controlled by
the group and recorded in its status; the status of each member whose entry equals the group's has the same name.  As in the KEP's
drafts: the status of a member also names the claim of a drafted entry that refers to an entry of the group by name.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.state.claim_record import ClaimRecord
from dra_extender.model.pod import Pod, PodResourceClaim
from dra_extender.model.pod_group import POD_GROUP_KIND, PROTECTION_FINALIZER, PodGroup
from dra_extender.model.templated_claim import Owner, generated_name

MEMBERS_PER_TURN: Final = 100
"""So many members are planned between two pauses: about a millisecond of work."""


@dataclass(frozen=True, slots=True)
class CreateClaim:
    """A claim to be created from this template, for this entry of its owner."""

    owner: Owner
    entry: str
    template: str


@dataclass(frozen=True, slots=True)
class PublishClaims:
    """All claims ({entry: claim}) that the status of a member lacks."""

    pod: Pod
    claims: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ReconcilePlan:
    """What a PodGroup lacks: claims, entries of its status ({entry: claim}), and entries in the status of its members.

    `waiting`: UIDs of the members whose status lacks a claim of the group.  `served`: those whose status has them all.
    """

    create: tuple[CreateClaim, ...] = ()
    record: Mapping[str, str] | None = None
    publish: tuple[PublishClaims, ...] = ()
    waiting: frozenset[str] = frozenset()
    served: frozenset[str] = frozenset()

    @property
    def is_done(self) -> bool:
        """Whether the group lacks nothing."""
        return not (self.create or self.record or self.publish or self.waiting)


def has_claims(group: PodGroup) -> bool:
    """Return whether the group has entries for claims."""
    return bool(group.spec.resource_claims)


def is_kept_by_protection(group: PodGroup) -> bool:
    """Return whether the group is being deleted and has upstream's finalizer."""
    return group.metadata.deletion_timestamp is not None and PROTECTION_FINALIZER in group.metadata.finalizers


def is_active(pod: Pod) -> bool:
    """Return whether the pod keeps upstream's finalizer on its PodGroup: it has not finished."""
    return not pod.finished


def owner_of_group(group: PodGroup, api_version: str) -> Owner:
    """Return the group as the owner of its claims."""
    meta = group.metadata
    return Owner(api_version, POD_GROUP_KIND, meta.namespace, meta.name, meta.uid)


def owner_of_pod(pod: Pod) -> Owner:
    """Return the pod as the owner of its claims."""
    return Owner("v1", "Pod", pod.namespace, pod.name, pod.uid)


async def plan_reconcile(
    group: PodGroup, ledger: Ledger, api_version: str, pause: Callable[[], Awaitable[object]]
) -> ReconcilePlan:
    """Return what the group lacks according to the ledger; nothing while it is being deleted.

    Awaits `pause` after each MEMBERS_PER_TURN members, so that a large group does not keep the event loop from other tasks.  Each
    write checks the live object, so a change during a pause costs a further plan and nothing else.
    """
    if group.metadata.deletion_timestamp is not None:
        return ReconcilePlan()
    owner = owner_of_group(group, api_version)
    create: list[CreateClaim] = []
    record: dict[str, str] = {}
    claims = {each.name: each.resource_claim_name for each in group.spec.resource_claims if each.resource_claim_name}
    for entry in group.spec.resource_claims:
        state = _claim_of_entry(group, entry, ledger)
        if isinstance(state, _MissingClaim):
            create.append(CreateClaim(owner, entry.name, state.template))
        elif state is not None:
            name, is_recorded = state
            (claims if is_recorded else record)[entry.name] = name
    templated = {each.name: each for each in group.spec.resource_claims if each.resource_claim_template_name}
    entries = _GroupEntries(templated, claims)
    members = []
    for count, pod in enumerate(
        filter(_is_served, ledger.pods.members(*group.metadata.key) if has_claims(group) else ())
    ):
        if count and not count % MEMBERS_PER_TURN:
            await pause()
        members.append(_plan_member(pod, entries, ledger))
    return ReconcilePlan(
        create=(*create, *(each for member in members for each in member.create)),
        record=record or None,
        publish=tuple(each.publish for each in members if each.publish is not None),
        waiting=frozenset(each.uid for each in members if each.waits),
        served=frozenset(each.uid for each in members if not each.waits),
    )


@dataclass(frozen=True, slots=True)
class _MissingClaim:
    """The claim of a template entry does not exist."""

    template: str


@dataclass(frozen=True, slots=True)
class _GroupEntries:
    """The entries of a group: those with `templated` claims, and the `claims` that members may be given, by entry."""

    templated: Mapping[str, PodResourceClaim]
    claims: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _MemberPlan:
    """What one member lacks; `waits`: its status lacks a claim of the group."""

    uid: str
    waits: bool
    create: tuple[CreateClaim, ...]
    publish: PublishClaims | None


class _MemberStatus(NamedTuple):
    """The claims that the status of a member records, by entry; None where the entry needs no claim."""

    namespace: str
    recorded: Mapping[str, str | None]
    ledger: Ledger

    def records(self, entry: str) -> bool:
        """Return whether the status says that the entry needs no claim, or names one that exists."""
        if entry not in self.recorded:
            return False
        name = self.recorded[entry]
        return not name or self.ledger.claims.by_key(self.namespace, name) is not None

    def publishes(self, entry: str, group_entry: str, group: _GroupEntries) -> bool:
        """Return whether the status has the claim of the group's entry `group_entry`, as far as that claim is known."""
        if group_entry not in group.templated:
            return self.recorded.get(entry) == group.claims[group_entry]
        return self.records(entry) if group_entry in group.claims else entry in self.recorded


def _is_served(pod: Pod) -> bool:
    """Return whether the pod is a member whose status has to name its claims."""
    return not (pod.finished or pod.deleting) and bool(pod.claims)


def _claim_of_entry(
    group: PodGroup, entry: PodResourceClaim, ledger: Ledger
) -> tuple[str, bool] | _MissingClaim | None:
    """Return the claim of a template entry, and whether the group's status records it; None if the entry needs no claim."""
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
    oldest = _oldest_claim(ledger, group.metadata.namespace, group.metadata.uid, entry.name)
    return _MissingClaim(entry.resource_claim_template_name) if oldest is None else (oldest, False)


def _oldest_claim(ledger: Ledger, namespace: str, owner_uid: str, entry: str) -> str | None:
    """Return the name of the oldest claim that was created for an entry and is not being deleted."""
    created = [each.claim.metadata for each in ledger.claims.made_for(namespace, owner_uid, entry)]
    living = [each for each in created if each.deletion_timestamp is None]
    return min(((each.creation_timestamp or "", each.name) for each in living), default=("", None))[1]


def unrecorded(group: PodGroup, ledger: Ledger) -> Iterator[ClaimRecord]:
    """Yield the claims that this service created for the group, by their names, and that the group's status does not record."""
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


def _plan_member(pod: Pod, group: _GroupEntries, ledger: Ledger) -> _MemberPlan:
    """Return what a member lacks.

    A member with a claim of the group gets all its claims published at once, its own included: the resourceclaim controller of
    kube-controller-manager stops at the group's claim while its gate is off, and records none of the pod's claims.
    """
    status = _MemberStatus(pod.namespace, {each.name: each.resource_claim_name for each in pod.claim_statuses}, ledger)
    matched = dict(_matched_entries(pod, group))
    lacking = {
        entry: group_entry for entry, group_entry in matched.items() if not status.publishes(entry, group_entry, group)
    }
    claims = {entry: group.claims[group_entry] for entry, group_entry in lacking.items() if group_entry in group.claims}
    is_complete = len(claims) == len(lacking)
    create: list[CreateClaim] = []
    for own in _own_entries(pod, matched):
        if status.records(own.name):
            continue
        name = _oldest_claim(ledger, pod.namespace, pod.uid, own.name)
        if name is None:
            create.append(CreateClaim(owner_of_pod(pod), own.name, own.resource_claim_template_name or ""))
        else:
            claims[own.name] = name
    publish = PublishClaims(pod, claims) if claims and is_complete and not create else None
    return _MemberPlan(pod.uid, bool(lacking), tuple(create), publish)


def _matched_entries(pod: Pod, group: _GroupEntries) -> Iterator[tuple[str, str]]:
    """Yield the pod's entries whose claim is the group's: the pod's name for the entry, and the group's.

    These are entries equal to a template entry of the group, and drafted ones that refer to an entry of the group.
    """
    for entry in pod.claims:
        drafted = entry.pod_group_resource_claim
        if drafted:
            is_plain = not (entry.resource_claim_name or entry.resource_claim_template_name)
            if is_plain and (drafted in group.templated or drafted in group.claims):
                yield entry.name, drafted
        elif group.templated.get(entry.name) == entry:
            yield entry.name, entry.name


def _own_entries(pod: Pod, matched: Mapping[str, str]) -> Iterator[PodResourceClaim]:
    """Yield the pod's own template entries, if it also has one of the group's."""
    if matched:
        yield from (each for each in pod.claims if each.resource_claim_template_name and each.name not in matched)
