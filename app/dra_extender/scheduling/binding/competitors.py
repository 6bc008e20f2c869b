"""Pods of other schedulers that could be given a device as soon as that scheduler believes it to be free."""

from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from dra_extender.allocator.demand.demand import SearchableRequest
from dra_extender.allocator.demand.selectors import SelectorError
from dra_extender.allocator.pools.node_match import reaches
from dra_extender.allocator.state.rejection import Code, Rejection
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.state.claim_record import SpecNotKeptError
from dra_extender.model.api_json import ModelError
from dra_extender.model.device import DeviceId
from dra_extender.model.node import Node
from dra_extender.model.pod import Pod
from dra_extender.model.resource_slice import ResourceSlice
from dra_extender.scheduling.claims.lookup import FoundClaim, find_claims
from dra_extender.scheduling.claims.preconditions import fully_reserved, sort_claims, useless_on
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.extended_resources.need import ExtendedNeed, existing_claim, extended_need

_MOST_PODS: Final = 500
"""How many pods are looked at; a further one passes for a competitor."""
_NOT_NOW: Final = frozenset(
    {
        Code.CLAIM_NOT_CREATED,
        Code.CLAIM_MISSING,
        Code.CLAIM_DELETING,
        Code.CLAIM_FULLY_RESERVED,
        Code.CLASS_MISSING,
        Code.POD_GROUP_MISSING,
    }
)
"""What keeps every scheduler from placing the pod.  Any other rejection may be due to this service's own limits and features."""


class _Published(NamedTuple):
    """A device where a slice publishes it, and the nodes that it reaches."""

    item: ResourceSlice
    position: int
    nodes: Sequence[Node]


class Competitors:
    """Finds pods of other schedulers that could be given one of some devices now.

    A pod competes if it has no scheduling gate, is not being deleted, one of its open claims has a request (or alternative) whose
    selectors hold for the device, and kube-scheduler's own filters let it on a node that the device reaches.
    """

    def __init__(self, ledger: Ledger, allocator: NodeAllocator, scheduler_names: Collection[str]) -> None:
        """`scheduler_names`: schedulers that this service serves, besides that of the pod in question."""
        self._ledger = ledger
        self._allocator = allocator
        self._own = frozenset(scheduler_names)

    def find(self, devices: Collection[DeviceId], pod: Pod, known: Pod | None = None) -> Pod | None:
        """Return a pod that competes for one of these devices, which a claim of `pod` has; `known` is looked at first."""
        published = [each for device in sorted(devices) for each in self._published(device)]
        if not published:
            return None
        pods = self._ledger.pods
        still_known = None if known is None else pods.by_uid(known.uid)
        if still_known is not None and pods.needs_node(still_known) and self._competes(still_known, published):
            return still_known
        waiting = pods.waiting_for_devices(self._own | {pod.scheduler_name})
        for other in islice(waiting, _MOST_PODS):
            if self._competes(other, published):
                return other
        return next(waiting, None)

    def _published(self, device: DeviceId) -> Iterator[_Published]:
        driver, pool, name = device
        pool_id = (driver, pool)
        names = self._ledger.slices.nodes_of(pool_id)
        nodes = [node for node in self._ledger.nodes.values() if names is None or node.name in names]
        for item in self._ledger.slices.of_pool(pool_id):
            for position, each in enumerate(item.devices):
                if each.name == name:
                    where = each if item.per_device_node_selection else item
                    try:
                        yield _Published(item, position, [node for node in nodes if reaches(where, node)])
                    except ModelError:
                        continue

    def _competes(self, pod: Pod, published: Sequence[_Published]) -> bool:
        ledger = self._ledger
        if pod.gates or ledger.member_fit.refusal(pod.uid):
            return False
        found = find_claims(pod, ledger)
        refusal = found if isinstance(found, Rejection) else fully_reserved(found, ledger)
        if refusal is not None or isinstance(found, Rejection):
            return refusal is not None and refusal.code not in _NOT_NOW
        claims = sort_claims(found, ledger)
        need = None if existing_claim(pod, ledger) is not None else extended_need(pod, ledger)
        undecided = (*claims.held, *claims.open)
        return any(
            ledger.member_fit.admits(pod.uid, node.name)
            and not any(self._is_elsewhere(node, each) for each in claims.allocated)
            and self._asks_on(node, undecided, need, each)
            for each in published
            for node in each.nodes
        )

    def _is_elsewhere(self, node: Node, found: FoundClaim) -> bool:
        refusal = useless_on(node, found, self._ledger)
        return refusal is not None and refusal.code is Code.CLAIM_ON_OTHER_NODE

    def _asks_on(
        self, node: Node, undecided: tuple[FoundClaim, ...], need: ExtendedNeed | None, published: _Published
    ) -> bool:
        """Whether the pod, on this node, has an open claim that the device may serve."""
        special = None if need is None else need.on(node)
        if isinstance(special, Rejection):
            return False
        claims = undecided if special is None else (*undecided, special.found)
        if not claims:
            return False
        try:
            demand = self._allocator.demand(claims)
        except SpecNotKeptError:
            return True
        if isinstance(demand, Rejection):
            return demand.code not in _NOT_NOW
        options = (option for claim in demand.claims for request in claim.requests for option in request.options)
        return any(not option.admin and _selects(option, published) for option in options)


def _selects(option: SearchableRequest, published: _Published) -> bool:
    """Return whether the request selects the device; one whose selector fails on it cannot be given it."""
    if option.selectors.is_empty:
        return True
    try:
        return option.selectors.row(published.item).matches(published.item, published.position, None)
    except SelectorError:
        return False
