import zlib
from collections.abc import Callable, Sequence

from app.allocator import Demand, NoFit
from app.ledger.holds import Hold
from app.ledger.ledger import Ledger
from app.model.allocation import Placement
from app.model.node import Node
from app.model.pod import Pod
from app.model.rejection import Code, Rejection
from app.scheduling.answers import FilterAnswer
from app.scheduling.attempt import Attempt, refused_everywhere
from app.scheduling.claim_lookup import FoundClaim, find_claims
from app.scheduling.extended_resources import backed_resources, uncovered
from app.scheduling.options import Options
from app.scheduling.ports import Clock
from app.scheduling.refusals import Refusals
from app.scheduling.remembered import Outcome, Remembered, Table
from app.scheduling.scoring import packing_score
from app.scheduling.searching import Searching
from app.scheduling.standing import Sorted, excluded, fully_reserved, sort_claims
from app.telemetry.metrics import Metrics

_NODE_UNKNOWN = (Rejection(code=Code.NODE_UNKNOWN),)


class Filter:
    """Which nodes suit a pod's devices, and what is held there until the bind names one of them.

    Repeatable: it leaves nothing behind but holds, and a further call of the same pod replaces them.
    """

    def __init__(
        self,
        ledger: Ledger,
        searching: Searching,
        refusals: Refusals,
        metrics: Metrics,
        clock: Clock,
        options: Options,
    ) -> None:
        self._ledger = ledger
        self._searching = searching
        self._refusals = refusals
        self._metrics = metrics
        self._clock = clock
        self._options = options
        self._remembered = Remembered(options.remembered_answers)

    async def __call__(self, pod: Pod, nodes: Sequence[str]) -> FilterAnswer:
        """The nodes on which the pod fits (at most `offered_nodes` where something must be held), and why the others do not."""
        if not pod.needs_devices:
            return FilterAnswer(nodes, {}, {})
        pod = self._ledger.pods.newest(pod)
        start = self._clock.monotonic()
        attempt = self._attempt(pod, nodes)
        while not attempt.fits and attempt.unsettled:
            left = start + self._options.settle_wait_seconds - self._clock.monotonic()
            if left <= 0 or not await self._ledger.holds.changed.wait(left):
                break
            attempt = self._attempt(pod, nodes)
        if not attempt.fits:
            self._refusals.turned_away(pod, attempt)
            return FilterAnswer((), {}, attempt.texts)
        self._refusals.settled(pod.uid)
        return FilterAnswer(self._offer(pod, attempt), {}, attempt.texts)

    def _attempt(self, pod: Pod, nodes: Sequence[str]) -> Attempt:
        ledger = self._ledger
        ledger.holds.expire(self._clock.monotonic())
        ledger.holds.leave(pod.uid)
        found = find_claims(pod, ledger.claims)
        if isinstance(found, Rejection):
            return refused_everywhere(nodes, found)
        refusal = fully_reserved(found, pod)
        if refusal is not None:
            return refused_everywhere(nodes, refusal)
        claims = sort_claims(found, ledger)
        demand: Demand | None = None
        if claims.open:
            asked = self._searching.demand(claims.open)
            if isinstance(asked, Rejection):
                return refused_everywhere(nodes, asked)
            demand = asked
        attempt = Attempt(open=claims.open, held=claims.held)
        candidates = self._candidates(pod, nodes, claims, attempt)
        if demand is None:
            attempt.fits = dict.fromkeys(candidates)
        else:
            self._search(demand, candidates, attempt)
        return attempt

    def _candidates(self, pod: Pod, nodes: Sequence[str], claims: Sorted, attempt: Attempt) -> dict[str, Node]:
        """Known nodes that neither decided claims nor extended resources exclude."""
        ledger = self._ledger
        resources = backed_resources(pod, ledger.backing)
        checked = bool(resources or claims.allocated or claims.held)
        candidates: dict[str, Node] = {}
        known = ledger.nodes
        for name in nodes:
            node = known.get(name)
            if node is None:
                attempt.refuse(name, _NODE_UNKNOWN)
                continue
            if checked:
                refusal = uncovered(node, resources, ledger.backing) or excluded(node, claims, ledger)
                if refusal is not None:
                    attempt.refuse(name, (refusal,))
                    continue
            candidates[name] = node
        return candidates

    def _search(self, demand: Demand, candidates: dict[str, Node], attempt: Attempt) -> None:
        ledger, table = self._ledger, self._remembered.table(demand.signature)
        out_of_time = self._budget()
        under_holds: list[Node] = []
        searched = 0
        for name, node in candidates.items():
            state, hold = ledger.state_version(name), ledger.hold_version(name)
            known = (table.free if hold is None else table.held).get(name)
            if known is None or known.state != state or known.hold != hold:
                known = self._ask(demand, node, table, state, hold, out_of_time)
                searched += 1
            if known.placement is not None:
                attempt.fits[name] = known
            elif known.nofit is not None:
                attempt.refuse(name, known.nofit.rejections, known.text)
                if hold is not None:
                    under_holds.append(node)
        self._metrics.search(remembered=True, steps=len(candidates) - searched)
        if under_holds and not attempt.fits and ledger.holds.unsettled:
            self._look_behind_holds(demand, under_holds, attempt, out_of_time)

    def _ask(
        self, demand: Demand, node: Node, table: Table, state: int, hold: int | None, out_of_time: Callable[[], bool]
    ) -> Outcome:
        usage = self._ledger.usage() if hold is not None else self._ledger.claims.usage
        answer = self._searching.on_node(demand, node, usage, out_of_time)
        self._metrics.search(remembered=False, steps=answer.steps)
        if isinstance(answer, Placement):
            return _remember(
                table,
                node.name,
                Outcome(state, hold, answer, None, "", packing_score(answer, usage, self._ledger.slices)),
            )
        outcome = Outcome(state, hold, None, answer, answer.rejections[0].summary, 0)
        if any(each.code is Code.SEARCH_LIMIT for each in answer.rejections):
            return outcome
        return _remember(table, node.name, outcome)

    def _look_behind_holds(
        self, demand: Demand, nodes: list[Node], attempt: Attempt, out_of_time: Callable[[], bool]
    ) -> None:
        """Find out whether only holds that are about to settle stand in the way."""
        usage = self._ledger.usage_without_unsettled()
        for node in nodes:
            if not isinstance(self._searching.on_node(demand, node, usage, out_of_time), NoFit):
                attempt.unsettled = True
                attempt.refuse(node.name, (Rejection(code=Code.UNSETTLED),))

    def _offer(self, pod: Pod, attempt: Attempt) -> Sequence[str]:
        """Choose the best nodes and hold there what the pod would take."""
        expires = self._clock.monotonic() + self._options.hold_seconds
        ledger = self._ledger
        for claim in attempt.held:
            ledger.holds.join(claim.record.claim.metadata.uid, pod.uid, expires)
        if not attempt.open:
            return tuple(attempt.fits)
        offered = _best(attempt.fits, self._options.offered_nodes, pod.uid)
        for index, claim in enumerate(attempt.open):
            ledger.holds.place(_hold(claim, index, offered, pod, expires))
        return tuple(offered)

    def _budget(self) -> Callable[[], bool]:
        clock = self._clock.monotonic
        end = clock() + self._options.filter_budget_seconds
        return lambda: clock() > end


def _remember(table: Table, node: str, outcome: Outcome) -> Outcome:
    (table.free if outcome.hold is None else table.held)[node] = outcome
    return outcome


def _best(fits: dict[str, Outcome | None], count: int, uid: str) -> dict[str, Outcome]:
    """The nodes with the highest scores; among equals a run that starts at a place which depends on the pod."""
    ranked = [(name, outcome) for name, outcome in fits.items() if outcome is not None]
    if len(ranked) > count:
        start = zlib.crc32(uid.encode()) % len(ranked)
        ranked = ranked[start:] + ranked[:start]
        if len({outcome.score for _, outcome in ranked}) > 1:
            ranked.sort(key=lambda entry: -entry[1].score)
    return dict(ranked[:count])


def _hold(claim: FoundClaim, index: int, offered: dict[str, Outcome], pod: Pod, expires: float) -> Hold:
    return Hold(
        claim_uid=claim.record.claim.metadata.uid,
        placements={
            name: outcome.placement.claims[index] for name, outcome in offered.items() if outcome.placement is not None
        },
        versions={name: outcome.state for name, outcome in offered.items()},
        expires=expires,
        pods={pod.uid},
    )
