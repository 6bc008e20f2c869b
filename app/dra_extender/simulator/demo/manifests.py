"""Manifests as the documents of a story: what is applied or deleted, what is expected then, and what looks doubtful."""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, Final

from dra_extender.manifests.api_defaults import DEFAULT_SCHEDULER, bodies
from dra_extender.manifests.check import schema_problems
from dra_extender.manifests.documents import FieldPath, Position, YamlDocument, YamlError, read_documents
from dra_extender.manifests.files import files_in, read_text, title
from dra_extender.manifests.problems import path_text, shown
from dra_extender.simulator.apiserver.objects import KIND_OF, NAMESPACE, Json, Key, StoredKind, group_name, key_of, part
from dra_extender.simulator.demo import workloads
from dra_extender.simulator.demo.document import (
    ANNOTATIONS,
    MOST_COPIES,
    Action,
    Controls,
    Document,
    ManifestError,
    ManifestProblem,
    Manifests,
    controls_of,
)
from dra_extender.simulator.scheduler.loop import SCHEDULER_NAME, foreign_scheduler

_IGNORED: Final = ("Namespace",)
_POD_GROUP_VERSIONS: Final = tuple(
    f"scheduling.k8s.io/{version}" for version in ("v1beta1", "v1alpha3", "v1alpha2", "v1alpha1")
)
_START: Final = Position(1, 1)
_SAME_FIELDS: Final = ("resource.k8s.io/v1", "resource.k8s.io/v1beta2")
_KINDS: Final = (*KIND_OF, *workloads.KINDS)
_METADATA: Final = ("metadata",)
_FOR_DRIVERS: Final = "parameters"


