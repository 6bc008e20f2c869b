"""Reading the admin's policy file: what it may say, and a sentence with file, field and expectation for everything else."""

import re
from pathlib import Path

import pytest
from dra_extender.allocator.fragmentation.kinds import NO_AMOUNTS, NodeAmounts
from dra_extender.allocator.overlay.policy import PolicyOverlay
from dra_extender.config.policy_file import (
    MOST_RULES,
    InvalidPolicyError,
    MissingPolicyError,
    RuleModel,
    parse_policy,
    read_policy,
)
from dra_extender.model.device import Device

from tests.support.allocator.building import Json, ask, claim_of, exactly, held, picks, slice_of


def read(tmp_path: Path, text: str) -> PolicyOverlay:
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    return read_policy(file)


FULL = """
version: 1
rules:
  - name: mig
    driver: gpu.example.com
    pool: node-1
    devices: device.attributes["gpu.example.com"].type == "mig"
    counterSet: gpu-0
    compatibilityGroups: [mig, any]
    physicalDevice: device.attributes["gpu.example.com"].parent
    bindingConditions: [example.com/attached]
    bindingFailureConditions: [example.com/failed]
    bindsToNode: true
    compatibleOnlyWith: device.attributes["gpu.example.com"].type == "mig"
"""


def test_a_rule_can_supply_everything(tmp_path: Path) -> None:
    (rule,) = read(tmp_path, FULL).rules
    assert (rule.name, rule.driver, rule.pool, rule.counter_set) == ("mig", "gpu.example.com", "node-1", "gpu-0")
    assert rule.compatibility_groups == ("mig", "any")
    assert (rule.binding_conditions, rule.binding_failure_conditions) == (
        ("example.com/attached",),
        ("example.com/failed",),
    )
    assert rule.binds_to_node
    assert rule.compatible_only_with == 'device.attributes["gpu.example.com"].type == "mig"'
    assert rule.devices is not None
    assert rule.physical_device is not None


def test_with_compatibility_groups_off_rules_about_neighbours_supply_nothing_and_the_rest_stays(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(FULL)
    (rule,) = read_policy(file, compatibility_groups=False).rules
    assert (rule.compatibility_groups, rule.physical_device, rule.compatible_only_with) == ((), None, None)
    assert rule.binds_to_node


@pytest.mark.parametrize("text", ["", "rules: []\n", "version: 1\n"])
def test_an_empty_policy_is_one_without_rules(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text).rules == ()


def test_preferences_are_read_in_their_order(tmp_path: Path) -> None:
    gpus, nics = (
        "{deviceClass: gpu, matchAttributes: [a.io/root, b.io/side]}",
        "{deviceClass: nic, matchAttributes: [a.io/root]}",
    )
    policy = read(tmp_path, f"preferences:\n- {gpus}\n- {nics}\n")
    assert policy.rules == ()
    assert policy.preferences == (("gpu", ("a.io/root", "b.io/side")), ("nic", ("a.io/root",)))


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ("{deviceClass: gpu}", "preferences[0].matchAttributes: expected a value, the field is missing"),
        ("{deviceClass: gpu, matchAttributes: []}", "preferences[0].matchAttributes: expected at least 1 item"),
        ("{deviceClass: gpu, matchAttributes: [a/a, a/b, a/c, a/d, a/e]}", "expected at most 4 items"),
        (
            "{deviceClass: gpu, matchAttributes: [root]}",
            "preferences[0].matchAttributes[0]: expected an attribute with its",
        ),
        ("{deviceClass: gpu, matchAttributes: [a/b], other: 1}", "preferences[0].other"),
        (
            "{deviceClass: gpu, matchAttributes: [a/b]}\n- {deviceClass: gpu, matchAttributes: [a/c]}",
            "preferences[1].deviceClass: expected a class that no other preference is about, got 'gpu'",
        ),
    ],
)
def test_preferences_that_cannot_be_meant_are_told(tmp_path: Path, entry: str, complaint: str) -> None:
    with pytest.raises(InvalidPolicyError) as refused:
        read(tmp_path, f"preferences:\n- {entry}\n")
    assert complaint in str(refused.value)


def test_a_missing_file_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(MissingPolicyError, match=r"policy file .*/none.yaml: it does not exist$"):
        read_policy(tmp_path / "none.yaml")


