"""What a search may find: limits, measurements above them, and the table of what was tried."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Job = Mapping[str, Any]
"""One thing for a worker to run: `kind` names the probe, the rest is its input."""

NATIVE_SECONDS: Final = 0.005
"""Longest that the interpreter may be held by one native call."""
STALL_SECONDS: Final = 0.1
"""Longest that the event loop may be held, and between two looks at a deadline."""
_MOST_BASE_UNITS: Final = 10_000
"""Evaluations that charge less than this say nothing about what a unit costs."""
GROWN_BYTES: Final = 64 * 2**20
"""Most memory that one input may take."""


@dataclass(frozen=True)
class Limit:
    """A measured name, and how much of it is too much."""

    name: str
    most: float
    unit: str

    def shown(self, value: float) -> str:
        scale, unit = (
            (1000.0, "ms") if self.unit == "s" else (1 / 2**20, "MiB") if self.unit == "B" else (1.0, self.unit)
        )
        return f"{value * scale:.3g} {unit}"


NATIVE: Final = Limit("native", NATIVE_SECONDS, "s")
STALL: Final = Limit("stall", STALL_SECONDS, "s")
GROWN: Final = Limit("grown", GROWN_BYTES, "B")
BROKEN: Final = Limit("broken", 0, "")
"""Counts what is wrong whatever it costs: an exception that is not the caller's, a dead task, a pod that is not placed."""


@dataclass(frozen=True)
class Measured:
    """What a worker measured; `note` says where, or how it ended."""

    values: Mapping[str, float]
    note: str = ""

    def of(self, limit: Limit) -> float:
        """The value under a limit's name, 0 if it was not measured."""
        return self.values.get(limit.name, 0.0)

    def worst(self, limits: tuple[Limit, ...]) -> tuple[Limit, float]:
        """The limit that is nearest or furthest exceeded, and by which factor."""
        return max(((each, _ratio(self.of(each), each)) for each in limits), key=lambda pair: pair[1])


def _ratio(value: float, limit: Limit) -> float:
    if limit.most:
        return value / limit.most
    return 1.0 + value if value else 0.0


@dataclass(frozen=True)
class Finding:
    """An input above a limit, confirmed in fresh processes."""

    part: str
    subject: str
    limit: Limit
    value: float
    job: Job
    text: str
    note: str

    def lines(self, seed: int, replay: str) -> Iterator[str]:
        """For people: what, how much, the input, and how to see it again."""
        shown = self.text if len(self.text) <= 1200 else f"{self.text[:1000]} ... ({len(self.text)} characters)"
        what = self.note if self.limit is BROKEN else f"{self.limit.name} {self.limit.shown(self.value)}"
        allowed = "" if self.limit is BROKEN else f" (at most {self.limit.shown(self.limit.most)})"
        yield f"FOUND {self.part}, {self.subject}: {what}{allowed}"
        if self.note and self.limit is not BROKEN:
            yield f"  where: {self.note}"
        yield f"  input: {shown}"
        yield f"  again: --only {self.part} --seed {seed}, or exactly: {replay}"


@dataclass
class Row:
    """What was tried about one subject, and the worst of it."""

    subject: str
    executions: int = 0
    worst: dict[str, float] = field(default_factory=dict)
    ratio: float = 0.0
    text: str = ""
    dearest: float = 0.0

    def note(self, measured: Measured, ratio: float, text: str) -> None:
        """Count one execution."""
        self.executions += 1
        for name, value in measured.values.items():
            self.worst[name] = max(self.worst.get(name, 0.0), value)
        charged = measured.values.get("charged", 0.0)
        if charged > _MOST_BASE_UNITS:
            self.dearest = max(self.dearest, measured.values["cpu"] / charged)
        if ratio >= self.ratio:
            self.ratio, self.text = ratio, text


@dataclass
class Tally:
    """What a part did; `seed` is where its random numbers began."""

    part: str
    seed: int
    module: str = ""
    rows: dict[str, Row] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    unconfirmed: int = 0
    notes: list[str] = field(default_factory=list)

    def row(self, subject: str) -> Row:
        """The row of a subject, made when first asked for."""
        return self.rows.setdefault(subject, Row(subject))

    @property
    def executions(self) -> int:
        """How many inputs were run."""
        return sum(row.executions for row in self.rows.values())
