from collections.abc import Sequence
from dataclasses import dataclass, field

from app.model.rejection import Rejection
from app.scheduling.claim_lookup import FoundClaim
from app.scheduling.remembered import Outcome


@dataclass(slots=True)
class Attempt:
    """What one pass over the offered nodes found.

    `fits` are the nodes that fit, with the outcome where something has to be held there; `refused` says for each other node
    why not.  `unsettled` tells that some node would fit if holds that are about to settle went elsewhere.
    """

    fits: dict[str, Outcome | None] = field(default_factory=dict)
    refused: dict[str, tuple[Rejection, ...]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    open: tuple[FoundClaim, ...] = ()
    held: tuple[FoundClaim, ...] = ()
    unsettled: bool = False

    def refuse(self, node: str, rejections: tuple[Rejection, ...], text: str | None = None) -> None:
        """This node does not fit."""
        self.refused[node] = rejections
        self.texts[node] = rejections[0].summary if text is None else text


def refused_everywhere(nodes: Sequence[str], rejection: Rejection) -> Attempt:
    """Nothing about the nodes matters: the pod cannot be placed anywhere."""
    attempt = Attempt()
    for node in nodes:
        attempt.refuse(node, (rejection,))
    return attempt


def grouped(attempt: Attempt) -> list[tuple[list[str], Rejection]]:
    """Nodes that were refused for the same reason, and the rejection of the first of them; most nodes first."""
    groups: dict[str, list[str]] = {}
    for node, text in attempt.texts.items():
        groups.setdefault(text, []).append(node)
    ordered = sorted(groups.items(), key=lambda entry: (-len(entry[1]), entry[0]))
    return [(nodes, attempt.refused[nodes[0]][0]) for _, nodes in ordered]
