"""YAML as people write manifests, with the line of every field and the comments above every document."""

import math
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import yaml

from dra_extender.manifests.yaml_text import YamlError

Path = tuple[str | int, ...]
"""Where a field is inside a document: names and list indexes."""

_MOST_VALUES: Final = 200_000
_DEEPEST: Final = 100
_TEXT_TAGS: Final = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:binary", "tag:yaml.org,2002:str")


class YamlDocumentError(YamlError):
    """As YamlError, with the line: the text is no YAML, or YAML without a JSON form; `line` counts from 1."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line


class YamlDocument(msgspec.Struct, frozen=True):
    """One document: its value in JSON types, the line of each path, and the comment lines above it without `#`."""

    value: Any
    line: int
    lines: dict[Path, int]
    narration: tuple[str, ...] = ()

    def line_of(self, path: Path) -> int:
        """The line of the field at this path, or of the nearest part that exists; counts from 1."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, self.line)

    def inside(self, path: Path) -> "YamlDocument":
        """The part at this path as a document of its own, without comments."""
        value: Any = self.value
        for step in path:
            value = value[step]
        below = {each[len(path) :]: line for each, line in self.lines.items() if each[: len(path)] == path}
        return YamlDocument(value, self.line_of(path), below)


def read_documents(text: str) -> list[YamlDocument]:
    """Every document of a YAML text; documents without content are left out.

    Raises:
        YamlDocumentError: bad syntax, a key that is doubled or no text, a value without JSON form, an endless or huge structure.
    """
    loader = yaml.SafeLoader(text)
    try:
        return list(_documents(loader, text.splitlines()))
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        reason = " ".join(each for each in (problem.context, problem.problem) if each)
        raise YamlDocumentError(mark.line + 1 if mark else 1, f"this is not YAML: {reason}") from problem
    except yaml.YAMLError as problem:
        raise YamlDocumentError(1, f"this is not YAML: {problem}") from problem
    except RecursionError as problem:
        raise YamlDocumentError(1, "this is not a manifest: it is nested too deeply") from problem
    finally:
        loader.dispose()


def _documents(loader: yaml.SafeLoader, lines: list[str]) -> Iterator[YamlDocument]:
    while loader.check_node():
        node = loader.get_node()
        if node is None:
            break
        first = node.start_mark.line
        reader = _Reader(loader)
        value = reader.read(node, ())
        if value is not None:
            yield YamlDocument(value, first + 1, reader.lines, _comments_above(lines, first))


def _comments_above(lines: list[str], first: int) -> tuple[str, ...]:
    """Comment lines that start in the first column, up to the content before; blank lines between them stay."""
    found: list[str] = []
    for line in reversed(lines[:first]):
        stripped = line.rstrip()
        if stripped.startswith("#"):
            found.append(stripped[1:].removeprefix(" "))
        elif not stripped:
            found.append("")
        elif stripped != "---":
            break
    return tuple("\n".join(reversed(found)).strip("\n").splitlines())


class _Reader:
    """Turns composed nodes into JSON types and notes the line of every path."""

    def __init__(self, loader: yaml.SafeLoader) -> None:
        self._loader = loader
        self._count = 0
        self.lines: dict[Path, int] = {}

    def read(self, node: yaml.Node, path: Path) -> Any:
        line = node.start_mark.line + 1
        self.lines.setdefault(path, line)
        self._count += 1
        if len(path) > _DEEPEST or self._count > _MOST_VALUES:
            raise YamlDocumentError(
                line, "the document is nested too deeply or too large (is an alias used inside itself?)"
            )
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.read(each, (*path, index)) for index, each in enumerate(node.value)]
        return self._scalar(node, line)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        given = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        self._loader.flatten_mapping(node)
        value: dict[str, Any] = {}
        for key, child in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise YamlDocumentError(line, "a key must be a text")
            name = key.value
            if given.count(name) > 1:
                raise YamlDocumentError(line, f"key {name!r} is given twice")
            self.lines[(*path, name)] = line
            value[name] = self.read(child, (*path, name))
        return value

    def _scalar(self, node: yaml.Node, line: int) -> Any:
        if node.tag in _TEXT_TAGS:
            return node.value
        try:
            value = self._loader.construct_object(node)
        except (yaml.YAMLError, ValueError, LookupError) as problem:
            raise YamlDocumentError(line, f"cannot read the value {node.value!r}: {problem}") from problem
        if isinstance(value, float) and not math.isfinite(value):
            raise YamlDocumentError(line, f"{node.value!r} is no number that JSON knows")
        return value
