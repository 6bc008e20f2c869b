"""Where a character of a YAML value stands in the file, in whatever style the value is written."""

from collections.abc import Iterator
from typing import Final

import msgspec
import yaml

_BLOCKS: Final = frozenset({"|", ">"})
_BLANK_ESCAPES: Final = frozenset(" \tntrvfN_LP")
_DIGITS: Final = {"x": 2, "u": 4, "U": 8}


class ScalarPosition(msgspec.Struct, frozen=True):
    """A scalar as it stands in the file: its text with quotes or block header, from `line` and `column`, both from 1.

    `style` is `'`, `"`, `|`, `>` or None for a plain scalar.
    """

    raw: str
    style: str | None
    line: int
    column: int

    def place(self, value: str, offset: int) -> tuple[int, int]:
        """Line and column of a character of the value.

        YAML folds blanks and resolves escapes but keeps everything else, so the characters that are no blanks are counted.
        """
        wanted = sum(not character.isspace() for character in value[:offset])
        index = end = 0
        for count, (index, end) in enumerate(_solids(self.raw, self.style)):  # noqa: B007 - used below if the value ends before
            if count == wanted:
                return self._at(index)
        return self._at(end)

    def _at(self, index: int) -> tuple[int, int]:
        last = self.raw.rfind("\n", 0, index)
        if last < 0:
            return self.line, self.column + index
        return self.line + self.raw.count("\n", 0, index), index - last


def written(text: str, node: yaml.ScalarNode) -> ScalarPosition:
    """The scalar of a composed node of this text."""
    mark = node.start_mark
    return ScalarPosition(text[mark.index : node.end_mark.index], node.style, mark.line + 1, mark.column + 1)


def _solids(raw: str, style: str | None) -> Iterator[tuple[int, int]]:
    """Begin and end of what stands for each character that is no blank."""
    index = 0
    end = len(raw)
    if style in _BLOCKS:
        index = raw.find("\n") + 1
    elif style is not None:
        index, end = 1, end - 1
    while index < end:
        width, solid = _next(raw, index, style)
        if solid:
            yield index, index + width
        index += width


def _next(raw: str, index: int, style: str | None) -> tuple[int, bool]:
    """How long the next character's spelling is, and whether it is more than a blank."""
    character = raw[index]
    if style == "'" and character == "'":
        return 2, True
    if style != '"' or character != "\\":
        return 1, not character.isspace()
    kind = raw[index + 1]
    if kind in _DIGITS:
        digits = raw[index + 2 : index + 2 + _DIGITS[kind]]
        return 2 + len(digits), not chr(int(digits, 16)).isspace()
    return 2, kind not in _BLANK_ESCAPES and not kind.isspace()
