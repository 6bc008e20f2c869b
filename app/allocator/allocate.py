import itertools
from collections.abc import Callable

from app.allocator.demand import ClaimDemand, Demand, Wanted
from app.allocator.mode_all import gather_all
from app.allocator.node_facts import NodeFacts
from app.allocator.outcome import DEFAULT_MAX_STEPS, Fatal, NoFit
from app.allocator.pools import NodePools
from app.allocator.results import claim_placement
from app.allocator.rules import OWN, Rules
from app.allocator.search import Search
from app.allocator.state import Usage
from app.model.allocation import ClaimPlacement, Placement
from app.model.node import Node
from app.model.rejection import Code, Rejection


def allocate(
    demand: Demand,
    node: Node,
    pools: NodePools,
    usage: Usage,
    *,
    deadline: Callable[[], bool] | None = None,
    new_share_id: Callable[[], str] | None = None,
    max_steps: int = DEFAULT_MAX_STEPS,
    rules: Rules = OWN,
) -> Placement | NoFit:
    """The first solution for all claims of a pod on one node, in upstream's order, or why there is none.

    Pure and deterministic; nothing passed in is changed.  `demand` and `pools` must have been made with the same features,
    `usage` must not change meanwhile.  `deadline` tells whether the time is up; it and `max_steps` end a search with SEARCH_LIMIT.
    `new_share_id` names shares; what is written to a cluster needs names that are unique there, without it they are `share-0`,
    `share-1`, ... of this placement.  `rules` are those of the service unless another release's answer is wanted.
    """
    facts = NodeFacts(node, pools, usage, deadline, rules)
    numbers = itertools.count()
    naming = new_share_id or (lambda: f"share-{next(numbers)}")
    steps = 0
    try:
        search = Search(demand, facts, gather_all(demand, facts), max_steps)
        try:
            found = search.run()
        finally:
            steps = search.steps
        if found:
            return Placement(claims=_placements(demand, search, pools, naming), steps=steps)
    except Fatal as fatal:
        return NoFit(verdict=fatal.verdict, rejections=(fatal.rejection,), steps=steps)
    return _no_fit(search, pools)


def _placements(
    demand: Demand, search: Search, pools: NodePools, new_share_id: Callable[[], str]
) -> tuple[ClaimPlacement, ...]:
    return tuple(
        claim_placement(
            claim,
            _chosen(claim, index, search),
            [pick for pick in search.attempt.picks if pick.claim == index],
            pools,
            new_share_id,
        )
        for index, claim in enumerate(demand.claims)
    )


def _chosen(claim: ClaimDemand, index: int, search: Search) -> list[Wanted]:
    return [request.options[search.chosen.get((index, position), 0)] for position, request in enumerate(claim.requests)]


def _no_fit(search: Search, pools: NodePools) -> NoFit:
    """Invalid pools come first; incomplete ones before "no match", which they may explain."""
    found = search.shortfall.rejections or (Rejection(code=Code.COMBINATION),)
    troubled = [
        Rejection(code=pool.problem, claim=found[0].claim, request=found[0].request, detail=pool.detail)
        for pool in pools.troubled
        if pool.problem is not None
    ]
    invalid = [each for each in troubled if each.code is Code.POOL_INVALID]
    incomplete = [each for each in troubled if each.code is not Code.POOL_INVALID]
    incomplete += [
        Rejection(code=Code.GROUPS_OFF, claim=found[0].claim, request=found[0].request, detail=each.detail)
        for each in pools.ignored
    ]
    if found[0].code in (Code.NO_MATCH, Code.NO_DEVICES):
        rejections = (*invalid, *incomplete, *found)
    else:
        rejections = (*invalid, *found, *incomplete)
    return NoFit(verdict="node" if invalid else "no", rejections=rejections, steps=search.steps)
