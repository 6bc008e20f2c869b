"""Plan the claims that a PodGroup has from templates and lacks: the rules, without any I/O (KEP-5729).

As in the resourceclaim controller of kube-controller-manager 1.37: one claim for each template entry of the group, controlled by
the group and recorded in its status; the status of each member whose entry equals the group's has the same name.  As in the KEP's
drafts: the status of a member also names the claim of a drafted entry that refers to an entry of the group by name.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from dra_extender.ledger.claim_record import ClaimRecord
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.metadata import ObjectMeta
from dra_extender.model.pod import Pod, PodResourceClaim
from dra_extender.model.pod_group import GROUP, POD_GROUP_KIND, PROTECTION_FINALIZER, PodGroup
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


@dataclass(slots=True)
class ReconcilePlan:
    """The claims, entries of its status ({entry: claim}), and entries in the status of its members that a PodGroup lacks.

    `waiting`: UIDs of the members whose status lacks a claim of the group.  `served`: those whose status has them all.
    """

    create: list[CreateClaim] = field(default_factory=list)
    record: dict[str, str] = field(default_factory=dict)
    publish: list[PublishClaims] = field(default_factory=list)
    waiting: set[str] = field(default_factory=set)
    served: set[str] = field(default_factory=set)

    @property
    def is_done(self) -> bool:
        return not (self.create or self.record or self.publish or self.waiting)


def is_kept_by_protection(group: PodGroup) -> bool:
    """Return whether the group is being deleted and has upstream's finalizer."""
    return group.metadata.deletion_timestamp is not None and PROTECTION_FINALIZER in group.metadata.finalizers


def owner_of_group(group: PodGroup, api_version: str) -> Owner:
    meta = group.metadata
    return Owner(api_version, POD_GROUP_KIND, meta.namespace, meta.name, meta.uid)


async def plan_reconcile(
    group: PodGroup, ledger: Ledger, api_version: str, pause: Callable[[], Awaitable[object]]
) -> ReconcilePlan:
    """Return what the group lacks according to the ledger; nothing while it is being deleted.

    Awaits `pause` after each MEMBERS_PER_TURN members, so that a large group does not keep the event loop from other tasks.  Each
    write checks the live object, so a change during a pause costs a further plan and nothing else.
    """
    plan, entries = ReconcilePlan(), group.spec.resource_claims
    if group.metadata.deletion_timestamp is not None:
        return plan
    owner = owner_of_group(group, api_version)
    templated = {entry.name: entry for entry in entries if entry.resource_claim_template_name}
    # The claims that members may be given, by entry of the group.
    claims = {entry.name: entry.resource_claim_name for entry in entries if entry.resource_claim_name}
    recorded = {status.name: status.resource_claim_name for status in group.status.resource_claim_statuses}
    for entry, templated_entry in templated.items():
        name = recorded.get(entry)
        if entry in recorded and not name:
            continue  # The entry needs no claim.
        record = ledger.claims.by_key(owner.namespace, name) if name else None
        controller = None if record is None else record.claim.metadata.controller
        if name and controller is not None and controller.uid == owner.uid:
            claims[entry] = name
        elif oldest := _oldest_claim(ledger, owner, entry):
            plan.record[entry] = oldest
        else:
            plan.create.append(CreateClaim(owner, entry, templated_entry.resource_claim_template_name or ""))
    members = ledger.pods.members(*group.metadata.key) if entries else ()
    served = (pod for pod in members if pod.claims and not pod.ending)
    for count, pod in enumerate(served):
        if count and not count % MEMBERS_PER_TURN:
            await pause()
        _plan_member(plan, pod, templated, claims, ledger)
    return plan


def unrecorded(group: PodGroup, ledger: Ledger) -> Iterator[ClaimRecord]:
    """Yield the claims that this service created for the group, by their names, and that the group's status does not record."""
    recorded = _recorded(group)
    for _, name, record in _made_for_entries(group, ledger):
        if record.claim.metadata.name == name and name not in recorded:
            yield record


def _made_for_entries(group: PodGroup, ledger: Ledger) -> Iterator[tuple[str, str, ClaimRecord]]:
    """Yield the claims that were made for the entries of the group, each with its entry and the name that this service gives."""
    owner = owner_of_group(group, "")
    for entry in group.spec.resource_claims:
        name = generated_name(owner, entry.name)
        for record in ledger.claims.made_for(owner.namespace, owner.uid, entry.name):
            yield entry.name, name, record


def _oldest_claim(ledger: Ledger, owner: Owner, entry: str) -> str | None:
    """Return the name of the oldest claim that was created for an entry and is not being deleted."""
    created = [record.claim.metadata for record in ledger.claims.made_for(owner.namespace, owner.uid, entry)]
    living = ((claim.creation_timestamp or "", claim.name) for claim in created if claim.deletion_timestamp is None)
    return min(living, default=("", None))[1]


