"""Where the facts of an answer come from, as lines for people: source, time, release, feature gates, and what could not be read."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from textwrap import wrap
from typing import Final

from dra_extender.inspection.holders import printable
from dra_extender.inspection.objects import GateState, MissingKind, Origin

_COLUMN: Final = 9


def origin_lines(origin: Origin, columns: int) -> Sequence[str]:
    """Labelled lines of at most so many columns, without line breaks; control characters are escaped."""
    return tuple(_lines(origin, columns))


def _lines(origin: Origin, columns: int) -> Iterator[str]:
    release = f", {origin.release}" if origin.release else ", release unknown"
    yield from _labelled("source", f"{origin.source}, read {time_text(origin.taken_at)}{release}", columns)
    yield from _labelled("gates", _gates(origin), columns)
    if origin.holds:
        yield from _labelled("holds", origin.holds, columns)
    for each in origin.missing:
        if each.served:
            yield from _labelled("partial", _missing(each), columns)


def time_text(seconds: float) -> str:
    """A time (seconds since the epoch) as the API writes one, in UTC; what no calendar has is written as the number."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"at {seconds:g} s"


def _gates(origin: Origin) -> str:
    by_state = {state: [each.gate for each in origin.gates if each.state is state] for state in GateState}
    off, unknown = by_state[GateState.OFF], by_state[GateState.UNKNOWN]
    if not origin.gates:
        return "not known, all taken as on"
    parts = [f"off: {', '.join(off)}"] if off else []
    if unknown:
        parts.append(
            "not known, taken as on" if not off and not by_state[GateState.ON] else f"taken as on: {', '.join(unknown)}"
        )
    return "; ".join(parts) or "all on"


def _missing(missing: MissingKind) -> str:
    if missing.namespace:
        return f"{missing.kind} of namespace {missing.namespace} alone: {missing.reason}"
    if missing.kind == "nodes":
        return f"nodes are those that slices name, without labels and taints: {missing.reason}"
    return f"no {missing.kind}: {missing.reason}"


def _labelled(label: str, text: str, columns: int) -> Sequence[str]:
    begin = f"{label:<{_COLUMN}}"
    return wrap(
        printable(text),
        columns,
        initial_indent=begin,
        subsequent_indent=" " * _COLUMN,
        break_long_words=False,
        break_on_hyphens=False,
    )
