"""Placement of a claim: the allocation that is written for a solution, and what it takes out of the pools."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from dra_extender.allocator.demand.demand import ClaimDemand, SearchableRequest
from dra_extender.allocator.pools.pools import NodePools
from dra_extender.allocator.rules.capacity import amount_text
from dra_extender.allocator.rules.held_devices import binds_to_node_now, frozen_view
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.search_state import Pick
from dra_extender.allocator.state.reasons import Code, Rejection, SearchEndedError
from dra_extender.model.allocation import (
    AllocationConfiguration,
    AllocationResult,
    ClaimPlacement,
    DeviceAllocation,
    DeviceHolding,
    DeviceResult,
    node_of,
)
from dra_extender.model.node_selector import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, only_node

MAX_CONFIGURATIONS: Final = 64
"""Entries that an API server accepts in one allocation."""


def claim_placement(
    claim: ClaimDemand,
    chosen: Sequence[SearchableRequest],
    picks: Sequence[Pick],
    node_view: NodeView,
    new_share_id: Callable[[], str],
) -> ClaimPlacement:
    """Return the allocation of a claim and its holdings: devices in the order picked; request i is served by option `chosen[i]`.

    The search ends if node selectors cannot be combined, or if no API server stores so much configuration.
    """
    node_selector = _node_selector(claim.label, node_view, picks)
    share_ids = [new_share_id() if pick.share is not None else None for pick in picks]
    devices = DeviceAllocation(
        results=tuple(
            _result(pick, share_id, node_view.pools) for pick, share_id in zip(picks, share_ids, strict=True)
        ),
        config=configuration(claim, chosen),
    )
    allocation = AllocationResult(devices=devices, node_selector=node_selector)
    node = node_of(allocation) if any(share_ids) else None
    return ClaimPlacement(
        allocation=allocation,
        holdings=tuple(
            _holding(pick, share_id, node_view, node) for pick, share_id in zip(picks, share_ids, strict=True)
        ),
    )


def _result(pick: Pick, share_id: str | None, pools: NodePools) -> DeviceResult:
    device, published = pools.devices[pick.location], pools.views[pick.location].published
    conditions = pools.features.device_binding_and_status
    return DeviceResult(
        request=pick.option.name,
        driver=published.driver,
        pool=published.pool,
        device=device.name,
        admin_access=True if pick.option.admin else None,
        tolerations=pick.option.tolerations,
        share_id=share_id,
        consumed_capacity={
            name: amount_text(amount, capacity.text)
            for (name, capacity), amount in zip(device.capacity, pick.share, strict=True)
        }
        if pick.share
        else None,
        binding_conditions=device.binding_conditions if conditions else None,
        binding_failure_conditions=device.binding_failure_conditions if conditions else None,
        skip_node_operations=published.skip_node_operations,
    )


def _holding(pick: Pick, share_id: str | None, node_view: NodeView, node: str | None) -> DeviceHolding:
    pools, location = node_view.pools, pick.location
    device, published = pools.devices[location], pools.views[location].published
    holdings = () if share_id is None else node_view.holdings(location)
    snapshot = frozen_view(holdings, device)
    is_share = share_id is not None and not pick.option.admin
    return DeviceHolding(
        driver=published.driver,
        pool=published.pool,
        device=device.name,
        share_id=share_id,
        admin=pick.option.admin,
        consumption=snapshot.consumption,
        compatible_only_with=snapshot.compatible_only_with,
        neighbours_on=snapshot.neighbours_on,
        sources=snapshot.sources,
        consumed_capacity=tuple((name, amount) for (name, _), amount in zip(device.capacity, pick.share, strict=True))
        if pick.share
        else (),
        node=node if is_share else None,
        binds_to_node=is_share
        and ((node_view.binds_devices and binds_to_node_now(published, device)) or _joins_bound(pick, node_view)),
    )


def _joins_bound(pick: Pick, node_view: NodeView) -> bool:
    """Return whether the pick is a further share of a device that allocated shares bind to this node."""
    if pick.share is None or pick.option.admin:
        return False
    return node_view.pools.node in node_view.bound_nodes(pick.location)


def configuration(claim: ClaimDemand, chosen: Sequence[SearchableRequest]) -> tuple[AllocationConfiguration, ...]:
    """Return the entries for a claim whose request i was served by option `chosen[i]`.

    Each class appears once, with the names of all requests that use it.  An entry of the claim is kept if it is meant for
    all requests, or names a request or a chosen alternative.  An entry that covers every request loses its list.
    """
    config = claim.claim.spec.devices.config
    if not config and not any(option.device_class.spec.config for option in chosen):
        return ()
    names_of_class: dict[str, list[str]] = {}
    for option in chosen:
        names_of_class.setdefault(option.device_class.name, []).append(option.name)
    classes = {option.device_class.name: option.device_class for option in chosen}
    entries = [
        AllocationConfiguration(source="FromClass", requests=tuple(names), opaque=configuration.opaque)
        for class_name, names in names_of_class.items()
        for configuration in classes[class_name].spec.config
    ]
    served = {request.name for request in claim.requests} | {option.name for option in chosen}
    entries += [
        AllocationConfiguration(source="FromClaim", requests=configuration.requests, opaque=configuration.opaque)
        for configuration in config
        if not configuration.requests or not served.isdisjoint(configuration.requests)
    ]
    if len(entries) > MAX_CONFIGURATIONS:
        detail = (
            f"classes and claim configure it {len(entries)} times, an API server stores {MAX_CONFIGURATIONS} at most"
        )
        raise SearchEndedError(Rejection(code=Code.REQUEST_UNSUPPORTED, claim=claim.label, detail=detail))
    return tuple(
        AllocationConfiguration(source=entry.source, opaque=entry.opaque)
        if entry.requests
        and all(
            request.name in entry.requests or option.name in entry.requests
            for request, option in zip(claim.requests, chosen, strict=True)
        )
        else entry
        for entry in entries
    )


def _node_selector(claim_label: str, node_view: NodeView, picks: Iterable[Pick]) -> NodeSelector | None:
    """Return the nodes that can use an allocation of these devices; None means all.

    A device that is local to a node, is bound to it by other shares, or binds to it, pins the allocation to this node.  Otherwise
    one term has the requirements of all devices, each once.
    """
    pools = node_view.pools
    expressions: list[NodeSelectorRequirement] = []
    fields: list[NodeSelectorRequirement] = []
    for pick in picks:
        device, published = pools.devices[pick.location], pools.views[pick.location].published
        selecting = device if published.per_device_node_selection else published
        if selecting.node_name or (node_view.binds_devices and device.binds_to_node) or _joins_bound(pick, node_view):
            return only_node(pools.node)
        terms = selecting.node_selector.node_selector_terms if selecting.node_selector is not None else ()
        if len(terms) > 1:
            detail = f"device {device.name} has a node selector with {len(terms)} terms, only one can be used"
            raise SearchEndedError(Rejection(code=Code.REQUEST_UNSUPPORTED, claim=claim_label, detail=detail))
        for term in terms:
            _add_requirements(expressions, term.match_expressions)
            _add_requirements(fields, term.match_fields)
    if not expressions and not fields:
        return None
    term = NodeSelectorTerm(match_expressions=tuple(expressions), match_fields=tuple(fields))
    return NodeSelector(node_selector_terms=(term,))


def _add_requirements(requirements: list[NodeSelectorRequirement], added: Iterable[NodeSelectorRequirement]) -> None:
    """Add those that are not among the requirements yet, whatever the order of their values."""
    keys = {_key(requirement) for requirement in requirements}
    for requirement in added:
        if _key(requirement) not in keys:
            keys.add(_key(requirement))
            requirements.append(requirement)


def _key(requirement: NodeSelectorRequirement) -> tuple[str, str, frozenset[str]]:
    return requirement.key, requirement.operator, frozenset(requirement.values or ())