def _plan_member(
    plan: ReconcilePlan,
    pod: Pod,
    templated: Mapping[str, PodResourceClaim],
    claims: Mapping[str, str],
    ledger: Ledger,
) -> None:
    """Add to the plan what a member lacks; `claims`: those that members may be given, by entry of the group.

    A member with a claim of the group gets all its claims published at once, its own included: the resourceclaim controller of
    kube-controller-manager stops at the group's claim while its gate is off, and records none of the pod's claims.
    """
    recorded = {status.name: status.resource_claim_name for status in pod.claim_statuses}

    def is_recorded(entry: str) -> bool:
        """Return whether the status says that the entry needs no claim, or names one that exists."""
        name = recorded.get(entry)
        return entry in recorded and (not name or ledger.claims.by_key(pod.namespace, name) is not None)

    def is_published(entry: str, group_entry: str) -> bool:
        """Return whether the status has the claim of the group's entry, as far as that claim is known."""
        if group_entry not in templated:
            return recorded.get(entry) == claims[group_entry]
        return is_recorded(entry) if group_entry in claims else entry in recorded

    owner = Owner("v1", "Pod", pod.namespace, pod.name, pod.uid)
    matched = dict(_matched_entries(pod, templated, claims))
    lacking = {entry: group_entry for entry, group_entry in matched.items() if not is_published(entry, group_entry)}
    (plan.waiting if lacking else plan.served).add(pod.uid)
    publish = {entry: claims[group_entry] for entry, group_entry in lacking.items() if group_entry in claims}
    is_complete = len(publish) == len(lacking)
    # The pod's own entries, if it also has one of the group's.
    for entry in pod.claims if matched else ():
        template = entry.resource_claim_template_name
        if not template or entry.name in matched or is_recorded(entry.name):
            continue
        if oldest := _oldest_claim(ledger, owner, entry.name):
            publish[entry.name] = oldest
        else:
            plan.create.append(CreateClaim(owner, entry.name, template))
            is_complete = False
    if publish and is_complete:
        plan.publish.append(PublishClaims(pod, publish))


def _matched_entries(
    pod: Pod, templated: Mapping[str, PodResourceClaim], claims: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield the pod's entries whose claim is the group's: the pod's name for the entry, and the group's.

    These are entries equal to a template entry of the group, and drafted ones that refer to an entry of the group.
    """
    for entry in pod.claims:
        drafted = entry.pod_group_resource_claim
        if drafted:
            is_plain = not (entry.resource_claim_name or entry.resource_claim_template_name)
            if is_plain and (drafted in templated or drafted in claims):
                yield entry.name, drafted
        elif templated.get(entry.name) == entry:
            yield entry.name, entry.name


class CompetingController:
    """Detects another controller that creates the claims of PodGroups, usually kube-controller-manager with its gate on.

    Evidence is only what happens during our term, and what no user can write: another writer records in the status of a PodGroup a
    claim that was created for one of its entries under another name than ours, or records the group's claim in the status of a
    member that was created during our term.  Older objects are no evidence: the gate may have been on before.

    A claim alone is no evidence: a user with the right to write claims can create one with the annotations of a PodGroup's claim.
    It is a suspicion about this group, which the service does not touch while the claim exists.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._before: frozenset[str] = frozenset()
        self._early: set[str] = set()
        self._waiting: set[str] = set()
        self._published_by_us: set[str] = set()
        # Claims that a PodGroup's status named before our term, or names because we wrote it: UID of the group, name of the claim.
        self._known_records: set[tuple[str, str]] = set()

    def begin(self) -> None:
        """Begin a term: what appears from now on is evidence."""
        self._before = frozenset(
            record.claim.metadata.uid
            for record in self._ledger.claims.records()
            if (owner := record.claim.metadata.controller) is not None and owner.group == GROUP
        )
        self._early = {pod.uid for pod in self._ledger.pods.all() if pod.pod_group is not None}
        self._waiting.clear()
        self._published_by_us.clear()
        self._known_records = {
            (group.metadata.uid, name) for group in self._ledger.pod_groups.all() for name in _recorded(group)
        }

    def will_record(self, group: PodGroup, claims: Iterable[str]) -> None:
        """Record that this service is about to write these claims into the status of the group."""
        self._known_records.update((group.metadata.uid, name) for name in claims)

    def will_publish(self, pod_uid: str) -> None:
        """Record that this service is about to write claims into the status of this pod."""
        self._published_by_us.add(pod_uid)

    def prune(self) -> None:
        known_uids = self._early | self._waiting | self._published_by_us
        gone = {uid for uid in known_uids if self._ledger.pods.by_uid(uid) is None}
        for uids in (self._early, self._waiting, self._published_by_us):
            uids.difference_update(gone)
        groups = {group.metadata.uid for group in self._ledger.pod_groups.all()}
        self._known_records = {record for record in self._known_records if record[0] in groups}

    def evidence(self, group: PodGroup, plan: ReconcilePlan) -> str | None:
        """Return what another controller wrote for this group, as a part of a sentence; None without evidence."""
        recorded = _recorded(group)
        for entry, claim in self._foreign(group):
            if claim.name in recorded and (group.metadata.uid, claim.name) not in self._known_records:
                return _describe(entry, claim, group)
        by_others = (self._waiting & plan.served) - self._published_by_us - self._early
        self._waiting -= plan.served
        self._waiting |= plan.waiting
        if by_others:
            pod = self._ledger.pods.by_uid(min(by_others))
            return f"the status of pod {pod.key if pod else min(by_others)}, a member of PodGroup {group.metadata.name}"
        return None

    def suspicion(self, group: PodGroup) -> str | None:
        """Return the claim that keeps the service from touching this group; None if there is none."""
        return next((_describe(entry, claim, group) for entry, claim in self._foreign(group)), None)

    def _foreign(self, group: PodGroup) -> Iterator[tuple[str, ObjectMeta]]:
        """Yield the claims (and entries) that appeared during our term for this group under other names than ours."""
        for entry, name, record in _made_for_entries(group, self._ledger):
            claim = record.claim.metadata
            if claim.name != name and claim.uid not in self._before:
                yield entry, claim


def _recorded(group: PodGroup) -> frozenset[str]:
    return frozenset(status.resource_claim_name or "" for status in group.status.resource_claim_statuses)


def _describe(entry: str, claim: ObjectMeta, group: PodGroup) -> str:
    return f"claim {claim.namespace}/{claim.name} for entry {entry} of PodGroup {group.metadata.name}"
