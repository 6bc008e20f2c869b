from collections.abc import Iterable, Iterator

from dra_extender.ledger.ledger import Ledger
from dra_extender.model.metadata import ObjectMeta
from dra_extender.model.pod_group import GROUP, PodGroup
from dra_extender.model.templated_claim import generated_name
from dra_extender.scheduling.podgroup_claims.plan import ReconcilePlan, owner_of_group


class CompetingController:
    """Notices that somebody else makes the claims of PodGroups: kube-controller-manager with its gate, as a rule.

    Evidence is only what happens while we look, and what no user can write: the status of a PodGroup comes to name a claim that is
    made for one of its entries and does not bear the name that ours has, or a member that came while we looked is told of its
    group's claim; and not by us.  What was there before says nothing, for the gate may have been switched off meanwhile.

    A claim alone is no evidence, for whoever may write claims can make one that says of itself that it is for a PodGroup.  It is a
    suspicion about this one group, which is left alone while the claim is there.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._before: frozenset[str] = frozenset()
        self._early: set[str] = set()
        self._waiting: set[str] = set()
        self._told_by_us: set[str] = set()
        # Claims that a PodGroup's status named before, or names because we wrote so: UID of the group, name of the claim.
        self._known_records: set[tuple[str, str]] = set()

    def begin(self) -> None:
        """From now on what appears is evidence."""
        self._before = frozenset(
            record.claim.metadata.uid
            for record in self._ledger.claims.records()
            if (owner := record.claim.metadata.controller) is not None and owner.group == GROUP
        )
        self._early = {pod.uid for pod in self._ledger.pods.all() if pod.pod_group is not None}
        self._waiting.clear()
        self._told_by_us.clear()
        self._known_records = {
            (group.metadata.uid, name) for group in self._ledger.pod_groups.all() for name in _recorded(group)
        }

    def recording(self, group: PodGroup, claims: Iterable[str]) -> None:
        """We are about to enter these claims in the status of the group."""
        self._known_records.update((group.metadata.uid, name) for name in claims)

    def telling(self, pod_uid: str) -> None:
        """We are about to tell this pod of its claims."""
        self._told_by_us.add(pod_uid)

    def prune(self) -> None:
        """Forget pods and PodGroups that are gone."""
        gone = {uid for uid in self._early | self._waiting | self._told_by_us if self._ledger.pods.by_uid(uid) is None}
        for known in (self._early, self._waiting, self._told_by_us):
            known.difference_update(gone)
        groups = {each.metadata.uid for each in self._ledger.pod_groups.all()}
        self._known_records = {each for each in self._known_records if each[0] in groups}

    def evidence(self, group: PodGroup, work: ReconcilePlan) -> str | None:
        """What says that somebody else is at work on this group; None while nothing does."""
        recorded = _recorded(group)
        for entry, claim in self._strange(group):
            if claim.name in recorded and (group.metadata.uid, claim.name) not in self._known_records:
                return _said(entry, claim, group)
        told = (self._waiting & work.told) - self._told_by_us - self._early
        self._waiting -= work.told
        self._waiting |= work.waiting
        if told:
            pod = self._ledger.pods.by_uid(min(told))
            return f"the status of pod {pod.key if pod else min(told)}, a member of PodGroup {group.metadata.name}"
        return None

    def suspicion(self, group: PodGroup) -> str | None:
        """The claim for which this group is left alone; None if there is none."""
        return next((_said(entry, claim, group) for entry, claim in self._strange(group)), None)

    def _strange(self, group: PodGroup) -> Iterator[tuple[str, ObjectMeta]]:
        """The claims that appeared for entries of this group and do not bear the name that ours have, each with its entry."""
        owner = owner_of_group(group, "")
        for entry in group.spec.resource_claims:
            ours = generated_name(owner, entry.name)
            for record in self._ledger.claims.made_for(owner.namespace, owner.uid, entry.name):
                claim = record.claim.metadata
                if claim.name != ours and claim.uid not in self._before:
                    yield entry.name, claim


def _recorded(group: PodGroup) -> frozenset[str]:
    """Names of the claims in the status of the group."""
    return frozenset(each.resource_claim_name or "" for each in group.status.resource_claim_statuses)


def _said(entry: str, claim: ObjectMeta, group: PodGroup) -> str:
    return f"claim {claim.namespace}/{claim.name} for entry {entry} of PodGroup {group.metadata.name}"
