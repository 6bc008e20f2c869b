"""Where the page gets states of a cluster from: one from a snapshot, or a new one after each change of a running cluster."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import Final, Protocol

import structlog

from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.followed_cluster import FollowedCluster
from dra_extender.inspection.objects import ClusterObjects
from dra_extender.page.reports import Reports

_PAUSE_SECONDS: Final = 0.5
"""Between a change and the state that shows it, so that changes that come together are shown together."""
_SHARE: Final = 4
"""A state that took so long to make is followed by a pause this many times as long."""

_LOG = structlog.get_logger(__name__)


class StateSource(Protocol):
    """States of a cluster, numbered by their generation."""

    def latest(self) -> Reports:
        """The newest state."""
        ...

    async def later_than(self, generation: int) -> Reports:
        """The newest state, once there is one with a greater generation."""
        ...


class FixedState:
    """A source whose state never changes."""

    def __init__(self, objects: ClusterObjects) -> None:
        self._reports = Reports(ClusterView(objects))
        self._reports.prepare()

    def latest(self) -> Reports:
        """See StateSource."""
        return self._reports

    async def later_than(self, generation: int) -> Reports:
        """See StateSource: never returns for the present generation."""
        if generation >= self._reports.generation:
            await asyncio.Event().wait()
        return self._reports


class FollowedState:
    """The states of a running cluster.  `run` makes them until it is cancelled; `start` has returned before anything is asked."""

    def __init__(self, cluster: FollowedCluster, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._cluster = cluster
        self._sleep = sleep
        self._reports: Reports | None = None
        self._renewed = asyncio.Condition()

    def latest(self) -> Reports:
        """See StateSource."""
        if self._reports is None:
            raise RuntimeError("the source has not been started")
        return self._reports

    async def later_than(self, generation: int) -> Reports:
        """See StateSource."""
        async with self._renewed:
            await self._renewed.wait_for(lambda: self.latest().generation > generation)
        return self.latest()

    async def start(self) -> None:
        """Connect, and make the first state.

        Raises:
            ConfigurationError: there is no usable kubeconfig.
            ClusterError: the API server does not answer, or is too old.
            UnreadKindsError: nothing could be read at all.
        """
        await self._cluster.start()
        await self._renew(1)

    async def run(self) -> None:
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
        """End the watches."""
        await self._cluster.stop()

    async def _renew(self, generation: int) -> None:
        objects, problems = await self._cluster.objects(), self._cluster.problems()
        reports = await asyncio.to_thread(self._made, objects, generation, problems)
        async with self._renewed:
            self._reports = reports
            self._renewed.notify_all()

    def _made(self, objects: ClusterObjects, generation: int, problems: Sequence[str]) -> Reports:
        """A state, in a thread of its own."""
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
        return reports
