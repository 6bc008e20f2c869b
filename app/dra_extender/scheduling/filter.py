import zlib
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.state.result import SearchPaused
from dra_extender.allocator.state.usage import Usage
from dra_extender.ledger.holds.holds import Hold, HoldBook
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.state.claim_record import SpecNotKeptError
from dra_extender.model.allocation import DeviceHolding, Placement
from dra_extender.model.lazy_node_names import turned
from dra_extender.model.pod import Pod
from dra_extender.model.rejection import Code, Rejection
from dra_extender.scheduling.claims.group_entries import fully_reserved
from dra_extender.scheduling.claims.lookup import FoundClaim, find_claims
from dra_extender.scheduling.claims.preconditions import ClaimsByState, excluded, not_ready, sort_claims
from dra_extender.scheduling.claims.short_claims import ShortClaims
from dra_extender.scheduling.evaluation.device_backoff import DeviceBackoff, search_around
from dra_extender.scheduling.evaluation.evaluator import NODE_UNKNOWN, NodeEvaluator
from dra_extender.scheduling.evaluation.fresh_shares import new_share_id, with_fresh_shares
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.evaluation.node_backoff import BACKED_OFF
from dra_extender.scheduling.evaluation.prefetch import Prefetch
from dra_extender.scheduling.evaluation.result import FilterResult, refused_everywhere
from dra_extender.scheduling.evaluation.result_cache import NodeResult
from dra_extender.scheduling.evaluation.scoring import ratings, total
from dra_extender.scheduling.extended_resources.need import (
    ExtendedClaimNeed,
    ExtendedNeed,
    NodesByNeed,
    extended_need,
    left_over,
)
from dra_extender.scheduling.gang.coordinator import GangCoordinator
from dra_extender.scheduling.permit.members import gang_of
from dra_extender.scheduling.ports.errors import FilterResponse, RetryableError
from dra_extender.scheduling.ports.options import Options
from dra_extender.scheduling.requeue.unschedulable import UnschedulablePods
from dra_extender.scheduling.search_time.deadline import CallBudget

_UNSETTLED = Rejection(code=Code.UNSETTLED)


