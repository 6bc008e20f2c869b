"""Spans of a scheduling attempt, without saying who collects them; by default nobody does.

kube-scheduler sends no trace context to extenders.  So the trace ID follows from the UID of the pod and the number of the attempt:
the filter, prioritize and bind calls of one attempt are in one trace, which can be found from both.
"""

import hashlib
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from dra_extender.runtime.caches import LruCache

MOST_PODS: Final = 10_000
"""Pods whose attempts are counted; the one that was counted longest ago is forgotten, and begins with 1 again."""
_NOTHING: Final[AbstractContextManager[None]] = nullcontext()


class Spans:
    """Spans that nobody collects; a subclass sends them.

    Inside the returned contexts the span runs; an exception becomes its status.
    """

    def call(self, verb: str, pod_uid: str, **attributes: str | int) -> AbstractContextManager[None]:  # noqa: ARG002
        """Return the span of a call of kube-scheduler about a pod; a filter call begins the pod's next attempt."""
        return _NOTHING

    def step(self, name: str, **attributes: str | int) -> AbstractContextManager[None]:  # noqa: ARG002
        """Return the span of a part of what runs, below the span in which it runs."""
        return _NOTHING

    def stop(self) -> None:
        """Send what is left, and end; takes as long as the receiver needs, some seconds at most."""


NO_SPANS: Final = Spans()


def trace_id(pod_uid: str, attempt: int) -> int:
    """Return the 128 bits of the trace of an attempt, never 0: the first half of the SHA-256 of `UID/number`."""
    digest = hashlib.sha256(f"{pod_uid}/{attempt}".encode(errors="replace")).digest()
    return int.from_bytes(digest[:16], "big") or 1


class Attempts:
    """Counts the attempts of pods."""

    def __init__(self) -> None:
        self._numbers: LruCache[str, int] = LruCache(MOST_PODS)

    def number(self, verb: str, pod_uid: str) -> int:
        """Return the number of the attempt that a call belongs to, from 1; `filter` begins one."""
        number = self._numbers.get(pod_uid, 0)
        if verb == "filter" or not number:
            number += 1
        self._numbers[pod_uid] = number
        return number
