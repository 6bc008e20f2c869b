"""What the use cases have in common; the extender makes it once."""

from dataclasses import dataclass

from dra_extender.ledger.ledger import Ledger
from dra_extender.runtime.supervision import Supervisor
from dra_extender.scheduling.ports.cluster import Clock, Cluster
from dra_extender.scheduling.ports.errors import Shutdown
from dra_extender.scheduling.ports.options import Options
from dra_extender.telemetry.metrics import Metrics
from dra_extender.telemetry.spans import NO_SPANS, Spans


@dataclass(frozen=True, slots=True)
class SchedulingContext:
    """The state, the cluster and the options that every use case works with."""

    ledger: Ledger
    cluster: Cluster
    metrics: Metrics
    options: Options
    supervisor: Supervisor
    shutdown: Shutdown
    spans: Spans = NO_SPANS

    @property
    def clock(self) -> Clock:
        """The injected time."""
        return self.cluster.clock
