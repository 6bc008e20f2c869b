"""Pools that reach no node of the cluster: by a node name or node selectors that no node has."""

from collections.abc import Iterator
from typing import Final

from dra_extender.allocator.demand.demand import SearchableRequest
from dra_extender.allocator.explain.shortfall import may_serve
from dra_extender.allocator.pools.node_match import is_relevant
from dra_extender.allocator.state.rejection import Code
from dra_extender.cel.explain.values import shortened
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.api_json import ModelError, listed
from dra_extender.model.device import Device, PoolId
from dra_extender.model.resource_slice import ResourceSlice

_MOST_NAMED: Final = 3
_LONGEST: Final = 80


def unreached_pools(view: ClusterView, option: SearchableRequest) -> Iterator[str]:
    """Yield a sentence about each pool with devices that a request means, and that no node can use; the first few."""
    ledger, pools = view.ledger, dict[PoolId, list[ResourceSlice]]()
    for published in ledger.slices.by_name.values():
        pools.setdefault(published.pool_id, []).append(published)
    found: list[str] = []
    for (driver, name), slices in sorted(pools.items()):
        newest = max(each.generation for each in slices)
        current = [each for each in slices if each.generation == newest and each.devices]
        is_reached = not current or any(_reaches_a_node(each, ledger) for each in current)
        if not is_reached and may_serve(Code.OTHER_NODE, current, option, view.budget()):
            where = dict.fromkeys(text for each in current for text in _wheres(each))
            found.append(f"pool {driver}/{name} reaches no node: {listed(list(where), 1)}")
    yield from found[:_MOST_NAMED]
    if len(found) > _MOST_NAMED:
        yield f"{len(found) - _MOST_NAMED} more pools reach no node"


def _reaches_a_node(published: ResourceSlice, ledger: Ledger) -> bool:
    if published.node_name:
        return published.node_name in ledger.nodes
    try:
        return any(is_relevant(published, node, partitionable=True) for node in ledger.nodes.values())
    except ModelError:
        return True


def _wheres(published: ResourceSlice) -> Iterator[str]:
    yield from _where(published)
    for device in published.devices if published.per_device_node_selection else ():
        yield from _where(device)


def _where(where: ResourceSlice | Device) -> Iterator[str]:
    """Yield where the slice or device may be used, if it says so."""
    if where.node_name:
        yield f"node {where.node_name} does not exist"
    elif where.node_selector is not None:
        terms = [
            " and ".join(
                f"{each.key} {each.operator}" + (f" ({', '.join(each.values)})" if each.values else "")
                for each in (*term.match_expressions, *term.match_fields)
            )
            for term in where.node_selector.node_selector_terms
        ]
        yield shortened(f"no node matches {' or '.join(terms)}", _LONGEST)
