"""From a solution to the allocation that is written: results, configuration, node selector, and what the devices hold."""

from collections.abc import Callable, Iterable, Sequence

from dra_extender.allocator.demand.demand import ClaimDemand, SearchableRequest
from dra_extender.allocator.placement.config import configuration
from dra_extender.allocator.placement.node_selector import UnsupportedSelectorError, selector_for
from dra_extender.allocator.pools.pools import NodePools
from dra_extender.allocator.rules.capacity import amount_text
from dra_extender.allocator.rules.held_consumption import frozen_view
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.search_state import Pick
from dra_extender.allocator.state.result import SearchEndedError
from dra_extender.model.allocation import (
    AllocationResult,
    ClaimPlacement,
    DeviceAllocation,
    DeviceHolding,
    DeviceResult,
)
from dra_extender.model.device import Device, DeviceCapacity
from dra_extender.model.rejection import Code, Rejection


def claim_placement(
    claim: ClaimDemand,
    chosen: Sequence[SearchableRequest],
    picks: Sequence[Pick],
    node_view: NodeView,
    new_share_id: Callable[[], str],
    *,
    binds: bool = True,
) -> ClaimPlacement:
    """The allocation of a claim and its holdings: devices in the order picked; request i is served by option `chosen[i]`.

    Without `binds`, `bindsToNode` of devices is ignored.

    Raises:
        SearchEndedError: the devices are reachable through node selectors that cannot be combined, or no API server stores so much
            configuration.
    """
    pools = node_view.pools
    try:
        node_selector = selector_for(pools, [pick.location for pick in picks], binds=binds)
    except UnsupportedSelectorError as problem:
        raise SearchEndedError(
            Rejection(code=Code.REQUEST_UNSUPPORTED, claim=claim.label, detail=str(problem))
        ) from problem
    share_ids = [new_share_id() if pick.share is not None else None for pick in picks]
    devices = DeviceAllocation(
        results=tuple(_result(pick, share_id, pools) for pick, share_id in zip(picks, share_ids, strict=True)),
        config=configuration(claim, chosen),
    )
    return ClaimPlacement(
        allocation=AllocationResult(devices=devices, node_selector=node_selector),
        holdings=tuple(_holding(pick, share_id, node_view) for pick, share_id in zip(picks, share_ids, strict=True)),
    )


def _result(pick: Pick, share_id: str | None, pools: NodePools) -> DeviceResult:
    device, published = pools.devices[pick.location], pools.views[pick.location].published
    conditions = pools.features.device_binding_and_status
    return DeviceResult(
        request=pick.wanted.name,
        driver=published.driver,
        pool=published.pool,
        device=device.name,
        admin_access=True if pick.wanted.admin else None,
        tolerations=pick.wanted.tolerations,
        share_id=share_id,
        consumed_capacity=_consumed_text(pick, device) if pick.share else None,
        binding_conditions=device.binding_conditions if conditions else None,
        binding_failure_conditions=device.binding_failure_conditions if conditions else None,
        skip_node_operations=published.skip_node_operations,
    )


def _holding(pick: Pick, share_id: str | None, node_view: NodeView) -> DeviceHolding:
    pools, location = node_view.pools, pick.location
    device, published = pools.devices[location], pools.views[location].published
    held = node_view.holdings(location) if share_id is not None and node_view.rules.shares_keep_snapshot else ()
    frozen = frozen_view(held, device) if held else None
    return DeviceHolding(
        driver=published.driver,
        pool=published.pool,
        device=device.name,
        share_id=share_id,
        admin=pick.wanted.admin,
        consumption=device.consumes_counters if frozen is None else frozen.consumption,
        compatible_only_with=device.compatible_only_with if frozen is None else frozen.compatible_only_with,
        neighbours_on=device.neighbours_on if frozen is None else frozen.neighbours_on,
        sources=device.sources if frozen is None else frozen.sources,
        consumed_capacity=tuple((name, amount) for (name, _), amount in _consumed(pick, device)),
    )


def _consumed(pick: Pick, device: Device) -> Iterable[tuple[tuple[str, DeviceCapacity], int]]:
    return zip(device.capacity, pick.share, strict=True) if pick.share is not None else ()


def _consumed_text(pick: Pick, device: Device) -> dict[str, str]:
    return {name: amount_text(amount, capacity.text) for (name, capacity), amount in _consumed(pick, device)}
