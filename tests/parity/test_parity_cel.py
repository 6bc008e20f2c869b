"""Every selector has the outcome that upstream gave it; the exceptions are named, and may not outlive their reason."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.parity.selectors import Json, ours, theirs

SCENARIOS = Path(__file__).parent / "scenarios"
DIFFERENT: dict[str, str] = {}


def labelled() -> Iterator[Json]:
    for name in ("cel.jsonl.gz", "vectors.jsonl.gz"):
        with gzip.open(SCENARIOS / name, "rt", encoding="utf-8") as lines:
            for line in lines:
                entry = json.loads(line)
                if entry["scenario"].get("kind") == "cel":
                    yield entry


ENTRIES = {entry["scenario"]["name"]: entry for entry in labelled()}


def test_all_labelled_selectors_are_there() -> None:
    assert len(ENTRIES) == 466
    assert set(DIFFERENT) <= set(ENTRIES)


@pytest.mark.parametrize("name", ENTRIES)
def test_outcome_and_cost_are_upstreams(name: str) -> None:
    """A selector that is listed as different must differ; all others agree, in cost units too."""
    entry = ENTRIES[name]
    agrees = ours(entry["scenario"]) == theirs(entry["expected"]["cel"])
    assert agrees is (name not in DIFFERENT), DIFFERENT.get(name, "differs from upstream and is not listed")


def test_the_costs_are_counted_for_the_report() -> None:
    """Says how many evaluations cost exactly what upstream charges; the test above makes sure that it is all of them."""
    pairs = [(ours(entry["scenario"]), theirs(entry["expected"]["cel"])) for entry in ENTRIES.values()]
    both = [(one.cost, other.cost) for one, other in pairs if one.cost is not None and other.cost is not None]
    equal = sum(one == other for one, other in both)
    agreed = sum(one.verdict == other.verdict for one, other in pairs)
    total = f"{agreed} of {len(pairs)} outcomes agree, {len(DIFFERENT)} different on purpose"
    print(f"\ncel: {total}; {equal} of {len(both)} costs equal")
    assert equal == len(both)
