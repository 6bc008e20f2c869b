"""Stories run against the real service: the whole of dra_extender.service.wiring behind real HTTP, over a cluster in memory."""

import asyncio
import io
from pathlib import Path

import msgspec
import pytest
from dra_extender.cli.demo_stories import StoryFile, example_files, serve
from dra_extender.simulator.apiserver.cluster import MemoryCluster
from dra_extender.simulator.apiserver.objects import Key, StoredKind
from dra_extender.simulator.apiserver.served_fields import served_by
from dra_extender.simulator.demo.document import Action
from dra_extender.simulator.demo.manifests import load_files
from dra_extender.simulator.demo.report import StoryReport, as_json
from dra_extender.simulator.demo.results import ApplyEffect, StoryStep
from rich.console import Console

from tests.support.simulator.playing import SETTINGS, failures, play

pytestmark = pytest.mark.virtual_time

EXAMPLES = Path(__file__).parents[3] / "deploy" / "examples"


@pytest.mark.parametrize("file", example_files(), ids=lambda file: file.title)
async def test_each_example_proves_itself(file: StoryFile) -> None:
    story = file.story()
    result = await play(story.manifests, story.policy)
    assert failures(result) == []
    # Copies of one pod are one check.
    assert len(result.checks) >= 4 or " to -" in result.checks[0].pod
    # A missing template is what one example is about; nothing else may go wrong beside the story.
    trouble = {text for step in result.steps for text in step.problems}
    assert trouble <= {'Pod default/template-missing: resourceclaimtemplates "forgotten" not found'}


@pytest.mark.parametrize("minor", [34, 35, 36])
async def test_stories_with_a_policy_need_nothing_of_the_api_server(minor: int) -> None:
    """Groups, counters apart from amounts, conditions: what an older server drops, the policy supplies."""
    files = [file for file in example_files() if file.policy is not None]
    assert len(files) == 4
    for file in files:
        story = file.story()
        assert failures(await play(story.manifests, story.policy, served_by(minor))) == []


ATTACHED_FIRST = """
rules:
  - name: fabric
    driver: fabric.example.com
    bindingConditions: [fabric.example.com/attached]
    bindingFailureConditions: [fabric.example.com/failed]
    bindsToNode: true
"""


@pytest.mark.parametrize("minor", [34, 35])
async def test_binding_conditions_of_a_policy_hold_back_the_bind_where_the_server_stores_none(
    minor: int, tmp_path: Path
) -> None:
    """The story of the device that is attached first, on a server that drops its conditions from slice and allocation."""
    (path,) = EXAMPLES.glob("08-*.yaml")
    file = tmp_path / "policy.yaml"
    for text, holds in ((ATTACHED_FIRST, True), ("rules: []", False)):
        file.write_text(text)
        assert (failures(await play(load_files([path]), file, served_by(minor))) == []) is holds


def test_examples_name_the_scheduler_and_use_the_released_api() -> None:
    for path in EXAMPLES.glob("*.yaml"):
        for document in load_files([path]).documents:
            assert document.item["apiVersion"] in ("v1", "resource.k8s.io/v1", "scheduling.k8s.io/v1beta1")
            if document.key.kind is StoredKind.POD and document.action is Action.APPLY:
                assert document.item["spec"]["schedulerName"] == "dra-extender-scheduler"
                assert document.key.namespace == "default"


NODE = "apiVersion: v1\nkind: Node\nmetadata: {name: node-1}\n---\n"
CLASS = "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: gpu}\nspec: {}\n---\n"


def slice_of(*devices: str, name: str = "s") -> str:
    each = "".join(f"    - name: {device}\n" for device in devices)
    return (
        f"apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {{name: {name}}}\nspec:\n  driver: gpu.example.com\n"
        f"  nodeName: node-1\n  pool: {{name: {name}, generation: 1, resourceSliceCount: 1}}\n  devices:\n{each}---\n"
    )


def claim_of(name: str, extra: str = "") -> str:
    return (
        f"apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: {name}{extra}}}\n"
        "spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}\n"
    )


