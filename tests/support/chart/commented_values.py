"""values.yaml as its author wrote it: each value with the comment above it.

A line `# @schema {...}` in the comment holds what the default does not say about the permitted values, as JSON Schema.  A `$ref` in
it names a type of Kubernetes (`Toleration`), `Settings` or `Policy`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

_MARK: Final = "@schema "


class UnexplainedValueError(ValueError):
    """A value has no comment, or says too little of what it holds; the message names it."""


@dataclass(frozen=True, slots=True)
class CommentedValue:
    """A value: where it is, what it is by default, what it means, and what is permitted beyond the type of the default.

    `children` are the values in it, where its keys are values of the chart.
    """

    path: tuple[str, ...]
    default: Any
    meaning: str
    permitted: Mapping[str, Any]
    children: tuple["CommentedValue", ...]

    @property
    def name(self) -> str:
        """E.g. `image.tag`."""
        return ".".join(self.path)

    def leaves(self) -> Iterator["CommentedValue"]:
        """The values that people set: those without children."""
        if not self.children:
            yield self
        for each in self.children:
            yield from each.leaves()


def read_values(file: Path) -> tuple[CommentedValue, ...]:
    """The values in the order of the file.

    Raises:
        UnexplainedValueError: a value has no comment.
    """
    text = file.read_text(encoding="utf-8")
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(node, yaml.MappingNode):
        raise UnexplainedValueError(f"{file.name}: expected a mapping")
    return tuple(_values(node, yaml.safe_load(text), text.splitlines(), ()))


def _values(
    node: yaml.MappingNode, loaded: Mapping[str, Any], lines: Sequence[str], above: tuple[str, ...]
) -> Iterator[CommentedValue]:
    for key, value in node.value:
        path = (*above, str(key.value))
        default = loaded[key.value]
        meaning, permitted = _comment(lines, key.start_mark.line, ".".join(path))
        nested = isinstance(value, yaml.MappingNode) and value.value and not permitted
        children = tuple(_values(value, default, lines, path)) if nested else ()
        yield CommentedValue(path, default, meaning, permitted, children)


def _comment(lines: Sequence[str], line: int, name: str) -> tuple[str, Mapping[str, Any]]:
    """The text above a line, and the schema in it."""
    start = line
    while start and lines[start - 1].lstrip().startswith("#"):
        start -= 1
    words, permitted = [], {}
    for each in (lines[index].lstrip().removeprefix("#").strip() for index in range(start, line)):
        if each.startswith(_MARK):
            permitted = yaml.safe_load(each.removeprefix(_MARK))
        else:
            words.append(each)
    if not words:
        raise UnexplainedValueError(f"values.yaml: {name} has no comment above it")
    return " ".join(words), permitted
