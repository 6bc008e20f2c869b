"""What a recording consists of: a header, then one record for each thing that happened, in order.

Objects have the fields that decisions read, as in a snapshot.
"""

from contextvars import ContextVar
from typing import Any, Final

import msgspec

NO_CALL: Final = -1
BACKGROUND: Final = -2
"""Stands for the work of the use cases between calls."""
CURRENT_CALL: Final[ContextVar[int]] = ContextVar("dra_extender_recorded_call", default=NO_CALL)
"""The number of the call for which the present task works; tasks that it begins inherit it."""
MANY_TURNS: Final = 100
"""Turns between two records that stand for any number: everything was done that could be done."""
FORMAT: Final = "dra-extender.io/recording/v1"


class Header(msgspec.Struct, frozen=True, rename="camel"):
    """The first line: how the use cases were set up.

    `share_seed` seeds the IDs of shares; `claim_bytes` is what the ledger keeps of the claims of a namespace.
    """

    format: str
    version: str
    options: dict[str, Any]
    features: dict[str, Any]
    claim_bytes: int
    share_seed: str


class _Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """`at`: seconds since the recording began, by a clock that never goes back.

    `turn` counts turns of the event loop: two things that came from outside have the same one if nothing else ran in between.
    """

    at: float
    turn: int = 0


class Delivered(_Record, frozen=True, tag="delivered"):
    """A watch delivered something to the sink of a plural kind: `change` names the method of EventSink."""

    kind: str
    change: str
    object: Any = None
    key: tuple[str, str, str] | None = None


class Called(_Record, frozen=True, tag="called"):
    """kube-scheduler called a verb."""

    number: int
    verb: str
    body: Any


class Disconnected(_Record, frozen=True, tag="disconnected"):
    """The caller of a verb closed its connection."""

    number: int


class Answered(_Record, frozen=True, tag="answered"):
    """The answer to a call.  `outcome`: `ok`, `again` (the answer is why), or the kind of another failure."""

    number: int
    outcome: str
    answer: str = ""


class Asked(_Record, frozen=True, tag="asked"):
    """The use cases asked the cluster for something: a method of one of its ports."""

    number: int
    port: str
    method: str
    arguments: list[Any]


class Given(_Record, frozen=True, tag="given"):
    """What came of it: a value, or the class and message of an error."""

    number: int
    value: Any = None
    error: tuple[str, str] | None = None


class FactsLearned(_Record, frozen=True, tag="facts"):
    """What the API server serves and keeps, whenever that changes."""

    keeps_groups: bool
    group_version: str
    keeps_extended_claims: bool
    has_devices_beside_counters: bool


class TimeRead(_Record, frozen=True, tag="time"):
    """The wall clock was read, seconds since the epoch, by what a call has begun; below 0: by other work."""

    now: float
    call: int = NO_CALL


class TimerFired(_Record, frozen=True, tag="timer"):
    """A timer of a call, or of other work of the use cases, was due and ran; see `TimerId`."""

    call: int
    task: str
    number: int


class TermBegan(_Record, frozen=True, tag="began"):
    """The use cases began to work: this replica leads."""


class TermEnded(_Record, frozen=True, tag="ended"):
    """The use cases were stopped, for this reason."""

    reason: str


class PolicyTaken(_Record, frozen=True, tag="policy"):
    """A policy came into force: the text of its file."""

    text: str


class RecordingEnded(_Record, frozen=True, tag="end"):
    """The recording ended before the process, for this reason."""

    reason: str


Record = (
    Delivered
    | Called
    | Disconnected
    | Answered
    | Asked
    | Given
    | FactsLearned
    | TimeRead
    | TimerFired
    | TermBegan
    | TermEnded
    | PolicyTaken
    | RecordingEnded
)