BINDS = "bindsToNode: true"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("- a\n", "expected a mapping with the field rules, got a list of 1"),
        ("rules: {a: [}\n", "expected YAML: while parsing"),
        ("rule: []\n", "rule: unknown field; did you mean 'rules'?"),
        ("version: 2\n", "version: expected 1, got 2"),
        ("rules: 5\n", "rules: expected a list, got 5"),
        ("rules: [mig]\n", "rules[0]: expected a mapping of fields, got 'mig'"),
        (f"rules: [{{{BINDS}}}]\n", "rules[0].name: expected a value, the field is missing"),
        (
            f"rules: [{{name: My Rule, {BINDS}}}]\n",
            "rules[0].name: expected lower case letters, digits and '-', at most 63 characters, got 'My Rule'",
        ),
        (
            f"rules: [{{name: a, {BINDS}}}, {{name: a, {BINDS}}}]\n",
            "rules[1].name: expected a name that no other rule has, got 'a'",
        ),
        (
            "rules: [{name: a, compatibilityGroup: [x]}]\n",
            "(rule a): unknown field; did you mean 'compatibilityGroups'?",
        ),
        ("rules: [{name: a, zzz: 1}]\n", "rules[0].zzz (rule a): unknown field; expected one of name, driver, pool, "),
        (
            "rules: [{name: a, compatibilityGroups: mig}]\n",
            "rules[0].compatibilityGroups (rule a): expected a list, got 'mig'",
        ),
        (
            "rules: [{name: a, compatibilityGroups: [5]}]\n",
            "rules[0].compatibilityGroups[0] (rule a): expected a text, got 5",
        ),
        ("rules: [{name: a, compatibilityGroups: []}]\n", "(rule a): expected at least 1 item"),
        ("rules: [{name: a, compatibilityGroups: [x, x]}]\n", "(rule a): expected each name once, got 'x' again"),
        ("rules: [{name: a, bindsToNode: 'yes'}]\n", "(rule a): expected true, or the field left out, got 'yes'"),
        ("rules: [{name: a, bindsToNode: false}]\n", "(rule a): expected true, or the field left out, got false"),
        ("rules: [{name: a}]\n", "rules[0] (rule a): expected at least one of compatibilityGroups, physicalDevice, "),
        (
            f"rules: [{{name: a, counterSet: s, {BINDS}}}]\n",
            "rules[0].counterSet (rule a): expected only beside compatibilityGroups",
        ),
        (
            "rules: [{name: a, bindingConditions: [c]}]\n",
            "rules[0].bindingFailureConditions (rule a): expected a list: the two lists of conditions go together",
        ),
        (
            "rules: [{name: a, bindingConditions: [c], bindingFailureConditions: [c]}]\n",
            "(rule a): expected conditions that are not in bindingConditions, got 'c'",
        ),
        (
            f"rules: [{{name: a, devices: device.foo, {BINDS}}}]\n",
            "rules[0].devices (rule a): expected a CEL expression that gives true or false, got 'device.foo': ",
        ),
        (
            f"rules: [{{name: a, devices: '1 + 1', {BINDS}}}]\n",
            "rules[0].devices (rule a): expected a CEL expression that gives true or false, got '1 + 1': ",
        ),
        (
            "rules: [{name: a, physicalDevice: 'device.allowMultipleAllocations'}]\n",
            "rules[0].physicalDevice (rule a): expected a CEL expression that gives a text, got ",
        ),
        (
            "rules: [{name: a, compatibleOnlyWith: 'device.driver =='}]\n",
            "rules[0].compatibleOnlyWith (rule a): expected a CEL expression that gives true or false, got ",
        ),
    ],
)
def test_what_is_wrong_is_said_with_file_field_and_expectation(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(InvalidPolicyError) as caught:
        read(tmp_path, text)
    message = str(caught.value)
    assert message.startswith(f"policy file {tmp_path}/policy.yaml: ")
    assert complaint in message
    assert "\n" not in message


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidPolicyError) as caught:
        read(tmp_path, "rules: [{name: a, devices: x}, {name: b, compatibleOnlyWith: y}]\n")
    assert "rules[0].devices" in str(caught.value)
    assert "rules[1].compatibleOnlyWith" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("rules:\n" + "- {name: a}\n" * 257, f"{MOST_RULES} items in a list (line 258, column 3)"),
        ("rules: [" + "a," * 257, f"{MOST_RULES} items in a list (line 1, column 521)"),
        ("".join(f"k{index}: 1\n" for index in range(20_000)), "16384 values (line 16384, column "),
        ("--- 1\n" * 20, "8 documents (line 9, column 1)"),
    ],
    ids=["rules", "flow", "values", "documents"],
)
def test_what_is_too_much_is_refused_before_the_rest_is_parsed(tmp_path: Path, text: str, most: str) -> None:
    with pytest.raises(InvalidPolicyError) as caught:
        read(tmp_path, f"{text}\n: ] no YAML")
    assert f"policy.yaml: expected at most {most}" in str(caught.value)


