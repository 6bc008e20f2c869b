"""What lint says of claims that no node of a cluster can ever serve."""

import pytest
from dra_extender.inspection.never_fits import never_fits
from dra_extender.inspection.objects import MissingKind, UnreadKindsError
from dra_extender.lint.read import read_files

from tests.controlplane.objects import consumption, counter_set, device, device_class, request
from tests.support.inspection.made_cluster import MadeCluster

ATTRIBUTES = 'device.attributes["gpu.example.com"]'


def cluster() -> MadeCluster:
    """Two nodes with two GPUs each, all of them held."""
    made = MadeCluster()
    made.add(device_class("gpu"))
    for node in ("n1", "n2"):
        made.nodes(node)
        made.gpus(node, *(device(f"gpu-{index}", attributes={"model": "A100"}) for index in range(2)))
        for index in range(2):
            made.running(f"{node}-{index}", node, f"gpu-{index}", request("gpu", "gpu"))
    return made


def claim(devices: str, kind: str = "ResourceClaim") -> str:
    """A claim or template `c` for these devices, in YAML's flow style."""
    spec = f"{{devices: {devices}}}"
    return (
        f"apiVersion: resource.k8s.io/v1\nkind: {kind}\nmetadata: {{name: c}}\n"
        f"spec: {spec if kind == 'ResourceClaim' else f'{{spec: {spec}}}'}\n"
    )


def exactly(fields: str, more: str = "") -> str:
    return claim(f"{{requests: [{{name: r, exactly: {{{fields}}}}}]{more}}}")


def selected(expression: str) -> str:
    return exactly(f"deviceClassName: gpu, selectors: [{{cel: {{expression: '{expression}'}}}}]")


def found(text: str, made: MadeCluster | None = None) -> list[tuple[str, str]]:
    """Return message, without what all have in common, and suggestion of each finding."""
    everywhere = "fits no node of a test, even if nobody held a device: "
    return [
        (placed.message.replace(everywhere, ""), placed.suggestion)
        for placed in never_fits((made or cluster()).cluster(), read_files([("c.yaml", text)]))
    ]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(exactly("deviceClassName: gpu, count: 2"), id="as-many-as-a-node-has"),
        pytest.param(selected(f'{ATTRIBUTES}.model == "A100"'), id="selector"),
        pytest.param(
            claim("{requests: [{name: r, exactly: {deviceClassName: gpu}}]}", "ResourceClaimTemplate"), id="template"
        ),
        pytest.param("kind: ResourceClaim\nmetadata: [", id="not-yaml"),
        pytest.param(exactly("deviceClassName: 5"), id="not-valid"),
    ],
)
def test_nothing_is_said_of_claims_that_wait_for_devices_that_are_held_or_cannot_be_read(text: str) -> None:
    assert found(text) == []


@pytest.mark.parametrize(
    ("text", "message", "suggestion"),
    [
        pytest.param(
            exactly("deviceClassName: gpu, count: 3"),
            "request r: no combination of devices fits; at most 2 of 3 devices, on n1",
            "ask for 2 devices",
            id="more-than-a-node-has",
        ),
        pytest.param(
            exactly("deviceClassName: gppu"),
            "request r: device class does not exist: device class gppu; nearest name gpu",
            "use the DeviceClass gpu",
            id="class",
        ),
        pytest.param(
            selected(f'{ATTRIBUTES}.modle == "A100"'),
            f"request r: selector failed on a device: '{ATTRIBUTES}.modle == \"A100\"' on gpu.example.com/n1/gpu-0: "
            "no such key: modle",
            "ask for model instead of modle",
            id="attribute",
        ),
        pytest.param(
            selected('device.driver == "gppu.example.com"'),
            'request r: no device matches the selectors; device.driver is "gpu.example.com", wanted "gppu.example.com"',
            "ask for gpu.example.com instead of gppu.example.com",
            id="driver",
        ),
        pytest.param(
            exactly("deviceClassName: gpu, count: 2", ", constraints: [{matchAttribute: gpu.example.com/numa}]"),
            "request r: constraint is not satisfied; gpu-0 does not satisfy matchAttribute gpu.example.com/numa, which it does "
            "not have; at most 0 of 2 devices, on n1",
            "do without matchAttribute gpu.example.com/numa",
            id="constraint",
        ),
    ],
)
def test_what_no_node_can_ever_give_is_named_with_a_change_that_was_tried(
    text: str, message: str, suggestion: str
) -> None:
    assert found(text) == [(message, suggestion)]


