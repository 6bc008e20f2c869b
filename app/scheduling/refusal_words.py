"""The text of the Event about a pod that was turned away: per reason how many nodes, and all details of one of them."""

from collections import OrderedDict
from typing import Final

from app.allocator import Demand
from app.ledger.ledger import Ledger
from app.model.rejection import Code
from app.scheduling.attempt import Attempt, Reason
from app.scheduling.searching import Searching

_REMEMBERED: Final = 200
_MOST_SELECTORS: Final = 2


class RefusalWords:
    """Puts the reasons of a refusal into words; the same state gives the same words.

    Where no device matches, it says what the selectors compared, which searches do not find out for themselves.
    """

    def __init__(self, ledger: Ledger, searching: Searching) -> None:
        self._ledger = ledger
        self._searching = searching
        self._unmet: OrderedDict[tuple[bytes, str, int, str, str], str] = OrderedDict()

    def __call__(self, attempt: Attempt) -> str:
        """E.g. `3 of 3 nodes: claim gpu: request gpu: matching devices are in use: gpu-0 (on node-1)`."""
        reasons = attempt.why()
        total = sum(each.nodes for each in reasons)
        return "; ".join(f"{each.nodes} of {total} nodes: {self._words(each, attempt.demand)}" for each in reasons)

    def _words(self, reason: Reason, demand: Demand | None) -> str:
        rejection = reason.rejection
        text = rejection.text
        if rejection.code is Code.NO_MATCH and demand is not None:
            unmet = self._selectors(reason, demand)
            text = f"{text}: {unmet}" if unmet else text
        return f"{text} (on {reason.example})" if rejection.detail else text

    def _selectors(self, reason: Reason, demand: Demand) -> str:
        """What was false on most devices of the example, e.g. `2 devices: device.attributes[...].model is "A", wanted "B"`."""
        name, rejection = reason.example, reason.rejection
        key = (demand.signature, name, self._ledger.state.of(name), rejection.claim, rejection.request)
        found = self._unmet.get(key)
        if found is None:
            found = self._unmet[key] = self._find(reason, demand)
            if len(self._unmet) > _REMEMBERED:
                self._unmet.popitem(last=False)
        return found

    def _find(self, reason: Reason, demand: Demand) -> str:
        node = self._ledger.nodes.get(reason.example)
        if node is None:
            return ""
        rejection = reason.rejection
        words = [
            f"{refused.devices} {'device' if refused.devices == 1 else 'devices'}: {refused.detail}"
            for request in self._searching.survey(demand, node, self._ledger.usage())
            if (request.claim, request.request) == (rejection.claim, rejection.request)
            for refused in request.refused
            if refused.code is Code.NO_MATCH and refused.detail
        ]
        return ", ".join(words[:_MOST_SELECTORS])
