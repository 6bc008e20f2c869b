"""Compatibility groups (KEP-5963) and alternatives that can never do what their author expects."""

import pytest
from dra_extender.lint.lint_files import LintReport, lint_files
from dra_extender.lint.read import read_files

HEAD = """
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: sets}
spec:
  driver: gpu.example.com
  nodeName: n1
  pool: {name: n1, generation: 1, resourceSliceCount: 2}
  sharedCounters: [{name: gpu-0, counters: {sm: {value: "100"}}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: parts}
spec:
  driver: gpu.example.com
  nodeName: n1
  pool: {name: n1, generation: 1, resourceSliceCount: 2}
  devices:
"""


def slices(*devices: tuple[str, str, str]) -> str:
    """Two slices of a pool; a device is (name, groups as YAML, sm)."""
    return HEAD + "".join(
        f"  - name: {name}\n    consumesCounters: [{{counterSet: gpu-0, compatibilityGroups: {groups}, "
        f"counters: {{sm: {{value: '{sm}'}}}}}}]\n"
        for name, groups, sm in devices
    )


def lint(text: str) -> LintReport:
    return lint_files(read_files([("slices.yaml", text)]))


def messages(text: str) -> list[str]:
    return [f"{found.message} [{found.code}]{found.suggestion}" for found in lint(text).findings]


def test_devices_with_and_without_groups_on_a_counter_set_are_named() -> None:
    [found] = messages(slices(("a", "[mig]", "10"), ("b", "[]", "10"), ("c", "[mig]", "10")))
    assert found == (
        "counter set gpu-0 has devices with compatibility groups (a, c) and without (b): a device without groups is never "
        "beside a device with groups [groups]"
    )


@pytest.mark.parametrize(
    "devices",
    [
        pytest.param([("a", "[mig]", "10"), ("b", "[mig]", "10")], id="shared"),
        pytest.param([("a", "[]", "10"), ("b", "[]", "10")], id="none"),
        pytest.param([("a", "[mig]", "10"), ("b", "[mig]", "10"), ("whole", "[full]", "100")], id="whole-device"),
        pytest.param([("a", "[mig, any]", "10"), ("b", "[mig]", "10")], id="one-of-two-shared"),
    ],
)
def test_groups_that_lose_nothing_are_not_reported(devices: list[tuple[str, str, str]]) -> None:
    assert messages(slices(*devices)) == []


def test_a_group_that_occurs_once_is_reported_with_the_group_that_was_probably_meant() -> None:
    misspelt, lonely = messages(slices(("a", "[mig]", "10"), ("b", "[mig]", "10"), ("c", "[migg]", "10")))
    assert misspelt == "compatibility group migg of c on counter set gpu-0 is of no other device [groups]mig"
    assert lonely == (
        "no device on counter set gpu-0 has a compatibility group of c (migg): none is ever beside it, although there are "
        "counters for two [groups]"
    )


def test_findings_about_pools_can_be_announced() -> None:
    text = slices(("a", "[mig]", "10"), ("b", "[]", "10"))
    announced = text.replace("{name: parts}", '{name: parts, annotations: {dra-extender.io/lint: "expect: groups"}}')
    assert [found.expected for found in lint(text).findings] == [False]
    assert [found.expected for found in lint(announced).findings] == [True]


CLAIM = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {{name: c}}
spec:
  devices:
    requests:
    - name: r
      firstAvailable:
      - {{name: large, deviceClassName: gpu, {first}}}
      - {{name: small, deviceClassName: gpu, {second}}}
"""


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [("count: 2", "count: 2", True), ("count: 1", "allocationMode: ExactCount", True), ("count: 2", "count: 1", False)],
)
def test_an_alternative_that_equals_an_earlier_one_is_never_taken(first: str, second: str, same: bool) -> None:
    found = [
        (each.line, each.field, each.message)
        for each in lint(CLAIM.format(first=first, second=second)).findings
        if each.code == "same-alternative"
    ]
    text = "this alternative asks for the same as the earlier alternative large: it is never taken"
    assert found == ([(11, "spec.devices.requests[0].firstAvailable[1]", text)] if same else [])


def test_an_alternative_that_asks_for_more_of_the_same_is_never_taken() -> None:
    (found,) = lint(CLAIM.format(first="count: 1", second="count: 2")).findings
    assert found.code == "same-alternative"
    assert (
        found.message == "this alternative asks for more than the 1 of the earlier alternative large: it is never taken"
    )


def test_an_alternative_on_which_no_constraint_is_may_be_taken_after_an_equal_one() -> None:
    constraint = "    constraints:\n    - {requests: [r/large, q], matchAttribute: example.com/numa}\n"
    other = "    - {name: q, exactly: {deviceClassName: gpu}}\n"
    text = CLAIM.format(first="count: 1", second="count: 1") + other + constraint
    assert not [found for found in lint(text).findings if found.code == "same-alternative"]


SELECTOR = "{{cel: {{expression: 'device.attributes[\"e.com\"].{} == 1'}}}}"
A, B = SELECTOR.format("a"), SELECTOR.format("b")


@pytest.mark.parametrize(
    ("first", "second", "asks"),
    [
        (f"selectors: [{A}, {B}]", f"selectors: [{B}, {A}]", "the same as the earlier alternative large"),
        (f"selectors: [{A}]", f"selectors: [{A}, {B}]", "all of the earlier alternative large and more"),
        ("count: 1", f"count: 2, selectors: [{A}]", "all of the earlier alternative large and more"),
        ("count: 2", f"count: 1, selectors: [{A}]", ""),
        (f"selectors: [{A}]", f"selectors: [{B}]", ""),
        (f"selectors: [{A}, {B}]", f"selectors: [{A}]", ""),
        ("allocationMode: All", f"allocationMode: All, selectors: [{A}]", ""),
        ("allocationMode: All", "allocationMode: All", "the same as the earlier alternative large"),
    ],
)
def test_an_alternative_that_an_earlier_one_contains_is_never_taken(first: str, second: str, asks: str) -> None:
    found = [
        each.message for each in lint(CLAIM.format(first=first, second=second)).findings if "never" in each.message
    ]
    assert found == ([f"this alternative asks for {asks}: it is never taken"] if asks else [])