def test_as_many_rules_as_may_be_are_read_with_every_field_in_them(tmp_path: Path) -> None:
    fields = (
        "driver: d, pool: p, devices: 'true', counterSet: s, compatibilityGroups: [a, b, c, d, e, f, g, h],"
        " physicalDevice: device.driver, bindingConditions: [a, b, c, d], bindingFailureConditions: [e, f, g, h],"
        " bindsToNode: true, compatibleOnlyWith: 'true', neighbours: {within: node, devices: 'true'}"
    )
    rules = "".join(f"- {{name: r{index}, {fields}}}\n" for index in range(MOST_RULES))
    assert len(read(tmp_path, f"version: 1\nrules:\n{rules}").rules) == MOST_RULES


@pytest.mark.parametrize(
    ("text", "first"),
    [
        (
            "".join(f"k{index}: 1\n" for index in range(1_000)),
            "k0: unknown field; expected one of version, rules, preferences, expected; k1: ",
        ),
        ("rules:\n" + "- {name: a}\n" * 256, "rules[1].name: expected a name that no other rule has, got 'a'; "),
    ],
)
def test_of_many_wrong_things_the_first_are_named_and_the_others_counted(tmp_path: Path, text: str, first: str) -> None:
    with pytest.raises(InvalidPolicyError) as caught:
        read(tmp_path, text)
    message = str(caught.value)
    assert f"policy.yaml: {first}" in message
    assert (len(caught.value.problems), message.count("; and ")) == (64, 1)
    assert message.endswith(" more")


def test_what_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InvalidPolicyError, match="Is a directory"):
        read_policy(tmp_path)
    (tmp_path / "latin").write_bytes(b"rules: \xff")
    with pytest.raises(InvalidPolicyError, match="expected YAML"):
        read_policy(tmp_path / "latin")


def test_text_is_parsed_as_a_file_is_and_messages_begin_with_where_it_is_from() -> None:
    (rule,) = parse_policy(b"rules: [{name: a, bindsToNode: true}]", "the policy").rules
    assert rule.name == "a"
    with pytest.raises(InvalidPolicyError, match=r"^the policy: rules: expected a list, got 5$"):
        parse_policy(b"rules: 5", "the policy")
    with pytest.raises(InvalidPolicyError, match=r"^the policy: expected YAML"):
        parse_policy(b"\xff", "the policy")


NEAR = """
rules:
  - name: full
    compatibleOnlyWith: device.attributes["gpu.example.com"].physicalDevice != "dev-0"
    neighbours: NEIGHBOURS
"""


@pytest.mark.parametrize(
    ("neighbours", "on", "expression"),
    [
        ("{}", "pool", "ONLY"),
        ("{within: node}", "node", "ONLY"),
        ('{within: pool, devices: device.driver == "x"}', "pool", '!(device.driver == "x") || (ONLY)'),
    ],
)
def test_a_rule_says_which_devices_are_neighbours(tmp_path: Path, neighbours: str, on: str, expression: str) -> None:
    (rule,) = read(tmp_path, NEAR.replace("NEIGHBOURS", neighbours)).rules
    only = 'device.attributes["gpu.example.com"].physicalDevice != "dev-0"'
    assert (rule.neighbours_on, rule.compatible_only_with) == (on, expression.replace("ONLY", only))


def test_without_neighbours_the_scope_is_left_to_the_device(tmp_path: Path) -> None:
    (rule,) = read(tmp_path, NEAR.replace("    neighbours: NEIGHBOURS\n", "")).rules
    assert rule.neighbours_on == ""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            NEAR.replace("NEIGHBOURS", "{within: rack}"),
            "rules[0].neighbours.within (rule full): expected pool or node, got 'rack'",
        ),
        (
            NEAR.replace("NEIGHBOURS", "{device: x}"),
            "rules[0].neighbours.device (rule full): unknown field; did you mean 'devices'?",
        ),
        (
            NEAR.replace("NEIGHBOURS", "{devices: device.nonsense}"),
            "rules[0].neighbours.devices (rule full): expected a CEL expression that gives true or false",
        ),
        (
            "rules: [{name: a, bindsToNode: true, neighbours: {}}]",
            "neighbours (rule a): expected only beside compatible",
        ),
    ],
)
def test_neighbours_that_cannot_be_meant_are_told(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InvalidPolicyError) as caught:
        read(tmp_path, text)
    assert problem in str(caught.value)


DOCUMENT = Path(__file__).parents[2] / "docs" / "concepts" / "policy.md"


