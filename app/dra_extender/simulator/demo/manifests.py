"""Manifests as the steps of a story: what is applied or deleted, in which order, and what is expected then."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import msgspec

from dra_extender.manifests.api_defaults import bodies
from dra_extender.manifests.documents import FieldPath, Position, YamlDocument, YamlError, read_documents
from dra_extender.manifests.problems import path_text, shown
from dra_extender.simulator.apiserver.objects import KIND_OF, NAMESPACE, Json, Key, StoredKind, group_name, key_of, part
from dra_extender.simulator.demo.expectations import ExpectationError, PodExpectation, read_expectation
from dra_extender.simulator.demo.object_schemas import schema_problems

DEMO: Final = "dra-extender.io/demo"
EXPECT: Final = "dra-extender.io/expect"
EXPECT_AT_END: Final = "dra-extender.io/expect-at-end"
COPIES: Final = "dra-extender.io/copies"
_MOST_COPIES: Final = 1000
_MOST_DIGITS: Final = 18
_ANNOTATIONS: Final = ("metadata", "annotations")
_IGNORED: Final = ("Namespace",)
_POD_GROUP_VERSIONS: Final = tuple(
    f"scheduling.k8s.io/{each}" for each in ("v1beta1", "v1alpha3", "v1alpha2", "v1alpha1")
)
_CLAIM_FIELDS: Final = {
    "resourceClaimName": StoredKind.CLAIM,
    "resourceClaimTemplateName": StoredKind.TEMPLATE,
}
_START: Final = Position(1, 1)
_SAME_FIELDS: Final = ("resource.k8s.io/v1", "resource.k8s.io/v1beta2")


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
        return ": ".join(part for part in parts if part)


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
    """One step of a story; the expectations are about this object once everything is at rest, and at the end of the file.

    With `copies` (annotation `dra-extender.io/copies`) it stands for that many pods, called NAME-0, NAME-1 and so on.
    """

    action: Action
    key: Key
    thing: Json
    file: str
    position: Position
    narration: tuple[str, ...] = ()
    expect: PodExpectation | None = None
    expect_at_end: PodExpectation | None = None
    copies: int = 0

    @property
    def keys(self) -> tuple[Key, ...]:
        """The objects that this document is about."""
        key = self.key
        if not self.copies:
            return (key,)
        return tuple(Key(key.kind, key.namespace, f"{key.name}-{index}") for index in range(self.copies))

    @property
    def subject(self) -> str:
        """The objects as messages name them."""
        return f"{self.key}-0 to -{self.copies - 1}" if self.copies else str(self.key)


class Manifests(msgspec.Struct, frozen=True):
    """Everything that files say, in order, and what looks doubtful in them."""

    documents: tuple[Document, ...]
    warnings: tuple[ManifestProblem, ...] = ()


def load_files(paths: Sequence[Path]) -> Manifests:
    """Read manifests from files (every *.yaml and *.yml of a folder, by name).

    Raises:
        ManifestError: a file cannot be read, or has a problem that is no warning; all problems of all files are listed.
    """
    texts: list[tuple[str, str]] = []
    for path in paths:
        try:
            inside = (
                sorted(each for each in path.iterdir() if each.suffix in (".yaml", ".yml")) if path.is_dir() else [path]
            )
            texts.extend((str(each), each.read_text(encoding="utf-8")) for each in inside)
        except (OSError, UnicodeDecodeError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8 text"
            raise ManifestError(
                [ManifestProblem(str(path), None, "", "", f"cannot read the file: {reason}")]
            ) from problem
    return load_texts(texts)


def load_texts(texts: Sequence[tuple[str, str]]) -> Manifests:
    """As `load_files`, from pairs of a file name for messages and its text."""
    documents: list[Document] = []
    problems: list[ManifestProblem] = []
    for file, text in texts:
        try:
            found = read_documents(text)
        except YamlError as problem:
            problems.append(ManifestProblem(file, problem.position, "", "", problem.reason))
            continue
        for each in found:
            _Reader(file, documents, problems).read(each)
    problems.extend(_missing_objects(documents))
    order = {file: index for index, (file, _) in enumerate(texts)}
    problems.sort(key=lambda each: (order[each.file], each.position or _START))
    if any(not problem.warning for problem in problems):
        raise ManifestError(problems)
    return Manifests(tuple(documents), tuple(problems))


class _Reader:
    """Turns the documents of one file into steps, and collects what is wrong with them."""

    def __init__(self, file: str, documents: list[Document], problems: list[ManifestProblem]) -> None:
        self._file = file
        self._documents = documents
        self._problems = problems

    def read(self, source: YamlDocument) -> None:
        """Append the step, or the steps of a List, or what is wrong."""
        value = source.value
        if not isinstance(value, dict):
            self._problem(source, (), f"expected a manifest with kind and metadata, got {shown(value)}")
            return
        kind = value.get("kind")
        if kind in _IGNORED:
            return
        if kind == "List" and isinstance(value.get("items"), list):
            for index in range(len(value["items"])):
                self.read(source.inside(("items", index)))
            return
        if not isinstance(kind, str) or kind not in KIND_OF:
            wanted = ", ".join(KIND_OF)
            self._problem(source, ("kind",), f"unknown kind {shown(kind)}; expected one of {wanted}, Namespace, List")
            return
        self._read_known(source, KIND_OF[kind])

    def _read_known(self, source: YamlDocument, kind: StoredKind) -> None:
        value = source.value
        subject = _subject(kind, value)
        before = len(self._problems)
        if value.get("apiVersion") not in _accepted(kind):
            wanted = f"expected {kind.api_version}, got {shown(value.get('apiVersion'))}"
            self._problem(source, ("apiVersion",), wanted, subject)
        annotations = part(value, "metadata").get("annotations") if isinstance(value.get("metadata"), dict) else None
        annotations = annotations if isinstance(annotations, dict) else {}
        action = self._action(source, annotations.get(DEMO), subject)
        for found in schema_problems(kind, value):
            # A document that deletes needs only a name.
            if action is not Action.DELETE or found.path[:1] == ("metadata",):
                warning = found.is_expression and action is Action.UNCHECKED
                self._problem(source, found.path, found.sentence, subject, warning=warning)
        expectations = [self._expectation(source, annotations, name, subject, kind) for name in (EXPECT, EXPECT_AT_END)]
        copies = self._copies(source, annotations.get(COPIES), subject, kind)
        if any(not problem.warning for problem in self._problems[before:]):
            return
        thing = dict(value)
        if kind.namespaced:
            thing["metadata"] = {"namespace": NAMESPACE, **value["metadata"]}
        document = Document(
            action=action,
            key=key_of(kind, thing),
            thing=thing,
            file=self._file,
            position=source.position_of(),
            narration=source.narration,
            expect=expectations[0],
            expect_at_end=expectations[1],
            copies=copies,
        )
        self._documents.append(document)

    def _action(self, source: YamlDocument, text: Any, subject: str) -> Action:
        if text is None:
            return Action.APPLY
        try:
            return Action(text)
        except ValueError:
            wanted = f"expected one of {', '.join(Action)}, got {shown(text)}"
            self._problem(source, (*_ANNOTATIONS, DEMO), wanted, subject)
            return Action.APPLY

    def _copies(self, source: YamlDocument, text: Any, subject: str, kind: StoredKind) -> int:
        if text is None:
            return 0
        if kind is StoredKind.POD and isinstance(text, str) and _is_number(text) and 0 < int(text) <= _MOST_COPIES:
            return int(text)
        wanted = f"expected on pods only, a number from 1 to {_MOST_COPIES} as text, got {shown(text)}"
        self._problem(source, (*_ANNOTATIONS, COPIES), wanted, subject)
        return 0

    def _expectation(
        self, source: YamlDocument, annotations: Json, name: str, subject: str, kind: StoredKind
    ) -> PodExpectation | None:
        text = annotations.get(name)
        if text is None:
            return None
        if kind is not StoredKind.POD:
            self._problem(source, (*_ANNOTATIONS, name), "expected on pods only", subject)
            return None
        try:
            return read_expectation(text)
        except ExpectationError as problem:
            self._problem(source, (*_ANNOTATIONS, name), str(problem), subject)
            return None

    def _problem(
        self,
        source: YamlDocument,
        path: FieldPath,
        text: str,
        subject: str = "",
        *,
        warning: bool = False,
    ) -> None:
        self._problems.append(
            ManifestProblem(self._file, source.position_of(path), subject, path_text(path), text, warning)
        )


def _accepted(kind: StoredKind) -> tuple[str, ...]:
    """The API versions with the fields of the stored one."""
    if kind is StoredKind.POD_GROUP:
        return _POD_GROUP_VERSIONS
    if kind.api_version == "v1":
        return ("v1",)
    return (*_SAME_FIELDS, "resource.k8s.io/v1alpha3") if kind is StoredKind.TAINT_RULE else _SAME_FIELDS


def _subject(kind: StoredKind, value: Json) -> str:
    metadata = value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return f"{kind.singular} {name}" if isinstance(name, str) else kind.singular


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


def _missing_objects(documents: Sequence[Document]) -> Iterator[ManifestProblem]:
    """A warning for each name that no document has."""
    known = {each.key for each in documents}
    for document in documents:
        if document.action is not Action.DELETE:
            for field, key in _references(document.key, document.thing):
                if key not in known:
                    sentence = f"no {key.kind.singular} {key.name!r} is in these files"
                    subject = str(document.key)
                    yield ManifestProblem(document.file, document.position, subject, field, sentence, warning=True)


def _references(key: Key, thing: Json) -> Iterator[tuple[str, Key]]:
    """Field and key of each object that this one names."""
    match key.kind:
        case StoredKind.CLAIM:
            yield from _classes_of(part(thing, "spec"))
        case StoredKind.TEMPLATE:
            yield from _classes_of(part(thing, "spec", "spec"))
        case StoredKind.POD:
            group = group_name(thing)
            if group:
                field = "schedulingGroup" if "schedulingGroup" in thing["spec"] else "workloadRef"
                yield f"spec.{field}.podGroupName", Key(StoredKind.POD_GROUP, key.namespace, group)
            yield from _claims_of(key.namespace, part(thing, "spec"))
        case StoredKind.POD_GROUP:
            yield from _claims_of(key.namespace, part(thing, "spec"))
        case _:
            pass


def _classes_of(claim_spec: Json) -> Iterator[tuple[str, Key]]:
    for name in sorted({body["deviceClassName"] for body in bodies(claim_spec)}):
        yield "deviceClassName", Key(StoredKind.CLASS, "", name)


def _claims_of(namespace: str, spec: Json) -> Iterator[tuple[str, Key]]:
    for entry in spec.get("resourceClaims") or []:
        for field, kind in _CLAIM_FIELDS.items():
            if entry.get(field):
                yield f"spec.resourceClaims.{field}", Key(kind, namespace, entry[field])
