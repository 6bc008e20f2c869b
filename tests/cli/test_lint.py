import json
import re
from pathlib import Path

import pytest
from dra_extender.cli.app import app
from dra_extender.inspection.snapshot_file import write_snapshot
from dra_extender.lint.read import read_files, read_subjects
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from tests.support.inspection.made_cluster import one_gpu_held

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "deploy" / "examples"
CLASS = """\
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata:
  name: gpu.example.com
spec:
  selectors:
    - cel:
        expression: device.driver == 'gpu.example.com'
"""
CLAIM = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  name: c
  namespace: default
spec:
  devices:
    requests:
      - name: gpu
        exactly:
          deviceClassName: gpu.example.com
          selectors:
            - cel:
                expression: {}
"""
KEP = "device.attributes['type'].string == 'mig-1g'"


def lint(*arguments: str | Path, text: str | None = None) -> Result:
    return CliRunner().invoke(app, ["lint", *map(str, arguments)], input=text)


def findings(text: str, *flags: str) -> list[dict[str, object]]:
    result = lint("-", "-o", "json", *flags, text=text)
    assert not result.stderr
    return list(json.loads(result.stdout)["findings"])


def test_the_examples_lint_clean_except_for_what_is_wrong_on_purpose() -> None:
    result = lint(EXAMPLES, "--strict")
    assert result.exit_code == 0
    assert re.fullmatch(
        r"\d+ objects, \d+ expressions: 0 errors, 0 warnings, 6 expected", result.stdout.splitlines()[-1]
    )


def test_an_error_tells_file_line_finding_and_suggestion_and_fails(tmp_path: Path) -> None:
    file = tmp_path / "claim.yaml"
    file.write_text(CLAIM.format(f'"{KEP}"'))
    result = lint(file)
    assert result.exit_code == 1
    first, second, third, last = result.stdout.splitlines()
    assert first.startswith(f"{file}:14:55: error: attributes hold plain values without .string")
    assert first.endswith("[value-suffix]")
    assert second.strip() == "in ResourceClaim c, spec.devices.requests[0].exactly.selectors[0].cel.expression"
    assert third.strip() == "write device.attributes[device.driver].type"
    assert last == "1 object, 1 expression: 1 error, 0 warnings, 0 expected"


def test_a_warning_fails_only_if_asked_to() -> None:
    text = CLAIM.format('device.driver == "a" && device.driver == "b"')
    assert lint("-", text=text).exit_code == 0
    assert lint("-", "--strict", text=text).exit_code == 1


BLOCK = """|
                  // the class restricts the driver

                  device.driver == 'x' &&
                    device.attributes['type'].string == 'y'"""
SAME_IN_EVERY_STYLE = [
    (KEP, 14, 54),
    (f'"{KEP}"', 14, 55),
    ("'device.attributes[''type''].string == ''mig-1g'''", 14, 57),
    ('"device.attributes[\\"type\\"].string == \\"mig-1g\\""', 14, 57),
    ("\"\\u0064evice\\t.attributes['type']\\n.string == 'x'\"", 14, 64),
    (BLOCK, 18, 46),
    (BLOCK.replace("|", "|-"), 18, 46),
    (BLOCK.replace("|", "|2-\n").replace("\n\n", "\n", 1), 18, 46),
    (f">-\n                  true &&\n                  {KEP}", 16, 44),
    (f"\n                  true &&\n                  {KEP}", 16, 44),
    (f'"true\n\n                  \\\n                  && {KEP}"', 17, 47),
]


@pytest.mark.parametrize(("written", "line", "column"), SAME_IN_EVERY_STYLE)
def test_a_finding_stands_where_it_is_in_the_file_however_the_value_is_written(
    written: str, line: int, column: int
) -> None:
    text = CLAIM.format(written).replace("|2-", "|-")
    found = [each for each in findings(text) if each["code"] == "value-suffix"]
    assert [(each["line"], each["column"]) for each in found] == [(line, column)]
    assert text.splitlines()[line - 1][column - 1 :].startswith(".string")


@given(st.lists(st.sampled_from(["'", '"', "\\", " ", "\n", "a", "ü", "#", ":", "😀"]), max_size=12).map("".join))
def test_every_character_is_found_again_in_a_quoted_value(value: str) -> None:
    text = CLAIM.format(json.dumps(value, ensure_ascii=False))
    expression = read_subjects(*read_files([("a.yaml", text)]))[0].expressions[0]
    assert expression.value == value
    lines = text.split("\n")
    for offset, character in enumerate(value):
        if character.isspace():
            continue
        line, column = expression.place(offset)
        at = lines[line - 1][column - 1 :]
        assert at.startswith((character, f"\\{character}"))


def test_the_class_of_a_request_says_what_needs_no_guard() -> None:
    claim = CLAIM.format("device.attributes['gpu.example.com'].type == 'x'")
    other = CLASS.replace("device.driver == 'gpu.example.com'", "device.driver == 'other'")
    assert findings(claim) == []
    assert findings(f"{CLASS}---\n{claim}") == []
    assert [each["code"] for each in findings(f"{other}---\n{claim}")] == ["unguarded-attribute"]
    alone = CLASS.replace("device.driver == 'gpu.example.com'", "device.attributes['gpu.example.com'].type == 'x'")
    assert [each["code"] for each in findings(alone)] == ["unguarded-attribute"]


def test_selectors_of_templates_alternatives_lists_older_versions_and_derived_attributes_are_found() -> None:
    wrong = "{cel: {expression: device.name == 'x'}}"
    body = f"deviceClassName: c, selectors: [{wrong}]"
    derived = "derivedAttributes: [{name: x/n, expression: \"device.attributes['x'].string\"}]"
    template = f"""
