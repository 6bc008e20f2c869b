"""How messages name a field that people wrote, and what is wrong with it.

Messages about settings, the device policy, kube-scheduler's configuration and manifests are made here.
"""

import difflib
from collections.abc import Sequence
from typing import NamedTuple


class FieldProblem(NamedTuple):
    """A field, a sentence about it (empty: there is no such field), and where its value comes from, if that is known."""

    field: str
    sentence: str
    source: str = ""

    def __str__(self) -> str:
        """E.g. `setting server.port (command line): expected greater than or equal to 0, got -1`."""
        where = f"{self.field} ({self.source})" if self.source else self.field
        return f"{where}: {self.sentence}" if self.sentence else f"{where} does not exist"


def path_text(path: Sequence[str | int]) -> str:
    """A path as people write it, e.g. `spec.devices[0].name`."""
    text = ""
    for step in path:
        if isinstance(step, int) or "." in step or "/" in step:
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


def unknown_field(name: str, known: Sequence[str]) -> str:
    """The sentence about a field that does not exist: the field that was meant, or all there are."""
    close = difflib.get_close_matches(name, known, n=1)
    return (
        f"unknown field; did you mean {close[0]!r}?" if close else f"unknown field; expected one of {', '.join(known)}"
    )
