from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final, Literal

import msgspec

from tests.bench.cases import is_declared


class BenchError(Exception):
    """A measurement means nothing: a contender answered wrongly, or did not finish; the message says which and how."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on a ratio of ours to a peer's figure."""

    relation: Literal["<=", ">="]
    value: float

    def met_by(self, ratio: float) -> bool:
        """Whether the ratio keeps the bound."""
        return ratio <= self.value if self.relation == "<=" else ratio >= self.value

    def __str__(self) -> str:
        return f"{self.relation} {self.value:g}"


WITHIN: Final = Goal("<=", 1.0)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One comparison: medians over the rounds of one run (means in the area fits), and their ratio (ours / peer).

    `lowest` and `highest` are the extremes of the ratio over the rounds; `details` are further figures of ours, named with units.
    """

    area: str
    case: str
    unit: str
    ours: float
    peer: float
    peer_name: str
    ratio: float
    goal: str | None
    met: bool | None
    lowest: float
    highest: float
    rounds: int
    details: dict[str, float] = {}


def compare(
    area: str,
    case: str,
    unit: str,
    rounds: Sequence[tuple[float, float]],
    peer_name: str,
    *,
    goal: Goal | None = None,
    details: Mapping[str, float] | None = None,
    average: Callable[[Iterable[float]], float] = median,
) -> Row:
    """Return the row of these rounds, each with ours and the peer's figure; `average` makes one figure of all rounds."""
    if not is_declared(area, case):
        raise BenchError(f"tests/bench/cases.py declares no row {case!r} of area {area}.")
    ours, peer = average([each for each, _ in rounds]), average([each for _, each in rounds])
    ratios = [mine / theirs for mine, theirs in rounds]
    return Row(
        area=area,
        case=case,
        unit=unit,
        ours=_short(ours),
        peer=_short(peer),
        peer_name=peer_name,
        ratio=_short(ours / peer),
        goal=None if goal is None else str(goal),
        met=None if goal is None else goal.met_by(ours / peer),
        lowest=_short(min(ratios)),
        highest=_short(max(ratios)),
        rounds=len(rounds),
        details={name: _short(value) for name, value in (details or {}).items()},
    )


def within(
    area: str,
    case: str,
    unit: str,
    figures: Sequence[float],
    bound: float,
    *,
    peer_name: str = "goal",
    details: Mapping[str, float] | None = None,
) -> Row:
    """Return the row of these figures, which may not exceed a bound."""
    return compare(area, case, unit, [(each, bound) for each in figures], peer_name, goal=WITHIN, details=details)


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Writes the rows as a JSON list."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=2) + b"\n")


def read_rows(path: Path) -> list[Row]:
    """What `write_rows` wrote; BenchError if there is nothing, or something else."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Row])
    except OSError as problem:
        raise BenchError(f"There are no rows at {path}; run the bench first.") from problem
    except msgspec.DecodeError as problem:
        raise BenchError(f"{path} does not hold rows of the bench: {problem}") from problem


def _short(value: float) -> float:
    """Four significant digits: more would pretend to a precision that nothing here has."""
    return float(f"{value:.4g}")