apiVersion: v1
kind: List
items:
  - apiVersion: resource.k8s.io/v1beta1
    kind: ResourceClaimTemplate
    metadata: {{name: t}}
    spec: {{spec: {{devices: {{requests: [{{name: a, {body}}}]}}}}}}
  - apiVersion: resource.k8s.io/v1beta2
    kind: ResourceClaimTemplate
    metadata: {{name: u}}
    spec: {{spec: {{devices: {{requests: [{{name: a, exactly: {{{body}}}}}]}}}}}}
  - apiVersion: resource.k8s.io/v1
    kind: ResourceClaim
    metadata: {{name: c}}
    spec:
      devices:
        requests: [{{name: a, firstAvailable: [{{name: x, {body}}}, {{name: y, deviceClassName: c, {derived}}}]}}]
        constraints: [{{matchAttribute: x/n}}]
"""
    assert [(each["object"], each["field"], each["code"]) for each in findings(template)] == [
        ("ResourceClaimTemplate t", "spec.spec.devices.requests[0].selectors[0].cel.expression", "unknown-field"),
        (
            "ResourceClaimTemplate u",
            "spec.spec.devices.requests[0].exactly.selectors[0].cel.expression",
            "unknown-field",
        ),
        ("ResourceClaim c", "spec.devices.requests[0].firstAvailable[0].selectors[0].cel.expression", "unknown-field"),
        (
            "ResourceClaim c",
            "spec.devices.requests[0].firstAvailable[1].derivedAttributes[0].expression",
            "value-suffix",
        ),
    ]


def test_other_objects_are_left_alone_and_odd_shapes_are_named() -> None:
    text = (
        "a: 1\n---\n[]\n---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nspec: {devices: {requests: 5}}\n---\n"
    )
    odd = CLASS.replace(
        "    - cel:\n        expression: device.driver == 'gpu.example.com'\n", "    - 5\n    - cel: 7\n"
    )
    found = findings(text + odd)
    assert [(each["field"], each["code"]) for each in found] == [
        ("metadata", "invalid-field"),
        ("spec.devices.requests", "invalid-field"),
        ("spec.selectors[0]", "invalid-field"),
        ("spec.selectors[1].cel.expression", "does-not-compile"),
        ("spec.selectors[1].cel", "invalid-field"),
    ]


def test_an_expression_that_is_no_text_is_an_error() -> None:
    found = findings(CLAIM.format("true"))
    assert [(each["line"], each["code"]) for each in found] == [(14, "does-not-compile")]
    assert "put it in quotes" in str(found[0]["message"])


def test_what_a_merge_key_brings_in_is_told_at_the_nearest_line() -> None:
    text = CLASS.replace(
        "    - cel:\n        expression: ", "    - cel:\n        <<: &x {expression: 'a ='}\n        ignored: "
    )
    assert [(each["line"], each["code"]) for each in findings(text)] == [
        (8, "does-not-compile"),
        (9, "invalid-field"),
    ]


def annotated(value: str, expression: str) -> str:
    note = f"  name: c\n  annotations:\n    dra-extender.io/{value}\n"
    return CLAIM.format(expression).replace("  name: c\n", note)


@pytest.mark.parametrize(
    ("value", "expression", "status"),
    [
        ("lint: expect", KEP, 0),
        ("lint: 'expect: value-suffix'", KEP, 0),
        ("lint: 'expect: value-suffix, always-true'", KEP, 0),
        ("lint: 'expect: always-true'", KEP, 1),
        ("lint: expect", "device.driver == 'x'", 1),
        ("demo: unchecked", "device.driver = 'x'", 0),
        ("demo: unchecked", "device.driver == 'x'", 0),
        ("demo: delete", "device.driver = 'x'", 1),
        ("lint: 'expect: something'", KEP, 2),
        ("lint: maybe", KEP, 2),
    ],
)
def test_an_annotation_announces_findings_and_fails_when_there_are_none(
    value: str, expression: str, status: int
) -> None:
    result = lint("-", text=annotated(value, expression))
    assert result.exit_code == status
    if status == 0 and "=" in expression and "==" not in expression:
        assert "expected error" in result.stdout


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a: [", "bad.yaml:1:5: expected YAML: while parsing"),
        (b"a: 1\na: 2\n", "bad.yaml:2:1: expected each key once, got 'a' again"),
        (b"\xff", "it is not UTF-8 text"),
        (None, "No such file or directory"),
    ],
)
def test_what_cannot_be_read_is_said_in_a_sentence_and_the_rest_is_linted(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    bad, good = tmp_path / "bad.yaml", tmp_path / "good.yaml"
    good.write_text(CLAIM.format(KEP))
    if content is not None:
        bad.write_bytes(content)
    result = lint(bad, good)
    assert result.exit_code == 2
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert "[value-suffix]" in result.stdout


def test_files_may_be_named_as_for_kubectl(tmp_path: Path) -> None:
    (tmp_path / "claim.yaml").write_text(CLAIM.format(KEP))
    positional = lint("-", tmp_path, text=CLASS)
    assert lint("-f", "-", "--filename", tmp_path, text=CLASS).stdout == positional.stdout
    assert positional.stdout.endswith("2 objects, 2 expressions: 1 error, 0 warnings, 0 expected\n")
    nothing = lint()
    assert (nothing.exit_code, nothing.stderr.startswith("error: expected a FILE, ")) == (2, True)


def test_a_folder_without_manifests_is_unreadable(tmp_path: Path) -> None:
    result = lint(tmp_path)
    assert result.exit_code == 2
    assert result.stderr == f"error: {tmp_path}: the folder has no *.yaml or *.yml\n"


def test_json_has_the_counts_and_every_finding() -> None:
    answer = json.loads(lint("-", "-o", "json", text=f"{CLASS}---\n{CLAIM.format(KEP)}").stdout)
    assert (answer["expressions"], answer["errors"], answer["warnings"], answer["expected"]) == (2, 1, 0, 0)
    assert answer["findings"] == [
        {
            "file": "standard input",
            "line": 23,
            "column": 54,
            "object": "ResourceClaim c",
            "field": "spec.devices.requests[0].exactly.selectors[0].cel.expression",
            "code": "value-suffix",
            "severity": "error",
            "message": "attributes hold plain values without .string: it fails on every device",
            "suggestion": "device.attributes[device.driver].type",
            "expected": False,
        }
    ]


def test_limits_alone_ask_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/no/such/file")
    monkeypatch.setenv("DRA_SNAPSHOT_LIMIT_MIB", "100")
    assert lint("-", "--request-timeout", "1s", text=CLASS).exit_code == 0
    assert lint("-", "--context", "here", text=CLASS).exit_code == 2


def _ranges(terms: int, number: int = 0) -> str:
    return '"' + "&&".join([f"[1,2].all(x,x>{number})"] * terms) + '"'


@pytest.mark.parametrize(("terms", "severity"), [(100, None), (250, "warning"), (390, "error")])
def test_an_expression_near_or_beyond_the_limit_of_compiling_is_named(terms: int, severity: str | None) -> None:
    found = findings(CLASS + "---\n" + CLAIM.format(_ranges(terms)))
    named = [(each["severity"], each["message"]) for each in found if each["code"] == "compile-limit"]
    assert [each for each, _ in named] == ([] if severity is None else [severity])
    assert all("400000 units" in str(message) for _, message in named)


def test_a_claim_whose_expressions_are_too_much_together_is_named() -> None:
    selector = "            - cel:\n                expression: {}\n"
    text = CLAIM.format(_ranges(250)) + "".join(selector.format(_ranges(250, number)) for number in range(1, 12))
    found = findings(CLASS + "---\n" + text)
    together = [each for each in found if each["code"] == "compile-limit" and "of the claim" in str(each["message"])]
    assert [each["severity"] for each in together] == ["error"]


POLICY = """
rules:
  - name: mig
    devices: device.attributes[device.driver].type == "mig"
    compatibleOnlyWith: device.attributes[device.driver].type == "mig"
    neighbours:
      within: pool
