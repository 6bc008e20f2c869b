from app.ledger.ledger import Ledger
from app.model.generated_claim import generated_name
from app.model.pod_group import GROUP, PodGroup
from app.scheduling.group_claim_rules import Work, owner_of_group


class Rivals:
    """Notices that somebody else makes the claims of PodGroups: kube-controller-manager with its gate, as a rule.

    Evidence is only what happens while we look: a claim appears that is made for an entry of a PodGroup and does not bear the
    name that ours has, or a member that came while we looked is told of its group's claim, and not by us.  What was there before
    says nothing, for the gate may have been switched off meanwhile.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._before: frozenset[str] = frozenset()
        self._early: set[str] = set()
        self._waiting: set[str] = set()
        self._told_by_us: set[str] = set()

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

    def telling(self, pod_uid: str) -> None:
        """We are about to tell this pod of its claims."""
        self._told_by_us.add(pod_uid)

    def prune(self) -> None:
        """Forget pods that are gone."""
        gone = {uid for uid in self._early | self._waiting | self._told_by_us if self._ledger.pods.by_uid(uid) is None}
        for known in (self._early, self._waiting, self._told_by_us):
            known.difference_update(gone)

    def evidence(self, group: PodGroup, work: Work) -> str | None:
        """What says that somebody else is at work on this group; None while nothing does."""
        owner = owner_of_group(group, "")
        for entry in group.spec.resource_claims:
            ours = generated_name(owner, entry.name)
            for record in self._ledger.claims.made_for(owner.namespace, owner.uid, entry.name):
                meta = record.claim.metadata
                if meta.name != ours and meta.uid not in self._before:
                    return f"claim {meta.namespace}/{meta.name} for entry {entry.name} of PodGroup {owner.name}"
        told = (self._waiting & work.told) - self._told_by_us - self._early
        self._waiting -= work.told
        self._waiting |= work.waiting
        if told:
            pod = self._ledger.pods.by_uid(min(told))
            return f"the status of pod {pod.key if pod else min(told)}, a member of PodGroup {owner.name}"
        return None
