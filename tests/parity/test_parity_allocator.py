"""Decisions agree with those of the released upstream allocator (labels of Kubernetes 1.37.1)."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.simulator.scenario_answer import answer_line
from tests.parity.comparing import differences
from tests.parity.scope import out_of_scope

HERE = Path(__file__).parent
FAMILIES = sorted(
    path.name.removesuffix(".jsonl.gz") for path in (HERE / "scenarios").glob("*.jsonl.gz") if path.name[:4] != "cel."
)
DIFFERENCES: dict[str, dict[str, str]] = yaml.safe_load((HERE / "differences.yaml").read_text())


def labelled(family: str) -> list[tuple[bytes, dict[str, Any]]]:
    with gzip.open(HERE / "scenarios" / f"{family}.jsonl.gz") as lines:
        return [(line, found) for line in lines if (found := json.loads(line))["scenario"].get("kind") != "cel"]


@pytest.mark.parametrize("family", FAMILIES)
def test_family_agrees_with_upstream_where_in_scope(family: str) -> None:
    reasons: Counter[str] = Counter()
    agreed, explained = 0, 0
    problems = []
    for line, known in labelled(family):
        name, reason = known["scenario"]["name"], out_of_scope(known["scenario"])
        if reason is not None:
            reasons[reason] += 1
            continue
        found = list(differences(known["expected"], json.loads(answer_line(line))))
        if found and name not in DIFFERENCES:
            problems.append(f"{name}: {found[0]}")
        if not found and name in DIFFERENCES:
            problems.append(f"{name}: agrees with upstream, but is listed in differences.yaml")
        agreed += not found
        explained += name in DIFFERENCES
    total = agreed + explained + len(problems)
    left_out = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common()) or "none"
    print(f"{family:<12} agree {agreed} / in scope {total} / differ on purpose {explained} / out of scope: {left_out}")
    assert problems == []


def test_most_scenarios_are_in_scope() -> None:
    everything = [known["scenario"] for family in FAMILIES for _, known in labelled(family)]
    assert sum(out_of_scope(scenario) is None for scenario in everything) > 0.65 * len(everything)


def test_listed_differences_name_scenarios_that_exist_and_are_in_scope() -> None:
    names = {
        known["scenario"]["name"]
        for family in FAMILIES
        for _, known in labelled(family)
        if out_of_scope(known["scenario"]) is None
    }
    assert set(DIFFERENCES) <= names
    assert all(each["rule"] and each["why"] for each in DIFFERENCES.values())


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (b"", ""),
        (b"not json", ""),
        (b"[]", ""),
        (b"{}", ""),
        (b'{"name": 1}', ""),
        (b'\xff{"name": "x"}', ""),
        (b'{"name": "x", "nodes": 5}', "x"),
        (b'{"name": "x", "nodes": [5]}', "x"),
        (b'{"name": "x", "features": {"Unknown": true}}', "x"),
        (b'{"name": "x", "features": []}', "x"),
        (b'{"name": "x", "slices": [{"metadata": {}, "spec": {}}]}', "x"),
        (b'{"name": "x", "kind": "cel"}', "x"),
        (b'{"name": "x", "kind": "cel", "expression": "true", "device": 5}', "x"),
    ],
)
def test_line_that_cannot_be_read_is_answered_with_an_error(line: bytes, name: str) -> None:
    answer = json.loads(answer_line(line))
    assert answer["name"] == name
    assert answer["error"]
