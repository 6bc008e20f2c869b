"""Random clusters and claims are decided as upstream decides them; `python -m tests.parity.fuzz` asks as many as one likes."""

from collections import Counter
from itertools import islice
from typing import Any
from unittest.mock import patch

import pytest
from dra_extender.allocator.rules import capacity
from dra_extender.model.device import ValidRange

from tests.parity.fuzz.allocator import campaign
from tests.parity.fuzz.allocator import scenarios as made
from tests.parity.fuzz.allocator.scenarios import NAMES, scenarios

FIXED = 37
COUNT = 900
REACH = {"allNodes", "nodeName", "nodeSelector"}
TOPICS = (
    *("adminAccess", "allNodes", "allocated", "allowMultipleAllocations", "bindingConditions", "bindsToNode"),
    *("capacity", "compatibilityGroups", "config", "constraints", "consumedCapacity", "consumesCounters"),
    *("declaredFeatures", "derivedAttributes", "distinctAttribute", "features", "firstAvailable"),
    *("matchAttribute", "nodeSelector", "perDeviceNodeSelection", "requestPolicy", "selectors", "shareID"),
    *("sharedCounters", "skipNodeOperations", "taints", "tolerations", "validRange", "validValues"),
)


@pytest.mark.verify
def test_random_scenarios_are_decided_as_upstream_does() -> None:
    """Fails, too, where upstream's program cannot be built: an environment without Go proves nothing."""
    tally = campaign.run(FIXED, count=COUNT)
    report = "\n".join(tally.lines())
    print(f"\n{report}")
    assert tally.asked == dict.fromkeys(NAMES, COUNT // len(NAMES))
    assert min(tally.verdicts[each] for each in ("fit", "no", "fatal", "node")) > 0
    assert tally.unexplained_count == 0, report


@pytest.mark.verify
def test_wrong_rule_is_noticed_and_shown_in_small() -> None:
    def not_rounded(_name: str, requested: int, _bounds: ValidRange, least: int, *, fractional: bool) -> int:
        return max(requested, least)

    with patch.object(capacity, "_rounded", not_rounded), patch.object(made, "NAMES", ("varied-capacity",)):
        tally = campaign.run(8, count=100)
    assert tally.unexplained_count > 0
    scenario, what = tally.unexplained[0]
    assert "expected fit, got no" in what
    assert len(scenario["claims"]) == 1
    assert sum(len(each["spec"].get("devices", [])) for each in scenario["slices"]) < 4


def test_scenarios_cover_every_topic() -> None:
    """Everything that an object may say comes up, in slices, claims and what is held."""
    seen: Counter[str] = Counter()

    def count(thing: Any) -> None:
        if isinstance(thing, dict):
            seen.update(thing.keys())
            for value in thing.values():
                count(value)
        elif isinstance(thing, list):
            for value in thing:
                count(value)

    for scenario in islice(scenarios(FIXED), 200):
        count(scenario)
    assert [each for each in TOPICS if seen[each] < 5] == []
