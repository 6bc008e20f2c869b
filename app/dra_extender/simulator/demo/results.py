"""What a story came to, as values: the text report and the JSON form derive from them."""

from enum import StrEnum

import msgspec


class AllocatedDevice(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One device of a claim; counter sets it draws on with the compatibility groups it had when it was allocated."""

    request: str
    driver: str
    pool: str
    device: str
    counter_sets: dict[str, tuple[str, ...]] = {}


class ClaimUse(msgspec.Struct, frozen=True, rename="camel"):
    """A claim as the pod names it, the claim object, and what is allocated for it."""

    name: str
    claim: str
    devices: tuple[AllocatedDevice, ...] = ()


class PodState(msgspec.Struct, frozen=True, rename="camel"):
    """Where a pod is, or why it waits: the scheduler's message, each node's reason, and the Events on the pod."""

    pod: str
    node: str | None
    claims: tuple[ClaimUse, ...] = ()
    message: str = ""
    reasons: dict[str, str] = {}
    details: tuple[str, ...] = ()

    @property
    def why(self) -> str:
        """All messages about why the pod waits, as one text."""
        return "\n".join((self.message, *self.reasons.values(), *self.details))

    def same_as(self, earlier: "PodState | None") -> bool:
        """Whether nothing has changed but the wording of details."""
        if earlier is None:
            return False
        return msgspec.structs.replace(self, details=()) == msgspec.structs.replace(earlier, details=())


class CheckedExpectation(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An expectation that was checked; without `failure` it holds.

    `refused`: the cluster refused a document about this pod, which counts as the failure.
    """

    pod: str
    expected: str
    failure: str | None = None
    at_end: bool = False
    refused: bool = False


class ApplyEffect(StrEnum):
    """What applying a document did to the object."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    DELETED = "deleted"
    TERMINATING = "is being deleted"
    REFUSED = "refused"


class StoryStep(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One document and what followed: pods whose state changed, problems on the way, and the expectation if there was one.

    `line` counts in `file`.
    """

    file: str
    line: int
    subject: str
    effect: ApplyEffect
    narration: tuple[str, ...] = ()
    refusal: str = ""
    pods: tuple[PodState, ...] = ()
    problems: tuple[str, ...] = msgspec.field(name="trouble", default=())
    checked: CheckedExpectation | None = None


class StoryResult(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A whole story: its steps, the last state of every pod that is left, and expectations about the end."""

    title: str
    steps: tuple[StoryStep, ...] = ()
    pods: tuple[PodState, ...] = ()
    at_end: tuple[CheckedExpectation, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def checks(self) -> tuple[CheckedExpectation, ...]:
        """Every expectation, in the order of checking."""
        return (*(step.checked for step in self.steps if step.checked is not None), *self.at_end)

    @property
    def failures(self) -> int:
        """Return the number of refused documents and of other expectations that do not hold."""
        return self.refused + sum(check.failure is not None and not check.refused for check in self.checks)

    @property
    def refused(self) -> int:
        """Return the number of documents that the cluster refused."""
        return sum(step.effect is ApplyEffect.REFUSED for step in self.steps)
