"""Which of several replicas acts."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from dra_extender.kube.cluster import KubeCluster
from dra_extender.kube.endpoint_publisher import EndpointPublisher
from dra_extender.kube.leader_election import LeaderElection


@dataclass(eq=False)
class Leadership:
    """What a replica needs to lead: the lease, caches that are up to date, and the endpoint that kube-scheduler calls."""

    election: LeaderElection
    cluster: KubeCluster
    publisher: EndpointPublisher | None

    def reason(self) -> str | None:
        """Return why this replica may not act, None while it leads; cheap, and exact at every moment."""
        return self.election.reason()

    async def acquire(self) -> None:
        """Return when this replica leads."""
        await self.election.acquire()

    async def renew(self) -> None:
        """Return when this replica leads no longer."""
        await self.election.renew()

    async def catch_up(self) -> None:
        """Return when everything that was stored before the call has been delivered to the sinks."""
        await self.cluster.refresh()

    async def keep_publishing(self) -> None:
        """Direct the calls of kube-scheduler to this replica, until cancelled."""
        if self.publisher is not None:
            await self.publisher.keep_publishing()
        await asyncio.Event().wait()

    def notes(self) -> Mapping[str, str]:
        """Return problems that do not end a term, by name, for `/readyz?verbose`."""
        problem = self.publisher.last_error if self.publisher is not None else None
        return {"service-route": problem} if problem else {}

    async def release(self) -> None:
        """Let another replica lead at once; never raises."""
        await self.election.release()
