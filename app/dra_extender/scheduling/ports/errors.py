"""What the use cases answer, and why they answer nothing but an error; the HTTP side turns it into the extender protocol."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dra_extender.ledger.notifier import Notifier, wait_for_any

STOPPING: Final = "the extender is stopping"


class OneText(Mapping[str, str]):
    """The same text for each of these nodes, which have different names: in a full cluster there are thousands of them.

    A dictionary is made only when a node is looked up.
    """

    __slots__ = ("_by_node", "nodes", "text")

    def __init__(self, nodes: Sequence[str], text: str) -> None:
        self.nodes = nodes
        self.text = text
        self._by_node: dict[str, str] | None = None

    def __getitem__(self, node: str) -> str:
        if self._by_node is None:
            self._by_node = self.as_dict()
        return self._by_node[node]

    def __iter__(self) -> Iterator[str]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self.nodes)!r}, {self.text!r})"

    def as_dict(self) -> dict[str, str]:
        """Return the same as a dictionary of its own."""
        return dict.fromkeys(self.nodes, self.text)


@dataclass(frozen=True, slots=True)
class FilterResponse:
    """The feasible nodes among those offered, and the reason why each other node is not feasible.

    `failed`: eviction of other pods might help there.  `unresolvable`: it would not; devices are never freed by kube-scheduler's
    preemption, so shortages of devices belong here.
    """

    fitting: Sequence[str]
    failed: Mapping[str, str] = field(default_factory=dict)
    unresolvable: Mapping[str, str] = field(default_factory=dict)


SHARE_USED_UP: Final = "its search takes long, and the namespace has used up its share of the time for such searches"


class RetryableError(Exception):
    """The question cannot be answered now; the message becomes the protocol's `Error`, and kube-scheduler tries the pod again.

    Whatever a verb calls may raise it: when the API server refuses a call, or what is read, written or decided is out of date.  It
    is never a reason to call a pod unschedulable.
    """


class Shutdown:
    """Tells whether the use cases stop, and why: the process stops, or this replica is not the leader any more.

    `reason` is a sentence, None while they run.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self._stopping = Notifier()

    def begin(self, reason: str) -> None:
        """Let every call that comes, and every bind that waits, end with this reason."""
        self.reason = reason
        self._stopping.fire()

    def end(self) -> None:
        """Serve again: a new term of leadership begins."""
        self.reason = None

    async def wait_unless_stopping(self, task: asyncio.Task[Any]) -> None:
        """Return when the task has ended, or when the use cases stop."""
        if self.reason is None:
            ended = Notifier()
            task.add_done_callback(lambda _: ended.fire())
            await wait_for_any((ended, self._stopping))
