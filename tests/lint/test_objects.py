"""What lint says of the fields of objects; `tests/e2e/test_e2e_lint.py` asks a real API server about the same objects."""

import json

import pytest
import yaml
from dra_extender.cel.lint.findings import Severity
from dra_extender.lint.lint_files import LintReport, lint_files
from dra_extender.lint.read import read_files

from tests.support.validated_objects import ValidatedObject, all_objects

SLICE = """apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata:
  name: s
spec:
  driver: gpu.example.com
  nodeName: node-1
  pool: {name: node-1, generation: 1, resourceSliceCount: 1}
  devices:
    - name: gpu-0
      attributes:
        type: {string: mig}
"""


def lint(text: str, *, beside_counters: bool = False) -> LintReport:
    return lint_files(read_files([("file.yaml", text)]), beside_counters=beside_counters)


def said(text: str, *, beside_counters: bool = False) -> list[str]:
    found = lint(text, beside_counters=beside_counters).findings
    return [f"{each.line}:{each.column} {each.object}, {each.field}: {each.message} [{each.code}]" for each in found]


@pytest.mark.parametrize("case", all_objects(), ids=lambda case: case.name)
def test_what_the_api_server_refuses_is_an_error_and_what_it_accepts_is_none(case: ValidatedObject) -> None:
    report = lint(yaml.safe_dump(case.thing))
    assert not report.unreadable
    errors = [each.message for each in report.findings if each.severity == Severity.ERROR and each.code != "pool"]
    assert bool(errors) is case.refused, errors


def test_finding_has_line_and_column_object_and_field() -> None:
    assert said(SLICE.replace("string: mig", "string: 5")) == [
        "12:16 ResourceSlice s, spec.devices[0].attributes.type.string: expected a text, got 5 [invalid-field]"
    ]
    assert said(SLICE.replace("nodeName", "nodename")) == [
        "7:3 ResourceSlice s, spec.nodename: unknown field; did you mean 'nodeName'? [invalid-field]"
    ]


def test_items_of_lists_are_checked_where_they_are() -> None:
    inner = "".join(f"    {line}\n" for line in SLICE.replace("name: gpu-0", "name: GPU").splitlines())
    text = f"apiVersion: v1\nkind: List\nitems:\n  -\n{inner}"
    (found,) = said(text)
    assert found.startswith("14:11 ResourceSlice s, spec.devices[0].name: expected a DNS label")


def test_kind_that_the_group_does_not_have_is_an_error() -> None:
    (found,) = said(SLICE.replace("kind: ResourceSlice", "kind: ResourceSlices"))
    assert found.startswith("2:1 ResourceSlices s, kind: unknown kind 'ResourceSlices'; did you mean 'ResourceSlice'?")


def test_devices_beside_counters_are_an_error_but_for_the_release_that_accepts_them() -> None:
    text = SLICE + "  sharedCounters: [{name: a, counters: {b: {value: '1'}}}]\n"
    (found,) = said(text)
    assert "only one of `sharedCounters` or `devices` is allowed since Kubernetes 1.35" in found
    assert said(text, beside_counters=True) == []


def test_expression_in_a_slice_that_does_not_compile_is_an_error() -> None:
    (found,) = said(f"{SLICE}      compatibleOnlyWith: {{expression: device.driver = 'a'}}\n")
    assert "does not compile" in found
    assert found.endswith("[does-not-compile]")


