"""A wrong manifest is answered with file, line, object, field and what was expected; a right one becomes steps."""

import re
from pathlib import Path

import pytest
from dra_extender.simulator.apiserver.objects import Key, StoredKind
from dra_extender.simulator.demo.document import (
    Action,
    ExpectedState,
    ManifestError,
    Manifests,
    PodExpectation,
    read_expectation,
)
from dra_extender.simulator.demo.manifests import load_files, load_texts

POD = """apiVersion: v1
kind: Pod
metadata:
  name: p
spec:
  containers:
    - name: main
      image: pause
"""

CLAIM = """apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  name: c
spec:
  devices:
    requests:
      - name: gpu
        exactly:
          deviceClassName: gpu
          selectors:
            - cel:
                expression: device.driver == "gpu.example.com"
"""

SLICE = """apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata:
  name: s
spec:
  driver: gpu.example.com
  nodeName: node-1
  pool:
    name: node-1
    generation: 1
    resourceSliceCount: 1
  devices:
    - name: gpu-0
      attributes:
        type:
          string: mig
      capacity:
        memory:
          value: 40Gi
      consumesCounters:
        - counterSet: set-0
          compatibilityGroups: [mig]
          counters:
            slices:
              value: "1"
"""


OURS = "schedulerName: dra-extender-scheduler"


def load(*texts: str) -> Manifests:
    return load_texts([("file.yaml", "---\n".join(texts))])


def problems(text: str) -> list[str]:
    """The sentences without the columns."""
    with pytest.raises(ManifestError) as caught:
        load_texts([("file.yaml", text)])
    return [re.sub(r"^(file.yaml:\d+):\d+:", r"\1:", each) for each in str(caught.value).splitlines()]


COUNTED = (
    SLICE.replace("  devices:\n", "  partitionTypeAttribute: gpu.example.com/type\n  devices:\n")
    + """\
      nodeAllocatableResources:
        cpu:
          mapping:
            deviceMultiplier: "4"
        memory:
          overhead:
            perPod: 1Gi
            perContainer: 100Mi
"""
)


@pytest.mark.parametrize("text", [POD, CLAIM, SLICE, COUNTED])
def test_what_the_api_accepts_is_accepted(text: str) -> None:
    assert len(load(text).documents) == 1


def test_copies_stand_for_so_many_pods() -> None:
    (document,) = load(
        POD.replace("  name: p\n", '  name: p\n  annotations: {dra-extender.io/copies: "3"}\n')
    ).documents
    assert [key.name for key in document.keys] == ["p-0", "p-1", "p-2"]
    assert document.subject == "Pod default/p-0 to -2"


@pytest.mark.parametrize("number", ["0", "-1", "many", "1001"])
def test_a_number_of_copies_that_makes_no_sense_is_refused(number: str) -> None:
    found = problems(POD.replace("  name: p\n", f'  name: p\n  annotations: {{dra-extender.io/copies: "{number}"}}\n'))
    assert "expected on pods only, a number from 1 to 1000 as text" in found[0]


