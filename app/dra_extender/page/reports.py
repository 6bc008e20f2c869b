"""What `inspection` answers about one state of a cluster, each answer made when it is first asked for."""

from collections.abc import Sequence
from functools import cached_property
from typing import Final

from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.devices import DevicesReport, devices_report
from dra_extender.inspection.why.report import WhyReport
from dra_extender.inspection.why.why import why
from dra_extender.page.map_view import DriverTotal, device_totals
from dra_extender.runtime.caches import LruCache

_MOST_ANSWERS: Final = 64


class Reports:
    """Answers about one state.  The methods are not to be called by two threads at once.

    `generation` counts the states that the page has shown; `live`: whether further states may come.
    """

    def __init__(
        self, view: ClusterView, generation: int = 1, *, live: bool = False, problems: Sequence[str] = ()
    ) -> None:
        self.view = view
        self.generation = generation
        self.live = live
        self.problems = tuple(problems)
        self._answers: LruCache[tuple[str, str], WhyReport] = LruCache(_MOST_ANSWERS)

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
        """The names of all nodes."""
        return tuple(sorted(self.view.ledger.nodes))

    def node(self, name: str) -> DevicesReport:
        """The pools that a node can use.

        Raises:
            UnknownNodeError: the node does not exist.
        """
        return devices_report(self.view, name)

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
