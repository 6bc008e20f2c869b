import asyncio
from dataclasses import dataclass, field
from typing import Final

from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.state.notifier import Notifier
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.shutdown import Shutdown

ALREADY: Final = "pod {} is bound to node {} already"


@dataclass(slots=True, eq=False)
class RunningBind:
    """A bind in progress and everybody who waits for it.

    `pod`: namespace/name.  `other_node`: where the pod is to be bound now instead.  `nudge` fires when there may be a reason to end
    the bind.
    """

    pod: str
    node: str
    callers: list[asyncio.Event] = field(default_factory=list)
    other_node: str = ""
    nudge: Notifier = field(default_factory=Notifier)
    task: asyncio.Task[None] | None = None

    @property
    def abandoned(self) -> bool:
        """Whether nobody waits for it any more."""
        return all(caller.is_set() for caller in self.callers)

    def check_sensible(self, uid: str, ledger: Ledger, stopping: Shutdown) -> None:
        """Raises RetryableError if the bind of the pod with this UID makes no sense any more."""
        if stopping.reason is not None:
            raise RetryableError(f"{stopping.reason}; the next bind of pod {self.pod} carries on")
        pod = ledger.pods.by_uid(uid)
        if ledger.pods.gone(uid) or (pod is not None and pod.deleting):
            raise RetryableError(f"pod {self.pod} does not exist any more")
        if pod is not None and pod.node_name not in ("", self.node):
            raise RetryableError(ALREADY.format(self.pod, pod.node_name))
        if self.other_node:
            raise RetryableError(f"pod {self.pod} is to be bound to node {self.other_node} now, no more to {self.node}")

    def check_waited_for(self, uid: str, ledger: Ledger, stopping: Shutdown) -> None:
        """As above, and if nobody would hear of a Binding: its scheduler gives the pod's CPU and memory to others then.

        To a node that is gone the API server would bind, too, and the pod would be deleted soon after.
        """
        self.check_sensible(uid, ledger, stopping)
        if self.node not in ledger.nodes:
            raise RetryableError(f"node {self.node} does not exist any more")
        if self.abandoned:
            raise RetryableError(
                f"nobody waits for the bind of pod {self.pod} any more; its devices stay reserved for it"
            )