WRONG = [
    (POD, "kind: Pod", "kind: DaemonSet", 2, "kind", "unknown kind 'DaemonSet'; expected one of Node, ResourceSlice"),
    (POD, "kind: Pod\n", "", 1, "kind", "unknown kind nothing; expected one of"),
    (POD, "apiVersion: v1", "apiVersion: v2", 1, "Pod p: apiVersion", "expected v1, got 'v2'"),
    (CLAIM, "k8s.io/v1", "k8s.io/v1alpha3", 1, "ResourceClaim c: apiVersion", "expected resource.k8s.io/v1, got"),
    (POD, "  name: p\n", "  label: p\n", 3, "Pod: metadata.name", "expected a value, the field is missing"),
    (POD, "  name: p\n", "  name: P_1\n", 4, "Pod P_1: metadata.name", "expected a DNS subdomain"),
    (POD, "  name: p\n", "  name: 5\n", 4, "Pod: metadata.name", "expected a DNS subdomain"),
    (POD, "      image: pause\n", "", 7, "Pod p: spec.containers[0].image", "expected a value, the field is missing"),
    (
        POD,
        "  containers:",
        "  priority: high\n  containers:",
        6,
        "Pod p: spec.priority",
        "expected a whole number, got 'high'",
    ),
    (
        POD,
        "      image: pause\n",
        "      image: pause\n      resources:\n        requests:\n          cpu: two\n",
        11,
        "Pod p: spec.containers[0].resources.requests.cpu",
        "cannot read quantity 'two'",
    ),
    (
        POD,
        "  containers:",
        "  resourceClaims:\n    - name: gpu\n  containers:",
        7,
        "Pod p: spec.resourceClaims[0]",
        "expected exactly one of resourceClaimName or resourceClaimTemplateName or podGroupResourceClaim, got none",
    ),
    (
        CLAIM,
        "          deviceClassName: gpu\n",
        "",
        9,
        "ResourceClaim c: spec.devices.requests[0].exactly.deviceClassName",
        "expected a value, the field is missing",
    ),
    (
        CLAIM,
        "deviceClassName",
        "className",
        10,
        "ResourceClaim c: spec.devices.requests[0].exactly.className",
        "unknown field; did",
    ),
    (
        CLAIM,
        "      - name: gpu\n",
        "      - name: gpu\n        count: 2\n",
        9,
        "ResourceClaim c: spec.devices.requests[0].count",
        "unknown field; in resource.k8s.io/v1 it belongs under 'exactly'",
    ),
    (
        CLAIM,
        "deviceClassName: gpu\n",
        "deviceClassName: gpu\n          count: -1\n",
        11,
        "ResourceClaim c: spec.devices.requests[0].exactly.count",
        "expected a whole number of at least 0, got -1",
    ),
    (
        CLAIM,
        'device.driver == "gpu.example.com"',
        'device.driver = "gpu"',
        13,
        "ResourceClaim c: spec.devices.requests[0].exactly.selectors[0].cel.expression",
        "the expression does not compile",
    ),
    (
        CLAIM,
        "device.driver ==",
        "device.name ==",
        13,
        "",
        "ResourceClaim c: spec.devices.requests[0].exactly.selectors[0].cel",
    ),
    (
        SLICE,
        "value: 40Gi",
        "value: 40 Gi",
        19,
        "ResourceSlice s: spec.devices[0].capacity.memory.value",
        "cannot read quantity",
    ),
    (
        SLICE,
        "[mig]",
        "mig",
        22,
        "ResourceSlice s: spec.devices[0].consumesCounters[0].compatibilityGroups",
        "expected a list",
    ),
    (
        SLICE,
        "[mig]",
        "[a, b, c]",
        22,
        "ResourceSlice s: spec.devices[0].consumesCounters[0].compatibilityGroups",
        "expected at most 2",
    ),
    (
        SLICE,
        "[mig]",
        "[a, a]",
        22,
        "ResourceSlice s: spec.devices[0].consumesCounters[0].compatibilityGroups[1]",
        "expected each",
    ),
    (
        SLICE,
        "compatibilityGroups",
        "compatibilityGroup",
        22,
        "ResourceSlice s: spec.devices[0].consumesCounters[0].compatibilityGroup",
        "unknown field; did you mean 'compatibilityGroups'?",
    ),
    (SLICE, "  nodeName: node-1\n", "", 5, "ResourceSlice s: spec", "expected exactly one of nodeName or nodeSelector"),
    (
        SLICE,
        "          string: mig",
        "          string: mig\n          int: 1",
        15,
        "ResourceSlice s: spec.devices[0].attributes.type",
        "expected exactly one of",
    ),
    (
        SLICE,
        "string: mig",
        "string: true",
        16,
        "ResourceSlice s: spec.devices[0].attributes.type.string",
        "expected a text, got true",
    ),
    (
        SLICE,
        "generation: 1",
        'generation: "1"',
        10,
        "ResourceSlice s: spec.pool.generation",
        "expected a whole number, got '1'",
    ),
    (
        SLICE,
        "    - name: gpu-0\n",
        "    - name: gpu-0\n    - name: gpu-0\n",
        14,
        "ResourceSlice s: spec.devices[1].name",
        "expected each only once",
    ),
    (
        SLICE,
        "    - name: gpu-0\n",
        "    - name: gpu-0\n      compatibilityGroups: [a]\n",
        14,
        "ResourceSlice s: spec.devices[0].compatibilityGroups",
        "unknown field; it belongs into an entry of consumesCounters",
    ),
    (
        COUNTED,
        "perPod: 1Gi",
        "perPod: much",
        33,
        "ResourceSlice s: spec.devices[0].nodeAllocatableResources.memory.overhead.perPod",
        "cannot read quantity 'much'",
    ),
    (
        COUNTED,
        "nodeAllocatableResources",
        "nodeAllocatableResourceMappings",
        27,
        "ResourceSlice s: spec.devices[0].nodeAllocatableResourceMappings",
        "unknown field; Kubernetes 1.37 has nodeAllocatableResources in its place",
    ),
    (POD, "  name: p\n", "  name: p\n  name: q\n", 5, "", "expected each key once, got 'name' again"),
    (POD, "kind: Pod", "kind: [", 4, "", "expected YAML: while parsing"),
    (POD, "spec:\n", "spec: &x\n  again: *x\n", 5, "", "expected no value that contains itself"),
    (
        POD,
        "image: pause",
        "image: !!python/name:os.system pause",
        8,
        "",
        "expected YAML: could not determine a constructor",
    ),
    ("- one\n", "", "", 1, "", "expected a manifest with kind and metadata, got a list of 1"),
]