def load_files(paths: Sequence[Path], scheduler_names: Sequence[str] = (SCHEDULER_NAME,)) -> Manifests:
    """Read manifests from files (every *.yaml and *.yml of a folder, by name).

    Raises:
        ManifestError: a file cannot be read, or has a problem that is no warning; all problems of all files are listed.
    """
    texts: list[tuple[str, str]] = []
    for path in paths:
        try:
            inside = files_in(path)
            texts.extend((title(file), read_text(file)) for file in inside)
        except (OSError, UnicodeDecodeError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8 text"
            raise ManifestError([ManifestProblem(title(path), None, "", "", f"cannot be read: {reason}")]) from problem
        if not inside:
            raise ManifestError([ManifestProblem(str(path), None, "", "", "the folder has no *.yaml or *.yml")])
    return load_texts(texts, scheduler_names)


def load_texts(texts: Sequence[tuple[str, str]], scheduler_names: Sequence[str] = (SCHEDULER_NAME,)) -> Manifests:
    """As `load_files`, from pairs of a file name for messages and its text.

    `scheduler_names`: whose pods are scheduled; each pod of another scheduler is worth a warning.
    """
    problems: list[ManifestProblem] = []
    sources = [(file, source) for file, text in texts for source in _sources(file, text, problems)]
    templates = frozenset(_existing_templates([source.value for _, source in sources]))
    documents: list[Document] = []
    for file, source in sources:
        documents.extend(_Reader(file, problems, templates).read(source))
    problems.extend(_clashes(documents))
    problems.extend(_doubts(documents, scheduler_names))
    order = {file: index for index, (file, _) in enumerate(texts)}
    problems.sort(key=lambda problem: (order[problem.file], problem.position or _START))
    if any(not problem.warning for problem in problems):
        raise ManifestError(problems)
    return Manifests(tuple(documents), tuple(problems))


def _sources(file: str, text: str, problems: list[ManifestProblem]) -> list[YamlDocument]:
    """Return the manifests of a file, those in Lists one by one."""
    try:
        manifests = [item for document in read_documents(text) for item in document.items()]
    except YamlError as problem:
        problems.append(ManifestProblem(file, problem.position, "", "", problem.reason))
        return []
    if not manifests:
        problems.append(ManifestProblem(file, _START, "", "", "expected a manifest, the file has none"))
    elif all(isinstance(manifest.value, dict) and manifest.value.get("kind") in _IGNORED for manifest in manifests):
        text = f"expected a manifest of a kind that a story has, the file has only {', '.join(_IGNORED)}"
        problems.append(ManifestProblem(file, manifests[0].position_of(), "", "", text))
    return manifests


def _existing_templates(values: Sequence[Any]) -> Iterator[tuple[str, str]]:
    for value in values:
        if isinstance(value, dict) and value.get("kind") == StoredKind.POD_GROUP.singular:
            template = workloads.template_of(value)
            if template is not None:
                yield template


class _Reader:
    """Turns a manifest into documents, and collects what is wrong with it."""

    def __init__(
        self, file: str, problems: list[ManifestProblem], existing_templates: frozenset[tuple[str, str]]
    ) -> None:
        self._file = file
        self._problems = problems
        self._existing_templates = existing_templates

    def read(self, source: YamlDocument) -> Iterator[Document]:
        """Yield the document; several for a Workload, none if something is wrong or the kind is skipped."""
        value = source.value
        if not isinstance(value, dict):
            self._problem(source, (), f"expected a manifest with kind and metadata, got {shown(value)}")
            return
        kind = value.get("kind")
        if kind in _IGNORED:
            return
        if not isinstance(kind, str) or kind not in _KINDS:
            sentence = f"unknown kind {shown(kind)}; expected one of {', '.join((*_KINDS, *_IGNORED))}, List"
            self._problem(source, ("kind",), sentence)
            return
        subject, before = _subject(value), len(self._problems)
        if value.get("apiVersion") not in _accepted(kind):
            sentence = f"expected {_accepted(kind)[0]}, got {shown(value.get('apiVersion'))}"
            self._problem(source, ("apiVersion",), sentence, subject)
        base = (*workloads.TEMPLATE, *ANNOTATIONS) if kind in workloads.POD_KINDS else ANNOTATIONS
        controls = self._controls(source, base, subject, is_pod=kind == "Pod" or kind in workloads.POD_KINDS)
        if kind in workloads.POD_KINDS:
            own = self._controls(source, ANNOTATIONS, subject, is_pod=False)
            controls = controls._replace(action=own.action)
        for schema_problem in schema_problems(kind, source.value):
            # A document that deletes needs only a name; the PodGroups of a Workload have the names of its templates.
            needed = schema_problem.path[:1] == _METADATA or kind == workloads.WORKLOAD
            if controls.action is not Action.DELETE or needed:
                warning = schema_problem.is_expression and controls.action is Action.UNCHECKED
                self._problem(source, schema_problem.path, schema_problem.sentence, subject, warning=warning)
        if any(not problem.warning for problem in self._problems[before:]):
            return
        yield from self._documents(source, kind, controls, subject)

    def _documents(self, source: YamlDocument, kind: str, controls: Controls, subject: str) -> Iterator[Document]:
        value = source.value
        if kind in KIND_OF:
            yield self._document(source, value, controls)
        elif kind == workloads.WORKLOAD:
            for group in workloads.pod_groups_of(value, self._existing_templates):
                yield self._document(source, group, controls)
        elif controls.copies is not None:
            self._problem(source, ("spec",), "expected no copies of a workload: it has replicas", subject)
        elif controls.action is Action.DELETE:
            yield self._document(source, workloads.no_pods_of(value), controls._replace(copies=0), _workload(value))
        else:
            pod, replicas = workloads.pods_of(value)
            if replicas > MOST_COPIES:
                self._problem(source, ("spec",), f"expected at most {MOST_COPIES} pods, got {replicas}", subject)
                return
            yield self._document(source, pod, controls._replace(copies=replicas), _workload(value))

    def _document(self, source: YamlDocument, item: Json, controls: Controls, workload: str = "") -> Document:
        kind, item = KIND_OF[item["kind"]], _without_nulls(item)
        if kind.namespaced:
            item = {**item, "metadata": {"namespace": NAMESPACE, **item["metadata"]}}
        return Document(
            action=controls.action,
            key=key_of(kind, item),
            item=item,
            file=self._file,
            position=source.position_of(),
            narration=source.narration,
            expect=controls.expect,
            expect_at_end=controls.expect_at_end,
            copies=controls.copies,
            workload=workload,
        )

    def _controls(self, source: YamlDocument, base: FieldPath, subject: str, *, is_pod: bool) -> Controls:
        annotations: Any = source.value
        for step in base:
            annotations = annotations.get(step) if isinstance(annotations, dict) else None
        return controls_of(
            annotations if isinstance(annotations, dict) else {},
            is_pod=is_pod,
            report=lambda name, text: self._problem(source, (*base, name), text, subject),
        )

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


def _without_nulls(value: Any) -> Any:
    """As an API server reads it: a field that is null is one that is left out, but for what is meant for drivers."""
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: member if name == _FOR_DRIVERS else _without_nulls(member)
        for name, member in value.items()
        if member is not None
    }


