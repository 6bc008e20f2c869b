"""What lint says of names of nothing, and of changes that an API server refuses."""

import msgspec
import pytest
from dra_extender.inspection.objects import ClusterObjects, MissingKind
from dra_extender.inspection.unknown_names import unknown_names
from dra_extender.lint.read import read_files

from tests.controlplane.objects import device_class, node, pod_group, request, resource_claim, resource_claim_template
from tests.support.inspection.made_cluster import MadeCluster

CONTAINERS = ("initContainers", "containers")


def cluster() -> MadeCluster:
    made = MadeCluster()
    made.add(resource_claim("shared", "default", request("gpu", "gpu", capacity={"requests": {"memory": "1Gi"}})))
    made.add(resource_claim_template("single-gpu", "default", request("gpu", "gpu")))
    made.add(resource_claim_template("elsewhere", "other", request("gpu", "gpu")))
    made.add(pod_group("train", "default", min_count=2))
    return made


def pod(entry: str, more: str = "", container: str = "") -> str:
    return (
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {{containers: [{{name: c{container}}}],"
        f" resourceClaims: [{{name: a, {entry}}}]{more}}}\n"
    )


def deployment(entry: str) -> str:
    return (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n"
        f"spec: {{template: {{spec: {{resourceClaims: [{{name: a, {entry}}}]}}}}}}\n"
    )


def group(entry: str, policy: str = "gang: {minCount: 3}") -> str:
    return (
        "apiVersion: scheduling.k8s.io/v1beta1\nkind: PodGroup\nmetadata: {name: train}\n"
        f"spec: {{schedulingPolicy: {{{policy}}}, resourceClaims: [{entry}]}}\n"
    )


def workload(entry: str) -> str:
    return (
        "apiVersion: scheduling.k8s.io/v1beta1\nkind: Workload\nmetadata: {name: w}\n"
        f"spec: {{podGroupTemplates: [{{name: t, resourceClaims: [{{name: a, {entry}}}]}}]}}\n"
    )


def claim(name: str, body: str) -> str:
    return (
        f"apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: {name}}}\n"
        f"spec: {{devices: {{requests: [{{name: gpu, exactly: {{{body}}}}}]}}}}\n"
    )


def found(text: str, *, asks: bool = True) -> list[str]:
    """Return field and message of each finding."""
    objects = cluster().cluster() if asks else None
    return [f"{placed.field}: {placed.message}" for placed in unknown_names(objects, read_files([("a.yaml", text)]))]


@pytest.mark.parametrize(
    "text",
    [
        pod("resourceClaimName: shared"),
        pod("resourceClaimTemplateName: single-gpu", ", schedulingGroup: {podGroupName: train}"),
        pod("resourceClaimName: own") + "---\n" + claim("own", "deviceClassName: gpu"),
        pod("resourceClaimName: shared", container=", resources: {claims: [{name: a, request: gpu}]}"),
        pod("resourceClaimName: shared", container=", resources: {claims: [{name: a}]}"),
        deployment("resourceClaimTemplateName: single-gpu"),
        workload("resourceClaimTemplateName: single-gpu"),
        claim("shared", "deviceClassName: gpu, count: 1, capacity: {requests: {memory: 1024Mi}}"),
        group(""),
        "kind: Pod\nmetadata: [",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {resourceClaims: [5, {name: 6}], containers: 7}\n",
    ],
)
def test_nothing_is_said_of_names_that_exist_and_equal_objects(text: str) -> None:
    assert found(text) == []


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        (
            pod("resourceClaimName: shard"),
            (
                "spec.resourceClaims[0].resourceClaimName: ResourceClaim default/shard is not in a test or these files;"
                " nearest name shared"
            ),
        ),
        (
            deployment("resourceClaimTemplateName: elsewhere"),
            (
                "spec.template.spec.resourceClaims[0].resourceClaimTemplateName: ResourceClaimTemplate default/elsewhere is not in"
                " a test or these files; there are single-gpu"
            ),
        ),
        (
            workload("resourceClaimTemplateName: single_gpu"),
            (
                "spec.podGroupTemplates[0].resourceClaims[0].resourceClaimTemplateName: ResourceClaimTemplate default/single_gpu"
                " is not in a test or these files; there are single-gpu"
            ),
        ),
        (
            pod("resourceClaimName: shared", ", schedulingGroup: {podGroupName: trains}"),
            "spec.schedulingGroup.podGroupName: PodGroup default/trains is not in a test or these files; nearest name train",
        ),
        (
            pod("resourceClaimName: shared", container=", resources: {claims: [{name: a, request: card}]}"),
            (
                "spec.containers[0].resources.claims[0].request: ResourceClaim shared has no request card, and the container gets"
                " no device; there are gpu"
            ),
        ),
        (
            claim("shared", "deviceClassName: gpu, count: 2, capacity: {requests: {memory: 1Gi}}"),
            "spec.devices.requests: ResourceClaim shared exists in namespace default with another value, which cannot be changed",
        ),
        (
            group("{name: a, resourceClaimName: shared}"),
            "spec.resourceClaims: PodGroup train exists in namespace default with another value, which cannot be changed",
        ),
        (
            group("", "basic: {}"),
            "spec.schedulingPolicy: PodGroup train exists in namespace default with another value, which cannot be changed",
        ),
    ],
)
def test_what_does_not_exist_and_what_cannot_be_changed_is_named(text: str, finding: str) -> None:
    assert found(text) == [finding]


