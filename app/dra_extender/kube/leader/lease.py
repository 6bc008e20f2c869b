"""Who leads: the rules, without any I/O.

As in upstream's leader election, clocks of two machines are never compared: a candidate waits until it has itself seen a lease
unchanged for the lease's duration, and a leader stops before that time has passed since it *sent* its last successful renewal.
All times here are seconds of a monotonic clock of this machine that also runs while the process or machine sleeps.
"""

from dataclasses import dataclass, replace
from typing import Final

_NEVER: Final = float("-inf")


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """How long things last, in seconds.

    `duration`: a lease that was not renewed for so long may be taken by another replica.  `renew`: a leader whose last successful
    renewal was sent so long ago stops; less than `duration`, which leaves room for clocks of different speed and for writes on
    their way.  `retry`: between two tries to get or renew the lease.
    """

    duration: int = 15
    renew: float = 10.0
    retry: float = 2.0


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """A Lease as it is stored.  `holder` is empty when it was released; `version` is its resourceVersion."""

    version: str
    holder: str = ""
    duration: float = 0.0
    transitions: int = 0
    acquired: str = ""
    renewed: str = ""

    def same_term(self, other: "LeaseRecord") -> bool:
        """Return whether the lease was neither acquired, renewed nor released between the two; other edits do not count."""
        return replace(self, version=other.version) == other


class LeaseView:
    """The lease as one replica has seen it: whether this replica may take it, and until when it leads."""

    def __init__(self, identity: str, times: LeaseTimes) -> None:
        self.identity = identity
        self.record: LeaseRecord | None = None
        self._times = times
        self._seen = _NEVER
        self._deadline = _NEVER

    def saw(self, record: LeaseRecord | None, now: float) -> None:
        """Take in the lease as it is stored, None when there is none.

        A lease that vanished counts as unchanged until its time is over.
        """
        if record is None:
            if self.record is not None:
                self.record = LeaseRecord("", self.record.holder, self.record.duration, self.record.transitions)
            return
        if self.record is None or not record.same_term(self.record):
            self._seen = now
        self.record = record

    def may_take(self, now: float) -> bool:
        """Return whether no other replica can be leading."""
        record = self.record
        if record is None or record.holder in ("", self.identity):
            return True
        return now >= self._seen + (record.duration or self._times.duration)

    def renewed(self, record: LeaseRecord, sent: float, now: float) -> None:
        """Take in that our write of the lease, sent at that moment, was stored."""
        self.saw(record, now)
        self._deadline = max(self._deadline, sent + self._times.renew)

    def resign(self) -> None:
        """Stop leading."""
        self._deadline = _NEVER

    def leads(self, now: float) -> bool:
        """Return whether this replica may act."""
        return now < self._deadline

    def left(self, now: float) -> float:
        """Return the seconds until the deadline; 0 when it has passed."""
        return max(0.0, self._deadline - now)

    @property
    def holder(self) -> str:
        """The holder of the lease as last seen; empty when it is released."""
        return self.record.holder if self.record is not None else ""


def held_on(holder: str, host: str) -> bool:
    """Return whether this is the identity of a process on that host, as Kubernetes' components make theirs: HOST_UUID."""
    return holder.rpartition("_")[0] == host