CLAIMS = "resourceClaims: [{name: a, resourceClaimName: b, resourceClaimTemplateName: c}]"
BOTH = "expected exactly one of resourceClaimName or resourceClaimTemplateName"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {{containers: [{{name: c, image: i}}], {CLAIMS}}}",
            BOTH,
        ),
        (
            (
                "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec:\n  selector: {matchLabels: {a: b}}\n"
                f"  template: {{spec: {{containers: [{{name: c, image: i}}], {CLAIMS}}}}}"
            ),
            BOTH,
        ),
        (
            (
                "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: d}\nspec:\n  selector: {matchLabels: {a: b}}\n"
                f"  template: {{spec: {{containers: [{{name: c, image: i}}], {CLAIMS}}}}}"
            ),
            BOTH,
        ),
        (
            (
                "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: d}\nspec:\n  schedule: 0 * * * *\n"
                f"  jobTemplate: {{spec: {{template: {{spec: {{containers: [{{name: c, image: i}}], {CLAIMS}}}}}}}}}"
            ),
            BOTH,
        ),
        (
            "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: d}\nspec: {jobTemplat: {}, jobTemplate: {spec: {template: {}}}}",
            "did you mean 'jobTemplate'",
        ),
        (f"apiVersion: scheduling.k8s.io/v1beta1\nkind: PodGroup\nmetadata: {{name: g}}\nspec: {{{CLAIMS}}}", BOTH),
        (
            (
                "apiVersion: scheduling.k8s.io/v1beta1\nkind: Workload\nmetadata: {name: w}\n"
                f"spec: {{podGroupTemplates: [{{name: t, {CLAIMS}}}]}}"
            ),
            BOTH,
        ),
        (
            (
                "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n"
                "spec: {containers: [{name: c, image: i, resources: {claims: [{name: a}]}}]}"
            ),
            "expected the name of an entry of resourceClaims, got 'a'",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, imgae: i}]}",
            "did you mean 'image'",
        ),
    ],
)
def test_pods_and_what_makes_them_are_checked(text: str, sentence: str) -> None:
    assert any(sentence in line and "[invalid-field]" in line for line in said(text))


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "a: 1\n", "apiVersion: v1\nkind: Service\nmetadata: {name: p}\n", "- 1\n", "text\n"]
)
def test_file_that_holds_nothing_that_lint_knows_is_named(text: str) -> None:
    report = lint(text)
    (found,) = report.findings
    assert (found.code, found.severity, found.line) == ("nothing-known", Severity.WARNING, 1)
    assert "DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice, DeviceTaintRule" in found.message
    assert report.objects == 0


def test_findings_are_in_the_order_of_the_file() -> None:
    text = (
        SLICE.replace("gpu-0", "GPU")
        + "---\n"
        + SLICE.replace("name: s", "name: t").replace("driver: gpu", "driver: g_pu")
    )
    lines = [each.line for each in lint(text).findings]
    assert lines == sorted(lines)
    assert len(lines) == 2


def test_document_that_only_deletes_in_a_story_needs_only_a_name() -> None:
    text = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: c, annotations: {dra-extender.io/demo: delete}}\n"
    assert said(text) == []


def test_finding_about_a_field_can_be_announced() -> None:
    note = "metadata:\n  annotations: {dra-extender.io/lint: 'expect: invalid-field'}\n"
    report = lint(SLICE.replace("gpu-0", "GPU").replace("metadata:\n", note))
    assert (report.count(Severity.ERROR), report.expected) == (0, 1)