class Filter:
    """Which nodes suit a pod's devices, and what is held there until the bind names one of them.

    Repeatable: it leaves nothing behind but holds, and a further call of the same pod replaces them.
    """

    def __init__(
        self,
        ledger: Ledger,
        searching: NodeAllocator,
        refusals: UnschedulablePods,
        judging: NodeEvaluator,
        gangs: GangCoordinator,
        cool_downs: DeviceBackoff,
        short: ShortClaims,
        options: Options,
    ) -> None:
        self._ledger = ledger
        self._short = short
        self._searching = searching
        self._refusals = refusals
        self._cool_downs = cool_downs
        self._fairness = gangs.fairness
        self._slices = short.slices
        self._clock = short.slices.clock
        self._options = options
        self._gangs = gangs
        self._judging = judging
        self._look_ahead = Prefetch(self._judging, ledger, self._clock, options.offered_nodes)

    async def __call__(self, pod: Pod, nodes: Sequence[str]) -> FilterResponse:
        """The nodes on which the pod fits (at most `offered_nodes` where something must be held), and why the others do not."""
        if not pod.needs_devices:
            return FilterResponse(nodes, {}, {})
        pod = self._ledger.pods.newest(pod)
        if not (pod.node_name or self._ledger.pods.is_being_bound(pod.uid)):
            self._ledger.release_orphans(pod.uid)
        budget = self._slices.begin(pod, self._options.filter_budget_seconds)
        start = budget.slice_start
        attempt = await self._tried(pod, nodes, budget)
        while not attempt.fits and attempt.unsettled and not attempt.revocable:
            left = start + self._options.settle_wait_seconds - self._clock.monotonic()
            if left <= 0 or not await self._ledger.holds.changed.wait(left):
                break
            self._slices.reopen(pod, budget)
            attempt = await self._tried(pod, nodes, budget)
        if attempt.revocable and not attempt.fits:
            attempt = await self._fairness.make_room(attempt, lambda: self._tried(pod, nodes, budget))
        if not attempt.fits:
            self._fairness.refused(pod, attempt)
            if attempt.limited:
                raise RetryableError(f"pod {pod.key}: {_unfinished(attempt)}")
            began = self._clock.monotonic()
            self._refusals.record(pod, attempt, budget)
            self._slices.charge(pod, self._clock.monotonic() - began)
            return FilterResponse((), {}, attempt.texts)
        self._refusals.forget(pod.uid)
        self._fairness.shares.waits_no_more(pod.uid)
        return FilterResponse(self._offer(pod, attempt), {}, attempt.texts)

    async def _tried(self, pod: Pod, nodes: Sequence[str], budget: CallBudget) -> FilterResult:
        """An attempt that goes on in further slices; when there is no other, what has been found out by then.

        Everything is asked again in each slice, of what it is by then: what was answered before is remembered.
        """
        while True:
            try:
                attempt = self._attempt(pod, nodes, budget)
            except SearchPaused:
                if not await self._slices.next(pod, budget):
                    budget.close()
                continue
            except SpecNotKeptError as missing:
                await self._short.read_for(pod, missing, budget)
                continue
            self._slices.end(pod, budget)
            return attempt

    def may_fit(self, pod: Pod, nodes: Sequence[str], budget: CallBudget) -> bool:
        """Whether a call for this refused pod and these nodes might end with a node now; nothing is held for it.

        What cannot be found out without holding anything may be so.

        Raises:
            Paused: the slice is over; what was found out is remembered.
            SpecNotKeptError: claims have to be read before.
        """
        gang = gang_of(pod, self._ledger)
        if gang is not None:
            return self._gangs.may_fit(pod, gang, _without(nodes, self._cool_downs.nodes.of(pod.uid)), budget)
        attempt = self._attempt(self._ledger.pods.newest(pod), nodes, budget)
        return bool(attempt.fits) or attempt.unsettled or bool(attempt.revocable)

    async def read(self, missing: SpecNotKeptError, budget: CallBudget) -> None:
        """Read the claims without which `may_fit` cannot tell; raises TryAgain if that is impossible."""
        await self._short.read(missing, budget)

    def _attempt(self, pod: Pod, nodes: Sequence[str], budget: CallBudget) -> FilterResult:
        backed_off = self._cool_downs.nodes.of(pod.uid)
        if not backed_off:
            return self._offered(pod, nodes, budget)
        left = _without(nodes, backed_off)
        attempt = self._offered(pod, left, budget) if left else FilterResult()
        for name in backed_off.intersection(nodes):
            attempt.refuse(name, BACKED_OFF)
        return attempt

    def _offered(self, pod: Pod, nodes: Sequence[str], budget: CallBudget) -> FilterResult:
        ledger = self._ledger
        ledger.holds.expire(self._clock.monotonic())
        gang = gang_of(pod, ledger)
        if gang is None:
            return self._alone(pod, nodes, budget)
        planned = self._gangs.offer(pod, gang, nodes, budget)
        if planned is not None and (planned.fits or Code.GANG not in planned.codes):
            return planned
        # A member that would not even fit alone is told why, in more than the gang's words.
        alone = self._alone(pod, nodes, budget)
        return planned if planned is not None and alone.fits else alone

    def _alone(self, pod: Pod, nodes: Sequence[str], budget: CallBudget) -> FilterResult:
        """As if there were no other pods to be placed with this one."""
        ledger = self._ledger
        ledger.holds.release_pod(pod.uid)
        found = find_claims(pod, ledger)
        if isinstance(found, Rejection):
            return refused_everywhere(nodes, found)
        now, timeout = self._clock.now(), self._options.binding_timeout_seconds
        refusal = fully_reserved(found, ledger)
        if refusal is None and self._options.binding_conditions:
            refusal = not_ready(found, pod, ledger, now, timeout)
        if refusal is not None:
            return refused_everywhere(nodes, refusal)
        claims, need = sort_claims(found, ledger), extended_need(pod, ledger)
        asked: Demand | None = None
        if claims.open:
            demand = self._searching.demand(claims.open, budget)
            if isinstance(demand, Rejection):
                attempt = refused_everywhere(nodes, demand)
                attempt.limited = demand.code is Code.SEARCH_LIMIT
                return attempt
            asked = demand
        left = None if need is None else left_over(pod, ledger)
        if need is None or left is None:
            return self._placed(pod, claims, need, nodes, budget, asked)
        # An earlier attempt wrote it: the pod goes where it can be used, or everything is decided anew without it.
        adopted = self._placed(pod, claims.with_allocated(left), need.met_by(left), nodes, budget, asked)
        if adopted.fits:
            return adopted
        anew = self._placed(pod, claims, need, nodes, budget, asked)
        if anew.fits or anew.unsettled:
            return anew
        return refused_everywhere(nodes, Rejection(code=Code.CLAIM_ON_OTHER_NODE, claim=left.label))

    def _placed(
        self,
        pod: Pod,
        claims: ClaimsByState,
        need: ExtendedNeed | None,
        nodes: Sequence[str],
        budget: CallBudget,
        asked: Demand | None,
    ) -> FilterResult:
        """Where everything that is open fits; nodes that serve extended resources in different ways are asked differently.

        `asked` is what the open claims ask for.
        """
        attempt = FilterResult(open=claims.open, held=claims.held)
        groups: Sequence[NodesByNeed] = (NodesByNeed(None, nodes),)
        if need is not None or claims.allocated or claims.held or not claims.open:
            groups = self._allowed(pod, nodes, claims, need, attempt)
        for special, names in groups:
            wanted = claims.open if special is None else (*claims.open, special.found)
            if not wanted:
                attempt.fits.update(dict.fromkeys(names))
                continue
            demand = asked if wanted is claims.open and asked else self._searching.demand(wanted, budget)
            if isinstance(demand, Rejection):
                attempt.limited |= demand.code is Code.SEARCH_LIMIT
                for name in names:
                    attempt.refuse(name, demand)
                continue
            attempt.open, attempt.demand = max(attempt.open, wanted, key=len), demand
            self._search(demand, names, pod.uid, attempt, budget)
        return attempt

    def _allowed(
        self, pod: Pod, nodes: Sequence[str], claims: ClaimsByState, need: ExtendedNeed | None, attempt: FilterResult
    ) -> Sequence[NodesByNeed]:
        """Known nodes that neither decided claims nor extended resources exclude, by what they leave to device classes."""
        ledger = self._ledger
        allowed: dict[int, tuple[ExtendedClaimNeed | None, list[str]]] = {}
        for name in nodes:
            node = ledger.nodes.get(name)
            if node is None:
                attempt.refuse(name, NODE_UNKNOWN)
                continue
            special = None if need is None else need.on(node)
            if isinstance(special, Rejection):
                attempt.refuse(name, special)
                continue
            refusal = excluded(pod, node, claims, ledger)
            if refusal is None:
                allowed.setdefault(id(special), (special, []))[1].append(name)
            else:
                attempt.refuse(name, refusal)
        return tuple(NodesByNeed(*each) for each in allowed.values())

    def _search(
        self, demand: Demand, nodes: Sequence[str], uid: str, attempt: FilterResult, budget: CallBudget
    ) -> None:
        """Ask about the nodes, beginning at a place that depends on the pod."""
        in_order, enough = turned(nodes, zlib.crc32(uid.encode())), self._options.offered_nodes
        cooling = self._cool_downs.of(uid)
        if cooling:
            ask = self._searching.asking(demand, budget)
            search_around(cooling, self._ledger, ask, tuple(in_order), enough, attempt)
            return
        held = self._judging.search(demand, in_order, enough, budget, attempt)
        if not attempt.fits:
            self._look_behind_holds(demand, held, in_order, budget, attempt)

    def _look_behind_holds(
        self, demand: Demand, held: Sequence[str], nodes: Iterable[str], budget: CallBudget, attempt: FilterResult
    ) -> None:
        """Find out whether only holds that may end stand in the way, which of them are about to settle, and which are stale."""
        ledger, views = self._ledger, self._fairness.stale.views()
        if views.is_empty:
            return

        def fitting(names: Iterable[str], usage: Usage, under: Hashable) -> Iterator[tuple[str, Placement]]:
            for name in names:
                node = ledger.nodes.get(name)
                answer = None if node is None else self._searching.once(demand, node, usage, budget, under)
                if isinstance(answer, Placement):
                    yield name, answer

        concerned = held if not views.freed else self._reaching(views.freed, held, nodes)
        behind = dict(fitting(concerned, views.without_loose(ledger), ("loose", views.loose, views.freed)))
        attempt.behind += tuple(claim for placement in behind.values() for claim in placement.claims)
        if behind and views.has_stale and not attempt.revocable:
            stale = ("stale", views.stale, views.freed)
            first = next(fitting(behind, views.without_stale(ledger), stale), None)
            attempt.revocable = () if first is None else first[1].claims
        going: Iterable[str] = behind
        if views.multi_node != views.loose:
            going = dict(fitting(behind, views.without_multi_node(ledger), ("unsettled", views.multi_node)))
        for name in going:
            attempt.unsettled = True
            attempt.refuse(name, _UNSETTLED)

    def _reaching(self, freed: Iterable[DeviceHolding], held: Sequence[str], nodes: Iterable[str]) -> Iterable[str]:
        """The nodes under holds, and those that reach the pools in which something would be freed."""
        reached: set[str] = set()
        for pool_id in {each.pool_id for each in freed}:
            found = self._ledger.slices.nodes_of(pool_id)
            if found is None:
                return nodes
            reached |= found
        reached.difference_update(held)
        return [*held, *(name for name in nodes if name in reached)]

    def _offer(self, pod: Pod, attempt: FilterResult) -> Sequence[str]:
        """Choose the best nodes and hold there what the pod would take; for a member of a gang that is done already."""
        if attempt.assigned_node is not None:
            return (attempt.assigned_node,)
        now = self._clock.monotonic()
        expires = now + self._options.hold_seconds
        ledger = self._ledger
        for claim in attempt.held:
            ledger.holds.add_pod(claim.record.claim.metadata.uid, pod.uid, expires)
        if not attempt.open:
            return tuple(attempt.fits)
        unheld = [name for name, outcome in attempt.fits.items() if outcome is None]
        try:
            offered = self._best(pod, attempt)
        except RetryableError:
            if not unheld:
                raise
            offered = {}
        if offered:
            self._fairness.shares.offered(pod.uid)
        times = _Times(now, expires, expires + self._options.binding_timeout_seconds)
        # kube-scheduler need not wait for it: the look ahead, which comes after the answer, is the first to ask for holds.
        ledger.defer_hold(lambda: _hold(ledger.holds, attempt.open, offered, pod, times))
        if attempt.demand is not None:
            self._look_ahead.follow(attempt.demand)
        return (*unheld, *offered)

    def _best(self, pod: Pod, attempt: FilterResult) -> dict[str, NodeResult]:
        """The nodes with the highest ratings; among equals those that were looked at first.

        Raises:
            TryAgain: the pod may be offered none at present, because others wait.
        """
        fits = {name: outcome for name, outcome in attempt.fits.items() if outcome is not None}
        names, count = list(fits), self._options.offered_nodes
        if len(names) > count:
            held = [hold for each in attempt.held if (hold := self._ledger.holds.get(each.record.claim.metadata.uid))]
            merits = {
                name: total((*outcome.merits, *(hold.merits[name] for hold in held if name in hold.merits)))
                for name, outcome in fits.items()
            }
            rated = ratings(merits, self._options.weights)
            names.sort(key=rated.__getitem__, reverse=True)
        return {name: fits[name] for name in self._fairness.among(pod, names, fits, count)}


