"""Pods of other schedulers that could be given a device as soon as that scheduler believes it to be free."""

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import Final, NamedTuple

from dra_extender.allocator.demand.demand import ALL, SearchableRequest
from dra_extender.allocator.demand.selectors import SelectionTimeoutError, SelectorError
from dra_extender.allocator.pools.pools import reaches
from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.node_versions import NodeVersions
from dra_extender.model.api_json import ModelError
from dra_extender.model.device import Device, DeviceId
from dra_extender.model.node import Node
from dra_extender.model.pod import Pod
from dra_extender.model.resource_slice import ResourceSlice
from dra_extender.scheduling.call_budget import CallBudget
from dra_extender.scheduling.claims.extended_need import existing_claim
from dra_extender.scheduling.claims.live_reads import UnreadSpecs
from dra_extender.scheduling.claims.lookup import FoundClaim
from dra_extender.scheduling.claims.pod_claims import find_pod_claims, why_unusable_on
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator

_MOST_PODS: Final = 500
"""The most pods that are looked at; a further one passes for a competitor."""
POD_COST: Final = 400
"""Cost units for a look at one pod and one of its claims, besides those of expressions."""
NODE_COST: Final = 2_000
"""Cost units for a look at one node: a call has 20,000 looks, which take 25 to 120 us each."""
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
"""Rejections that hold for every scheduler.  Any other may be due to this service's own limits and features."""


_UNKNOWN: Final = (-1, False)
_Answers = dict[str, tuple[int, bool]]
"""Answers to one question about nodes, with the version of the node for which each is true."""


class _Published(NamedTuple):
    """A device where a slice publishes it, and the nodes that it reaches."""

    item: ResourceSlice
    position: int
    nodes: Sequence[Node] = ()


class _Reached(NamedTuple):
    """The nodes that a device or slice reaches, at this place in the journal of inventories."""

    where: Device | ResourceSlice
    place: int
    nodes: Sequence[Node]


