"""The changes that a trial begins with: objects that people write, pods that end, nodes that are drained or added."""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from dra_extender.allocator.overlay.policy import PolicyOverlay
from dra_extender.manifests.api_defaults import fill_in
from dra_extender.manifests.check import schema_problems
from dra_extender.manifests.documents import MOST_BYTES, FieldPath, YamlDocument, YamlError, load_documents
from dra_extender.manifests.files import files_in, opened, title
from dra_extender.manifests.problems import path_text, shown
from dra_extender.model.api_json import ModelError
from dra_extender.model.device_class import read_device_class
from dra_extender.model.device_taint_rule import read_device_taint_rule
from dra_extender.model.fields import Gate
from dra_extender.model.node import read_node
from dra_extender.model.pod import read_pod
from dra_extender.model.pod_group import read_pod_group
from dra_extender.model.resource_claim import read_claim
from dra_extender.model.resource_slice import SliceReader
from dra_extender.model.templated_claim import read_template
from dra_extender.simulator.apiserver.objects import KIND_OF, Json, StoredKind

_READERS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "nodes": read_node,
        "deviceclasses": read_device_class,
        "devicetaintrules": read_device_taint_rule,
        "resourceslices": lambda data: SliceReader().read(data),
        "resourceclaims": read_claim,
        "resourceclaimtemplates": read_template,
        "podgroups": read_pod_group,
        "pods": read_pod,
    }
)
_ANY_VERSION: Final = frozenset({"devicetaintrules", "podgroups"})
"""Kinds whose fields that are read are the same in all versions that are served."""


PodKey = tuple[str, str]
"""(namespace, name)."""


class ChangeError(ValueError):
    """A change that cannot be made; the message names option or file and line, the object, and what was expected."""


class UnreadableChangeError(ChangeError):
    """A change of which nobody can tell what it is: a file that cannot be read, or an option that says nothing usable."""


class WrittenObject(NamedTuple):
    """An object from a file, with the defaults that an API server fills in."""

    kind: StoredKind
    item: Json
    place: str

    @property
    def key(self) -> PodKey:
        metadata = self.item["metadata"]
        return metadata.get("namespace", ""), metadata["name"]

    @property
    def label(self) -> str:
        """Return kind and key, for messages."""
        return f"{self.kind.singular} {'/'.join(filter(None, self.key))}"


class NewPolicy(NamedTuple):
    """A policy that comes into force in the place of the former; `name` is the file's."""

    name: str
    overlay: PolicyOverlay


class Changes(NamedTuple):
    """What is different in a trial.  They take effect in the order of the fields; within one, the order does not matter.

    `added`: nodes, and how many copies of each are added, with the slices that are its own.  `gates`: feature gates of the API
    server, and whether each is switched on.
    """

    objects: Sequence[WrittenObject] = ()
    added: Sequence[tuple[str, int]] = ()
    without: Sequence[PodKey] = ()
    evicted: Sequence[PodKey] = ()
    drained: Sequence[str] = ()
    reserved: Sequence[str] = ()
    gates: Sequence[tuple[Gate, bool]] = ()
    policy: NewPolicy | None = None

    def __bool__(self) -> bool:
        return any(self)


def read_changes(file: Path, namespace: str) -> list[WrittenObject]:
    """Read the objects in a YAML file, or in those of a folder, also the objects of a List.

    Objects without a namespace are in `namespace`.

    Raises:
        UnreadableChangeError: a file cannot be read, or holds no objects, or an object that cannot be used.
    """
    try:
        files = files_in(file)
    except OSError as problem:
        raise UnreadableChangeError(f"{file}: cannot be read: {problem.strerror or problem}") from problem
    objects: dict[tuple[str, PodKey], WrittenObject] = {}
    for path in files:
        try:
            with opened(path) as source:
                documents = load_documents(source.read(MOST_BYTES + 1))
        except OSError as problem:
            raise UnreadableChangeError(f"{title(path)}: cannot be read: {problem.strerror or problem}") from problem
        except YamlError as problem:
            raise UnreadableChangeError(problem.located(title(path))) from problem
        for document in documents:
            for item in document.items():
                written = read_object(title(path), item, namespace)
                first = objects.setdefault((written.kind, written.key), written)
                if first is not written:
                    raise UnreadableChangeError(f"{written.place}: {written.label} is in {first.place} already")
    if not objects:
        raise UnreadableChangeError(f"{title(file)}: expected Kubernetes objects, found none")
    return list(objects.values())


def read_object(file: str, document: YamlDocument, namespace: str) -> WrittenObject:
    """Read the object that a document of a file is; without a namespace of its own it is in `namespace`.

    Raises:
        UnreadableChangeError: the object cannot be used.
    """

    def refused(sentence: str, path: FieldPath = ()) -> ChangeError:
        return UnreadableChangeError(f"{file}:{document.position_of(path).line}: {sentence}")

    value = document.value
    if not isinstance(value, dict):
        raise refused(f"expected a Kubernetes object, got {shown(value)}")
    name, version = value.get("kind"), str(value.get("apiVersion") or "")
    kind = KIND_OF.get(name) if isinstance(name, str) else None
    if kind is None:
        raise refused(f"expected an object of kind {', '.join(sorted(KIND_OF))}; got {shown(name)}", ("kind",))
    wanted = kind.api_version.rpartition("/")[0]
    group, _, served = version.rpartition("/")
    if group != wanted or (kind not in _ANY_VERSION and served != "v1"):
        spelled = f"{wanted}/v1" if wanted else "v1"
        sentence = f"{name}: expected apiVersion {spelled}, got {shown(value.get('apiVersion'))}"
        raise refused(sentence, ("apiVersion",))
    metadata = value.get("metadata")
    own_name = metadata.get("name") if isinstance(metadata, dict) else None
    label = f"{name} {own_name}" if isinstance(own_name, str) else name
    problems = list(schema_problems(kind.singular, value))
    if problems:
        first, more = problems[0], f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        field = f"{path_text(first.path)}: " if first.path else ""
        raise refused(f"{label}: {field}{first.sentence}{more}", first.path)
    metadata = {field: given for field, given in value["metadata"].items() if field != "namespace"}
    if kind.namespaced:
        metadata["namespace"] = value["metadata"].get("namespace") or namespace
    item: Json = copy.deepcopy({**value, "metadata": metadata})
    try:
        fill_in(kind, item)
        _READERS[kind](msgspec.json.encode(item))
    except ModelError as problem:
        raise refused(f"{label}: {problem}") from problem
    return WrittenObject(kind, item, f"{file}:{document.position_of().line}")
