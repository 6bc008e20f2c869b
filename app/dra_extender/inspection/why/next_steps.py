"""What would help against one reason: changes that are tried before they are named, and advice where nothing can be tried."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from dra_extender.allocator.explain.device_messages import taint_text
from dra_extender.allocator.explain.selector_reasons import UnmetSelectors
from dra_extender.allocator.rules.eligibility import untolerated_taints
from dra_extender.allocator.state.reasons import Code
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.objects import unread
from dra_extender.inspection.why.advice import advice
from dra_extender.inspection.why.changes import ENDS, ClaimChanges, ProposedChange
from dra_extender.inspection.why.nearest import NearestDevices
from dra_extender.inspection.why.report import DEVICES_AND_NODES, HolderShare, NextStep
from dra_extender.inspection.why.request_edits import HELD, ReasonFacts, RequestEdits
from dra_extender.inspection.why.trials import EndCost, EndedHolders, Trials
from dra_extender.model.pod import Pod
from dra_extender.scheduling.claims.extended_need import EXTENDED_LABEL
from dra_extender.simulator.apiserver.objects import StoredKind

_CHEAP: Final = EndCost(forbidden=False, holders=1, priority=0)
_MOST_NODES: Final = 4
"""Nodes on which the end of all holders is tried."""
_MOST_OF_A_WAY: Final = 2
_MOST_TRIED: Final = 6
"""Changes of one way that are tried for a gang."""
_OF_POOLS: Final = frozenset({Code.POOL_INCOMPLETE, Code.POOL_INVALID})
_SPELT: Final = frozenset(
    {
        Code.SELECTOR_INVALID,
        Code.SELECTOR_FAILED,
        Code.NO_MATCH,
        Code.NO_DEVICES,
        Code.CLAIM_MISSING,
        Code.CLAIM_NOT_CREATED,
        Code.POD_GROUP_MISSING,
    }
)
"""Reasons for which a name may be misspelt; where another name was tried and helps, nothing more is advised."""


class NextSteps:
    """Looks for changes that help one pod."""

    def __init__(
        self, view: ClusterView, pod: Pod, nearest: NearestDevices, trials: Trials, *, names_pod: bool = False
    ) -> None:
        """`names_pod`: what is to be changed of the pod's own begins with its name."""
        self._view = view
        self._pod = pod
        self._nearest = nearest
        self._budget = view.budget()
        self._claims = ClaimChanges(view, pod, names_pod=names_pod)
        self._begin = f"{pod.name}: " if names_pod else ""
        self._edits = RequestEdits(view, pod, self._claims, nearest)
        self._trials = trials
        self._ends = EndedHolders(self._trials, self._claims)

    def steps_against(self, facts: ReasonFacts) -> Iterator[NextStep]:
        """Yield, for each way to help, the smallest change after which the pod fits on some of these nodes."""
        near = [facts.reason.nearest.node] if facts.reason.nearest is not None else []
        near += [candidate.node for candidate in facts.candidates]
        near += [facts.reason.count.node] if facts.reason.count is not None else []
        nodes, helped = tuple(dict.fromkeys((*near, *facts.nodes))), False
        for way in self._edits.against(facts):
            changes = list(islice(way, _MOST_TRIED)) if self._trials.of_gang else way
            step = self._trials.first_that_helps(changes, nodes)
            if step is None and self._trials.of_gang:
                step = self._trials.first_that_helps(map(self._claims.of_all_members, changes), nodes)
            if step is not None:
                helped = True
                yield step
        advised = advice(self._view, self._pod, facts.rejection, facts.reason.pool)
        if advised and facts.rejection.code not in _OF_POOLS:
            advised = self._begin + advised
        advised = advised or self._absent_driver(facts) or self._claim_instead(facts)
        if advised and not (helped and facts.rejection.code in _SPELT):
            yield NextStep(text=advised, harmful=advised.startswith(ENDS))
        if facts.rejection.code in HELD:
            step = self._ended(facts, nodes)
            # To end pods hurts: it is no advice where it is known that the pod may not use the nodes all the same.
            if step is not None and (step.verified == DEVICES_AND_NODES or self._view.node_fit is None):
                yield step

    def ends(self, facts: ReasonFacts) -> Iterator[ProposedChange]:
        """Yield the end of each holder of the nearest device, whether or not it is enough."""
        if facts.rejection.code in HELD and facts.reason.nearest is not None:
            for share in facts.reason.nearest.holders:
                ended = self._claims.ended([share.holder]) if self._claims.can_be_ended(share.holder) else None
                if ended is not None:
                    yield ended

    def edits(self, facts: ReasonFacts) -> Iterator[ProposedChange]:
        """Yield the first changes of each other way to help, whether or not they are enough."""
        for way in self._edits.against(facts):
            for change in islice(way, _MOST_OF_A_WAY):
                if change is not None:
                    yield change

    def respelled(self, facts: ReasonFacts) -> ProposedChange | None:
        """Return the claim with the names that were meant by misspelt ones."""
        return self._edits.respelled(facts)

    def _absent_driver(self, facts: ReasonFacts) -> str:
        """Advise a look at the driver that the request needs, if it publishes nothing in the whole cluster."""
        option = facts.option if facts.rejection.code in (Code.NO_MATCH, Code.NO_DEVICES) else None
        driver = None if option is None else UnmetSelectors(option.selectors, self._budget).driver
        drivers = {published.driver for published in self._view.ledger.slices.by_name.values()}
        if driver is None or driver in drivers or unread(self._view.origin, {StoredKind.SLICE}):
            return ""
        return f"check driver {driver}, which publishes no devices"

    def _claim_instead(self, facts: ReasonFacts) -> str:
        """Advise a claim in the place of an extended resource, with which a pod tolerates no taint of a device."""
        nearest, option = facts.reason.nearest, facts.option
        if facts.rejection.code is not Code.TAINTED or facts.rejection.claim != EXTENDED_LABEL or nearest is None:
            return ""
        device = self._nearest.published_nearest(nearest)
        if device is None or option is None:
            return ""
        taints = ", ".join(map(taint_text, untolerated_taints(device.taints, option.tolerations)))
        name = option.device_class.name
        return f"ask for DeviceClass {name} with a ResourceClaim that tolerates {taints}: an extended resource tolerates no taint"

    def _ended(self, facts: ReasonFacts, nodes: Sequence[str]) -> NextStep | None:
        """Return the end of as few holders as possible on one of the nearest nodes; for a gang, on all nodes."""
        if self._trials.of_gang:
            in_the_way = self._in_the_way(facts, [diagnosis.node.name for diagnosis in facts.diagnoses])
            everywhere = self._ends.fewest(in_the_way, nodes)
            return None if everywhere is None else everywhere[0]
        nearest = facts.reason.nearest
        best = None if nearest is None else self._ends.fewest(nearest.holders, nodes)
        for name in self._nearest_to_end(facts, nodes):
            shares = tuple(self._in_the_way(facts, [name]))
            if best is not None and best[1] <= _CHEAP and (not best[1].holders or not _some_leave(shares)):
                continue
            end_on_node = self._ends.fewest(shares, [name])
            if end_on_node is not None and (best is None or end_on_node[1] < best[1]):
                best = end_on_node
        return None if best is None else best[0]

    def _nearest_to_end(self, facts: ReasonFacts, nodes: Sequence[str]) -> Sequence[str]:
        """Return the nodes on which it is tried to end what is in the way.

        The nearest node comes first, then nodes that a holder leaves by itself, then those with the fewest and least holders.
        """
        ranks: list[tuple[bool, int, int, str]] = []
        for diagnosis in facts.diagnoses:
            shares = self._nearest.holders_on(diagnosis)
            staying = [share.holder for share in shares if not share.holder.leaving]
            priority = max(map(self._claims.priority, staying), default=0)
            if shares:
                ranks.append((not _some_leave(shares), len(staying), priority, diagnosis.node.name))
        return tuple(dict.fromkeys((*nodes[:1], *(name for *_, name in sorted(ranks)))))[:_MOST_NODES]

    def _in_the_way(self, facts: ReasonFacts, nodes: Sequence[str]) -> Iterator[HolderShare]:
        """Yield the holders of what any request of the pod needs on these nodes."""
        if facts.demand is not None:
            for claim in facts.demand.claims:
                for option in (option for request in claim.requests for option in request.options):
                    for diagnosis in self._nearest.diagnose(facts.demand, (claim.label, option.name), nodes):
                        yield from self._nearest.holders_on(diagnosis)


def _some_leave(shares: Iterable[HolderShare]) -> bool:
    return any(share.holder.leaving for share in shares)
