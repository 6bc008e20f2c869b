"""Colours of answers for people, on a terminal that shows them; each state has its word, and a device a shape, too.

A finished answer is painted: its layout and the escapes of hostile names stay.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Final

import typer


class ColorChoice(StrEnum):
    """AUTO: on a terminal, unless $NO_COLOR is set or $TERM is dumb."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


Color = Annotated[
    ColorChoice,
    typer.Option("--color", help="Colour text for people; auto: on a terminal, unless $NO_COLOR is set."),
]

_CHOICE: Final = ContextVar("color", default=ColorChoice.AUTO)
_STYLES: Final[Mapping[str, str]] = MappingProxyType(
    {"good": "32", "worse": "33", "bad": "31", "strong": "1", "faint": "2"}
)
_WORD: Final = r"(?<![\w/.:-]){}(?![\w/.-])"
"""A word that is no part of a name."""
_PATTERNS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "strong": r"^[^\s├└]\S*$|^ +next(?=  )",
        "faint": r"^(?:source|gates|holds|partial)(?= )|^[├└]",
        "bad": _WORD.format(
            r"(?:unusable|[1-9]\d* errors?|error(?=:)|failed|timed out|not published any more|claim deleted|fits 0 of \d+ nodes)"
        ),
        "worse": _WORD.format(
            r"(?:blocked(?: by \w+)?|waits?|waiting|[1-9]\d* warnings?|warning(?=:)|pending|being allocated|not known"
            r"|held until [\d:]+Z)"
        ),
        "good": _WORD.format(r"(?:usable|sound|ok|lands? on|devices would suffice)"),
    }
)
_PAINT: Final = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in _PATTERNS.items()), re.MULTILINE)
_SHAPES: Final[Mapping[str, str]] = MappingProxyType({"usable": "○", "blocked": "◐", "unusable": "✕"})
_IN_USE: Final = "●"
_DEVICE: Final = re.compile(
    r"^( {2,})  (?=\S+ +(?:(usable|blocked|unusable)(?: by \w+)?(?:[:;]|$)|\S+/\S+ \(claim ))", re.MULTILINE
)
"""Before a device in a tree: its state if no claim has it; otherwise the pod that has it follows."""


@contextmanager
def chosen(choice: ColorChoice) -> Iterator[None]:
    """Go by the choice of the command line while a command runs."""
    token = _CHOICE.set(choice)
    try:
        yield
    finally:
        _CHOICE.reset(token)


def is_wanted() -> bool:
    choice = _CHOICE.get()
    if choice is not ColorChoice.AUTO:
        return choice is ColorChoice.ALWAYS
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not sys.stdout.isatty():
        return False
    # Older consoles of Windows print escapes as they are.
    return sys.platform != "win32" or "WT_SESSION" in os.environ


def painted(text: str) -> str:
    """Return the text as it is printed: with colours and shapes where they are wanted."""
    if not is_wanted():
        return text
    shaped = _DEVICE.sub(lambda match: f"{match[1]}{_SHAPES.get(match[2] or '', _IN_USE)} ", text)
    return _PAINT.sub(lambda match: f"\x1b[{_STYLES[match.lastgroup or '']}m{match[0]}\x1b[0m", shaped)