@pytest.mark.parametrize(("text", "old", "new", "line", "where", "said"), WRONG)
def test_a_problem_names_the_line_the_object_and_the_field(
    text: str, old: str, new: str, line: int, where: str, said: str
) -> None:
    found = problems(text.replace(old, new, 1))
    wanted = f"file.yaml:{line}: {where}: {said}" if where else f"file.yaml:{line}: {said}"
    assert any(each.startswith(wanted) for each in found), found


def test_a_problem_names_the_column() -> None:
    with pytest.raises(
        ManifestError, match=r"^file\.yaml:8:7: Pod p: spec\.containers\[0\]\.image: expected a text, got 5"
    ):
        load_texts([("file.yaml", POD.replace("image: pause", "image: 5"))])
    with pytest.raises(ManifestError, match=r"^file\.yaml:2:7: expected YAML: "):
        load_texts([("file.yaml", POD.replace("kind: Pod", "kind: }"))])


def test_everything_that_is_wrong_is_told_at_once_in_the_order_of_the_file() -> None:
    found = problems(POD.replace("image: pause", "image: 5") + "---\n" + SLICE.replace("40Gi", "forty"))
    assert [each.split(" ")[0] for each in found] == ["file.yaml:8:", "file.yaml:28:"]


@pytest.mark.parametrize(
    ("annotation", "problem"),
    [
        ("demo: remove", "expected one of apply, delete, unchecked, got 'remove'"),
        ("expect: happy", "expected bound, node=NAME, waiting or 'waiting: TEXT', got 'happy'"),
        (
            "expect-at-end: 5",
            "metadata.annotations[dra-extender.io/expect-at-end]: expected a text, got 5",
        ),
    ],
)
def test_a_wrong_annotation_is_a_problem(annotation: str, problem: str) -> None:
    text = POD.replace("  name: p\n", f"  name: p\n  annotations:\n    dra-extender.io/{annotation}\n")
    found = problems(text)
    assert all(each.startswith("file.yaml:6: Pod p: metadata.annotations[dra-extender.io/") for each in found)
    assert any(problem in each for each in found)


def test_expectations_are_about_pods() -> None:
    text = SLICE.replace("  name: s\n", "  name: s\n  annotations:\n    dra-extender.io/expect: bound\n")
    assert problems(text)[0].endswith("expected on pods only")


def test_documents_keep_their_order_their_lines_and_their_comments() -> None:
    title, namespace = "# The title.\n#\n#   indented\n", "apiVersion: v1\nkind: Namespace\n"
    text = f"{title}---\n# One.\n{POD}\n# Two,\n# two lines.\n---\n{SLICE}---\n{namespace}"
    pod, piece = load(text).documents
    assert (pod.key, pod.position.line) == (Key(StoredKind.POD, "default", "p"), 6)
    assert pod.narration == ("The title.", "", "  indented", "One.")
    assert (piece.key, piece.position.line) == (Key(StoredKind.SLICE, "", "s"), 18)
    assert piece.narration == ("Two,", "two lines.")


def test_a_document_that_deletes_needs_a_name_only() -> None:
    text = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\n  annotations:\n    dra-extender.io/demo: delete\n"
    assert [each.action for each in load(text).documents] == [Action.DELETE]


