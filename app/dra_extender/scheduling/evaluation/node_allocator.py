"""Builds the demand of claims, and searches one node for it; pools, demands and selector verdicts are cached."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from dra_extender.allocator.allocate import NodeSearch
from dra_extender.allocator.demand.build import build_demand
from dra_extender.allocator.demand.demand import ClaimDemand, Demand, NamedClaim
from dra_extender.allocator.demand.selectors import SelectionTimeoutError, SelectorError, SelectorVerdicts
from dra_extender.allocator.explain.device_diagnosis import (
    Among,
    DeviceDiagnosis,
    RequestSurvey,
    diagnose_devices,
    survey,
)
from dra_extender.allocator.pools.pools import NodePools, node_pools
from dra_extender.allocator.rules.compatible_only_with import IsTrue, SlicePosition
from dra_extender.allocator.state.features import OWN, Features
from dra_extender.allocator.state.reasons import Code, NoFit, Rejection, SearchPaused
from dra_extender.allocator.state.usage import Usage
from dra_extender.cel.analysis.attributes import rewrite_suffixes
from dra_extender.cel.budget import Budget
from dra_extender.cel.errors import CelCompileError, quoted
from dra_extender.cel.fair_cache import FairCache
from dra_extender.cel.program import ProgramCache
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import Placement
from dra_extender.model.api_json import ModelError
from dra_extender.model.node import Node
from dra_extender.runtime.caches import LruCache
from dra_extender.scheduling.call_budget import CallBudget
from dra_extender.scheduling.claims.live_reads import UnreadSpecs
from dra_extender.scheduling.claims.lookup import FoundClaim
from dra_extender.scheduling.evaluation.expected_demand import ExpectedDemand
from dra_extender.scheduling.ports.options import Options

MOST_CLAIM_BYTES: Final = 8 * 2**20
"""Bytes that the claims of one pod may have together, as the API server sends them."""
_FIXED_BYTES = 20 * 2**20
"""For regular expressions, and for programs that the fast path falls back to; the rest is divided into parts."""
_PARTS = 11
_OF_PROGRAMS = 4
_OF_DEMANDS = 2
_OF_VERDICTS = 5
_REJECTION_BYTES = 2_000
_LARGEST_DEMAND = 2
_MAX_PAUSED = 3
"""So many paused searches of one demand go on after those of other nodes."""
_PAUSED_SEARCHES: Final = 16
_PAUSED_NOGOODS: Final = 12_000
"""As many as one search keeps at most: all paused searches together take about as much memory as a running one."""
_NOT_SEARCHED = NoFit(
    verdict="fatal",
    rejections=(Rejection(code=Code.SEARCH_LIMIT, detail="time was up before the search came to an end"),),
)
_SLACK = 2


class NodeAllocator:
    """Turns claims into a demand, and asks the allocator about it on one node."""

    def __init__(
        self,
        ledger: Ledger,
        features: Features,
        options: Options,
        resumed: Callable[[], None] = lambda: None,
        expected: ExpectedDemand | None = None,
    ) -> None:
        """`resumed` is called whenever a paused search goes on.

        `expected`: what decides which devices of a node come first; None: upstream's order.
        """
        self._expected = expected
        self._resumed = resumed
        self.features = features
        self._ledger = ledger
        self._rules = replace(OWN, ready_devices_first=options.ready_devices_first)
        part = (options.selector_cache_bytes - _FIXED_BYTES) // _PARTS
        rewrite = rewrite_suffixes if options.rewrite_attribute_suffixes else None
        self._programs = ProgramCache(_OF_PROGRAMS * part, emulate=options.selector_libraries, rewrite=rewrite)
        self._verdicts = SelectorVerdicts(_OF_VERDICTS * part)
        self._pools: dict[str, tuple[int, NodePools]] = {}
        # By (signature of the demand, node), each with its usage key; the least recently paused search goes first.
        self._paused: LruCache[tuple[bytes, str], tuple[Hashable, NodeSearch]] = LruCache(
            _PAUSED_SEARCHES, weigh=lambda paused: paused[1].nogood_count, max_weight=_PAUSED_NOGOODS
        )
        self._demands: FairCache[tuple[object, ...], Demand | Rejection] = FairCache(
            _OF_DEMANDS * part, parts=_LARGEST_DEMAND
        )

    def demand(self, claims: Sequence[FoundClaim], budget: Budget | None = None) -> Demand | Rejection | UnreadSpecs:
        """Return what these claims ask for, or why no node can serve them (missing class, invalid selector, ...).

        Compiling their expressions is charged to `budget`.  When that is spent, the result is a SEARCH_LIMIT that is not cached.
        What was compiled by then is cached, so that another call gets further.
        """
        key = self._key(claims)
        # A demand that is too large for the cache is kept with the call.
        answers: dict[Hashable, Any] = budget.answers if isinstance(budget, CallBudget) else {}
        cached: Demand | Rejection | None = self._demands.get(key)
        if cached is None:
            cached = answers.get(key)
        if cached is not None:
            return cached
        unread = tuple(claim.record for claim in claims if not claim.record.has_spec)
        if unread:
            return UnreadSpecs(unread)
        # An unfinished call keeps what it has decoded and prepared from one slice to the next.
        decoded: list[NamedClaim]
        prepared: dict[int, ClaimDemand]
        decoded, prepared = answers.setdefault(("begun", key), ([], {}))
        rejection = _decode(claims, decoded, budget)
        if rejection is not None:
            return rejection
        demand = build_demand(
            decoded,
            self._ledger.classes,
            self._programs,
            self.features,
            self._verdicts,
            budget,
            prepared,
            self._ledger.overlays.preferences,
        )
        if isinstance(demand, Demand):
            demand = _invalid_selector(demand) or demand
        elif demand.code is Code.SEARCH_LIMIT:
            return demand
        size = demand.size if isinstance(demand, Demand) else _REJECTION_BYTES + 2 * len(demand.detail)
        self._demands.put(key, demand, size, claims[0].record.claim.metadata.namespace if claims else "")
        answers.pop(("begun", key), None)
        if key not in self._demands:
            answers[key] = demand
        return demand

    def demand_of(self, claims: Sequence[NamedClaim], budget: Budget | None = None) -> Demand | Rejection:
        """Return what these claims ask for, which need not exist."""
        return build_demand(claims, self._ledger.classes, self._programs, self.features, self._verdicts, budget)

    def count_devices_beside_counters(self, *, counted: bool) -> None:
        """Set whether devices that a slice has beside its counter sets count; called before the first search."""
        if counted != self._rules.devices_beside_counters:
            self._rules = replace(self._rules, devices_beside_counters=counted)
            self._pools.clear()

    def unread_specs(self, claims: Sequence[FoundClaim]) -> UnreadSpecs:
        """Return the claims that have to be read before `demand` can answer for these."""
        is_cached = self._key(claims) in self._demands
        return UnreadSpecs(() if is_cached else tuple(claim.record for claim in claims if not claim.record.has_spec))

    def _key(self, claims: Sequence[FoundClaim]) -> tuple[object, ...]:
        ledger = self._ledger
        return (
            ledger.changes.classes,
            ledger.overlays.preferences,
            *[(claim.label, claim.record.spec_digest) for claim in claims],
        )

    @property
    def held(self) -> int:
        """The estimated bytes of cached expressions, demands and verdicts."""
        return self._programs.bytes_kept + self._demands.bytes_kept + self._verdicts.bytes_kept

    def search(
        self, demand: Demand, node: Node, usage: Usage, deadline: Callable[[], bool], usage_key: Hashable = None
    ) -> Placement | NoFit:
        """Search this node under this usage, or go on with a search that was paused.

        The shares of a placement are only numbered: `with_new_share_ids` names them before they are held or written.

        Raises:
            SearchPaused: the deadline raised it.  With a `usage_key` the search is kept, and goes on when asked for again; the
                key is equal only for the same usage and the same devices of the node.
        """
        if type(deadline) is CallBudget and deadline.closed:
            return _NOT_SEARCHED
        question = (demand.signature, node.name)
        paused = self._paused.pop(question, None) if self._paused else None
        if paused is not None and paused[0] == usage_key:
            search = paused[1]
            self._resumed()
        else:
            try:
                pools = self._pools_of(node)
            except ModelError as problem:
                broken = Rejection(code=Code.POOL_INVALID, detail=str(problem))
                return NoFit(verdict="fatal", rejections=(broken,), steps=0)
            find_order = None if self._expected is None else self._expected.preference(demand, node, pools, usage)
            search = NodeSearch(demand, node, pools, usage, find_order=find_order)
        try:
            return search.decide(deadline)
        except SearchPaused:
            if usage_key is not None:
                self._paused[question] = usage_key, search
            raise

    def search_in_call(
        self, demand: Demand, node: Node, usage: Usage, budget: CallBudget, usage_key: Hashable
    ) -> Placement | NoFit:
        """Search as `search` does; the result is kept with the budget, because each slice of a call searches the same nodes."""
        versions = (
            usage_key,
            self._ledger.state_versions.version(node.name),
            self._ledger.hold_versions.version(node.name),
        )
        key = (demand.signature, node.name, versions)
        answer: Placement | NoFit | None = budget.answers.get(key)
        if answer is None:
            answer = self.search(demand, node, usage, budget, versions)
            if not budget.closed:
                budget.answers[key] = answer
        return answer

    def defers_node(self, demand: Demand, node: str) -> bool:
        """Return whether the node's turn comes later: its search was paused, and fewer than _MAX_PAUSED of the demand are."""
        paused = self._paused
        if not paused or (demand.signature, node) not in paused:
            return False
        return sum(signature == demand.signature for signature, _ in paused) < _MAX_PAUSED

    def survey(
        self,
        demand: Demand,
        node: Node,
        usage: Usage,
        *,
        budget: Budget | None = None,
        only: tuple[str, str] | None = None,
        limit: int | None = None,
    ) -> tuple[RequestSurvey, ...]:
        """Return by request how many devices of the node match, and what excludes the others; empty if the node cannot be read.

        `only` selects one claim and request; at most `limit` devices are looked at.  The work is charged to `budget`.
        """
        try:
            return survey(demand, node, self._pools_of(node), usage, deadline=budget, only=only, limit=limit)
        except ModelError:
            return ()

    def diagnose_devices(
        self,
        demand: Demand,
        node: Node,
        request: tuple[str, str],
        budget: Budget | None = None,
        *,
        explains_selectors: bool = True,
        among: Among | None = None,
    ) -> Iterator[DeviceDiagnosis]:
        """Yield what keeps each device of the node from a request (claim, request); nothing if its pools cannot be read.

        The work is charged to `budget`.  `explains_selectors` and `among`: as for `diagnose_devices`.
        """
        pools = self.pools_of(node)
        if pools is not None:
            usage = self._ledger.usage()
            yield from diagnose_devices(
                demand, node, pools, usage, request, budget, explains_selectors=explains_selectors, among=among
            )

    @property
    def compatibility_check(self) -> IsTrue | None:
        """Evaluates `compatibleOnlyWith` for a device; None while the feature is off."""
        return self._is_true if self.features.compatibility_groups else None

    def _is_true(self, expression: str, site: SlicePosition) -> bool:
        row = self._verdicts.selector_list((expression,), self._programs).row(site.published)
        try:
            return row.matches(site.published, site.position, None)
        except (SelectorError, SelectionTimeoutError):
            return False

    def pools_of(self, node: Node) -> NodePools | None:
        """Return the pools of the node as searches see them; None if they cannot be read."""
        try:
            return self._pools_of(node)
        except ModelError:
            return None

    def _pools_of(self, node: Node) -> NodePools:
        version = self._ledger.inventory_versions.version(node.name)
        version_and_pools = self._pools.get(node.name)
        if version_and_pools is not None and version_and_pools[0] == version:
            return version_and_pools[1]
        slices = self._ledger.slices
        pools = node_pools(node, slices.local(node.name), slices.near(node), slices.of_pool, self.features, self._rules)
        self._pools[node.name] = (version, pools)
        if len(self._pools) > _SLACK * len(self._ledger.nodes):
            nodes = self._ledger.nodes
            self._pools = {name: version_and_pools for name, version_and_pools in self._pools.items() if name in nodes}
        return pools


