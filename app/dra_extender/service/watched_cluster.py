from collections.abc import Mapping
from typing import Protocol

from dra_extender.ledger.sinks import EventSink
from dra_extender.scheduling.ports.cluster import Cluster


class WatchedCluster(Cluster, Protocol):
    """A cluster that keeps sinks up to date."""

    async def start(self, sinks: Mapping[str, EventSink]) -> None:
        """Connect and begin to watch.  Raises ClusterError and errors of its configuration."""
        ...

    async def wait_synced(self) -> None:
        """Return when every object that exists has been delivered to its sink."""
        ...

    async def stop(self) -> None:
        """End watches and connections."""
        ...

    def life(self) -> Mapping[str, str | None]:
        """Return the failures that only a restart of the process can repair, by name."""
        ...
