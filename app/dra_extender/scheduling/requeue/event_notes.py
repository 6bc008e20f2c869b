"""The notes of Events about pods that wait: which reasons keep a pod from how many nodes."""

from collections.abc import Sequence
from typing import Final

from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.explain.selector_reasons import CUT
from dra_extender.allocator.state.reasons import Code
from dra_extender.cel.budget import EXPLANATION_COST, Budget
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.api_json import number_of
from dra_extender.model.pod import Pod
from dra_extender.runtime.caches import LruCache
from dra_extender.scheduling.call_budget import CallBudget
from dra_extender.scheduling.evaluation.filter_result import FURTHER_REASONS, MOST_REASONS, FilterResult, RejectionGroup
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.ports.cluster import NOTE_BYTES, joined_note

_MOST_CACHED: Final = 200
_MOST_SELECTORS: Final = 2
_MOST_DEVICES: Final = 128
_MOST_EXPLAINED: Final = 4
_OVERDRAWN_DIVISOR: Final = 10


class EventNotes:
    """Renders the note about a rejection, at most NOTE_BYTES long; the same state gives the same note.

    Where no device matches, the message says what the selectors compared: searches do not find that out.  All reasons of a
    rejection together cost at most EXPLANATION_COST, and a tenth of it for a namespace whose share of time is overdrawn; the
    message says where it was cut.  The remaining time of the call does not matter.
    """

    def __init__(self, ledger: Ledger, allocator: NodeAllocator) -> None:
        self._ledger = ledger
        self._allocator = allocator
        self._unmet: LruCache[tuple[bytes, str, int, str, str, int], str] = LruCache(_MOST_CACHED)

    def render(self, pod: Pod, result: FilterResult, budget: CallBudget | None = None) -> str:
        """Render e.g. `3 of 3 nodes: claim "gpu", request "gpu": matching devices are in use: gpu-0 (on node-1). More: COMMAND`.

        It names as many reasons as the answer to kube-scheduler.  The cost is charged to `budget`.
        """
        groups = result.why()
        total, reasons = sum(group.nodes for group in groups), groups[:MOST_REASONS]
        allowed = EXPLANATION_COST // (_OVERDRAWN_DIVISOR if budget is not None and budget.overdrawn else 1)
        share = allowed // max(1, min(_MOST_EXPLAINED, sum(map(_has_no_match, reasons))))
        parts = []
        explained = 0
        for reason in reasons:
            text = reason.rejection.text
            if _has_no_match(reason):
                demand = result.demand if explained < _MOST_EXPLAINED else None
                unmet = "" if demand is None else self._unmet_selectors(reason, demand, share, budget)
                text = f"{text}: {unmet}" if unmet else text
                explained += 1
            on = f" (on {reason.example})" if reason.rejection.detail else ""
            parts.append(f"{reason.nodes} of {total} nodes: {text}{on}")
        if further := sum(group.nodes for group in groups[MOST_REASONS:]):
            parts.append(f"{further} of {total} nodes: {FURTHER_REASONS}")
        return with_why_command(parts, pod)

    def _unmet_selectors(self, reason: RejectionGroup, demand: Demand, share: int, budget: Budget | None) -> str:
        """Return what was false on most devices of the example: `2 devices: device.attributes[...].model is "A", wanted "B"`."""
        name, rejection = reason.example, reason.rejection
        key = (
            demand.signature,
            name,
            self._ledger.state_versions.version(name),
            rejection.claim,
            rejection.request,
            share,
        )
        text = self._unmet.get(key)
        if text is None:
            allowance = Budget(share, strict=True)
            text = self._unmet[key] = self._survey(reason, demand, allowance)
            if budget is not None:
                budget.spend(share - allowance.remaining)
        return text

    def _survey(self, reason: RejectionGroup, demand: Demand, allowance: Budget) -> str:
        node = self._ledger.nodes.get(reason.example)
        if node is None:
            return ""
        rejection = reason.rejection
        usage, only = self._ledger.usage(), (rejection.claim, rejection.request)
        surveyed = self._allocator.survey(demand, node, usage, budget=allowance, only=only, limit=_MOST_DEVICES)
        unmet = [
            f"{number_of(refused.devices, 'device')}: {refused.detail}"
            for request in surveyed
            for refused in request.refused
            if refused.code is Code.NO_MATCH and refused.detail
        ]
        skipped = sum(request.skipped for request in surveyed)
        parts = [*unmet[:_MOST_SELECTORS], *([f"{skipped} devices were not looked at"] if skipped else [])]
        return ", ".join(parts) or (CUT if allowance.remaining <= 0 else "")


def with_why_command(parts: Sequence[str], pod: Pod) -> str:
    """Join the parts to a note about a pod that waits, which ends with the command that explains more."""
    more = f". More: kubectl dra why {pod.name} -n {pod.namespace}"
    return joined_note(parts, "; ", NOTE_BYTES - len(more)) + more


def _has_no_match(reason: RejectionGroup) -> bool:
    return reason.rejection.code is Code.NO_MATCH