def _invalid_selector(demand: Demand) -> Rejection | None:
    """Return the first expression that does not compile: it rejects the pod everywhere, whichever devices are free."""
    options = (
        (claim.label, option) for claim in demand.claims for request in claim.requests for option in request.options
    )
    for label, option in options:
        for derived in option.derived.values():
            if isinstance(derived.program, CelCompileError):
                return derived.problem()
        for expression, program in zip(option.selectors.expressions, option.selectors.programs, strict=True):
            if isinstance(program, CelCompileError):
                detail = f"{quoted(expression)}: {program}"
                return Rejection(code=Code.SELECTOR_INVALID, claim=label, request=option.name, detail=detail)
    return None


def _decode(claims: Sequence[FoundClaim], into: list[NamedClaim], budget: Budget | None) -> Rejection | None:
    """Decode the claims that `into` lacks yet, and append them to it; return why one cannot be decoded, None otherwise."""
    size = sum(len(claim.record.raw) for claim in claims)
    if size > MOST_CLAIM_BYTES:
        return Rejection(code=Code.TOO_MUCH, detail=f"claims have {size} bytes, {MOST_CLAIM_BYTES} are looked at")
    for claim in claims[len(into) :]:
        if into and budget is not None and budget():
            detail = "the call has spent its budget before the claim was decoded"
            return Rejection(code=Code.SEARCH_LIMIT, claim=claim.label, detail=detail)
        try:
            into.append(NamedClaim(claim.label, claim.record.claim_with_spec))
        except ModelError as problem:
            return Rejection(code=Code.CLAIM_UNREADABLE, detail=str(problem))
    return None