def test_unchecked_turns_a_bad_expression_into_a_warning() -> None:
    text = CLAIM.replace("== ", "= ").replace(
        "  name: c\n", "  name: c\n  annotations:\n    dra-extender.io/demo: unchecked\n"
    )
    manifests = load(text)
    assert [each.action for each in manifests.documents] == [Action.UNCHECKED]
    assert "does not compile" in str(manifests.warnings[-1])


def test_names_that_nothing_here_has_are_warnings() -> None:
    pod = POD + f"  {OURS}\n  resourceClaims:\n    - name: gpu\n      resourceClaimName: forgotten\n"
    warnings = [str(each) for each in load(CLAIM, pod).warnings]
    assert warnings == [
        "file.yaml:1:1: ResourceClaim default/c: deviceClassName: no DeviceClass 'gpu' is in these files",
        "file.yaml:15:1: Pod default/p: spec.resourceClaims.resourceClaimName: no ResourceClaim 'forgotten' is in these files",
    ]


def warnings_about(text: str, *scheduler_names: str) -> list[str]:
    found = load_texts([("file.yaml", text)], scheduler_names or ("dra-extender-scheduler",)).warnings
    return [str(each) for each in found]


def test_pod_of_another_scheduler_is_named_with_the_option_that_plays_it() -> None:
    (warning,) = warnings_about(POD)
    assert warning == (
        "file.yaml:1:1: Pod default/p: spec.schedulerName: the pod is for scheduler 'default-scheduler', and only pods for "
        "dra-extender-scheduler are scheduled here; write schedulerName: dra-extender-scheduler, or use "
        "--scheduler-name default-scheduler"
    )
    assert warnings_about(POD, "default-scheduler") == []
    assert warnings_about(f"{POD}  nodeName: node-1\n") == []


def test_misspelt_scheduler_is_named_with_the_one_that_was_meant() -> None:
    (warning,) = warnings_about(f"{POD}  schedulerName: dra-extender-schduler\n")
    assert warning.endswith("are scheduled here; did you mean 'dra-extender-scheduler'?")


def test_pod_that_is_expected_on_a_node_that_no_document_has_is_worth_a_warning() -> None:
    text = POD.replace("  name: p\n", "  name: p\n  annotations: {dra-extender.io/expect: node=node-9}\n")
    assert any("no Node 'node-9' is in these files" in each for each in warnings_about(f"{text}  {OURS}\n"))


@pytest.mark.parametrize("text", ["", "# nothing but a comment\n", "---\n---\n"])
def test_file_without_a_manifest_is_a_problem(text: str) -> None:
    assert problems(text) == ["file.yaml:1: expected a manifest, the file has none"]
    with pytest.raises(ManifestError, match=r"^empty\.yaml:1:1: expected a manifest"):
        load_texts([("file.yaml", POD), ("empty.yaml", text)])


def test_file_with_kinds_alone_that_are_skipped_is_a_problem() -> None:
    (found,) = problems("apiVersion: v1\nkind: Namespace\nmetadata: {name: n}\n")
    assert found.endswith("expected a manifest of a kind that a story has, the file has only Namespace")


def test_folder_without_manifests_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=r"the folder has no \*\.yaml or \*\.yml"):
        load_files([tmp_path])


@pytest.mark.parametrize(
    ("old", "new", "line", "where", "said"),
    [
        (
            "  containers:",
            "  resourceClaim:\n    - {name: gpu, resourceClaimName: c}\n  containers:",
            6,
            "spec.resourceClaim",
            "unknown field; did you mean 'resourceClaims'?",
        ),
        (
            "      image: pause\n",
            "      image: pause\n      imagePullPolices: Always\n",
            9,
            "spec.containers[0]",
            "unknown",
        ),
        (
            "      image: pause\n",
            "      image: pause\n      env: [{name: A, val: b}]\n",
            9,
            "spec.containers[0].env[0].val",
            "",
        ),
        ("  name: p\n", "  name: p\n  labelz: {a: b}\n", 5, "metadata.labelz", "unknown field; did you mean 'labels'?"),
        ("spec:\n", "specs: {}\nspec:\n", 5, "specs", "unknown field; did you mean 'spec'?"),
        ("spec:\n", "status: {phse: Running}\nspec:\n", 5, "status.phse", "unknown field; did you mean 'phase'?"),
    ],
)
def test_unknown_field_at_any_depth_is_a_problem(old: str, new: str, line: int, where: str, said: str) -> None:
    found = problems(POD.replace(old, new, 1))
    assert any(each.startswith(f"file.yaml:{line}: Pod p: {where}") and said in each for each in found), found


