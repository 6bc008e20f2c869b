import asyncio
from collections.abc import Mapping

from dra_extender.kube.cluster import KubeCluster
from dra_extender.kube.leader.election import LeaderElection
from dra_extender.kube.leader.endpoint_publisher import EndpointPublisher


class KubeLeadership:
    """Leader election on a cluster (`service.Leadership`): the lease, the caches behind it, and where kube-scheduler calls."""

    def __init__(self, election: LeaderElection, cluster: KubeCluster, route: EndpointPublisher | None) -> None:
        self._election = election
        self._cluster = cluster
        self._route = route

    def reason(self) -> str | None:
        """None while this replica leads; else why it may not act."""
        return self._election.reason()

    async def win(self) -> None:
        """Returns when this replica leads."""
        await self._election.win()

    async def keep(self) -> None:
        """Returns when it does not any more."""
        await self._election.keep()

    async def catch_up(self) -> None:
        """Returns when the caches know everything that was stored before the call, by the leader before us too."""
        await self._cluster.refresh()

    async def announce(self) -> None:
        """Have kube-scheduler's calls come here, until cancelled."""
        if self._route is not None:
            await self._route.run()
        await asyncio.Event().wait()

    def notes(self) -> Mapping[str, str]:
        """Troubles with which the service goes on."""
        trouble = self._route.last_error if self._route is not None else None
        return {"service-route": trouble} if trouble else {}

    async def release(self) -> None:
        """Give the lease up, so that another replica leads at once."""
        await self._election.release()
