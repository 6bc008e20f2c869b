"""Another controller that creates the claims of PodGroups: how it is noticed, and which claims of ours give way to its claims."""

from collections.abc import Iterable, Iterator

from dra_extender.ledger.claim_record import ClaimRecord
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.metadata import ObjectMeta
from dra_extender.model.pod_group import GROUP, PodGroup
from dra_extender.model.templated_claim import generated_name
from dra_extender.scheduling.podgroup_claims.plan import ReconcilePlan, owner_of_group


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


def _recorded(group: PodGroup) -> frozenset[str]:
    return frozenset(status.resource_claim_name or "" for status in group.status.resource_claim_statuses)


def _describe(entry: str, claim: ObjectMeta, group: PodGroup) -> str:
    return f"claim {claim.namespace}/{claim.name} for entry {entry} of PodGroup {group.metadata.name}"