def pod_of(name: str, claim: str, annotations: str = "", extra: str = "") -> str:
    return (
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, annotations: {{{annotations}}}}}\n"
        "spec:\n  schedulerName: dra-extender-scheduler\n  containers: [{name: main, image: pause}]\n"
        f"  resourceClaims: [{{name: gpu, resourceClaimName: {claim}}}]\n{extra}---\n"
    )


EXPECT = "dra-extender.io/expect"


async def test_devices_that_are_published_later_wake_the_waiting_pod() -> None:
    """kube-scheduler does not watch slices; the service must wake it."""
    waiting = pod_of("p", "c", f'{EXPECT}: "waiting: no devices", {EXPECT}-at-end: node=node-1')
    result = await play(NODE + CLASS + claim_of("c") + "---\n" + waiting + slice_of("gpu-0"))
    assert failures(result) == []
    assert [state.node for state in result.steps[-1].pods] == ["node-1"]


DRAFT_GROUP = """apiVersion: scheduling.k8s.io/v1alpha1
kind: PodGroup
metadata: {{name: {0}}}
spec:
  workloadRef: {{name: my-workload}}
  podGroupTemplateRef: {{name: {0}}}
  resourceClaims: [{{name: pg-claim, resourceClaimTemplateName: template}}]
---
"""
DRAFT_POD = """apiVersion: v1
kind: Pod
metadata: {{name: {0}}}
spec:
  schedulerName: dra-extender-scheduler
  containers: [{{name: main, image: pause}}]
  resourceClaims: [{{name: resource, podGroupResourceClaim: pg-claim}}]
  {1}
---
"""
TEMPLATE = """apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: template}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}}
---
"""


@pytest.mark.parametrize(
    "named",
    ["workloadRef: {{name: my-workload, podGroupName: {0}}}", "schedulingGroup: {{podGroupName: {0}}}"],
    ids=["first draft", "second draft"],
)
async def test_the_example_of_each_draft_of_kep_5729_is_scheduled(named: str) -> None:
    """Pods of one group share its device, those of the other group have another one."""
    groups = {"one": ["a", "b"], "two": ["c", "d"]}
    text = NODE + CLASS + slice_of("gpu-0", "gpu-1", "gpu-2") + TEMPLATE
    for group, pods in groups.items():
        text += DRAFT_GROUP.format(group)
        text += "".join(DRAFT_POD.format(pod, named.format(group)) for pod in pods)
    result = await play(text)
    assert failures(result) == []
    devices = {state.pod: tuple(each.device for use in state.claims for each in use.devices) for state in result.pods}
    assert all(state.node == "node-1" for state in result.pods)
    assert {len(each) for each in devices.values()} == {1}
    assert len(set(devices.values())) == len(groups)


async def test_an_expectation_that_does_not_hold_is_a_failure() -> None:
    text = NODE + CLASS + slice_of("gpu-0") + claim_of("c") + "---\n" + pod_of("p", "c", f"{EXPECT}: waiting")
    result = await play(text)
    assert failures(result) == ["default/p waiting: it is bound, on node-1"]
    assert result.failures > 0


async def test_an_expectation_about_a_pod_that_is_gone_is_a_failure() -> None:
    gone = pod_of("p", "c", f"dra-extender.io/demo: delete, {EXPECT}: bound")
    result = await play(NODE + pod_of("p", "c") + gone)
    assert failures(result) == ["default/p bound: the pod does not exist"]


async def test_a_document_that_the_cluster_refuses_is_told_and_the_story_goes_on() -> None:
    changed = claim_of("c").replace("name: gpu,", "name: other,")
    result = await play(claim_of("c") + "---\n" + changed + "---\n" + NODE)
    assert [step.effect for step in result.steps] == [ApplyEffect.CREATED, ApplyEffect.REFUSED, ApplyEffect.CREATED]
    assert "field is immutable" in result.steps[1].refusal
    assert result.failures > 0


