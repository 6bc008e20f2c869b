"""The states of a cluster that the page shows: one from a snapshot, or a new one after each change of a running cluster."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from time import monotonic
from typing import Final, NamedTuple

import structlog

from dra_extender.inspection.audit.report import AuditReport, audit_report
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.devices import DevicesReport, devices_report
from dra_extender.inspection.objects import ClusterObjects, UnreadKindsError, require, require_any
from dra_extender.inspection.running_cluster import ExtenderView, FollowedCluster
from dra_extender.inspection.why.report import WhyReport
from dra_extender.inspection.why.waiting import WaitingReport, waiting
from dra_extender.inspection.why.why import why
from dra_extender.page.devices_view import ClassDevices, KindTotal, PoolStates, class_totals, driver_totals, pool_states
from dra_extender.runtime.caches import LruCache

_NO_EXTENDER: Final = ExtenderView(None)
_MOST_ANSWERS: Final = 256
_PERCENT: Final = 100
EVALUATED_IN_A_ROUND: Final = 25_000
"""Nodes that are evaluated for pods that wait before an answer is given; what was evaluated is known in the next round."""


KEPT_SECONDS: Final = 3_600.0
MOST_POINTS: Final = 120
_SPACING: Final = KEPT_SECONDS / MOST_POINTS


class Point(NamedTuple):
    """A moment (seconds since the epoch): the percentage of devices that are in use, and the pods that wait; None if not known."""

    at: float
    in_use: float | None
    waiting: int | None


class History:
    """At most MOST_POINTS points of the last hour.  Points within half a minute are one, with the newest values."""

    def __init__(self) -> None:
        self._points: deque[Point] = deque(maxlen=MOST_POINTS)

    def add(self, point: Point) -> None:
        points = self._points
        if points and point.at - points[-1].at < _SPACING:
            points[-1] = point._replace(at=points[-1].at)
        else:
            points.append(point)
        while points[0].at < point.at - KEPT_SECONDS:
            points.popleft()

    def points(self) -> Sequence[Point]:
        return tuple(self._points)


class Reports:
    """Answers about one state.  The methods are not to be called by two threads at once.

    `generation` counts the states that the page has shown; `live`: whether further states may come; `history`: the last hour of a
    followed cluster.
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
        self.history: Sequence[Point] = ()
        self._answers: LruCache[tuple[str, str], WhyReport] = LruCache(_MOST_ANSWERS)
        self._waiting: tuple[int, WaitingReport] | None = None

    @cached_property
    def devices(self) -> DevicesReport:
        return devices_report(self.view)

    @cached_property
    def pools(self) -> tuple[PoolStates, ...]:
        return pool_states(self.devices)

    @cached_property
    def drivers(self) -> tuple[KindTotal, ...]:
        return driver_totals(self.pools)

    @cached_property
    def class_devices(self) -> ClassDevices:
        return ClassDevices(self.view)

    @cached_property
    def classes(self) -> tuple[KindTotal, ...]:
        """Return the devices of each class that means any, as far as devices were judged."""
        class_devices = {name: self.class_devices.of_class(name) for name in sorted(self.view.ledger.classes)}
        return class_totals(
            self.pools, {name: devices for name, devices in class_devices.items() if devices is not None}
        )

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """Return the names of all nodes.

        Raises:
            UnreadKindsError: nodes could not be read.
        """
        require(self.view.origin, {"nodes"})
        return tuple(sorted(self.view.ledger.nodes))

    def node(self, name: str) -> DevicesReport:
        """Return the pools that a node can use.

        Raises:
            UnknownObjectError: the node does not exist.
        """
        return devices_report(self.view, name)

    @cached_property
    def audit(self) -> AuditReport:
        return audit_report(self.view)

    def waiting(self, round_number: int) -> WaitingReport:
        """Return the pods that wait by cause, as far as can be said after this round of looking at them (from 1)."""
        if self._waiting is None or self._waiting[0] != round_number:
            report = waiting(self.view, most_evaluated=EVALUATED_IN_A_ROUND * round_number)
            self._waiting = (round_number, report)
        return self._waiting[1]

    def prepare(self) -> None:
        """Find out what the first view shows, before it is asked for."""
        for ask in (lambda: self.waiting(1), lambda: self.drivers, lambda: self.classes, lambda: self.audit):
            with suppress(UnreadKindsError):
                ask()

    def point(self) -> Point:
        """Return what the lines of the last hour show of this state."""
        in_use, waiting = None, None
        with suppress(UnreadKindsError):
            devices = sum(total.devices for total in self.drivers)
            in_use = _PERCENT * sum(total.in_use for total in self.drivers) / max(1, devices)
        with suppress(UnreadKindsError):
            waiting = self.waiting(1).pods
        return Point(self.view.now, in_use, waiting)

    def knows_why(self, namespace: str, name: str) -> bool:
        return (namespace, name) in self._answers

    def why(self, namespace: str, name: str) -> WhyReport:
        """Return why a pod waits.

        Raises:
            UnknownObjectError: there is no such pod.
        """
        key = (namespace, name)
        report = self._answers.get(key)
        if report is None:
            report = self._answers[key] = why(self.view, namespace, name)
        return report


