"""DeviceTaintRules: which devices they taint, beside the taints that devices have."""

from typing import Any

import msgspec
import pytest
from dra_extender.allocator.overlay.taint_rules import TaintOverlay
from dra_extender.model.api_json import ModelError
from dra_extender.model.device_taint_rule import DeviceTaintRule, read_device_taint_rule

from tests.support.allocator.building import slice_of


def rule(name: str, selector: dict[str, Any] | None, key: str = "k") -> DeviceTaintRule:
    spec: dict[str, Any] = {"taint": {"key": key, "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}}
    if selector is not None:
        spec["deviceSelector"] = selector
    raw = {"metadata": {"name": name}, "spec": spec, "status": {"conditions": []}}
    return read_device_taint_rule(msgspec.json.encode(raw))


def tainted(*rules: DeviceTaintRule) -> list[list[str]]:
    own = {"name": "b", "taints": [{"key": "own", "effect": "NoExecute"}]}
    overlaid = TaintOverlay(rules).apply(slice_of("a", own))
    return [[taint.key for taint in device.taints] for device in overlaid.devices]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({"driver": "gpu.example.com", "pool": "pool", "device": "a"}, [["k"], ["own"]]),
        ({"device": "b"}, [[], ["own", "k"]]),
        ({"pool": "pool"}, [["k"], ["own", "k"]]),
        ({"driver": "gpu.example.com"}, [["k"], ["own", "k"]]),
        ({"driver": "gpu.example"}, [[], ["own"]]),
        ({"driver": "gpu.example.com", "pool": "other"}, [[], ["own"]]),
        ({"driver": "", "device": "a"}, [[], ["own"]]),
        ({}, [["k"], ["own", "k"]]),
    ],
)
def test_selector_fields_are_optional_and_exact(selector: dict[str, Any], expected: list[list[str]]) -> None:
    assert tainted(rule("r", selector)) == expected


def test_a_rule_without_selector_taints_nothing() -> None:
    assert tainted(rule("r", None)) == [[], ["own"]]
    assert tainted(rule("r", {})) == [["k"], ["own", "k"]]
    assert tainted(rule("r", None), rule("s", {"device": "b"}, "s"))[1][-1] == "s"


def test_several_rules_taint_in_order_of_their_names() -> None:
    assert tainted(rule("z", {"device": "a"}, "last"), rule("a", {"device": "a"}, "first")) == [
        ["first", "last"],
        ["own"],
    ]


def test_an_untouched_slice_stays_the_same_object() -> None:
    published = slice_of("a")
    for rules in ((), (rule("r", {"device": "b"}),)):
        assert TaintOverlay(rules).apply(published) is published


@pytest.mark.parametrize("selector", [{"deviceClassName": "gpu"}, {"selectors": [{"cel": {"expression": "true"}}]}])
def test_a_rule_narrowed_as_before_1_35_is_not_read_as_a_wider_one(selector: dict[str, Any]) -> None:
    with pytest.raises(
        ModelError, match=r"DeviceTaintRule r: spec\.deviceSelector: expected driver, pool and device only"
    ):
        rule("r", selector)


def test_a_rule_without_taint_cannot_be_read() -> None:
    with pytest.raises(ModelError, match="DeviceTaintRule: Object missing required field `taint`"):
        read_device_taint_rule(b'{"metadata": {"name": "r"}, "spec": {}}')
