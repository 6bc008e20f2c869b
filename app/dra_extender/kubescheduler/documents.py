"""Where a KubeSchedulerConfiguration stands: in a file of its own, or among manifests as a text in a ConfigMap."""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from dra_extender.config.settings import InvalidSettingsError
from dra_extender.kubescheduler.render import KIND
from dra_extender.manifests.documents import (
    MOST_BYTES,
    FieldPath,
    YamlDocument,
    YamlError,
    load_documents,
    node_at,
    read_documents,
)

_STEP: Final = re.compile(r"\[(\d+)\]|[^.\[\]]+")


class FoundConfiguration(msgspec.Struct, frozen=True):
    """A KubeSchedulerConfiguration with its place in the file.

    `above` is the number of lines before its own first line; `in_one_line`: all of it is written in the line after these.
    """

    document: YamlDocument
    above: int = 0
    in_one_line: bool = False

    @property
    def value(self) -> Any:
        """What it says."""
        return self.document.value

    def line_of(self, field: str) -> int:
        """The line in the file of a field as messages name it, e.g. `extenders[0].weight`, or of the nearest part that exists."""
        return self.above + (1 if self.in_one_line else self.document.position_of(_path(field)).line)


def read_configuration(file: Path | None) -> FoundConfiguration:
    """The one KubeSchedulerConfiguration in a YAML or JSON file (None: standard input).

    Of a file with one document that is no ConfigMap it is that document, whatever it says it is.

    Raises:
        InvalidSettingsError: the file cannot be read, or holds none, or several.
    """
    name = f"kube-scheduler's configuration {file}" if file is not None else "standard input"
    try:
        documents = load_documents(_content(file))
        found = list(_configurations(documents))
    except OSError as problem:
        raise InvalidSettingsError(f"{name}: {problem.strerror}") from problem
    except YamlError as problem:
        raise InvalidSettingsError(f"{name}: {problem}") from problem
    if len(found) == 1:
        return found[0]
    if len(documents) == 1 and _kind(documents[0].value) != "ConfigMap":
        return FoundConfiguration(documents[0])
    raise InvalidSettingsError(
        f"{name}: expected one {KIND}, by itself or in a ConfigMap, found {len(found)} in {_documents(len(documents))}"
    )


def _content(file: Path | None) -> bytes:
    if file is None:
        return sys.stdin.buffer.read(MOST_BYTES + 1)
    with file.open("rb") as opened:
        return opened.read(MOST_BYTES + 1)


def _configurations(documents: Sequence[YamlDocument]) -> Iterator[FoundConfiguration]:
    for document in documents:
        if _kind(document.value) == KIND:
            yield FoundConfiguration(document)
        elif _kind(document.value) == "ConfigMap":
            yield from _inside(document)


def _inside(document: YamlDocument) -> Iterator[FoundConfiguration]:
    """The configurations among the texts of a ConfigMap."""
    data = document.value.get("data")
    for key, text in data.items() if isinstance(data, Mapping) else ():
        if isinstance(text, str) and KIND in text:
            node = node_at(document.root, ("data", key)) or document.root
            literal = getattr(node, "style", None) == "|"
            above = node.start_mark.line + literal
            try:
                inner = read_documents(text)
            except YamlError as problem:
                raise YamlError(f"data.{key}, which begins in line {above + 1}: {problem}") from problem
            # A literal block begins in the line after its `|`, and its lines are those of the text.
            yield from (FoundConfiguration(each, above, not literal) for each in inner if _kind(each.value) == KIND)


def _path(field: str) -> FieldPath:
    steps = _STEP.finditer(field)
    return tuple(int(each[1]) if each[1] is not None else each[0] for each in steps)


def _kind(value: object) -> object:
    return value.get("kind") if isinstance(value, Mapping) else None


def _documents(count: int) -> str:
    return f"{count} document{'' if count == 1 else 's'}"
