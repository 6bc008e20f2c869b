"""Decisions agree with those of the released upstream allocator (labels of Kubernetes 1.37.1).

The family "narrowed" holds random variations of the others, labelled by the same release: many with more requests than fit, half
of them with features switched off at random.
"""

import gzip
import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml
from dra_extender.simulator.scenario import answer_line, answers

from tests.parity.comparing import differences

HERE = Path(__file__).parent
FAMILIES = sorted(
    path.name.removesuffix(".jsonl.gz") for path in (HERE / "scenarios").glob("*.jsonl.gz") if path.name[:4] != "cel."
)
DIFFERENCES: dict[str, dict[str, str]] = yaml.safe_load((HERE / "differences.yaml").read_text())


def labelled(family: str) -> list[tuple[bytes, dict[str, Any]]]:
    with gzip.open(HERE / "scenarios" / f"{family}.jsonl.gz") as lines:
        return [(line, found) for line in lines if (found := json.loads(line))["scenario"].get("kind") != "cel"]


@pytest.mark.parametrize("family", FAMILIES)
def test_family_agrees_with_upstream(family: str) -> None:
    agreed, explained = 0, 0
    problems = []
    for line, known in labelled(family):
        name = known["scenario"]["name"]
        answer = answer_line(line)
        if b'"timedOut"' in answer:
            answer = answer_line(line)  # the machine may have stood still for as long as the scenario may take
        found = list(differences(known["expected"], json.loads(answer)))
        if found and name not in DIFFERENCES:
            problems.append(f"{name}: {found[0]}")
        if not found and name in DIFFERENCES:
            problems.append(f"{name}: agrees with upstream, but is listed in differences.yaml")
        agreed += not found
        explained += name in DIFFERENCES
    print(f"{family:<12} agree {agreed} / {agreed + explained + len(problems)} / differ on purpose {explained}")
    assert problems == []


def test_listed_differences_name_scenarios_that_exist() -> None:
    names = {known["scenario"]["name"] for family in FAMILIES for _, known in labelled(family)}
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
        (b"[" * 200_000, ""),
        (b'{"name": "x", "timeoutMs": 0}', "x"),
        (b'{"name": "x", "claims": [{"spec": {"devices": {"requests": {}}}}]}', "x"),
        (
            (
                b'{"name": "x", "allocated": [{"status": {"allocation": {"devices": {"results": [{"request": "r", "driver": "d", '
                b'"pool": "p", "device": "d", "consumedCapacity": {"m": "much"}}]}}}}]}'
            ),
            "x",
        ),
        (b"null", ""),
        (b'{"name": null}', ""),
        (b'{"name": "x"} {"name": "y"}', ""),
        (b'{"name": "x", "big": ' + b"9" * 5000 + b"}", ""),
        (b'{"name": "x", "timeoutMs": NaN}', ""),
        (b'{"name": "x", "timeoutMs": "5"}', "x"),
        (b'{"name": "x", "nodes": {}}', "x"),
        (b'{"name": "x", "nodes": [null]}', "x"),
        (b'{"name": "x", "nodes": [{"metadata": {"name": 5}}]}', "x"),
        (b'{"name": "x", "claims": [{"spec": null}]}', "x"),
        (b'{"name": "x", "features": {"AdminAccess": "yes"}}', "x"),
        (b'{"name": "x", "kind": "other"}', "x"),
        (b'{"name": "x", "kind": 5}', "x"),
        (b'{"name": "x", "kind": "cel"}', "x"),
        (b'{"name": "x", "kind": "cel", "expression": "true", "device": 5}', "x"),
    ],
)
def test_line_that_cannot_be_read_is_answered_with_an_error(line: bytes, name: str) -> None:
    answer = json.loads(answer_line(line))
    assert answer["name"] == name
    assert answer["error"]


def nested(depth: int) -> bytes:
    """A scenario with configuration that is nested this deep."""
    parameters = b'{"a": ' * depth + b"1" + b"}" * depth
    config = b'{"opaque": {"driver": "d", "parameters": ' + parameters + b"}}"
    spec = b'{"devices": {"requests": [], "config": [' + config + b"]}}"
    return b'{"name": "deep", "nodes": [{"metadata": {"name": "n"}}], "claims": [{"spec": ' + spec + b"}]}"


@pytest.mark.parametrize("depth", [10, 300, 900, 960, 975, 990, 5_000, 200_000])
def test_nesting_ends_in_an_answer_however_deep_it_is(depth: int) -> None:
    answer = json.loads(answer_line(nested(depth)))
    assert ("error" in answer) == (depth > 10) or answer["nodes"][0]["fits"]
    assert "internal" not in answer.get("error", "")


def test_lines_that_cannot_be_read_leave_order_and_the_other_answers_alone() -> None:
    good = [line for line, _ in labelled("basic")[:3]]
    bad = [
        b"{",
        b'\xff{"name": "x"}',
        b"[" * 200_000,
        b'{"name": 5}',
        b'{"name": "y", "timeoutMs": ' + b"9" * 400 + b"}",
    ]
    mixed = [good[0], bad[0], bad[1], good[1], bad[2], bad[3], bad[4], good[2]]
    found = list(answers(line.rstrip(b"\n") + b"\n" for line in mixed))
    assert [found[index] for index in (0, 3, 7)] == list(answers(good))
    assert [bool(json.loads(found[index]).get("error")) for index in (1, 2, 4, 5, 6)] == [True, True, True, True, False]
    assert all(line.count(b"\n") == 1 for line in found)


def test_fault_of_ours_in_one_line_is_told_as_such() -> None:
    with patch("dra_extender.simulator.scenario.node_pools", side_effect=ZeroDivisionError("oops")):
        answer = json.loads(answer_line(labelled("basic")[0][0]))
    assert answer["error"] == "internal error, ZeroDivisionError: oops"


def test_search_that_takes_too_long_says_so() -> None:
    pool = {"name": "p", "resourceSliceCount": 1}
    spec = {"driver": "d", "pool": pool, "allNodes": True, "devices": [{"name": "a"}]}
    expression = "[1].all(x, lists.range(20000).all(y, y + x > 0))"
    selectors = [{"cel": {"expression": expression}}]
    request = {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1, "selectors": selectors}
    scenario = {
        "name": "slow",
        "nodes": [{"metadata": {"name": "n"}}],
        "slices": [{"metadata": {"name": "s"}, "spec": spec}],
        "classes": [{"metadata": {"name": "c"}, "spec": {}}],
        "claims": [{"spec": {"devices": {"requests": [{"name": "r", "exactly": request}]}}}],
        "timeoutMs": 0.001,
    }
    answer = json.loads(answer_line(json.dumps(scenario).encode()))
    assert answer["nodes"][0]["timedOut"] is True
    assert answer["nodes"][0]["error"].startswith("search was stopped at its limit")
