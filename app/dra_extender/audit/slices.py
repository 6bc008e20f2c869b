"""Slices that contradict each other: pools that the allocator refuses, by its own rule (`allocator.pools`)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from dra_extender.allocator.pools.pools import pool_problem
from dra_extender.audit.findings import AuditFinding, Check, finding
from dra_extender.model.device import PoolId
from dra_extender.model.resource_slice import ResourceSlice

_MOST_TOGETHER: Final = 64
"""Slices for all nodes that are looked at together with those of each node, on average; with more of them they are left out."""


def slice_finding(pool_id: PoolId, published: Sequence[ResourceSlice]) -> AuditFinding | None:
    """The first problem of the pool's newest generation; None if it is complete and its slices agree.

    Two devices of one name contradict each other only where one node can see both.
    """
    newest = max((each.generation for each in published), default=0)
    current = [each for each in published if each.generation == newest]
    for relevant in _seen_together(current):
        problem = pool_problem(pool_id, relevant, lambda _: published)
        if problem:
            return finding(Check.SLICES, f"pool {'/'.join(pool_id)}", problem)
    return None


def _seen_together(current: Sequence[ResourceSlice]) -> Iterator[Sequence[ResourceSlice]]:
    """Slices that one node can see: those of each node, or of each selector, with those for all nodes.

    Selectors that differ may select one node all the same; that is not looked for.
    """
    everywhere = [each for each in current if each.all_nodes]
    groups = _by_scope(current)
    if not groups and everywhere:
        yield everywhere
    if len(groups) * len(everywhere) > len(current) * _MOST_TOGETHER:
        yield everywhere
        everywhere = []
    for found in groups.values():
        yield [*found, *everywhere]


def _by_scope(current: Sequence[ResourceSlice]) -> Mapping[object, Sequence[ResourceSlice]]:
    """The slices that are not for all nodes: by node, by equal selector, and each alone whose devices name their nodes."""
    found: dict[object, list[ResourceSlice]] = {}
    for each in current:
        if each.node_name is not None:
            found.setdefault(("node", each.node_name), []).append(each)
        elif each.node_selector is not None:
            found.setdefault(("selector", repr(each.node_selector)), []).append(each)
        elif not each.all_nodes:
            found.setdefault(("slice", each.name), []).append(each)
    return found
