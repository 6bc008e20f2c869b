"""What a pod asks for, built once for an evaluation, and the nodes that are excluded before any search."""

from collections.abc import Sequence
from typing import NamedTuple

from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.state.rejection import Rejection
from dra_extender.cel.budget import Budget
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.pod import Pod
from dra_extender.scheduling.claims.live_reads import UnreadSpecs
from dra_extender.scheduling.claims.lookup import FoundClaim, find_claims
from dra_extender.scheduling.claims.preconditions import (
    ClaimsByState,
    excluded,
    fully_reserved,
    not_ready,
    sort_claims,
    useless_on,
)
from dra_extender.scheduling.evaluation.evaluator import NODE_UNKNOWN
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.evaluation.result import FilterResult
from dra_extender.scheduling.extended_resources.need import (
    ExtendedClaimNeed,
    ExtendedNeed,
    existing_claim,
    extended_need,
)
from dra_extender.scheduling.ports.options import Options


class PodQuery(NamedTuple):
    """What a pod asks for: its claims by state, its extended resources, and the demand of its open claims (None: no open claim).

    `adoptable`: an allocated claim for the extended resources, from an earlier bind of the pod.
    """

    pod: Pod
    claims: ClaimsByState
    need: ExtendedNeed | None
    demand: Demand | None
    adoptable: FoundClaim | None = None

    def adopting(self, existing: FoundClaim) -> "PodQuery":
        """Return the query of the pod if it uses this claim, which exists, for its extended resources."""
        need = None if self.need is None else self.need.met_by(existing)
        return PodQuery(self.pod, self.claims.with_allocated(existing), need, self.demand)

    def allows_adoption(self, name: str, ledger: Ledger) -> bool:
        """Return whether the claim that this query adopts can be used on the node."""
        node = ledger.nodes.get(name)
        if node is None or (self.need is not None and isinstance(self.need.on(node), Rejection)):
            return False
        return useless_on(node, self.claims.allocated[-1], ledger) is None


class NodeGroup(NamedTuple):
    """Nodes on which a pod needs the same claim for its extended resources (None: none)."""

    extended: FoundClaim | None
    nodes: Sequence[str]


def build_query(
    pod: Pod, ledger: Ledger, allocator: NodeAllocator, options: Options, now: float, budget: Budget
) -> PodQuery | Rejection | UnreadSpecs:
    """Return what the pod asks for, or the precondition that fails on every node; `now`: seconds since the epoch."""
    found = find_claims(pod, ledger)
    if isinstance(found, Rejection):
        return found
    rejection = fully_reserved(found, ledger)
    if rejection is None and options.binding_conditions:
        rejection = not_ready(found, pod, ledger, now, options.binding_timeout_seconds)
    if rejection is not None:
        return rejection
    claims = sort_claims(found, ledger)
    need = extended_need(pod, ledger) if pod.extended_resources or pod.extended_claim else None
    demand = allocator.demand(claims.open, budget) if claims.open else None
    if isinstance(demand, (Rejection, UnreadSpecs)):
        return demand
    return PodQuery(pod, claims, need, demand, None if need is None else existing_claim(pod, ledger))


def group_nodes(query: PodQuery, nodes: Sequence[str], ledger: Ledger, result: FilterResult) -> Sequence[NodeGroup]:
    """Reject the nodes that are unknown, or that extended resources or decided claims exclude; group the others."""
    claims, need = query.claims, query.need
    if need is None and claims.open and not (claims.allocated or claims.held):
        return (NodeGroup(None, nodes),)
    groups: dict[int, tuple[ExtendedClaimNeed | None, list[str]]] = {}
    for name in nodes:
        node = ledger.nodes.get(name)
        if node is None:
            result.reject(name, NODE_UNKNOWN)
            continue
        extended = None if need is None else need.on(node)
        if isinstance(extended, Rejection):
            result.reject(name, extended)
            continue
        rejection = excluded(query.pod, node, claims, ledger)
        if rejection is None:
            groups.setdefault(id(extended), (extended, []))[1].append(name)
        else:
            result.reject(name, rejection)
    return [NodeGroup(None if extended is None else extended.found, names) for extended, names in groups.values()]