class _Times(NamedTuple):
    """When a hold was placed, and when it ends without and with a nomination (monotonic)."""

    since: float
    expires: float
    latest: float


def _without(nodes: Sequence[str], backed_off: frozenset[str]) -> Sequence[str]:
    return [name for name in nodes if name not in backed_off] if backed_off else nodes


def _unfinished(attempt: FilterResult) -> str:
    """Why nothing is known about some node: the namespace has no time left, or what a call may spend is used up.

    The same text for each call, however many nodes: kube-scheduler writes a new one into the pod before it goes on to the next pod.
    """
    limited = [each for each in attempt.why() if each.rejection.code is Code.SEARCH_LIMIT]
    return min((each.rejection.text for each in limited), default=Code.SEARCH_LIMIT)


def _hold(
    holds: HoldBook, claims: Sequence[FoundClaim], offered: Mapping[str, NodeResult], pod: Pod, times: _Times
) -> None:
    """Hold for each claim what it would get on the offered nodes; on some a claim for extended resources is not needed."""
    for index, claim in enumerate(claims):
        placements = {
            name: with_fresh_shares(outcome.placement.claims[index], new_share_id)
            for name, outcome in offered.items()
            if outcome.placement is not None and index < len(outcome.placement.claims)
        }
        if placements:
            hold = Hold(
                claim_uid=claim.record.claim.metadata.uid,
                placements=placements,
                versions={name: offered[name].state for name in placements},
                merits={name: offered[name].merits[index] for name in placements if offered[name].merits},
                expires=times.expires,
                pods={pod.uid},
                namespace=pod.namespace,
                unit=pod.uid,
                since=times.since,
                latest=times.latest,
            )
            holds.place(hold)
