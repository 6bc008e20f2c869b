"""What manifests become: the documents of a story with what is expected, and what is wrong with a manifest."""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec

from dra_extender.manifests.documents import FieldPath, Position
from dra_extender.manifests.problems import shown
from dra_extender.model.api_json import printable
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind, part


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
        """Return why a pod on this node (None: not bound), or one that waits for these reasons, does not meet the expectation."""
        first_line = reasons.partition("\n")[0] or "no reason was given"
        if self.state is ExpectedState.BOUND:
            if node is None:
                return f"it is waiting: {first_line}"
            if self.node is not None and self.node != node:
                return f"it is on {node}"
            return None
        if node is not None:
            return f"it is bound, on {node}"
        if self.reason not in reasons:
            return f"it is waiting for another reason: {first_line}"
        return None


def read_expectation(text: Any) -> PodExpectation:
    """Read `bound`, `node=NAME`, `waiting` or `waiting: TEXT`.

    Raises:
        ValueError: it is none of these; the message says what was expected.
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
    raise ValueError(f"expected bound, node=NAME, waiting or 'waiting: TEXT', got {shown(text)}")


class ManifestProblem(msgspec.Struct, frozen=True):
    """Something wrong in a manifest: where, in which object and field, and what was expected.

    A warning does not keep the file from being applied.
    """

    file: str
    position: Position | None
    subject: str
    field: str
    text: str
    warning: bool = False

    def __str__(self) -> str:
        place = self.file if self.position is None else f"{self.file}:{self.position.line}:{self.position.column}"
        parts = (place, self.subject, self.field, self.text)
        return printable(": ".join(part for part in parts if part))


class ManifestError(ValueError):
    """Manifests that cannot be applied; `problems` lists everything that was found, in file order, warnings too."""

    def __init__(self, problems: Sequence[ManifestProblem]) -> None:
        self.problems = problems
        super().__init__("\n".join(str(problem) for problem in problems if not problem.warning))

    @classmethod
    def saying(cls, text: str) -> "ManifestError":
        return cls([ManifestProblem("", None, "", "", text)])


class Action(StrEnum):
    """What a document does at its place in the story (annotation `dra-extender.io/demo`).

    `unchecked` stores an object whose CEL expressions do not compile, as a server that knows another dialect might have.
    """

    APPLY = "apply"
    DELETE = "delete"
    UNCHECKED = "unchecked"


class Document(msgspec.Struct, frozen=True):
    """One document of a story; the expectations are about this object once everything is at rest, and at the end of the file.

    With `copies` (annotation `dra-extender.io/copies`) it stands for that many pods, called NAME-0, NAME-1 and so on.
    `workload` names the Deployment, ReplicaSet, StatefulSet or Job whose pods these are, e.g. `Job default/train`.
    """

    action: Action
    key: Key
    item: Json
    file: str
    position: Position
    narration: tuple[str, ...] = ()
    expect: PodExpectation | None = None
    expect_at_end: PodExpectation | None = None
    copies: int | None = None
    workload: str = ""

    @property
    def keys(self) -> tuple[Key, ...]:
        key = self.key
        if self.copies is None:
            return (key,)
        return tuple(Key(key.kind, key.namespace, f"{key.name}-{index}") for index in range(self.copies))

    @property
    def pods(self) -> str:
        """Return the pods as expectations name them: without their kind."""
        return self._objects.removeprefix(f"{StoredKind.POD.singular} ")

    @property
    def subject(self) -> str:
        return f"{self.workload} ({self._objects})" if self.workload else self._objects

    @property
    def _objects(self) -> str:
        match self.copies:
            case None:
                return str(self.key)
            case 0:
                return f"no {self.key.kind.singular}"
            case 1:
                return f"{self.key}-0"
            case number:
                return f"{self.key}-0 to -{number - 1}"

    @property
    def runs_already(self) -> bool:
        """Return whether it shows what a cluster has decided before the story: a pod on its node, or a claim with its devices."""
        if self.action is Action.DELETE:
            return False
        if self.key.kind is StoredKind.POD:
            return bool(part(self.item, "spec").get("nodeName"))
        return self.key.kind is StoredKind.CLAIM and bool(part(self.item, "status").get("allocation"))


class Manifests(msgspec.Struct, frozen=True):
    """Everything that files say, in order, and what looks doubtful in them."""

    documents: tuple[Document, ...]
    warnings: tuple[ManifestProblem, ...] = ()


PREFIX: Final = "dra-extender.io/"
DEMO: Final = f"{PREFIX}demo"
EXPECT: Final = f"{PREFIX}expect"
EXPECT_AT_END: Final = f"{PREFIX}expect-at-end"
COPIES: Final = f"{PREFIX}copies"
_CONTROLLING: Final = (DEMO, EXPECT, EXPECT_AT_END, COPIES)
_OTHERS: Final = tuple(f"{PREFIX}{suffix}" for suffix in ("lint", "allocation-snapshot", "guard", "device", "woken-at"))
"""Annotations of other commands, and those that the service writes."""
_MISSPELT: Final = 0.85
MOST_COPIES: Final = 1000
_NUMBER: Final = re.compile("[0-9]{1,18}")
ANNOTATIONS: Final[FieldPath] = ("metadata", "annotations")


class Controls(NamedTuple):
    """What the annotations of one object say."""

    action: Action = Action.APPLY
    expect: PodExpectation | None = None
    expect_at_end: PodExpectation | None = None
    copies: int | None = None


def controls_of(annotations: Mapping[str, Any], *, is_pod: bool, report: Callable[[str, str], None]) -> Controls:
    """Read what the annotations of an object say.

    Args:
        annotations: All annotations of the object.
        is_pod: Whether expectations and copies make sense.
        report: Called with the name of each annotation that makes no sense, and a sentence.
    """

    def expectation(name: str) -> PodExpectation | None:
        text = annotations.get(name)
        if text is None:
            return None
        if not is_pod:
            report(name, "expected on pods only")
            return None
        try:
            return read_expectation(text)
        except ValueError as problem:
            report(name, str(problem))
            return None

    for name in annotations:
        if name in _CONTROLLING or name in _OTHERS:
            continue
        close = difflib.get_close_matches(name, _CONTROLLING, n=1, cutoff=_MISSPELT)
        if close:
            report(name, f"unknown annotation; did you mean {close[0]!r}?")
        elif name.startswith(PREFIX):
            report(name, f"unknown annotation; expected one of {', '.join(_CONTROLLING)}")
    action, action_text, copies = Action.APPLY, annotations.get(DEMO), annotations.get(COPIES)
    if action_text is not None:
        try:
            action = Action(action_text)
        except ValueError:
            report(DEMO, f"expected one of {', '.join(Action)}, got {shown(action_text)}")
    expect, expect_at_end = expectation(EXPECT), expectation(EXPECT_AT_END)
    number = int(copies) if is_pod and isinstance(copies, str) and _NUMBER.fullmatch(copies) else None
    if copies is not None and (number is None or not 0 < number <= MOST_COPIES):
        report(COPIES, f"expected on pods only, a number from 1 to {MOST_COPIES} as text, got {shown(copies)}")
        number = None
    return Controls(action, expect, expect_at_end, number)
