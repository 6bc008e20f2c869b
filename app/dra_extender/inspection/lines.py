"""How all answers are laid out: wrapped lines of a terminal, tables, CSV, and lines that say where the facts are from."""

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial, wraps
from textwrap import wrap
from typing import Final, Protocol, TypeVar

from dra_extender.inspection.objects import ALL_KINDS, JUDGED, GateState, Origin, unknown_text, unread
from dra_extender.model.api_json import printable
from dra_extender.model.metadata import time_text

R_contra = TypeVar("R_contra", contravariant=True)
Part = str | Callable[[int], Iterable[str]]
"""A line of an answer, or what lays lines out in so many columns."""

WIDTH: Final = 80
"""Columns for which answers are laid out where the terminal does not say."""
INDENT: Final = "  "
_GAP: Final = "  "
"""Between two columns."""
_FORMULA: Final = re.compile(r"(^|[;,])(\s*[=+\-@\uff1d\uff0b\uff0d\uff20])")
"""Where a cell, or what a spreadsheet of another locale takes for one, begins as a formula does."""
_COLUMN: Final = 9
"""Where the text begins behind the label of an origin."""
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


class TextOf(Protocol[R_contra]):
    """Returns an answer as text, in so many columns."""

    def __call__(self, report: R_contra, width: int = WIDTH) -> str: ...


def answer_text(lines: Iterable[str]) -> str:
    """Return the lines of an answer, each with its line break; control characters are escaped."""
    return "".join(f"{printable(line)}\n" for line in lines)


def as_text(parts: Callable[[R_contra], Iterator[Part]]) -> TextOf[R_contra]:
    """Return the function that returns an answer as text, in so many columns, of one that yields its parts."""

    @wraps(parts)
    def text(report: R_contra, width: int = WIDTH) -> str:
        laid_out = ((part,) if isinstance(part, str) else part(width) for part in parts(report))
        return answer_text(line for lines in laid_out for line in lines)

    return text


def paragraph(text: str, indent: str = "") -> Part:
    return partial(wrapped, text, indent)


def paragraphs(texts: Iterable[str], indent: str = "") -> Iterator[Part]:
    return (paragraph(text, indent) for text in texts)


def wrapped(text: str, indent: str, width: int) -> Sequence[str]:
    """Return the text in lines of at most so many columns, unless a word is longer; all but the first stand four columns deeper."""
    return wrap(text, width, initial_indent=indent, subsequent_indent=indent + INDENT * 2, break_long_words=False)


def beside_label(label: str, lines: Sequence[str], width: int) -> Iterator[str]:
    """Yield the lines, wrapped, in a column of their own with the label before the first of them."""
    before = label
    for line in lines:
        for part in wrap(line, width - len(label), break_long_words=False) or [""]:
            yield (before + part).rstrip()
            before = " " * len(label)


def beside_labels(rows: Sequence[tuple[str, Sequence[str]]], indent: str = INDENT, gap: str = _GAP) -> Iterator[Part]:
    """Yield labels in one column as wide as the widest, and the lines of each, wrapped, in a column beside it."""
    column = max((len(label) for label, _ in rows), default=0)
    return (partial(beside_label, f"{indent}{label:<{column}}{gap}", lines) for label, lines in rows)


def table_text(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return the rows below their header, in capitals, in columns as wide as their widest cells; an empty cell is a minus sign."""
    cells = [[printable(text) or "-" for text in row] for row in ([name.upper() for name in header], *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "".join(
        _GAP.join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip() + "\n" for row in cells
    )


def csv_text(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return the rows below their header by RFC 4180, every cell in quotes; an apostrophe is before what looks like a formula."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    # Most cells are equal to one above them.
    safe: dict[str, str] = {}
    for row in (header, *rows):
        for text in row:
            if text not in safe:
                safe[text] = _FORMULA.sub(r"\1'\2", printable(text))
        writer.writerow([safe[text] for text in row])
    return buffer.getvalue()


def age_text(seconds: float) -> str:
    """Return a duration as kubectl shows ages: `12m`, `3h`, `41s`."""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return "0s"


def clock_text(seconds: float) -> str:
    """Return the time of day (UTC) of a time in seconds since the epoch; what no calendar has is far away."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return "further notice"


def origin_lines(origin: Origin, columns: int) -> Sequence[str]:
    """Return labelled lines of at most so many columns, without line breaks; control characters are escaped."""
    release = f", {origin.release}" if origin.release else ", release unknown"
    facts = [
        ("source", f"{origin.source}, read {time_text(origin.taken_at)}{release}"),
        ("gates", _gates(origin)),
        ("holds", origin.holds),
    ]
    missing = unread(origin, ALL_KINDS)
    if missing:
        facts.append(("partial", unknown_text(missing)))
    return tuple(
        line
        for label, text in facts
        if text
        for line in wrap(
            printable(text),
            columns,
            initial_indent=f"{label:<{_COLUMN}}",
            subsequent_indent=" " * _COLUMN,
            break_long_words=False,
            break_on_hyphens=False,
        )
    )


def unknown_parts(origin: Origin) -> Iterator[Part]:
    """Yield what comes first in an answer about pods that wait if kinds that it depends on could not be read."""
    missing = unread(origin, JUDGED)
    if missing:
        yield paragraph(f"not known: {unknown_text(missing)}")


def _gates(origin: Origin) -> str:
    by_state = {state: [gate.gate for gate in origin.gates if gate.state is state] for state in GateState}
    off, unknown = by_state[GateState.OFF], by_state[GateState.UNKNOWN]
    if not origin.gates:
        return "not known, all taken as on"
    parts = [f"off: {', '.join(off)}"] if off else []
    if unknown:
        parts.append(
            "not known, taken as on" if not off and not by_state[GateState.ON] else f"taken as on: {', '.join(unknown)}"
        )
    return "; ".join(parts) or "all on"
