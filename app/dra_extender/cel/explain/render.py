"""Explanations for people, as one line or indented, and for programs."""

from collections.abc import Iterator
from typing import Any, Final

from dra_extender.cel.explain.values import Part

_MOST_REASONS: Final = 3
_INDENT: Final = "  "


def one_line(part: Part) -> str:
    """The reasons alone, at most three: `device.attributes["gpu.example.com"].model is "A100", wanted "H100"`."""
    reasons = list(dict.fromkeys(_reasons(part)))
    more = f"; and {len(reasons) - _MOST_REASONS} more" if len(reasons) > _MOST_REASONS else ""
    return "; ".join(reasons[:_MOST_REASONS]) + more


def indented(part: Part) -> str:
    """One line for each part, below the one that it decides."""
    return "\n".join(_lines(part, 0))


def to_json(part: Part) -> dict[str, Any]:
    """The tree in JSON types: expression, line, column, verdict, words, parts and, if there were more of them, cut."""
    found: dict[str, Any] = {
        "expression": part.expression,
        "line": part.line,
        "column": part.column,
        "verdict": part.verdict.value,
        "words": part.words,
        "parts": [to_json(each) for each in part.parts],
    }
    return {**found, "cut": True} if part.cut else found


def _reasons(part: Part) -> Iterator[str]:
    """The words of the leaves; a part that counts elements is followed by what the first of them is like."""
    if not part.parts:
        yield part.words or f"{part.expression} is {part.verdict}"
    elif part.words and not part.words.startswith("where "):
        yield f"{part.words} ({', '.join(_reasons(part.parts[0]))})"
    else:
        for each in part.parts:
            yield from _reasons(each)


def _lines(part: Part, depth: int) -> Iterator[str]:
    text = f"{part.verdict}: {part.words or part.expression}"
    yield _INDENT * depth + text
    for each in part.parts:
        yield from _lines(each, depth + 1)
    if part.cut:
        yield f"{_INDENT * (depth + 1)}..."