def test_an_alternative_that_never_fits_by_itself_is_named_at_its_place() -> None:
    text = claim(
        "{requests: [{name: r, firstAvailable: [{name: a, deviceClassName: gpu, count: 3}, {name: b, deviceClassName: gpu}]}]}"
    )
    [placed] = never_fits(cluster().cluster(), read_files([("c.yaml", text)]))
    assert placed.field == "spec.devices.requests[0].firstAvailable[0]"
    assert placed.object == "ResourceClaim c"
    assert placed.message.startswith("this alternative fits no node")


def test_devices_that_exclude_each_other_by_groups_are_never_had_together() -> None:
    made = MadeCluster()
    made.add(device_class("gpu"))
    made.nodes("n1")
    parts = [device(name, consumes=[consumption("gpu-0", groups=[name], sm="10")]) for name in ("mig", "vgpu")]
    made.partitions("n1", [counter_set("gpu-0", sm="100")], parts)
    [(message, _)] = found(exactly("deviceClassName: gpu, count: 2"), made)
    assert message == (
        "request r: compatibility groups in conflict; 1 of 2 devices found; vgpu declares [vgpu] on counter set gpu-0; mig (for "
        "the same request) has [mig]"
    )


def test_devices_that_are_tainted_may_come_back() -> None:
    made = MadeCluster()
    made.add(device_class("gpu"))
    made.nodes("n1")
    made.gpus("n1", device("gpu-0", taints=[{"key": "example.com/broken", "effect": "NoSchedule"}]))
    assert found(exactly("deviceClassName: gpu"), made) == []


def test_a_slice_of_the_cluster_makes_no_node() -> None:
    """Slices outlive their node until a controller collects them."""
    made = MadeCluster()
    made.add(device_class("gpu"))
    made.nodes("n1")
    made.gpus("gone", device("gpu-0"))
    [(message, _)] = found(exactly("deviceClassName: gpu"), made)
    assert message.startswith("request r: ")


