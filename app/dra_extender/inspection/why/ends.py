"""Which holders of devices to end so that a pod fits, each set tried before it is named, and what to wait for before that."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from dra_extender.allocator.explain.shortfall import may_serve
from dra_extender.allocator.state.reasons import Code
from dra_extender.inspection.cluster_view import ClusterView, ObjectChange
from dra_extender.inspection.fewest_ends import fewest_ends
from dra_extender.inspection.holders import Holder
from dra_extender.inspection.lines import clock_text
from dra_extender.inspection.why.advice import incomplete_pool_advice, pool_gaps
from dra_extender.inspection.why.changes import ProposedChange, ProposedStep, staying_pods
from dra_extender.inspection.why.nearest import NearestDevices, requested_options
from dra_extender.inspection.why.report import HolderShare
from dra_extender.inspection.why.request_edits import HELD, ReasonFacts
from dra_extender.inspection.why.trials import Trials
from dra_extender.model.api_json import decode_shallow, listed
from dra_extender.model.metadata import split_key
from dra_extender.model.pod import Pod
from dra_extender.simulator.apiserver.objects import StoredKind

_MOST_NODES: Final = 4
"""Nodes on which the end of all holders is tried."""
_GROUPS: Final = "podgroups "
MOST_TOGETHER: Final = 24
"""Holders whose end is considered at once."""


class EndCost(NamedTuple):
    """Whether a PodDisruptionBudget forbids it, how many holders are ended, the highest priority of their pods: less is better."""

    forbidden: bool
    holders: int
    priority: int


class HolderEnds:
    """Finds which holders to end, with trials for one pod or its gang."""

    def __init__(self, view: ClusterView, pod: Pod, nearest: NearestDevices, trials: Trials) -> None:
        self._view = view
        self._pod = pod
        self._nearest = nearest
        self._trials = trials
        members = () if pod.pod_group is None else view.ledger.pods.members(pod.namespace, pod.pod_group)
        self._own = frozenset((*(member.key for member in members), f"{_GROUPS}{pod.namespace}/{pod.pod_group}"))

    def against(self, facts: ReasonFacts, nodes: Sequence[str]) -> ProposedStep | None:
        """Return the end of as few holders as possible on one of the nearest nodes; for a gang, on all nodes."""
        step = self._step_against(facts, nodes) if facts.rejection.code in HELD else None
        if facts.rejection.code is Code.CLAIM_FULLY_RESERVED:
            step = self._trials.first_that_helps(self._ends_of_users(facts.rejection.claim), nodes)
        # To end pods hurts: it is no advice where it is known that the pod may not use the nodes all the same.
        known = step is not None and (step.helps or self._view.node_fit is None)
        return step if known else None

    def awaited(self, facts: ReasonFacts) -> Iterator[str]:
        """Yield what to wait for before anybody is ended: pools that are half published, the end of the first hold of others."""
        option, fit = facts.option, self._view.pod_fit(self._pod)
        if option is None or facts.rejection.code not in HELD:
            return
        open_nodes = [found for found in facts.diagnoses if fit is None or not fit.is_closed(found.node.name)]
        all_pools = filter(None, (self._view.pools_of(diagnosis.node.name) for diagnosis in open_nodes))
        by_id = {pool.pool_id: pool for pools in all_pools for pool in pools.unusable}
        budget = self._view.budget()
        pools = [pool for pool in by_id.values() if may_serve(Code.POOL_INCOMPLETE, pool.withheld, option, budget)]
        yield from dict.fromkeys(map(incomplete_pool_advice, pool_gaps(pools)))
        holders = {share.holder for diagnosis in open_nodes for share in self._nearest.holders_on(diagnosis)}
        ends = {
            (holder.until, listed(holder.consumers) or f"claim {holder.claim}")
            for holder in holders
            if holder.until is not None and self._own.isdisjoint(holder.consumers)
        }
        for until, held_for in sorted(ends)[:1]:
            yield f"wait until {clock_text(until)}: the extender holds devices for {held_for} until then"

    def _step_against(self, facts: ReasonFacts, nodes: Sequence[str]) -> ProposedStep | None:
        if self._trials.of_gang:
            in_the_way = self._in_the_way(facts, [diagnosis.node.name for diagnosis in facts.diagnoses])
            everywhere = self._fewest(in_the_way, nodes)
            return None if everywhere is None else everywhere[0]
        nearest = facts.reason.nearest
        best = None if nearest is None else self._fewest(nearest.holders, nodes)
        for name in self._nearest_to_end(facts, nodes):
            shares = tuple(self._in_the_way(facts, [name]))
            if best is not None and self._is_least(best[1], shares):
                continue
            end_on_node = self._fewest(shares, [name])
            if end_on_node is not None and (best is None or end_on_node[1] < best[1]):
                best = end_on_node
        return None if best is None else best[0]

    def _is_least(self, cost: EndCost, shares: Sequence[HolderShare]) -> bool:
        """Return whether no end of some of these holders costs less."""
        least = min((self._priority(share.holder) for share in shares if not share.holder.leaving), default=0)
        of_one = EndCost(forbidden=False, holders=1, priority=least)
        return cost <= of_one and (not cost.holders or not _some_leave(shares))

    def _ends_of_users(self, label: str) -> Iterator[ProposedChange]:
        """Yield the end of each pod that a claim is reserved for, those first that end by themselves and those that hurt least."""
        records = (
            claim.record for claim in self._view.claims_of(self._pod) if claim.label == label and claim.record.raw
        )
        record = next(records, None)
        if record is None:
            return
        names = dict.fromkeys(user.name for user in record.claim.status.reserved_for if user.is_pod)
        users = [self._view.pod(self._pod.namespace, name) for name in names]
        pods = [pod for pod in users if pod is not None and pod.key not in self._own]
        pods.sort(key=lambda pod: (not pod.ending, not self._view.may_be_evicted([pod.key]), pod.priority, pod.name))
        for pod in pods[:MOST_TOGETHER]:
            before = decode_shallow("ResourceClaim", record.raw)
            kept = [user for user in before["status"]["reservedFor"] if user.get("name") != pod.name]
            after = {**before, "status": {**before["status"], "reservedFor": kept}}
            claim = f"claim {'/'.join(record.claim.metadata.key)}"
            waits = f"wait until {claim} is not reserved for {pod.key}, which {'has ended' if pod.finished else 'is being deleted'}"
            change = ProposedChange(
                changes=(ObjectChange(StoredKind.CLAIM, before, after),), ended=(pod.key,), harmful=not pod.ending
            )
            yield change._replace(advice=(waits,)) if pod.ending else change._replace(ends=(pod.key,))

    def of_nearest(self, facts: ReasonFacts) -> Iterator[ProposedChange]:
        """Yield the end of each holder of the nearest device, whether or not it is enough."""
        if facts.rejection.code in HELD and facts.reason.nearest is not None:
            for share in facts.reason.nearest.holders:
                ended = self._ended([share.holder]) if self._can_be_ended(share.holder) else None
                if ended is not None:
                    yield ended

    def _nearest_to_end(self, facts: ReasonFacts, nodes: Sequence[str]) -> Sequence[str]:
        """Return the nodes on which it is tried to end what is in the way.

        The nearest node comes first, then nodes that a holder leaves by itself, then those with the fewest and least holders.
        """
        ranks: list[tuple[bool, int, int, str]] = []
        for diagnosis in facts.diagnoses:
            shares = self._nearest.holders_on(diagnosis)
            staying = [share.holder for share in shares if not share.holder.leaving]
            priority = max(map(self._priority, staying), default=0)
            if shares:
                ranks.append((not _some_leave(shares), len(staying), priority, diagnosis.node.name))
        return tuple(dict.fromkeys((*nodes[:1], *(name for *_, name in sorted(ranks)))))[:_MOST_NODES]

    def _in_the_way(self, facts: ReasonFacts, nodes: Sequence[str]) -> Iterator[HolderShare]:
        """Yield the holders of what any request of the pod needs on these nodes."""
        if facts.demand is not None:
            for claim, option in requested_options(facts.demand):
                for diagnosis in self._nearest.diagnose(facts.demand, (claim, option.name), nodes):
                    yield from self._nearest.holders_on(diagnosis)

    def _fewest(self, shares: Iterable[HolderShare], nodes: Sequence[str]) -> tuple[ProposedStep, EndCost] | None:
        """Find the smallest set of holders whose end lets the pod fit, and its cost; prefer low priorities, and what frees least.

        What is merely planned, held by the extender or with admin access, or has a member of the gang, cannot be ended.
        """
        order = self._in_order(share for share in shares if self._can_be_ended(share.holder))
        leaving = [holder for holder in order if holder.leaving][:MOST_TOGETHER]
        staying = [holder for holder in order if not holder.leaving][:MOST_TOGETHER]
        after_all = self._try_end([*leaving, *staying], nodes)
        if after_all is None:
            return None
        verified = after_all.verified

        def suffices(holders: Sequence[Holder]) -> bool:
            step = self._try_end(holders, nodes)
            return step is not None and step.verified == verified

        awaited, ended = fewest_ends(leaving, staying, self._may_be_ended, suffices)
        step = self._try_end([*awaited, *ended], nodes) or after_all
        return step, EndCost(not self._may_be_ended(*ended), len(ended), max(map(self._priority, ended), default=0))

    def _in_order(self, shares: Iterable[HolderShare]) -> list[Holder]:
        """Return the holders, each once: those with the fewest pods first, then by priority, then those that free least.

        A gang needs the end of several: the largest ones are fewer.
        """
        amounts: dict[str, int] = {}
        by_claim: dict[str, Holder] = {}
        for share in shares:
            by_claim[share.holder.claim] = share.holder
            amounts[share.holder.claim] = sum(amount for _, amount in share.counters)

        def rank(holder: Holder) -> tuple[int, int, int, str]:
            amount, priority = amounts[holder.claim], self._priority(holder)
            first, second = (-amount, priority) if self._trials.of_gang else (priority, amount)
            return len(holder.consumers), first, second, holder.claim

        return sorted(by_claim.values(), key=rank)

    def _try_end(self, holders: Sequence[Holder], nodes: Sequence[str]) -> ProposedStep | None:
        change = self._ended(holders) if holders else None
        return None if change is None else self._trials.try_change(change, nodes)

    def _can_be_ended(self, holder: Holder) -> bool:
        """Return whether the end of the holder's consumers frees the device, and none of them is in the pod's own PodGroup."""
        return holder.can_be_ended and self._own.isdisjoint(holder.consumers)

    def _ended(self, holders: Sequence[Holder]) -> ProposedChange | None:
        """Return the end of the pods that use these claims, which are deallocated; None if a claim is not known."""
        changes: list[ObjectChange] = []
        for holder in holders:
            record = self._view.ledger.claims.by_key(*split_key(holder.claim))
            if record is None or not record.raw:
                return None
            before = decode_shallow("ResourceClaim", record.raw)
            changes.append(ObjectChange(StoredKind.CLAIM, before, {**before, "status": {}}))
        used = dict.fromkeys(name for holder in holders for name in holder.consumers)
        of_staying = (name for holder in holders if not holder.leaving for name in holder.consumers)
        pods = {name: self._view.pod(*split_key(name)) for name in of_staying}
        ends = [name for name, pod in pods.items() if pod is None or not pod.ending]
        texts = []
        for holder in (holder for holder in holders if holder.leaving):
            whose = f", whose pods {'are' if 'being' in holder.leaving else 'have'} {holder.leaving}"
            state = f"released{whose}" if holder.consumers else f"gone, which is {holder.leaving}"
            texts.append(f"wait until claim {holder.claim} is {state}")
        unused = [holder.claim for holder in holders if not (holder.consumers or holder.leaving)]
        texts += [f"delete claim {claim}, which no pod uses" for claim in unused]
        return ProposedChange(
            tuple(texts), tuple(changes), tuple(self._pods(used)), tuple(ends), harmful=bool(unused) or bool(ends)
        )

    def _priority(self, holder: Holder) -> int:
        """Return the highest priority of the pods that use the claim; 0 if none is known."""
        return max((pod.priority for pod in staying_pods(self._view, self._pods(holder.consumers))), default=0)

    def _may_be_ended(self, *holders: Holder) -> bool:
        """Return whether no PodDisruptionBudget forbids to evict the pods that use the claims."""
        pods = (pod for holder in holders for pod in self._pods(holder.consumers))
        return self._view.may_be_evicted(dict.fromkeys(pods))

    def _pods(self, consumers: Iterable[str]) -> Iterator[str]:
        for consumer in consumers:
            if consumer.startswith(_GROUPS):
                group = split_key(consumer.removeprefix(_GROUPS))
                yield from (pod.key for pod in self._view.ledger.pods.members(*group))
            else:
                yield consumer


def _some_leave(shares: Iterable[HolderShare]) -> bool:
    return any(share.holder.leaving for share in shares)
