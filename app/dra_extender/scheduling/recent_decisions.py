"""The latest decisions of the running extender, as bounded values that can leave the process.

Equal decisions about one pod are one entry with a count, so that a pod that is tried again and again does not drive out the others.
A namespace has a share of the entries: its own oldest go first.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from enum import StrEnum
from itertools import islice
from math import isfinite
from typing import Final

from msgspec.structs import replace

from dra_extender.model.api_json import Value, printable
from dra_extender.model.metadata import Moment

FORMAT: Final = "dra-extender.io/decisions/v1"
DECISIONS_PATH: Final = "/debug/decisions"
MOST_DECISIONS: Final = 256
MOST_OF_A_NAMESPACE: Final = 64
LONGEST_REASON: Final = 400
"""Characters of a reason and of a note; the rest is cut."""
_LONGEST_NAME: Final = 253
_MOST_NOTES: Final = 64


class Outcome(StrEnum):
    """FITS: nodes were offered, or eviction helps on some.  RETRY: nothing was decided, kube-scheduler tries again."""

    FITS = "fits"
    REJECTED = "rejected"
    BOUND = "bound"
    RETRY = "retry"


class Decision(Value, frozen=True, rename=None):
    """A decision about a pod (`namespace/name`), made `times` times from `first` to `last`.

    `node` is the node of the bind, or the first that was offered; `nodes` counts those that fit, or do not if it is REJECTED.
    """

    verb: str
    pod: str
    outcome: Outcome
    first: Moment
    last: Moment
    times: int = 1
    node: str = ""
    nodes: int = 0
    reason: str = ""


class DecisionReport(Value, frozen=True, rename=None):
    """The latest decisions of a replica, the newest first, and what else it says of itself.

    `replica` is its name.  `watches`: seconds since the API server last answered the watch of
    each kind.  `notes`: failed checks and what else `/readyz?verbose` says, by name, such as a second scheduler that allocates.
    """

    format: str
    taken_at: Moment
    leads: bool = True
    replica: str = ""
    watches: tuple[tuple[str, float], ...] = ()
    notes: tuple[tuple[str, str], ...] = ()
    decisions: tuple[Decision, ...] = ()


_Key = tuple[str, str, str, Outcome, str, int, str]
"""Namespace, name, verb, outcome, node, nodes and reason of a decision."""


class RecentDecisions:
    """Keeps at most MOST_DECISIONS different decisions, of one namespace at most MOST_OF_A_NAMESPACE."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._decisions: OrderedDict[_Key, Decision] = OrderedDict()
        self._by_namespace: dict[str, OrderedDict[_Key, None]] = {}

    def note(
        self,
        verb: str,
        namespace: str,
        name: str,
        outcome: Outcome,
        *,
        node: str = "",
        nodes: int = 0,
        reason: str = "",
    ) -> None:
        """Keep a decision; texts are cut."""
        namespace, name, node = namespace[:_LONGEST_NAME], name[:_LONGEST_NAME], node[:_LONGEST_NAME]
        reason, now = reason[:LONGEST_REASON], Moment(self._now())
        key = (namespace, name, verb, outcome, node, nodes, reason)
        earlier = self._decisions.get(key)
        if earlier is not None:
            self._decisions[key] = replace(earlier, last=now, times=earlier.times + 1)
            self._decisions.move_to_end(key)
            self._by_namespace[namespace].move_to_end(key)
            return
        self._decisions[key] = Decision(
            verb=verb,
            pod=f"{namespace}/{name}",
            outcome=outcome,
            first=now,
            last=now,
            node=node,
            nodes=nodes,
            reason=reason,
        )
        keys = self._by_namespace.setdefault(namespace, OrderedDict())
        keys[key] = None
        if len(keys) > MOST_OF_A_NAMESPACE:
            self._forget(next(iter(keys)))
        elif len(self._decisions) > MOST_DECISIONS:
            self._forget(next(iter(self._decisions)))

    def report(
        self, *, leads: bool, replica: str, watches: Mapping[str, float], notes: Mapping[str, str]
    ) -> DecisionReport:
        """Return all decisions that are kept, the newest first; control characters are escaped."""
        return DecisionReport(
            format=FORMAT,
            taken_at=Moment(self._now()),
            leads=leads,
            replica=_shown(replica),
            watches=tuple((kind, age) for kind, age in sorted(watches.items()) if isfinite(age)),
            notes=tuple((name, _shown(text[:LONGEST_REASON])) for name, text in islice(notes.items(), _MOST_NOTES)),
            decisions=tuple(
                replace(decision, pod=_shown(decision.pod), node=_shown(decision.node), reason=_shown(decision.reason))
                for decision in reversed(self._decisions.values())
            ),
        )

    def _forget(self, key: _Key) -> None:
        del self._decisions[key]
        namespace, *_ = key
        keys = self._by_namespace[namespace]
        del keys[key]
        if not keys:
            del self._by_namespace[namespace]


def _shown(text: str) -> str:
    return printable(text.encode(errors="replace").decode())