V1BETA1 = (
    "apiVersion: resource.k8s.io/v1beta1\nkind: ResourceClaim\nmetadata: {name: shared}\n"
    "spec: {devices: {requests: [{name: gpu, BODY}]}}\n"
)
CLASSES = "---\napiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: large-gpu}\nspec: {}\n"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (V1BETA1.replace("BODY", "deviceClassName: large-gpuu"), "deviceClassName"),
        (
            V1BETA1.replace("BODY", "firstAvailable: [{name: a, deviceClassName: large-gpuu}]"),
            "firstAvailable[0].deviceClassName",
        ),
        (claim("c", "deviceClassName: large-gpuu").replace("/v1\n", "/v1beta2\n"), "exactly.deviceClassName"),
    ],
)
def test_classes_in_claims_of_older_versions_are_looked_for(text: str, place: str) -> None:
    message = "DeviceClass large-gpuu is not in these files; nearest name large-gpu"
    assert found(text + CLASSES, asks=False) == [f"spec.devices.requests[0].{place}: {message}"]


def test_a_claim_of_v1beta1_is_compared_with_the_one_that_exists() -> None:
    same = V1BETA1.replace("BODY", "deviceClassName: gpu, capacity: {requests: {memory: 1024Mi}}")
    assert found(same) == []
    assert found(same.replace("1024Mi", "2Gi")) == [
        "spec.devices.requests: ResourceClaim shared exists in namespace default with another value, which cannot be changed"
    ]


def test_without_a_cluster_only_a_slip_is_named() -> None:
    own = "---\n" + claim("shared", "deviceClassName: gpu")
    assert found(pod("resourceClaimName: other") + own, asks=False) == []
    assert found(pod("resourceClaimName: shard") + own, asks=False) == [
        "spec.resourceClaims[0].resourceClaimName: ResourceClaim default/shard is not in these files; nearest name shared"
    ]


def test_nothing_is_missing_of_a_kind_that_could_not_be_read() -> None:
    objects = cluster().cluster()
    missing = (MissingKind(kind="resourceclaims", reason="forbidden"),)
    partial = objects._replace(origin=msgspec.structs.replace(objects.origin, missing=missing))
    assert list(unknown_names(partial, read_files([("a.yaml", pod("resourceClaimName: anything"))]))) == []


def test_names_of_large_folders_are_compared_a_bounded_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dra_extender.inspection.unknown_names._MOST_COMPARED", 3)
    text = (
        "---\n".join(pod("resourceClaimName: shard") for _ in range(4))
        + "---\n"
        + claim("shared", "deviceClassName: gpu")
    )
    assert len(found(text, asks=False)) == 3
    unknown = [message for message in found(text) if " is not in " in message]
    assert [message.endswith("nearest name shared") for message in unknown] == [True, True, True, False]


def taint_rule(driver: str) -> str:
    return (
        "apiVersion: resource.k8s.io/v1beta2\nkind: DeviceTaintRule\nmetadata: {name: t}\n"
        f"spec: {{deviceSelector: {{driver: {driver}}}, taint: {{key: example.com/x, effect: NoSchedule}}}}\n"
    )


SLICE = (
    "---\napiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {name: s}\n"
    "spec: {driver: gpu.example.com, nodeName: n1, pool: {name: n1, generation: 1, resourceSliceCount: 1}, devices: []}\n"
)


@pytest.mark.parametrize(
    ("text", "asks", "expected"),
    [
        (taint_rule("gpu-example.com") + SLICE, False, "nearest name gpu.example.com"),
        (taint_rule("gpu-example.com") + SLICE, True, "nearest name gpu.example.com"),
        (taint_rule("nic.example.com") + SLICE, True, "there are gpu.example.com"),
        (taint_rule("nic.example.com") + SLICE, False, ""),
        (taint_rule("gpu.example.com") + SLICE, True, ""),
        (taint_rule("gpu.example.com"), False, ""),
    ],
)
def test_taint_rule_for_a_driver_of_no_slice_is_found(text: str, asks: bool, expected: str) -> None:
    findings = found(text, asks=asks)
    assert bool(findings) == bool(expected)
    assert all(expected in finding and "taints nothing" in finding for finding in findings)