def example(tmp_path: Path) -> PolicyOverlay:
    (text,) = re.findall(r"```yaml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    return read_policy(file)


def typed(name: str, kind: str, parent: str) -> Json:
    return {"name": name, "attributes": {"type": {"string": kind}, "parentUUID": {"string": parent}}}


def test_the_example_keeps_mig_and_vgpu_apart_without_counters(tmp_path: Path) -> None:
    published = slice_of(typed("m", "mig", "1"), typed("v1", "vgpu", "1"), typed("v2", "vgpu", "2"))
    overlaid = example(tmp_path).apply(published)
    assert overlaid.problems == ()
    wanted = claim_of(exactly(expression='device.attributes["gpu.example.com"].type == "vgpu"'))
    assert picks(ask([overlaid.effective], wanted, usage=[held("m")])) == [["v2"]]


def test_the_example_lets_fractions_and_mps_be_neighbours(tmp_path: Path) -> None:
    modes = {"f": "GPUFractioning", "s": "MPSSharing", "m": "MIGSlicing"}
    devices = [{"name": name, "attributes": {"mode": {"string": mode}}} for name, mode in modes.items()]
    found = named(tmp_path, *devices, driver="shared.example.com")
    assert {name for name, device in found.items() if device.compatible_only_with is not None} == {"f", "s"}
    assert dict(found["f"].sources) == {"compatibleOnlyWith": "software"}


def test_the_example_waits_for_devices_of_one_pool_of_the_fabric(tmp_path: Path) -> None:
    for pool, waits in (("rack-7", True), ("rack-8", False)):
        device = named(tmp_path, {"name": "d"}, driver="fabric.example.com", pool=pool)["d"]
        assert (device.binding_conditions == ("fabric.example.com/attached",)) is waits
        assert device.binds_to_node is waits


def named(tmp_path: Path, *devices: Json, **spec: str) -> dict[str, Device]:
    overlaid = example(tmp_path).apply(slice_of(*devices, **spec))
    return {device.name: device for device in overlaid.effective.devices}


def test_the_table_of_fields_is_complete() -> None:
    table = re.search(r"\| field \| what it is \|\n\|---\|---\|\n((?:\|.*\n)+)", DOCUMENT.read_text())
    assert table is not None
    told = re.findall(r"^\| `(\w+)` \|", table.group(1), re.MULTILINE)
    assert sorted(told) == sorted(field.alias for field in RuleModel.model_fields.values() if field.alias)


EXPECTED = """
expected:
- name: training
  weight: 2
  cpu: 16
  memory: 128Gi
  devices:
  - {deviceClassName: gpu, count: 4}
- name: notebook
  devices:
  - deviceClassName: gpu
    capacity: {memory: 10Gi, cores: 5}
    selector: device.driver == "gpu.example.com"
"""


def test_expected_pods_are_read() -> None:
    training, notebook = parse_policy(EXPECTED.encode(), "policy").expected
    assert (training.name, training.weight, training.amounts) == ("training", 2.0, NodeAmounts(16_000, 128 * 2**30))
    (request,) = training.claim.spec.devices.requests or ()
    assert request.exactly is not None
    assert (request.exactly.device_class_name, request.exactly.count) == ("gpu", 4)
    (request,) = notebook.claim.spec.devices.requests or ()
    assert request.exactly is not None
    assert request.exactly.capacity is not None
    assert request.exactly.capacity.requests == {"memory": "10Gi", "cores": "5"}
    assert [each.cel.expression for each in request.exactly.selectors if each.cel] == [
        'device.driver == "gpu.example.com"'
    ]
    assert (notebook.weight, notebook.amounts) == (1.0, NO_AMOUNTS)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("cpu: much", "expected[0].cpu: expected a quantity such as 500m or 64Gi, got 'much'"),
        ("memory: -1", "expected[0].memory: expected a quantity such as 500m or 64Gi, got -1"),
        ("weight: 0", "expected[0].weight"),
        ("devices: []", "expected[0].devices"),
        ("devices: [{deviceClassName: gpu, selector: device.nothing}]", "expected[0].devices[0].selector"),
        ("devices: [{deviceClassName: gpu, capacity: {memory: some}}]", "expected[0].devices[0].capacity.memory"),
        ("devices: [{class: gpu}]", "expected[0].devices[0]"),
    ],
)
def test_expected_pods_that_cannot_be_meant_are_told(text: str, problem: str) -> None:
    rest = "" if "devices" in text else "  devices: [{deviceClassName: gpu}]\n"
    with pytest.raises(InvalidPolicyError, match=re.escape(problem)):
        parse_policy(f"expected:\n- name: a\n  {text}\n{rest}".encode(), "policy")


def test_two_expected_pods_of_one_name_are_told() -> None:
    pods = "- {name: a, devices: [{deviceClassName: gpu}]}\n" * 2
    with pytest.raises(InvalidPolicyError, match="expected a name that no other expected pod has, got 'a'"):
        parse_policy(f"expected:\n{pods}".encode(), "policy")
