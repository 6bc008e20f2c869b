"""The table of planted_seeds.md; `python -m tests.simulation --planted --write` writes it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.simulation.planted import PLANTED

DOCUMENT: Final = Path(__file__).parent / "planted_seeds.md"
_MARK: Final = "<!-- table -->\n"
_HEAD: Final = "| planted fault | found in seed | what is reported |\n|---|---|---|\n"

Row = tuple[str, str]
"""A seed that finds a fault, and what is reported."""


def line(name: str, row: Row) -> str:
    return f"| {name} | {row[0]} | {row[1]} |"


def rows() -> dict[str, Row]:
    """What the document has, by the name of the fault."""
    lines = DOCUMENT.read_text().partition(_HEAD)[2].splitlines()
    cells = [[cell.strip() for cell in each.strip("|").split("|")] for each in lines if each.startswith("|")]
    return {name: (seed, reported) for name, seed, reported in cells}


def write(found: Mapping[str, Row]) -> None:
    """Have the document show these rows, in the order of the faults."""
    lines = [line(name, found.get(name, ("not found yet", ""))) for name in PLANTED]
    before, mark, _ = DOCUMENT.read_text().partition(_MARK)
    DOCUMENT.write_text("".join((before, mark, "\n", _HEAD, "\n".join(lines), "\n")))
