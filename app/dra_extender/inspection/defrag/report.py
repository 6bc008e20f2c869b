"""The answer to `defrag`, as JSON has it; the format is versioned."""

from enum import StrEnum
from typing import Final

from dra_extender.inspection.objects import Origin
from dra_extender.inspection.what_if.report import ClaimFate, PodOutcome, ReasonCount
from dra_extender.model.api_json import Value

FORMAT: Final = "dra-extender.io/defrag/v1"


class Finding(StrEnum):
    """MET: the goal needs no move.  PLAN: the moves meet it.  NONE: no plan was found within the bounds."""

    MET = "met"
    PLAN = "plan"
    NONE = "none"


class Move(Value, frozen=True):
    """A pod that ends, and where the pod in its place lands.

    `controller` is `Kind name` of what makes the pod in its place; without one, the end loses the pod.  `claims`: what becomes of
    the claims that it has.
    """

    pod: str
    before: PodOutcome
    after: PodOutcome
    controller: str = ""
    priority: int = 0
    claims: tuple[ClaimFate, ...] = ()


class StayingPods(Value, frozen=True):
    """Pods (`namespace/name`) that may not be moved, for one reason, e.g. `PodDisruptionBudget ml/keep forbids it`."""

    reason: str
    pods: tuple[str, ...]


class DefragReport(Value, frozen=True):
    """The moves that meet a goal.

    `goal`: what is asked for, as half a sentence.  `moves`: in the order in which the pods land.  `pod` is the one that then fits,
    with where it `lands`; empty where a node is to be empty.  `fewest`: no plan has fewer moves.  `tried`: how many sets of pods.
    `bound`: which bound ended the search; empty if everything was tried.  `reasons`: why `pod` fits nowhere although every pod that
    may be moved has ended.  `staying`: pods that may not be moved.  `what_if`: the arguments that play the plan.
    """

    format: str
    origin: Origin
    goal: str
    finding: Finding
    moves: tuple[Move, ...] = ()
    pod: str = ""
    lands: PodOutcome | None = None
    fewest: bool = False
    tried: int = 0
    bound: str = ""
    reasons: tuple[ReasonCount, ...] = ()
    staying: tuple[StayingPods, ...] = ()
    what_if: tuple[str, ...] = ()
    verified: str = ""
    notes: tuple[str, ...] = ()