async def test_refused_document_is_one_failure_however_many_expectations_it_has() -> None:
    both = f'{EXPECT}: bound, "dra-extender.io/expect-at-end": bound'
    refused = pod_of("p", "c", both, extra="  priority: 7\n").replace("claimName: c", "claimName: other")
    result = await play(NODE + pod_of("p", "c") + refused)
    assert [step.effect for step in result.steps][-1] == ApplyEffect.REFUSED
    assert (result.refused, result.failures, len(result.checks)) == (1, 1, 2)
    console = Console(file=io.StringIO(), width=120)
    StoryReport(console).summary([result])
    assert "1 story, 0 of 2 expectations hold, 1 failed (1 document refused)" in console.file.getvalue()  # type: ignore[attr-defined]


async def test_claims_of_a_podgroup_never_change() -> None:
    group = """apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {{name: group}}
spec: {{schedulingPolicy: {{gang: {{minCount: {1}}}}}, resourceClaims: [{{name: gpu, resourceClaimName: {0}}}]}}
---
"""
    result = await play(group.format("c", 1) + group.format("c", 2) + group.format("other", 2))
    assert [step.effect for step in result.steps] == [ApplyEffect.CREATED, ApplyEffect.UPDATED, ApplyEffect.REFUSED]
    assert (
        result.steps[-1].refusal
        == 'PodGroup "group" is invalid: spec.resourceClaims: Invalid value: field is immutable'
    )


async def test_failed_shared_claim_is_released_before_the_next_document() -> None:
    """Two pods share a device; its driver reports a failure.  The next pod gets the device of the released claim."""
    conditions = "      bindingConditions: [attached]\n      bindingFailureConditions: [failed]\n"
    devices = slice_of("gpu-0").replace("    - name: gpu-0\n", f"    - name: gpu-0\n{conditions}")
    report = "{driver: gpu.example.com, pool: s, device: gpu-0, conditions: [{type: failed, status: 'True'}]}"
    failed = claim_of("shared") + f"status: {{devices: [{report}]}}\n---\n"
    # `expect` ends a step, so that the report of the driver is a step of its own.
    sharers = "".join(pod_of(name, "shared", f"{EXPECT}: waiting") for name in ("a", "b"))
    last = claim_of("own") + "---\n" + pod_of("c", "own", f'{EXPECT}: "waiting: in use"')

    results = [
        await play(NODE + CLASS + devices + claim_of("shared") + "---\n" + sharers + failed + last) for _ in range(2)
    ]

    assert [failures(result) for result in results] == [[], []]
    assert results[0].steps == results[1].steps


async def test_deleting_what_does_not_exist_is_refused() -> None:
    result = await play(pod_of("p", "c", "dra-extender.io/demo: delete"))
    assert [step.effect for step in result.steps] == [ApplyEffect.REFUSED]


async def test_a_dump_of_a_cluster_keeps_uids_and_allocations() -> None:
    """Bound pods before claims: what is reserved for a pod stays reserved, and its device stays taken."""
    running = pod_of("old", "taken", extra="  nodeName: node-1\n").replace("name: old,", "name: old, uid: old-uid,")
    status = (
        "status:\n  reservedFor: [{resource: pods, name: old, uid: old-uid}]\n"
        "  allocation: {devices: {results: [{request: gpu, driver: gpu.example.com, pool: s, device: gpu-0}]}}\n---\n"
    )
    taken = claim_of("taken", ", finalizers: [resource.kubernetes.io/delete-protection]") + status
    new = claim_of("c") + "---\n" + pod_of("new", "c", f'{EXPECT}: "waiting: in use"')
    result = await play(NODE + CLASS + slice_of("gpu-0") + running + taken + new)
    assert failures(result) == []
    (device,) = next(state for state in result.pods if state.pod == "default/old").claims[0].devices
    assert (device.pool, device.device) == ("s", "gpu-0")


