from collections.abc import Iterable

from dra_extender.allocator.pools.pools import NodePools
from dra_extender.model.node_selector import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, only_node


class UnsupportedSelectorError(Exception):
    """A slice or device has a node selector with several terms, which an allocation cannot combine with others."""


def selector_for(pools: NodePools, locations: Iterable[int], *, binds: bool = True) -> NodeSelector | None:
    """Where an allocation of these devices can be used; None means everywhere.

    One device that is local to a node, or (with `binds`) binds to it, pins the allocation to this node.  Otherwise the requirements
    of all devices are joined into one term, each only once.

    Raises:
        UnsupportedSelectorError: a node selector has more than one term.
    """
    expressions: list[NodeSelectorRequirement] = []
    fields: list[NodeSelectorRequirement] = []
    for location in locations:
        device, published = pools.devices[location], pools.views[location].published
        where = device if published.per_device_node_selection else published
        if where.node_name or (binds and device.binds_to_node):
            return only_node(pools.node)
        terms = where.node_selector.node_selector_terms if where.node_selector is not None else ()
        if len(terms) > 1:
            raise UnsupportedSelectorError(
                f"device {device.name} has a node selector with {len(terms)} terms, only one can be used"
            )
        for term in terms:
            _add(expressions, term.match_expressions)
            _add(fields, term.match_fields)
    if not expressions and not fields:
        return None
    term = NodeSelectorTerm(match_expressions=tuple(expressions), match_fields=tuple(fields))
    return NodeSelector(node_selector_terms=(term,))


def _add(known: list[NodeSelectorRequirement], more: Iterable[NodeSelectorRequirement]) -> None:
    known.extend(each for each in more if all(_key(each) != _key(other) for other in known))


def _key(requirement: NodeSelectorRequirement) -> tuple[str, str, frozenset[str]]:
    return requirement.key, requirement.operator, frozenset(requirement.values or ())
