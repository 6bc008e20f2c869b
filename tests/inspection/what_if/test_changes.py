"""Objects that people write for a trial: read with file and line in every error."""

from pathlib import Path

import pytest
import yaml
from dra_extender.inspection.what_if.changes import ChangeError, read_changes

from tests.controlplane.objects import device, device_class, request
from tests.support.inspection.made_cluster import MadeCluster

POD = """
apiVersion: v1
kind: Pod
metadata: {name: train}
spec:
  containers: [{name: main, image: pause, resources: {limits: {example.com/gpu: 1}}}]
"""
CLAIM = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: gpu, namespace: ml}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}
"""


def read(folder: Path, text: str) -> list[tuple[str, tuple[str, str]]]:
    file = folder / "changes.yaml"
    file.write_text(text)
    return [(each.kind, each.key) for each in read_changes(file, "dev")]


def test_objects_of_several_documents_and_lists_are_read_with_the_defaults_of_an_api_server(tmp_path: Path) -> None:
    inner = "\n".join(f"    {line}" for line in POD.strip().splitlines()).replace("    apiVersion", "  - apiVersion", 1)
    assert read(tmp_path, f"{CLAIM}---\napiVersion: v1\nkind: List\nitems:\n{inner}\n") == [
        ("resourceclaims", ("ml", "gpu")),
        ("pods", ("dev", "train")),
    ]
    claim = read_changes(tmp_path / "changes.yaml", "dev")[0].item
    assert claim["spec"]["devices"]["requests"][0]["exactly"]["allocationMode"] == "ExactCount"
    pod = read_changes(tmp_path / "changes.yaml", "dev")[1].item
    assert pod["spec"]["containers"][0]["resources"]["requests"] == {"example.com/gpu": "1"}


def test_objects_as_kubectl_prints_them_are_read(tmp_path: Path) -> None:
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu"))
    made.gpus("n1", device("gpu-0"))
    made.running("train", "n1", "gpu-0", request("gpu", "gpu"))
    found = [each for items in made.objects.values() for each in items]
    for each in found:
        each["metadata"] |= {"managedFields": [{"manager": "kubectl", "operation": "Update"}], "generation": 1}
    assert len(read(tmp_path, yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": found}))) == len(found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "changes.yaml: expected Kubernetes objects, found none"),
        ("# nothing\n", "changes.yaml: expected Kubernetes objects, found none"),
        ("a: [", "changes.yaml:1"),
        ("- 1\n", "changes.yaml:1: expected a Kubernetes object, got a list of 1"),
        (POD.replace("kind: Pod", "kind: Deployment"), "changes.yaml:3: expected an object of kind DeviceClass, "),
        (POD.replace("v1", "v2"), "changes.yaml:2: Pod: expected apiVersion v1, got 'v2'"),
        (
            CLAIM.replace("resource.k8s.io/v1", "resource.k8s.io/v1beta1"),
            "changes.yaml:2: ResourceClaim: expected apiVersion resource.k8s.io/v1, got 'resource.k8s.io/v1beta1'",
        ),
        (POD.replace("{name: train}", "{}"), "changes.yaml:4: Pod: metadata.name: expected a value"),
        (POD.split("spec:", maxsplit=1)[0], "changes.yaml:2: Pod train: spec: expected a value"),
        (
            CLAIM.replace("[{name", "[7, {name"),
            "changes.yaml:5: ResourceClaim gpu: spec.devices.requests[0]: expected a mapping of fields, got 7",
        ),
        (
            CLAIM.replace("exactly: {deviceClassName: gpu}", "exactly: {deviceClass: gpu}"),
            "changes.yaml:5: ResourceClaim gpu: spec.devices.requests[0].exactly.deviceClassName: expected a value",
        ),
        (
            POD.replace("spec:", "spec:\n  resourceClaim: [{name: gpu}]"),
            "changes.yaml:6: Pod train: spec.resourceClaim: unknown field; did you mean 'resourceClaims'?",
        ),
        (f"{POD}---{POD}", "changes.yaml:8: Pod dev/train is in "),
    ],
)
def test_text_that_is_no_change_is_refused_with_file_and_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ChangeError) as refused:
        read(tmp_path, text)
    assert said in str(refused.value)


def test_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ChangeError, match=r"none\.yaml: cannot be read: No such file"):
        read_changes(tmp_path / "none.yaml", "dev")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(ChangeError, match=r"binary\.yaml: expected YAML in UTF-8"):
        read_changes(tmp_path / "binary.yaml", "dev")