def _accepted(kind: str) -> tuple[str, ...]:
    if kind in workloads.POD_KINDS:
        return (workloads.POD_KINDS[kind],)
    if kind in (workloads.WORKLOAD, StoredKind.POD_GROUP.singular):
        return _POD_GROUP_VERSIONS
    stored = KIND_OF.get(kind)
    if stored is None or stored.api_version == "v1":
        return ("v1",)
    return (*_SAME_FIELDS, "resource.k8s.io/v1alpha3") if stored is StoredKind.TAINT_RULE else _SAME_FIELDS


def _workload(value: Json) -> str:
    metadata = value["metadata"]
    return f"{value['kind']} {metadata.get('namespace') or NAMESPACE}/{metadata['name']}"


def _clashes(documents: Sequence[Document]) -> Iterator[ManifestProblem]:
    """Yield pods of one name that two workloads would make, or that a workload would make of another pod."""
    makers: dict[Key, str] = {}
    for document in documents:
        for key in document.keys:
            first = makers.setdefault(key, document.workload)
            if first != document.workload:
                text = f"expected another name: {key} is {f'one of {first}' if first else 'another object'} as well"
                yield ManifestProblem(document.file, document.position, document.subject, "metadata.name", text)
                break


def _subject(value: Json) -> str:
    metadata = value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return f"{value['kind']} {name}" if isinstance(name, str) else str(value["kind"])


_CLAIM_FIELDS: Final = {
    "resourceClaimName": StoredKind.CLAIM,
    "resourceClaimTemplateName": StoredKind.TEMPLATE,
}


def _doubts(documents: Sequence[Document], scheduler_names: Sequence[str]) -> Iterator[ManifestProblem]:
    """Yield a warning for each name that no document has, and for each pod whose scheduler is none of these."""
    keys = {key for document in documents for key in document.keys}
    nodes = {key.name for key in keys if key.kind is StoredKind.NODE}
    for document in documents:
        if document.action is not Action.DELETE:
            yield from _unknown_names(document, keys, nodes)
            name = part(document.item, "spec").get("schedulerName") or DEFAULT_SCHEDULER
            if document.key.kind is StoredKind.POD and not document.runs_already and name not in scheduler_names:
                yield _doubt(document, "spec.schedulerName", foreign_scheduler(name, scheduler_names))


def _unknown_names(document: Document, keys: AbstractSet[Key], nodes: AbstractSet[str]) -> Iterator[ManifestProblem]:
    for field, key in _references(document.key, document.item):
        if key not in keys:
            yield _doubt(document, field, f"no {key.kind.singular} {key.name!r} is in these files")
    for expected in (document.expect, document.expect_at_end):
        if expected is not None and expected.node is not None and expected.node not in nodes:
            yield _doubt(document, "", f"no Node {expected.node!r} is in these files, and the pod is expected there")


def _doubt(document: Document, field: str, text: str) -> ManifestProblem:
    return ManifestProblem(document.file, document.position, document.subject, field, text, warning=True)


def _references(key: Key, item: Json) -> Iterator[tuple[str, Key]]:
    match key.kind:
        case StoredKind.CLAIM:
            yield from _classes_of(part(item, "spec"))
        case StoredKind.TEMPLATE:
            yield from _classes_of(part(item, "spec", "spec"))
        case StoredKind.POD:
            group = group_name(item)
            if group:
                field = "schedulingGroup" if "schedulingGroup" in item["spec"] else "workloadRef"
                yield f"spec.{field}.podGroupName", Key(StoredKind.POD_GROUP, key.namespace, group)
            yield from _claims_of(key.namespace, part(item, "spec"))
        case StoredKind.POD_GROUP:
            yield from _claims_of(key.namespace, part(item, "spec"))
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
