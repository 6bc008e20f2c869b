"""What a recording consists of: a header, then one record for each thing that happened, in order.

Objects have the fields that decisions read, as in a snapshot.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from typing import Any, Final, Literal

import msgspec

NO_CALL: Final = -1
BACKGROUND: Final = -2
"""Stands for the work of the use cases between calls."""
CURRENT_CALL: Final[ContextVar[int]] = ContextVar("dra_extender_recorded_call", default=NO_CALL)
"""The number of the call for which the present task works; tasks that it begins inherit it, and what it awaits outside has none."""
FORMAT: Final = "dra-extender.io/recording/v1"
CANCELLED: Final = "CancelledError"
"""Stands in `Given` for the class of the error when the task that asked was cancelled."""


def is_use_case(context: Context | None = None) -> bool:
    """Whether what runs in this context, or in the present one, is work of the use cases."""
    return (CURRENT_CALL.get() if context is None else context.get(CURRENT_CALL, NO_CALL)) != NO_CALL


@contextmanager
def working_for(call: int) -> Iterator[None]:
    """Inside, the present task works for this call, BACKGROUND, or NO_CALL."""
    before = CURRENT_CALL.get()
    CURRENT_CALL.set(call)
    try:
        yield
    except GeneratorExit:
        # A task that never goes on is closed in some other context.
        raise
    except BaseException:
        CURRENT_CALL.set(before)
        raise
    CURRENT_CALL.set(before)


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

    `step` counts the steps of the use cases that had begun: callbacks that they had put into the event loop.
    """

    at: float
    step: int = 0


class Delivered(_Record, frozen=True, tag="delivered"):
    """A watch delivered something to the sink of a plural kind: `change` names the method of EventSink."""

    kind: str
    change: Literal["changed", "deleted", "synced", "absent"]
    object: Any = None
    key: tuple[str, str, str] | None = None


class Called(_Record, frozen=True, tag="called"):
    """kube-scheduler called a verb."""

    number: int
    verb: Literal["filter", "prioritize", "bind", "preempt"]
    body: Any


class Answered(_Record, frozen=True, tag="answered"):
    """The answer to a call.  `outcome`: `ok`, `again` (the answer is why), or the kind of another failure."""

    number: int
    outcome: str
    answer: str = ""


class Asked(_Record, frozen=True, tag="asked"):
    """The use cases asked for something outside: a method of a port of the cluster, or whether the caller is still there."""

    number: int
    port: Literal["claims", "pods", "claim_templates", "pod_groups", "waker", "caller"]
    method: str
    arguments: list[Any]
    call: int = NO_CALL


class Given(_Record, frozen=True, tag="given"):
    """What came of it: a value, or the class and message of an error.

    `at_once`: within the step that asked.  Otherwise the step ended, and what asked goes on from here.
    """

    number: int
    value: Any = None
    error: tuple[str, str] | None = None
    at_once: bool = False


class FactsLearned(_Record, frozen=True, tag="facts"):
    """What the API server serves and keeps, whenever that changes."""

    keeps_groups: bool
    group_version: str
    keeps_extended_claims: bool
    has_devices_beside_counters: bool


class ClocksRead(_Record, frozen=True, tag="clocks"):
    """What clocks showed in one step, or in what a cause set off: see `ReadingsNoted`."""

    readings: list[int]


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
    | Answered
    | Asked
    | Given
    | FactsLearned
    | ClocksRead
    | TimerFired
    | TermBegan
    | TermEnded
    | PolicyTaken
    | RecordingEnded
)