@pytest.mark.parametrize("name", ["dra-extender.io/expects", "dra-extender.io/demo-action", "dra-extender.ie/expect"])
def test_misspelt_annotation_is_a_problem(name: str) -> None:
    text = POD.replace("  name: p\n", f"  name: p\n  annotations:\n    {name}: bound\n")
    (found,) = problems(text)
    assert found.startswith(f"file.yaml:6: Pod p: metadata.annotations[{name}]: unknown annotation; ")


def test_field_that_is_null_is_one_that_is_left_out() -> None:
    (document,) = load(
        POD.replace("  containers:", "  schedulerName: null\n  resourceClaims:\n  containers:")
    ).documents
    assert "schedulerName" not in document.item["spec"]
    assert "resourceClaims" not in document.item["spec"]


def test_annotations_of_others_are_left_alone() -> None:
    text = POD.replace("  name: p\n", "  name: p\n  annotations: {example.com/expect: bound}\n")
    assert len(load(f"{text}  {OURS}\n").documents) == 1


def test_a_list_is_read_as_its_items() -> None:
    indented = "".join(f"    {line}\n" for line in POD.splitlines())
    text = f"apiVersion: v1\nkind: List\nitems:\n  -\n{indented}"
    (document,) = load(text).documents
    assert document.key.name == "p"
    assert problems(text.replace("image: pause", "image: 5"))[0].startswith(
        "file.yaml:12: Pod p: spec.containers[0].image: expected a text"
    )


def test_files_and_folders_are_read_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "more"
    folder.mkdir()
    (folder / "b.yaml").write_text(SLICE)
    (folder / "a.yml").write_text(CLAIM)
    (folder / "notes.txt").write_text("no manifest")
    single = tmp_path / "pod.yaml"
    single.write_text(POD)
    kinds = [document.key.kind for document in load_files([single, folder]).documents]
    assert kinds == [StoredKind.POD, StoredKind.CLAIM, StoredKind.SLICE]


def test_a_file_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="cannot be read: No such file"):
        load_files([tmp_path / "none.yaml"])
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ManifestError, match="it is not UTF-8 text"):
        load_files([tmp_path])


@pytest.mark.parametrize("text", ["[" * 5000, "{a: " * 5000])
def test_depth_is_refused(text: str) -> None:
    assert "at most 64 lists and mappings inside each other" in problems(text)[0]


def test_numbers_that_json_does_not_know_are_refused() -> None:
    assert problems(POD.replace("image: pause", "image: .nan"))[0].startswith(
        "file.yaml:8: expected a value that JSON knows, got '.nan'"
    )


@pytest.mark.parametrize(
    ("text", "expectation"),
    [
        ("bound", PodExpectation("bound", ExpectedState.BOUND)),
        ("node=n1", PodExpectation("node=n1", ExpectedState.BOUND, node="n1")),
        ("waiting", PodExpectation("waiting", ExpectedState.WAITING)),
        ("waiting: in use", PodExpectation("waiting: in use", ExpectedState.WAITING, reason="in use")),
    ],
)
def test_expectations_are_read(text: str, expectation: PodExpectation) -> None:
    assert read_expectation(text) == expectation


@pytest.mark.parametrize("text", ["", "node=", "waiting:", "Bound", 5, None])
def test_other_texts_are_no_expectation(text: object) -> None:
    with pytest.raises(ValueError, match="expected bound, node=NAME"):
        read_expectation(text)


@pytest.mark.parametrize(
    ("text", "node", "reasons", "failure"),
    [
        ("bound", "n1", "", None),
        ("bound", None, "no room", "it is waiting: no room"),
        ("node=n1", "n1", "", None),
        ("node=n1", "n2", "", "it is on n2"),
        ("node=n1", None, "", "it is waiting: no reason was given"),
        ("waiting", None, "whatever", None),
        ("waiting", "n1", "", "it is bound, on n1"),
        ("waiting: room", None, "first\nno room", None),
        ("waiting: cpu", None, "first\nno room", "it is waiting for another reason: first"),
    ],
)
def test_expectations_hold_or_say_why_not(text: str, node: str | None, reasons: str, failure: str | None) -> None:
    assert read_expectation(text).failure(node, reasons) == failure