SLICE = """
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec:
  driver: gpu.example.com
  nodeName: n1
  pool: {name: n1, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0}]
"""
CLASS = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {selectors: [{cel: {expression: 'device.driver == "gpu.example.com"'}}]}
"""


def test_without_a_cluster_the_slices_in_the_files_count() -> None:
    two = exactly("deviceClassName: gpu, count: 2")
    assert list(never_fits(None, read_files([("c.yaml", two)]))) == []
    [together] = never_fits(None, read_files([("slices.yaml", f"{SLICE}---{CLASS}"), ("c.yaml", two)]))
    [alone] = never_fits(None, read_files([("all.yaml", f"{SLICE}---{CLASS}---\n{two}")]))
    assert (together.file, alone.file) == ("c.yaml", "all.yaml")
    assert "fits no node of these files" in alone.message
    # The class may be in the cluster for which the files are.
    assert list(never_fits(None, read_files([("slices.yaml", SLICE), ("c.yaml", two)]))) == []


def test_a_cluster_whose_devices_could_not_be_read_is_not_judged() -> None:
    made = cluster()
    made.missing = (MissingKind("resourceslices", "forbidden", served=True),)
    with pytest.raises(UnreadKindsError):
        found(exactly("deviceClassName: gpu"), made)


def pod_with(*claims: str) -> str:
    entries = ", ".join(f"{{name: e{index}, resourceClaimName: {name}}}" for index, name in enumerate(claims))
    containers = "containers: [{name: c, image: i}]"
    return f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {{{containers}, resourceClaims: [{entries}]}}\n"


def named(name: str, count: int) -> str:
    return exactly(f"deviceClassName: gpu, count: {count}").replace("name: c}", f"name: {name}}}")


def test_claims_of_one_pod_that_fit_each_by_itself_and_no_node_together() -> None:
    two = f"{named('a', 1)}---\n{named('b', 2)}---\n"
    [placed] = never_fits(cluster().cluster(), read_files([("c.yaml", two + pod_with("a", "b"))]))
    assert (placed.object, placed.field) == ("Pod p", "spec.resourceClaims")
    start = "each claim of this pod fits by itself, but together they fit no node of a test"
    assert placed.message.startswith(start)
    assert placed.suggestion == "ask for 1 device in request r of claim b"
    [placed] = never_fits(
        cluster().cluster(),
        read_files([("c.yaml", f"{named('a', 2)}---\n{named('b', 1)}---\n" + pod_with("a", "b"))]),
    )
    assert placed.suggestion == "ask for 1 device in request r of claim a"
    fitting = f"{named('a', 1)}---\n{named('b', 1)}---\n"
    assert list(never_fits(cluster().cluster(), read_files([("c.yaml", fitting + pod_with("a", "b"))]))) == []
    # The claim is named, and nothing more is said of the pod.
    hopeless = f"{named('a', 1)}---\n{named('b', 3)}---\n"
    assert [
        placed.object
        for placed in never_fits(cluster().cluster(), read_files([("c.yaml", hopeless + pod_with("a", "b"))]))
    ] == ["ResourceClaim b"]


def class_of(expression: str) -> str:
    return (
        "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: g2}\n"
        f"spec: {{selectors: [{{cel: {{expression: '{expression}'}}}}]}}\n"
    )


@pytest.mark.parametrize(
    ("expression", "reason", "advice"),
    [
        (
            'device.driver == "gpu.exxample.com"',
            "no device of driver gpu.exxample.com; nearest name gpu.example.com",
            "have DeviceClass g2 ask for gpu.example.com instead of gpu.exxample.com",
        ),
        (f'{ATTRIBUTES}.model == "H100"', f'no device matches the selectors; {ATTRIBUTES}.model is "A100", wanted', ""),
        (f"has({ATTRIBUTES}.modle)", 'has no attribute "modle" of domain "gpu.example.com"; did you mean model?', ""),
    ],
)
def test_class_of_no_device_is_found_without_a_claim(expression: str, reason: str, advice: str) -> None:
    [(message, suggestion)] = found(class_of(expression))
    assert message.startswith("a claim for one device of this class ")
    assert reason in message
    assert suggestion.startswith(advice)


def test_class_of_which_there_is_a_device_or_for_which_a_claim_asks_is_no_finding_of_its_own() -> None:
    assert found(class_of(f'{ATTRIBUTES}.model == "A100"')) == []
    asking = class_of('device.driver == "nobody.example.com"') + "---\n" + exactly("deviceClassName: g2")
    [(message, _)] = found(asking)
    assert message.startswith("request r: no device of driver nobody.example.com")


def test_what_is_not_asked_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dra_extender.inspection.never_fits._MOST_QUESTIONS", 1)
    text = f"{named('a', 1)}---\n{named('b', 3)}"
    [placed] = never_fits(cluster().cluster(), read_files([("c.yaml", text)]))
    assert placed.object == "ResourceClaim b"
    assert placed.message.startswith("not asked whether it fits a node")


@pytest.mark.parametrize("version", ["v1", "v1beta2"])
def test_claims_of_every_version_with_the_same_fields_are_asked(version: str) -> None:
    text = exactly("deviceClassName: gpu, count: 3").replace("/v1\n", f"/{version}\n")
    [(message, _)] = found(text)
    assert message.endswith("at most 2 of 3 devices, on n1")


def test_claims_and_slices_of_v1beta1_are_read_with_their_own_fields() -> None:
    text = claim("{requests: [{name: r, deviceClassName: gpu, count: 3}]}").replace("/v1\n", "/v1beta1\n")
    [(message, _)] = found(text)
    assert message.endswith("at most 2 of 3 devices, on n1")
    in_files = (
        "apiVersion: resource.k8s.io/v1beta1\nkind: DeviceClass\nmetadata: {name: gpu}\n"
        'spec: {selectors: [{cel: {expression: \'device.attributes["gpu.example.com"].model == "A100"\'}}]}\n---\n'
        "apiVersion: resource.k8s.io/v1beta1\nkind: ResourceSlice\nmetadata: {name: s}\nspec:\n"
        "  driver: gpu.example.com\n  nodeName: n1\n  pool: {name: n1, generation: 1, resourceSliceCount: 1}\n"
        "  devices: [{name: gpu-0, basic: {attributes: {model: {string: A100}}}}]\n---\n"
    )
    assert list(never_fits(None, read_files([("c.yaml", in_files + text.replace("count: 3", "count: 1"))]))) == []
    [placed] = never_fits(None, read_files([("c.yaml", in_files + text)]))
    assert placed.message.endswith("at most 1 of 3 devices, on n1")
