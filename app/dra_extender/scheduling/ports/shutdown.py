"""The end of the use cases: of the process, or of a term as leader."""

import asyncio
from typing import Any, Final

from dra_extender.ledger.notifier import Notifier, wait_for_any

STOPPING: Final = "the extender is stopping"


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
