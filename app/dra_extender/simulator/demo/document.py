"""What manifests become: the documents of a story, and what is wrong with a manifest."""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from dra_extender.manifests.documents import Position
from dra_extender.model.api_json import printable
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind, part
from dra_extender.simulator.demo.expectations import PodExpectation


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
        """One sentence that concerns no place in a file."""
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
    thing: Json
    file: str
    position: Position
    narration: tuple[str, ...] = ()
    expect: PodExpectation | None = None
    expect_at_end: PodExpectation | None = None
    copies: int | None = None
    workload: str = ""

    @property
    def keys(self) -> tuple[Key, ...]:
        """The objects that this document is about."""
        key = self.key
        if self.copies is None:
            return (key,)
        return tuple(Key(key.kind, key.namespace, f"{key.name}-{index}") for index in range(self.copies))

    @property
    def pods(self) -> str:
        """The pods as expectations name them: without their kind."""
        return self._objects.removeprefix(f"{StoredKind.POD.singular} ")

    @property
    def subject(self) -> str:
        """The objects as messages name them."""
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
        """Whether it shows what a cluster has decided before the story: a pod on its node, or a claim with its devices."""
        if self.action is Action.DELETE:
            return False
        if self.key.kind is StoredKind.POD:
            return bool(part(self.thing, "spec").get("nodeName"))
        return self.key.kind is StoredKind.CLAIM and bool(part(self.thing, "status").get("allocation"))


class Manifests(msgspec.Struct, frozen=True):
    """Everything that files say, in order, and what looks doubtful in them."""

    documents: tuple[Document, ...]
    warnings: tuple[ManifestProblem, ...] = ()
