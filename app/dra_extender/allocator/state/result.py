"""How a search ends: the reasons why nothing fits, an error, or a pause."""

from dataclasses import dataclass
from typing import Final, Literal

from dra_extender.allocator.state.rejection import Rejection

Verdict = Literal["no", "node", "fatal"]


@dataclass(frozen=True, slots=True)
class NoFit:
    """Why the claims cannot be allocated on a node.

    `verdict` is "no" (they do not fit), "node" (they do not fit, and a pool of the node is invalid), or "fatal" (an error for the
    pod as from upstream's allocator: a selector failed, mode All met an incomplete pool, the search hit its limit, ...).
    `rejections` has at least one entry, the most helpful first; SEARCH_LIMIT stands for a search that was stopped, and never for
    "does not fit".  `counted`: the search was stopped at its limit of steps, as a further search would be.
    """

    verdict: Verdict
    rejections: tuple[Rejection, ...]
    steps: int = 0
    counted: bool = False


class SearchEndedError(Exception):
    """Ends a search, with verdict "fatal" unless it says otherwise; `counted` at the limit of steps."""

    def __init__(self, rejection: Rejection, verdict: Verdict = "fatal", *, counted: bool = False) -> None:
        super().__init__(rejection.text)
        self.counted = counted
        self.rejection = rejection
        self.verdict = verdict


class SearchPaused(Exception):  # noqa: N818 - control flow as StopIteration: the caller may resume the search
    """Raised by a deadline to pause a search; the search keeps what it found, and its next run resumes it."""


DEFAULT_MAX_STEPS: Final = 200_000
"""Steps after which a search gives up with SEARCH_LIMIT."""