SELECTED = SLICE.replace("devices: []", "devices: [{name: gpu-0}]")


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("driver: gpu.example.com, pool: n1, device: gpu-0", ""),
        ("driver: gpu.example.com, device: gpu-0", ""),
        ("pool: n1", ""),
        (
            "driver: gpu.example.com, pool: n2, device: gpu-0",
            "pool: no ResourceSlice in {} is of pool n2 of driver gpu.",
        ),
        ("pool: n2", "pool: no ResourceSlice in {} is of pool n2, and the rule taints nothing; there are n1"),
        (
            "driver: gpu.example.com, pool: n1, device: gpu-1",
            "device: no ResourceSlice of driver gpu.example.com of pool n1 in {} has device gpu-1, and the rule taints",
        ),
        (
            "device: gpu-1",
            "device: no ResourceSlice in {} has device gpu-1, and the rule taints nothing; there are gpu-0",
        ),
        ("driver: nic.example.com, pool: n9, device: gpu-9", "driver: no ResourceSlice in {} is of driver nic"),
        ("driver: gpu.example.com, pool: {a: b}, device: [c]", ""),
    ],
)
def test_taint_rule_for_a_pool_or_device_of_no_slice_is_found(selector: str, expected: str) -> None:
    text = taint_rule("gpu.example.com").replace("driver: gpu.example.com", selector) + SELECTED
    findings = found(text)
    assert len(findings) == bool(expected)
    assert all(f"spec.deviceSelector.{expected.format('a test or these files')}" in finding for finding in findings)
    assert found(text, asks=False) == []


def configured(kind: str, driver: str) -> str:
    config = f"config: [{{opaque: {{driver: {driver}, parameters: {{}}}}}}]"
    devices = f"devices: {{{config}}}"
    spec = {"DeviceClass": config, "ResourceClaim": devices, "ResourceClaimTemplate": f"spec: {{{devices}}}"}[kind]
    return f"apiVersion: resource.k8s.io/v1\nkind: {kind}\nmetadata: {{name: c}}\nspec: {{{spec}}}\n"


@pytest.mark.parametrize("kind", ["DeviceClass", "ResourceClaim", "ResourceClaimTemplate"])
@pytest.mark.parametrize(
    ("driver", "asks", "expected"),
    [
        ("gpu-example.com", False, "nearest name gpu.example.com"),
        ("nic.example.com", True, "there are gpu.example.com"),
        ("nic.example.com", False, ""),
        ("gpu.example.com", True, ""),
        ("dra-extender.io", True, ""),
        ("[x]", True, ""),
    ],
)
def test_configuration_for_a_driver_of_no_slice_is_found(kind: str, driver: str, asks: bool, expected: str) -> None:
    findings = found(configured(kind, driver) + SLICE, asks=asks)
    assert bool(findings) == bool(expected)
    assert all(expected in finding and "nothing reads this configuration" in finding for finding in findings)


CLASS = "---\napiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: large-gpu}\nspec: {}\n"


@pytest.mark.parametrize("field", ["requests", "limits"])
@pytest.mark.parametrize(
    ("name", "asks", "expected"),
    [
        ("large-gpus", False, "DeviceClass large-gpus is not in these files; nearest name large-gpu"),
        ("nic", True, "DeviceClass nic is not in "),
        ("nic", False, ""),
        ("large-gpu", True, ""),
    ],
)
def test_missing_class_of_a_resource_is_found(field: str, name: str, asks: bool, expected: str) -> None:
    container = f", resources: {{{field}: {{deviceclass.resource.kubernetes.io/{name}: 1, cpu: 1}}}}"
    findings = found(pod("resourceClaimName: shared", container=container) + CLASS, asks=asks)
    findings = [finding for finding in findings if "DeviceClass" in finding]
    assert bool(findings) == bool(expected)
    assert all(expected in finding for finding in findings)


@pytest.mark.parametrize(
    ("request_body", "expected"),
    [
        ("exactly: {deviceClassName: large-gpus}", ["large-gpus"]),
        (
            "firstAvailable: [{name: a, deviceClassName: large-gpu}, {name: b, deviceClassName: large-gpuu}]",
            ["large-gpuu"],
        ),
        ("exactly: {deviceClassName: nic}", []),
        ("exactly: {deviceClassName: large-gpu}", []),
    ],
)
def test_misspelt_class_of_a_request_is_found_in_the_files(request_body: str, expected: list[str]) -> None:
    claim = (
        "---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: one}\n"
        f"spec: {{devices: {{requests: [{{name: r, {request_body}}}]}}}}\n"
    )
    findings = [finding for finding in found(claim + CLASS, asks=False) if "DeviceClass" in finding]
    assert len(findings) == len(expected)
    assert all(f"DeviceClass {name} is not in these files; nearest name large-gpu" in findings[0] for name in expected)