"""
SLICE = """
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec:
  driver: gpu.example.com
  nodeName: n
  pool: {name: n, generation: 1, resourceSliceCount: 1}
  devices:
    - {name: a, attributes: {type: {string: mig}}}
    - {name: b, attributes: {type: {string: KIND}}}
"""


def policy_findings(tmp_path: Path, policy: str, *slices: str) -> list[tuple[str, str]]:
    """(code, message) of a policy beside these slices."""
    (tmp_path / "policy.yaml").write_text(policy)
    for index, text in enumerate(slices):
        (tmp_path / f"slice-{index}.yaml").write_text(text)
    answer = json.loads(lint(tmp_path, "-o", "json").stdout)
    return [(each["code"], each["message"]) for each in answer["findings"]]


def test_a_rule_about_neighbours_that_only_one_side_has_is_found_with_the_slices(tmp_path: Path) -> None:
    ((code, message),) = policy_findings(tmp_path, POLICY, SLICE.replace("KIND", "vgpu"))
    assert code == "asymmetric-rule"
    assert message == (
        "rule mig keeps gpu.example.com/n/a apart from gpu.example.com/n/b, but gpu.example.com/n/b says nothing: "
        "write the rule on both sides"
    )
    both = POLICY + POLICY.partition("rules:\n")[2].replace("mig", "vgpu")
    assert policy_findings(tmp_path, both, SLICE.replace("KIND", "vgpu")) == []


def test_a_rule_of_a_policy_without_effect_is_found(tmp_path: Path) -> None:
    assert policy_findings(tmp_path, POLICY, SLICE.replace("KIND", "mig")) == []
    alone = SLICE.partition("    - {name: b")[0]
    assert [code for code, _ in policy_findings(tmp_path, POLICY, alone)] == ["no-effect"]
    behind = "rules: [{name: a, bindsToNode: true}, {name: b, driver: x, bindsToNode: true}]"
    assert [code for code, _ in policy_findings(tmp_path, behind)] == ["no-effect"]


def test_a_policy_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    ((code, message),) = policy_findings(tmp_path, "rules: [{name: a, bindsToNode: 5}]")
    assert (code, message) == (
        "policy",
        "expected true, or the field left out, got 5",
    )


def test_what_slices_say_themselves_about_neighbours_is_looked_at_without_a_policy(tmp_path: Path) -> None:
    said = "compatibleOnlyWith: {expression: 'device.attributes[device.driver].type == \"mig\"'}"
    text = SLICE.replace("KIND", "vgpu").replace("{name: a,", f"{{name: a, {said},")
    file = tmp_path / "slice.yaml"
    file.write_text(text)
    (found,) = json.loads(lint(file, "-o", "json").stdout)["findings"]
    assert (found["code"], found["file"]) == ("asymmetric-rule", str(file))
    assert found["message"].startswith("gpu.example.com/n/a keeps gpu.example.com/n/a apart from gpu.example.com/n/b")


def test_a_finding_about_a_policy_has_line_and_column_of_the_field_or_the_rule(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(
        "rules:\n  - name: mig\n    bindsToNode: 5\n  - name: other\n    compatibilityGroups: [mig]\n    device: x\n"
    )
    first, second = lint(tmp_path).stdout.splitlines()[0:4:2]
    assert first.endswith("policy.yaml:3:5: error: expected true, or the field left out, got 5 [policy]")
    assert ":6:5: error: unknown field; did you mean 'devices'? [policy]" in second
    (tmp_path / "policy.yaml").write_text(
        "rules:\n  - name: mig\n    bindsToNode: true\n  - name: again\n    bindsToNode: true\n"
    )
    answer = json.loads(lint(tmp_path, "-o", "json").stdout)
    assert [(each["line"], each["column"], each["code"]) for each in answer["findings"]] == [(4, 5, "no-effect")]
    assert (answer["objects"], answer["policies"]) == (0, 1)


def test_devices_beside_counters_are_accepted_for_the_release_that_stores_them() -> None:
    both = SLICE.replace("  devices:\n", "  sharedCounters: [{name: a, counters: {b: {value: '1'}}}]\n  devices:\n")
    assert lint("-", text=both).exit_code == 1
    assert lint("-", "--kubernetes", "1.34", text=both).exit_code == 0


def test_file_that_holds_nothing_that_lint_knows_is_named_and_fails_only_if_asked_to() -> None:
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n"
    result = lint("-", text=service)
    assert result.exit_code == 0
    assert (
        "standard input:1:1: warning: the file holds nothing that lint knows: expected DeviceClass, " in result.stdout
    )
    assert lint("-", "--strict", text=service).exit_code == 1


def test_a_slice_that_refuses_a_neighbour_without_objection_is_named_at_its_line() -> None:
    rule = "compatibleOnlyWith: {expression: 'device.attributes[device.driver].type == \"mig\"'}"
    text = SLICE.replace("KIND", "vgpu").replace("- {name: a,", f"- {{{rule}, name: a,")
    whole = f"{CLASS}---\n{text}"
    line = max(number for number, each in enumerate(whole.splitlines(), 1) if each.startswith("apiVersion"))
    (found,) = findings(whole)
    assert (found["code"], found["object"], found["line"]) == ("asymmetric-rule", "ResourceSlice s", line)
    both = text.replace("- {name: b,", f"- {{{rule.replace('mig', 'vgpu')}, name: b,")
    assert findings(f"{CLASS}---\n{both}") == []


def shown_in_documents() -> list[tuple[str, str]]:
    """Manifests and policies that the documents show, as (document, text)."""
    yaml = re.compile(r"^ *```yaml\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
    return [
        (document.stem, text)
        for document in sorted((ROOT / "docs").rglob("*.md"))
        for text in yaml.findall(document.read_text())
        if "apiVersion: resource.k8s.io" in text or text.startswith("version: 1")
    ]


@pytest.mark.parametrize(("document", "text"), shown_in_documents())
def test_what_a_document_shows_has_no_fault(document: str, text: str) -> None:
    done = CliRunner().invoke(app, ["lint", "-"], input=text)
    assert done.exit_code == 0, f"{document}: {done.output}"
    assert "0 errors, 0 warnings" in done.output


def test_claims_are_asked_of_a_snapshot(tmp_path: Path) -> None:
    file, claim = tmp_path / "cluster.tar.gz", tmp_path / "claim.yaml"
    write_snapshot(one_gpu_held().cluster(), file)
    claim.write_text(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: many}\n"
        "spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu, count: 2}}]}}\n"
    )
    assert lint(claim, "--strict").exit_code == 0
    result = lint(claim, "--strict", "--snapshot", str(file))
    assert result.exit_code == 1
    assert "warning: fits no node of" in result.stdout
    assert "at most 1 of 2 devices, on n1 [never-fits]" in result.stdout


def test_rules_of_a_policy_are_judged_for_the_slices_of_a_snapshot(tmp_path: Path) -> None:
    file, policy = tmp_path / "state.tar.gz", tmp_path / "policy.yaml"
    write_snapshot(one_gpu_held().cluster(), file)
    rules = ", ".join(f"{{name: {name}, pool: {pool}, bindsToNode: true}}" for name, pool in (("a", "n1"), ("b", "n9")))
    policy.write_text(f"rules: [{rules}]")
    assert lint(policy, "--strict").exit_code == 0
    result = lint(policy, "--strict", "--snapshot", str(file))
    assert result.exit_code == 1
    assert "rule b has no effect: none of 1 published devices takes anything from it [no-effect]" in result.stdout
    assert "rule a" not in result.stdout