def test_hostile_values_give_findings_and_no_failure() -> None:
    values: tuple[object, ...] = (
        5,
        [],
        {},
        "x",
        None,
        True,
        {"devices": [None, 5, {"name": {}}]},
        {"devices": {"name": []}},
    )
    for value in values:
        for kind in ("ResourceSlice", "ResourceClaim", "ResourceClaimTemplate", "DeviceClass", "DeviceTaintRule"):
            for metadata in ({"name": "x"}, None, 5, {"name": [], "annotations": 5}):
                thing = {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": value}
                lint(json.dumps(thing))


PREFERRING = """apiVersion: resource.k8s.io/v1
kind: {kind}
metadata: {{name: c}}
spec:{before}
  config:
  - opaque:
      driver: {driver}
      parameters: {parameters}
"""
GOOD = "{apiVersion: dra-extender.io/v1, kind: DevicePreferences, matchAttributes: [gpu.example.com/root]}"


@pytest.mark.parametrize(
    ("driver", "parameters", "expected"),
    [
        ("dra-extender.io", GOOD, ""),
        ("gpu.example.com", "{anything: goes}", ""),
        ("dra-extender.io", GOOD.replace("/v1", "/v2"), "expected apiVersion dra-extender.io/v1"),
        ("dra-extender.io", GOOD.replace("gpu.example.com/root", "root"), "$.matchAttributes[0]"),
        ("dra-extender.io", GOOD.replace("matchAttributes", "matchAttribute"), "matchAttribute"),
    ],
)
@pytest.mark.parametrize("kind", ["DeviceClass", "ResourceClaim"])
def test_preferences_that_are_ignored_are_said_to_be(driver: str, parameters: str, expected: str, kind: str) -> None:
    text = PREFERRING.format(kind=kind, driver=driver, parameters=parameters, before="")
    if kind == "ResourceClaim":
        head, _, tail = text.partition("  config:")
        requests = "  devices:\n    requests: [{name: r, exactly: {deviceClassName: gpu, count: 2}}]\n"
        text = head + requests + "".join(f"  {line}\n" for line in f"  config:{tail}".splitlines())
    found = said(text)
    assert len(found) == bool(expected)
    assert all("these preferences are ignored: " in each and expected in each for each in found)


def taint_rule(selector: str, version: str = "v1", effect: str = "NoExecute") -> str:
    return (
        f"apiVersion: resource.k8s.io/{version}\nkind: DeviceTaintRule\nmetadata: {{name: r}}\n"
        f"spec: {{{selector}taint: {{key: a.example.com/b, effect: {effect}}}}}\n"
    )


@pytest.mark.parametrize("effect", ["None", "NoSchedule", "NoExecute"])
@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1alpha3"])
@pytest.mark.parametrize("selector", ["{}", "{driver: null, pool: null}"])
def test_a_taint_rule_with_an_empty_selector_is_said_to_taint_every_device(
    selector: str, version: str, effect: str
) -> None:
    (found,) = lint(taint_rule(f"deviceSelector: {selector}, ", version, f"'{effect}'")).findings
    assert (found.code, found.severity, found.field) == ("every-device", Severity.WARNING, "spec.deviceSelector")
    assert found.message == "deviceSelector is empty: the rule taints every device of every driver"


@pytest.mark.parametrize("selector", ["", "deviceSelector: null, "])
def test_a_taint_rule_without_selector_is_said_to_taint_no_device(selector: str) -> None:
    (found,) = lint(taint_rule(selector)).findings
    assert (found.code, found.severity, found.field) == ("no-effect", Severity.WARNING, "spec")
    assert found.message.startswith("without deviceSelector, the rule taints no device")


@pytest.mark.parametrize("field", ["driver: gpu.example.com", "pool: p", "device: d"])
def test_nothing_is_said_of_a_taint_rule_that_selects_devices(field: str) -> None:
    assert not lint(taint_rule(f"deviceSelector: {{{field}}}, ")).findings


def older(kind: str, spec: str) -> list[tuple[str, str, str]]:
    """Return severity, field and message of each finding about an object of resource.k8s.io/v1beta1."""
    text = f"apiVersion: resource.k8s.io/v1beta1\nkind: {kind}\nmetadata: {{name: o}}\nspec: {spec}\n"
    return [(found.severity, found.field, found.message) for found in lint(text).findings]


@pytest.mark.parametrize(
    ("kind", "spec", "place"),
    [
        ("ResourceClaim", "{devices: {requests: [{name: r, exactly: {deviceClassName: c}}]}}", "spec.devices"),
        (
            "ResourceClaimTemplate",
            "{spec: {devices: {requests: [{name: r, exactly: {deviceClassName: c}}]}}}",
            "spec.spec.devices",
        ),
    ],
)
def test_exactly_is_an_unknown_field_of_requests_in_v1beta1(kind: str, spec: str, place: str) -> None:
    [(severity, field, message)] = older(kind, spec)
    assert (severity, field) == (Severity.ERROR, f"{place}.requests[0].exactly")
    assert message.startswith("unknown field; expected one of adminAccess, allocationMode, capacity, count")


def slice_of(device: str) -> str:
    return f"{{driver: d.example.com, nodeName: n, pool: {{name: p, generation: 1, resourceSliceCount: 1}}, devices: [{device}]}}"


def test_devices_in_v1beta1_have_their_fields_in_basic() -> None:
    message = "unknown field; expected one of basic, name"
    field = "spec.devices[0].attributes"
    assert older("ResourceSlice", slice_of("{name: a, attributes: {}}")) == [(Severity.ERROR, field, message)]


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        (
            "ResourceClaim",
            "{devices: {requests: [{name: r, deviceClassName: c, count: 2, allocationMode: ExactCount, adminAccess: false}]}}",
        ),
        ("ResourceClaim", "{devices: {requests: [{name: r, firstAvailable: [{name: a, deviceClassName: c}]}]}}"),
        ("DeviceClass", "{selectors: [{cel: {expression: device.driver == 'a'}}]}"),
        ("ResourceSlice", slice_of("{name: a, basic: {attributes: {a: {int: 5}}, capacity: {m: {value: 1Gi}}}}")),
    ],
)
def test_nothing_is_said_of_what_v1beta1_has(kind: str, spec: str) -> None:
    assert older(kind, spec) == []