_PAUSE_SECONDS: Final = 0.5
"""Between a change and the state that shows it, so that changes that come together are shown together."""
_SHARE: Final = 4
"""A state that took so long to make is followed by a pause this many times as long."""

_LOG = structlog.get_logger(__name__)


class States:
    """The states of a cluster, numbered by their generation."""

    def __init__(self, reports: Reports | None = None) -> None:
        self._reports = reports
        self._renewed = asyncio.Condition()

    def latest(self) -> Reports:
        if self._reports is None:
            raise RuntimeError("the source has not been started")
        return self._reports

    async def later_than(self, generation: int) -> Reports:
        """Return the newest state, once there is one with a greater generation."""
        async with self._renewed:
            await self._renewed.wait_for(lambda: self.latest().generation > generation)
        return self.latest()


def fixed_state(objects: ClusterObjects) -> States:
    """Return the one state of a snapshot.

    Raises:
        UnreadKindsError: nothing could be read at all.
    """
    require_any(objects.origin)
    return States(Reports(ClusterView(objects)))


class FollowedState(States):
    """The states of a running cluster.  `follow_changes` makes them until it is cancelled; await `start` before anything else."""

    def __init__(self, cluster: FollowedCluster, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        super().__init__()
        self._cluster = cluster
        self._sleep = sleep
        self._history = History()

    async def start(self) -> None:
        """Connect, and make the first state.

        Raises:
            ConfigurationError: there is no usable kubeconfig.
            ClusterError: the API server does not answer, or is too old.
            UnreadKindsError: nothing could be read at all.
        """
        await self._cluster.start()
        await self._renew(1)

    async def follow_changes(self) -> None:
        """Make a new state after each change, with pauses that grow with what a state takes."""
        while True:
            await self._cluster.change()
            await self._sleep(_PAUSE_SECONDS)
            began = monotonic()
            try:
                await self._renew(self.latest().generation + 1)
            except Exception:  # noqa: BLE001 - the page goes on with the state before, whose age it shows
                _LOG.exception("the cluster could not be read anew")
            await self._sleep(_SHARE * (monotonic() - began))

    async def stop(self) -> None:
        await self._cluster.stop()

    async def _renew(self, generation: int) -> None:
        objects, problems = await self._cluster.objects(), self._cluster.problems()
        reports = await asyncio.to_thread(self._build_reports, objects, generation, problems)
        async with self._renewed:
            self._reports = reports
            self._renewed.notify_all()

    def _build_reports(self, objects: ClusterObjects, generation: int, problems: Sequence[str]) -> Reports:
        """Build the reports of a new state, in a thread of its own."""
        require_any(objects.origin)
        ages = self._cluster.contact_ages
        reports = Reports(
            ClusterView(objects),
            generation,
            live=True,
            problems=problems,
            contact_ages=ages,
            extender=self._cluster.extender,
        )
        reports.prepare()
        self._history.add(reports.point())
        reports.history = self._history.points()
        return reports
