from enum import StrEnum
from typing import Any

import msgspec

from dra_extender.manifests.problems import shown


class ExpectationError(ValueError):
    """A text that states no expectation; the message says what was expected."""


class ExpectedState(StrEnum):
    """What is expected of a pod."""

    BOUND = "bound"
    WAITING = "waiting"


class PodExpectation(msgspec.Struct, frozen=True):
    """What a story expects of a pod: bound (on a certain node), or waiting (with a reason that contains this text)."""

    text: str
    state: ExpectedState
    node: str | None = None
    reason: str = ""

    def failure(self, node: str | None, reasons: str) -> str | None:
        """Why it does not hold for a pod on this node (None: not bound) that waits for these reasons (the first line is quoted)."""
        said = reasons.partition("\n")[0] or "no reason was given"
        if self.state is ExpectedState.BOUND:
            if node is None:
                return f"it is waiting: {said}"
            if self.node is not None and self.node != node:
                return f"it is on {node}"
            return None
        if node is not None:
            return f"it is bound, on {node}"
        if self.reason not in reasons:
            return f"it is waiting for another reason: {said}"
        return None


def read_expectation(text: Any) -> PodExpectation:
    """Read `bound`, `node=NAME`, `waiting` or `waiting: TEXT`.

    Raises:
        ExpectationError: none of these.
    """
    if text == "bound":
        return PodExpectation(text, ExpectedState.BOUND)
    if text == "waiting":
        return PodExpectation(text, ExpectedState.WAITING)
    if isinstance(text, str):
        if text.startswith("node=") and text[5:].strip():
            return PodExpectation(text, ExpectedState.BOUND, node=text[5:].strip())
        if text.startswith("waiting:") and text[8:].strip():
            return PodExpectation(text, ExpectedState.WAITING, reason=text[8:].strip())
    raise ExpectationError(f"expected bound, node=NAME, waiting or 'waiting: TEXT', got {shown(text)}")
