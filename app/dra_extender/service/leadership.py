"""Which of several replicas acts."""

import asyncio
from collections.abc import Mapping
from typing import Protocol

from dra_extender.kube.cluster import KubeCluster
from dra_extender.kube.leader.election import LeaderElection
from dra_extender.kube.leader.endpoint_publisher import EndpointPublisher


class Leadership(Protocol):
    """Decides which of several replicas acts."""

    def reason(self) -> str | None:
        """Return why this replica may not act, None while it leads; cheap, and exact at every moment."""

    async def acquire(self) -> None:
        """Return when this replica leads."""

    async def renew(self) -> None:
        """Return when this replica leads no longer."""

    async def catch_up(self) -> None:
        """Return when everything that was stored before the call has been delivered to the sinks."""

    async def keep_publishing(self) -> None:
        """Direct the calls of kube-scheduler to this replica, until cancelled."""

    def notes(self) -> Mapping[str, str]:
        """Return problems that do not end a term, by name, for `/readyz?verbose`."""

    async def release(self) -> None:
        """Let another replica lead at once; never raises."""


class KubeLeadership:
    """Leader election on a cluster: the lease, the caches, and the endpoint that kube-scheduler calls."""

    def __init__(self, election: LeaderElection, cluster: KubeCluster, publisher: EndpointPublisher | None) -> None:
        self._election = election
        self._cluster = cluster
        self._publisher = publisher

    def reason(self) -> str | None:
        return self._election.reason()

    async def acquire(self) -> None:
        await self._election.acquire()

    async def renew(self) -> None:
        await self._election.renew()

    async def catch_up(self) -> None:
        await self._cluster.refresh()

    async def keep_publishing(self) -> None:
        if self._publisher is not None:
            await self._publisher.keep_publishing()
        await asyncio.Event().wait()

    def notes(self) -> Mapping[str, str]:
        problem = self._publisher.last_error if self._publisher is not None else None
        return {"service-route": problem} if problem else {}

    async def release(self) -> None:
        await self._election.release()
