"""A pod whose bind undid its own allocation twice on one node is not offered that node for a while.

Filter, bind and the check after the write judge by one rule, so that this should not happen over and over.  If it does, the pod
tries other nodes instead of writing without end.  Kept in memory: after a restart the node may be tried at once.
"""

import asyncio
from collections.abc import Callable, KeysView
from dataclasses import dataclass
from typing import Final

from dra_extender.model.rejection import Code, Rejection
from dra_extender.scheduling.ports.cluster import Clock

BACKED_OFF: Final = Rejection(code=Code.NODE_BACKED_OFF)
_UNDONE_LIMIT: Final = 2
_BACK_OFF_SECONDS: Final = 60.0
_REMEMBERED_SECONDS: Final = 600.0
_SHORTEST_SECONDS: Final = 0.001


@dataclass(slots=True)
class _Node:
    """How often binds of one pod to this node undid what they had allocated, when last, and until when it is left alone."""

    undone: int = 0
    last: float = 0.0
    until: float = 0.0


class NodeBackoff:
    """Which nodes each pod leaves alone for the moment.  `ended` is called when a pod may be offered a node again."""

    def __init__(self, clock: Clock, ended: Callable[[str], None]) -> None:
        self._clock = clock
        self._ended = ended
        self._nodes: dict[str, dict[str, _Node]] = {}

    def undone(self, pod_uid: str, node: str) -> None:
        """A bind has undone, or refused to write, what the pod was allocated on this node.  To be called in the event loop."""
        now = self._clock.monotonic()
        found = self._nodes.setdefault(pod_uid, {}).setdefault(node, _Node())
        found.undone += 1
        found.last = now
        if found.undone >= _UNDONE_LIMIT:
            found.until = now + _BACK_OFF_SECONDS
            self._check_in(_BACK_OFF_SECONDS, pod_uid, node)
        else:
            self._check_in(_REMEMBERED_SECONDS, pod_uid, node)

    def of(self, pod_uid: str) -> frozenset[str]:
        """The nodes that the pod leaves alone now."""
        found = self._nodes.get(pod_uid)
        if not found:
            return frozenset()
        now = self._clock.monotonic()
        return frozenset(name for name, node in found.items() if node.until > now)

    @property
    def active(self) -> bool:
        """Whether some pod leaves a node alone."""
        return any(self.of(pod_uid) for pod_uid in self._nodes)

    @property
    def pods(self) -> KeysView[str]:
        """UIDs of the pods that may leave a node alone."""
        return self._nodes.keys()

    def forget(self, pod_uid: str) -> None:
        """The pod is bound."""
        self._nodes.pop(pod_uid, None)

    def _check_in(self, seconds: float, pod_uid: str, node: str) -> None:
        asyncio.get_running_loop().call_later(max(seconds, _SHORTEST_SECONDS), self._check, pod_uid, node)

    def _check(self, pod_uid: str, node: str) -> None:
        """Tell of a back-off that is over, and forget a node of which nothing was heard for long."""
        nodes = self._nodes.get(pod_uid, {})
        found, now = nodes.get(node), self._clock.monotonic()
        if found is None:
            return
        if found.until > now:
            # Timers may come a little early: they go by another clock.
            self._check_in(found.until - now, pod_uid, node)
            return
        if found.until:
            found.until = 0.0
            self._check_in(found.last + _REMEMBERED_SECONDS - now, pod_uid, node)
            self._ended(pod_uid)
        elif found.last + _REMEMBERED_SECONDS <= now:
            del nodes[node]
            if not nodes:
                self._nodes.pop(pod_uid, None)