class Competitors:
    """Finds pods of other schedulers that could be given one of some devices now.

    A pod competes if it has no scheduling gate, is not being deleted, one of its open claims has a request (or alternative) whose
    selectors hold for the device and for as many more as it asks for on a node, and kube-scheduler's own filters let it on a node
    that the device reaches.
    """

    def __init__(self, ledger: Ledger, allocator: NodeAllocator, scheduler_names: Collection[str]) -> None:
        """`scheduler_names`: schedulers that this service serves, besides the one named in `find`."""
        self._ledger = ledger
        self._allocator = allocator
        self._own = frozenset(scheduler_names)

    def find(
        self, devices: Collection[DeviceId], scheduler: str, budget: CallBudget, candidate: Pod | None = None
    ) -> Pod | None:
        """Return a pod of another scheduler that competes for one of these devices; judge `candidate` first.

        The work is charged to `budget`.  A pod that is not judged when the budget is spent passes for a competitor.

        Raises:
            SearchPaused: the slice of time is over.  What was found of pods and nodes is kept for the next look.
        """
        pods = self._ledger.pods
        waiting = pods.waiting_for_devices(self._own | {scheduler})
        first = next(waiting, None)
        if first is None:
            return None
        published = list(self._published(devices, budget))
        if not published:
            return None
        candidate = None if candidate is None else pods.by_uid(candidate.uid)
        if candidate is not None and not candidate.waits_for_node:
            candidate = None
        if budget.seconds_left <= 0:
            return candidate or first
        if candidate is not None and self._competes(candidate, published, budget):
            return candidate
        for pod in islice(chain((first,), waiting), _MOST_PODS):
            if self._competes(pod, published, budget):
                return pod
        return next(waiting, None)

    def _published(self, devices: Collection[DeviceId], budget: CallBudget) -> Iterator[_Published]:
        slices = self._ledger.slices
        for driver, pool, name in sorted(devices):
            for item in slices.of_pool((driver, pool)):
                for position, device in enumerate(item.devices):
                    if device.name == name:
                        where = device if item.per_device_node_selection else item
                        yield _Published(item, position, self._reached(where, slices.nodes_of((driver, pool)), budget))

    def _reached(
        self, where: Device | ResourceSlice, readers: Collection[str] | None, budget: CallBudget
    ) -> Sequence[Node]:
        """Return which of the readers (None: of all nodes) the device or slice reaches; none if its node selector is malformed."""
        nodes, place = self._ledger.nodes, self._ledger.inventory_versions.place
        reached: _Reached | None = budget.answers.get(("reached", id(where)))
        if reached is None or reached.where is not where or reached.place != place:
            candidates = nodes.values() if readers is None else [nodes[name] for name in readers if name in nodes]
            try:
                reached = _Reached(where, place, [node for node in candidates if reaches(where, node)])
            except ModelError:
                reached = _Reached(where, place, ())
            budget.answers["reached", id(where)] = reached
        return reached.nodes

    def _competes(self, pod: Pod, published: Sequence[_Published], budget: CallBudget) -> bool:
        """Return whether the pod competes for one of the devices, or if the budget is spent."""
        budget.spend(POD_COST * max(1, len(pod.claims)))
        if budget.remaining <= 0:
            return True
        ledger = self._ledger
        if pod.gates:
            return False
        asked = find_pod_claims(pod, ledger)
        if isinstance(asked, Rejection):
            return asked.code not in _NOT_NOW
        need = None if existing_claim(pod, ledger) is not None else asked.need
        undecided = (*asked.held, *asked.open)
        if need is None:
            published = [device for device in published if self._may_serve(undecided, device, budget)]
        if not published or ledger.member_fit.refusal(pod.uid, budget):
            return False
        known = _answers_to(ledger.member_fit.digest(pod.uid), budget)
        for device in published:
            for node in device.nodes:
                if not self._admits(pod, node, asked.allocated, known, budget):
                    continue
                if need is None:
                    return True
                claim_need = need.on(node)
                if isinstance(claim_need, Rejection):
                    continue
                claims_on_node = undecided if claim_need is None else (*undecided, claim_need.claim)
                if self._may_serve(claims_on_node, device, budget):
                    return True
        return False

    def _admits(
        self, pod: Pod, node: Node, allocated: Sequence[FoundClaim], known: _Answers, budget: CallBudget
    ) -> bool:
        """Return whether the pod may run on the node, or if the budget is spent."""
        ledger = self._ledger
        if not _look(node, ledger.node_versions, known, budget, lambda: ledger.member_fit.admits(pod.uid, node.name)):
            return False
        refusals = (why_unusable_on(node, claim, ledger) for claim in allocated)
        return not any(refusal is not None and refusal.code is Code.CLAIM_ON_OTHER_NODE for refusal in refusals)

    def _may_serve(self, claims: tuple[FoundClaim, ...], published: _Published, budget: CallBudget) -> bool:
        """Return whether the device may serve one of these open claims; also if a spec is not read or a selector times out."""
        if not claims:
            return False
        try:
            demand = self._allocator.demand(claims, budget)
            if isinstance(demand, UnreadSpecs):
                return True
            if isinstance(demand, Rejection):
                return demand.code not in _NOT_NOW
            options = (option for claim in demand.claims for request in claim.requests for option in request.options)
            return any(
                not option.admin and _selects(option, published, budget) and self._suffices(option, published, budget)
                for option in options
            )
        except SelectionTimeoutError:
            return True

    def _suffices(self, option: SearchableRequest, published: _Published, budget: CallBudget) -> bool:
        """Return whether some node that the device reaches has as many devices, free or not, as the request asks for."""
        if option.count in (1, ALL) or published.item.devices[published.position].allow_multiple_allocations:
            return True
        inventory, known = self._ledger.inventory_versions, _answers_to(option, budget)
        return any(
            _look(node, inventory, known, budget, partial(self._has_enough, option, node, budget))
            for node in published.nodes
        )

    def _has_enough(self, option: SearchableRequest, node: Node, budget: CallBudget) -> bool:
        slices, lacking = self._ledger.slices, option.count
        for item in chain(slices.local(node.name), slices.near(node)):
            for position, device in enumerate(item.devices):
                if _selects(option, _Published(item, position), budget):
                    lacking = 0 if device.allow_multiple_allocations else lacking - 1
                    if lacking <= 0:
                        return True
        return False


def _answers_to(question: Hashable, budget: CallBudget) -> _Answers:
    """Return the answers to a question about nodes that were found in this call, to which further ones are added."""
    answers: _Answers = budget.answers.setdefault(("about nodes", question), {})
    return answers


def _look(node: Node, versions: NodeVersions, known: _Answers, budget: CallBudget, answer: Callable[[], bool]) -> bool:
    """Return the known answer for this version of the node, otherwise find it; True if the budget is spent.

    Raises:
        SearchPaused: the slice of time is over.
    """
    version = versions.version(node.name)
    known_version, is_true = known.get(node.name, _UNKNOWN)
    if known_version != version:
        if budget():
            return True
        budget.spend(NODE_COST)
        is_true = answer()
        known[node.name] = version, is_true
    return is_true


def _selects(option: SearchableRequest, published: _Published, budget: CallBudget) -> bool:
    """Return whether the request selects the device; one whose selector fails on it cannot be given it.

    Raises:
        SelectionTimeoutError: the budget is spent.
    """
    if option.selectors.is_empty:
        return True
    try:
        return option.selectors.row(published.item).matches(published.item, published.position, budget)
    except SelectorError:
        return False
