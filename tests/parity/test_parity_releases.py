"""The switches of `ReleaseRules` agree with the releases that they stand for: labelled answers of Kubernetes 1.36.0 and 1.36.6.

1.36.0 tells counters of pools apart by the pools' names alone; its scenarios have nothing but counters, since its search loses
track of them beside taints, constraints and shares.  1.36.6 compares distinctAttribute with the last device of each request.
"""

import gzip
import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from dra_extender.allocator.state.features import UPSTREAM, ReleaseBehaviour
from dra_extender.simulator.scenario import answer_line

from tests.parity.comparing import differences
from tests.support.allocator.other_releases import allocate_as_release, release_rules

HERE = Path(__file__).parent / "releases"
RULES = {
    "counters-1.36.0": release_rules(UPSTREAM, counters_by_driver=False),
    "distinct-1.36.6": release_rules(UPSTREAM, distinct_from_every_device=False),
}
ENOUGH = 50


def labelled(name: str) -> list[dict[str, Any]]:
    with gzip.open(HERE / f"{name}.jsonl.gz") as lines:
        return [json.loads(line) for line in lines]


def disagreements(name: str, rules: ReleaseBehaviour) -> list[str]:
    found = []
    with (
        patch("dra_extender.simulator.scenario.UPSTREAM", rules),
        patch("dra_extender.simulator.scenario.allocate", allocate_as_release),
    ):
        for each in labelled(name):
            answer = json.loads(answer_line(json.dumps(each["scenario"]).encode()))
            found += [f"{each['scenario']['name']}: {what}" for what in differences(each["expected"], answer)][:1]
    return found


@pytest.mark.parametrize("name", sorted(RULES))
def test_switch_agrees_with_the_release_and_makes_a_difference(name: str) -> None:
    assert disagreements(name, RULES[name]) == []
    assert len(disagreements(name, UPSTREAM)) > ENOUGH
