"""Plan the claims that a PodGroup has from templates and lacks: the rules, without any I/O (KEP-5729).

As in the resourceclaim controller of kube-controller-manager 1.37: one claim for each template entry of the group, controlled by
the group and recorded in its status; the status of each member whose entry equals the group's has the same name.  As in the KEP's
drafts: the status of a member also names the claim of a drafted entry that refers to an entry of the group by name.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from dra_extender.ledger.ledger import Ledger
from dra_extender.model.pod import Pod, PodResourceClaim
from dra_extender.model.pod_group import POD_GROUP_KIND, PROTECTION_FINALIZER, PodGroup
from dra_extender.model.templated_claim import Owner

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