SERVING_CLASS = (
    "---\napiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: own}\n"
    "spec: {extendedResourceName: files.example.com/tensor}\n"
)


def asking(kind: str, resources: str) -> str:
    """Return an object of which a container and an init container ask for these resources."""
    spec = (
        f"{{initContainers: [{{name: i, resources: {resources}}}], containers: [{{name: c, resources: {resources}}}]}}"
    )
    body = spec if kind == "Pod" else f"{{template: {{spec: {spec}}}}}"
    if kind == "CronJob":
        body = f"{{schedule: '0 * * * *', jobTemplate: {{spec: {body}}}}}"
    version = {"Pod": "v1", "Job": "batch/v1", "CronJob": "batch/v1"}.get(kind, "apps/v1")
    return f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: p}}\nspec: {body}\n"


def with_resources(*, nodes: bool = True) -> ClusterObjects:
    """Return a cluster of which a node has one extended resource, and a class serves another one."""
    made = MadeCluster()
    if nodes:
        made.add(node("n1", extended={"plugin.example.com/gpu": "0"}))
    made.add(device_class("served", extendedResourceName="served.example.com/card"))
    return made.cluster()


@pytest.mark.parametrize("kind", ["Pod", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob"])
def test_extended_resource_that_nobody_provides_is_found(kind: str) -> None:
    text = (
        asking(kind, "{requests: {plugin.example.com/gpus: 1}, limits: {plugin.example.com/gpus: 1}}") + SERVING_CLASS
    )
    findings = list(unknown_names(with_resources(), read_files([("a.yaml", text)])))
    spec = {"Pod": "spec", "CronJob": "spec.jobTemplate.spec.template.spec"}.get(kind, "spec.template.spec")
    fields = [f"{spec}.{containers}[0].resources.limits[plugin.example.com/gpus]" for containers in CONTAINERS]
    assert [placed.field for placed in findings] == fields
    sentence = (
        "no node in a test or these files has plugin.example.com/gpus, and no DeviceClass there serves it;"
        " nearest name plugin.example.com/gpu"
    )
    assert {placed.message for placed in findings} == {sentence}


@pytest.mark.parametrize(
    "resources",
    [
        "{requests: {plugin.example.com/gpu: 1}, limits: {plugin.example.com/gpu: 1}}",
        "{requests: {served.example.com/card: 1, files.example.com/tensor: 1}}",
        "{requests: {cpu: 1, hugepages-2Mi: 4Mi, ephemeral-storage: 1Gi, kubernetes.io/x: 1}}",
        "{requests: {nobody.example.com/gpu: 0}}",
        "{requests: {deviceclass.resource.kubernetes.io/served: 1}}",
        "{requests: [nobody.example.com/gpu], limits: nobody.example.com/gpu}",
    ],
)
def test_resource_that_somebody_provides_or_that_is_no_extended_one_is_not_found(resources: str) -> None:
    text = asking("Pod", resources) + SERVING_CLASS
    assert list(unknown_names(with_resources(), read_files([("a.yaml", text)]))) == []


def test_extended_resource_is_not_found_where_not_all_nodes_and_classes_are_known() -> None:
    text = asking("Pod", "{limits: {nobody.example.com/gpu: 1}}")
    files = read_files([("a.yaml", text)])
    whole = with_resources()
    unread = [
        whole._replace(origin=msgspec.structs.replace(whole.origin, missing=(MissingKind(kind, "forbidden"),)))
        for kind in ("nodes", "deviceclasses")
    ]
    for objects in (None, with_resources(nodes=False), *unread):
        assert list(unknown_names(objects, files)) == []
    assert len(list(unknown_names(whole, files))) == len(CONTAINERS)


def test_extended_resource_with_the_slip_of_a_name_is_found_without_a_cluster() -> None:
    text = asking("Pod", "{limits: {files.example.com/tensors: 1}}") + SERVING_CLASS
    messages = {placed.message for placed in unknown_names(None, read_files([("a.yaml", text)]))}
    sentence = (
        "no node in these files has files.example.com/tensors, and no DeviceClass there serves it;"
        " nearest name files.example.com/tensor"
    )
    assert messages == {sentence}


def test_node_in_a_file_provides_what_it_has() -> None:
    own_node = (
        "---\napiVersion: v1\nkind: Node\nmetadata: {name: n2}\nstatus: {allocatable: {nobody.example.com/gpu: 1}}\n"
    )
    text = asking("Pod", "{limits: {nobody.example.com/gpu: 1}}") + own_node
    assert list(unknown_names(with_resources(), read_files([("a.yaml", text)]))) == []