async def test_the_same_document_twice_changes_nothing() -> None:
    result = await play(NODE + NODE + slice_of("gpu-0") * 2)
    assert [step.effect for step in result.steps] == [ApplyEffect.CREATED, ApplyEffect.UNCHANGED] * 2


async def test_nothing_is_left_behind_when_the_service_stops() -> None:
    cluster = MemoryCluster()
    async with serve(cluster, SETTINGS) as transport:
        cluster.store.create(StoredKind.NODE, {"metadata": {"name": "node-1"}})
        status, body = await transport.post("filter", b'{"Pod":{"metadata":{"name":"p"}},"NodeNames":["node-1"]}')
        assert (status, msgspec.json.decode(body)["NodeNames"]) == (200, ["node-1"])
        port = int(transport._url.rpartition(":")[2])
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    cluster.store.delete(Key(StoredKind.NODE, "", "node-1"))
    assert cluster.watch.deliver() == 1


async def printed(text: str, width: int) -> str:
    steps: list[StoryStep] = []
    result = await play(text, observe=steps.append)
    assert tuple(steps) == result.steps
    console = Console(file=io.StringIO(), width=width, highlight=False)
    report = StoryReport(console)
    report.title(result.title)
    report.warnings(result.warnings)
    for step in result.steps:
        report.step(step)
    report.end(result)
    report.summary([result])
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


STORY = (
    "# A story with a title that is long enough to be wrapped when it is shown on a terminal of eighty columns.\n"
    + NODE
    + CLASS
    + slice_of("gpu-0")
    + claim_of("a")
    + "---\n"
    + claim_of("b")
    + "---\n"
    + pod_of("a", "a", f"{EXPECT}: bound")
    + pod_of("b", "b", f"{EXPECT}: bound")
)


@pytest.mark.parametrize("width", [80, 132])
async def test_the_report_fits_the_width_and_has_no_colours_beside_a_terminal(width: int) -> None:
    text = await printed(STORY, width)
    assert all(len(line) <= width for line in text.splitlines())
    assert "\x1b" not in text


async def test_the_report_tells_what_happened_and_why() -> None:
    text = await printed(STORY, 300)
    for expected in (
        "default/a -> node-1",
        "gpu: gpu-0",
        "ok: default/a bound",
        'default/b waits: 0/1 nodes are available: 1 node(s): claim "gpu", request "gpu": matching devices are in use.',
        'node-1: node(s): claim "gpu", request "gpu": matching devices are in use',
        'details: 1 of 1 nodes: claim "gpu"',
        "FAILED: default/b expected bound: it is waiting: 0/1 nodes are available",
        "1 story, 1 of 2 expectations hold, 1 failed",
    ):
        assert expected in text


async def test_the_json_form_has_everything_the_report_tells() -> None:
    document = msgspec.json.decode(as_json([await play(STORY)]))
    assert document["failures"] == 1
    (story,) = document["stories"]
    first, second = story["pods"]
    device = {"request": "gpu", "driver": "gpu.example.com", "pool": "s", "device": "gpu-0"}
    assert first == {
        "pod": "default/a",
        "node": "node-1",
        "claims": [{"name": "gpu", "claim": "a", "devices": [device]}],
        "message": "",
        "reasons": {},
        "details": [],
    }
    assert second["node"] is None
    assert second["reasons"] == {"node-1": 'node(s): claim "gpu", request "gpu": matching devices are in use'}
    assert [step["effect"] for step in story["steps"]] == ["created"] * 7


async def test_pod_that_could_have_only_a_device_that_counts_against_its_node_is_told_so() -> None:
    counted = slice_of("cpus").replace(
        "- name: cpus\n", "- name: cpus\n      nodeAllocatableResources: {cpu: {overhead: {perPod: '2'}}}\n"
    )
    expected = f'{EXPECT}: "waiting: nodeAllocatableResources of devices are not supported"'
    played = await play(NODE + CLASS + counted + claim_of("c") + "---\n" + pod_of("p", "c", expected))
    assert failures(played) == []
    assert [each.pod for each in played.checks] == ["default/p"]
