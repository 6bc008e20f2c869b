"""What `inspection` answers about one state of a cluster, each answer made when it is first asked for."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Final

from dra_extender.inspection.audit_report import AuditReport, audit_report
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.devices import DevicesReport, devices_report
from dra_extender.inspection.extender_view import ExtenderView
from dra_extender.inspection.unread import UnreadKindsError, require, require_any
from dra_extender.inspection.why.report import WhyReport
from dra_extender.inspection.why.waiting import WaitingReport, waiting
from dra_extender.inspection.why.why import why
from dra_extender.page.map_view import DriverTotal, device_totals
from dra_extender.runtime.caches import LruCache

_NO_EXTENDER: Final = ExtenderView(None)
_MOST_ANSWERS: Final = 256
EVALUATED_IN_A_ROUND: Final = 25_000
"""Nodes that are evaluated for pods that wait before an answer is given; what was evaluated is known in the next round."""


class Reports:
    """Answers about one state.  The methods are not to be called by two threads at once.

    `generation` counts the states that the page has shown; `live`: whether further states may come.
    """

    def __init__(
        self,
        view: ClusterView,
        generation: int = 1,
        *,
        live: bool = False,
        problems: Sequence[str] = (),
        contact_ages: Callable[[], Mapping[str, float]] = dict,
        extender: Callable[[], ExtenderView] = lambda: _NO_EXTENDER,
    ) -> None:
        """`problems`, `contact_ages` and `extender` as in FollowedCluster."""
        self.extender = extender
        self.view = view
        self.generation = generation
        self.live = live
        self.problems = tuple(problems)
        self.contact_ages = contact_ages
        self._answers: LruCache[tuple[str, str], WhyReport] = LruCache(_MOST_ANSWERS)
        self._waiting: tuple[int, WaitingReport] | None = None

    @cached_property
    def devices(self) -> DevicesReport:
        """All pools."""
        return devices_report(self.view)

    @cached_property
    def totals(self) -> tuple[DriverTotal, ...]:
        """All devices of each driver."""
        return device_totals(self.devices)

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """The names of all nodes.

        Raises:
            UnreadKindsError: nodes could not be read.
        """
        require(self.view.origin, {"nodes"})
        return tuple(sorted(self.view.ledger.nodes))

    def node(self, name: str) -> DevicesReport:
        """The pools that a node can use.

        Raises:
            UnknownNodeError: the node does not exist.
        """
        return devices_report(self.view, name)

    @cached_property
    def audit(self) -> AuditReport:
        """Whether the cluster is sound."""
        return audit_report(self.view)

    def waiting(self, round_number: int) -> WaitingReport:
        """The pods that wait by cause, as far as can be said after this round of looking at them (from 1)."""
        if self._waiting is None or self._waiting[0] != round_number:
            found = waiting(self.view, most_evaluated=EVALUATED_IN_A_ROUND * round_number)
            self._waiting = (round_number, found)
        return self._waiting[1]

    def prepare(self) -> None:
        """Find out what the first view shows, before it is asked for.

        Raises:
            UnreadKindsError: nothing could be read at all.
        """
        require_any(self.view.origin)
        with suppress(UnreadKindsError):
            self.waiting(1)

    def knows_why(self, namespace: str, name: str) -> bool:
        """Whether `why` has the answer for this pod already."""
        return (namespace, name) in self._answers

    def why(self, namespace: str, name: str) -> WhyReport:
        """Why a pod waits.

        Raises:
            UnknownPodError: there is no such pod.
        """
        key = (namespace, name)
        found = self._answers.get(key)
        if found is None:
            found = self._answers[key] = why(self.view, namespace, name)
        return found
