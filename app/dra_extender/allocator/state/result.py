from dataclasses import dataclass
from typing import Final, Literal

from dra_extender.model.rejection import Rejection

Verdict = Literal["no", "node", "fatal"]


@dataclass(frozen=True, slots=True)
class NoFit:
    """Why the claims cannot be allocated on a node.

    `verdict` is "no" (they do not fit), "node" (they do not fit, and invalid pools stood in the way), or "fatal" (upstream
    would give up on the pod: a selector failed, mode All met an incomplete pool, the search hit its limit, ...).
    `rejections` has at least one entry, the most telling first; a search that was stopped says so with SEARCH_LIMIT, which
    never means "does not fit".  `counted`: it was stopped at its limit of steps, as it would be again.
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


class SearchPaused(Exception):  # noqa: N818 - control flow: whoever asked for the pause may go on with the search
    """Raised by a deadline that wants the search to stop where it can go on; nothing that was found out is lost."""


DEFAULT_MAX_STEPS: Final = 200_000
"""Steps after which a search gives up with SEARCH_LIMIT."""
