"""Where an object stands in its files decides nothing; what a story tells step by step keeps its order."""

import zlib
from pathlib import Path

import msgspec
import pytest
from dra_extender.cli.demo_stories import Story, example_files
from dra_extender.simulator.demo.document import Document, Manifests
from dra_extender.simulator.demo.manifests import load_texts
from dra_extender.simulator.demo.results import ApplyEffect, StoryResult
from dra_extender.simulator.demo.runner import steps_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.examples import examples as example_count
from tests.support.simulator import playing

pytestmark = pytest.mark.virtual_time

CLUSTER = """
apiVersion: v1
kind: Node
metadata: {name: node-1}
---
apiVersion: v1
kind: Node
metadata: {name: node-2}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: one}
spec:
  driver: gpu.example.com
  nodeName: node-1
  pool: {name: one, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0}, {name: gpu-1}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: two}
spec:
  driver: gpu.example.com
  nodeName: node-2
  pool: {name: two, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0}]
"""
RUNNING = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: taken, finalizers: [resource.kubernetes.io/delete-protection]}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}
status:
  reservedFor: [{resource: pods, name: old, uid: old-uid}]
  allocation: {devices: {results: [{request: gpu, driver: gpu.example.com, pool: one, device: gpu-0}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: old, uid: old-uid}
spec:
  schedulerName: dra-extender-scheduler
  nodeName: node-1
  containers: [{name: main, image: pause}]
  resourceClaims: [{name: gpu, resourceClaimName: taken}]
"""
TEMPLATE = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: gpu}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}}
"""


def pod(name: str, annotations: str = "", extra: str = "") -> str:
    return (
        f"\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, annotations: {{{annotations}}}}}\n"
        "spec:\n  schedulerName: dra-extender-scheduler\n  containers: [{name: main, image: pause}]\n"
        f"  resourceClaims: [{{name: gpu, resourceClaimTemplateName: gpu}}]\n{extra}"
    )


def documents_of(*texts: str) -> tuple[Document, ...]:
    return load_texts([("story.yaml", "---\n".join(texts))]).documents


async def play(documents: tuple[Document, ...], policy: Path | None = None) -> StoryResult:
    return await playing.play(Manifests(documents), policy)


def placements(result: StoryResult) -> dict[str, tuple[str | None, tuple[str, ...]]]:
    """Node and devices of each pod."""
    return {
        state.pod: (state.node, tuple(f"{each.pool}/{each.device}" for use in state.claims for each in use.devices))
        for state in result.pods
    }


async def test_devices_of_a_claim_that_comes_before_its_running_pod_are_counted() -> None:
    pods = [pod(name) for name in ("a", "b", "c")]
    claim, old = RUNNING.split("---\n")
    expected = {
        "default/old": ("node-1", ("one/gpu-0",)),
        "default/a": ("node-1", ("one/gpu-1",)),
        "default/b": ("node-2", ("two/gpu-0",)),
        "default/c": (None, ()),
    }
    for order in ((claim, old, *pods), (old, claim, *pods), (*pods, claim, old), (claim, *pods, old)):
        assert placements(await play(documents_of(CLUSTER, TEMPLATE, *order))) == expected


async def test_what_runs_is_there_from_the_beginning_even_where_a_story_has_it_later() -> None:
    claim, old = RUNNING.split("---\n")
    first = pod("first", "dra-extender.io/expect: bound", "  nodeSelector: {kubernetes.io/hostname: node-1}\n")
    labelled = CLUSTER.replace(
        "metadata: {name: node-1}", "metadata: {name: node-1, labels: {kubernetes.io/hostname: node-1}}"
    )
    result = await play(documents_of(labelled, TEMPLATE, claim, first, old))
    assert result.failures == 0
    assert placements(result)["default/first"] == ("node-1", ("one/gpu-1",))
    assert [step.effect for step in result.steps][-1] is ApplyEffect.CREATED


MIXED = documents_of(
    CLUSTER,
    RUNNING,
    TEMPLATE,
    pod("low"),
    pod("high", extra="  priority: 5\n"),
    pod("late").replace("{name: late,", "{name: late, creationTimestamp: '2026-01-02T00:00:00Z',"),
    pod("early").replace("{name: early,", "{name: early, creationTimestamp: '2026-01-01T00:00:00Z',"),
)
EXPECTED = {
    "default/old": ("node-1", ("one/gpu-0",)),
    "default/high": ("node-1", ("one/gpu-1",)),
    "default/early": ("node-2", ("two/gpu-0",)),
    "default/late": (None, ()),
    "default/low": (None, ()),
}


@settings(example_count(8), suppress_health_check=list(HealthCheck))
@given(st.permutations(MIXED))
async def test_any_order_of_the_objects_gives_the_same_placements(documents: list[Document]) -> None:
    """Pods queue by priority, then by age, then by name, wherever they are in the file."""
    assert placements(await play(tuple(documents))) == EXPECTED


def beginning_of(story: Story) -> tuple[Document, ...]:
    """The documents before the first one that changes or deletes an object, without expectations that end a step."""
    steps = steps_of(story.manifests.documents)
    seen: set[object] = set()
    found = []
    for document in (each for step in steps for each in step.reported):
        if document.action == "delete" or not seen.isdisjoint(document.keys):
            break
        seen.update(document.keys)
        found.append(msgspec.structs.replace(document, expect=None, expect_at_end=None))
    return tuple(found)


FILES = {file.name[:2]: file for file in example_files()}


@pytest.mark.parametrize("name", ["05", "12", "15"])
async def test_any_order_of_the_objects_of_an_example_gives_the_same_placements(name: str) -> None:
    story = FILES[name].story()
    documents = beginning_of(story)
    assert len(documents) > 5
    shuffled = [
        documents,
        tuple(reversed(documents)),
        *(tuple(sorted(documents, key=lambda each: zlib.crc32(f"{each.key} {seed}".encode()))) for seed in range(2)),
    ]
    results = [placements(await play(each, story.policy)) for each in shuffled]
    assert any(node is not None for node, _ in results[0].values())
    assert all(each == results[0] for each in results)


async def test_story_goes_on_where_a_document_expects_something_or_changes_an_object() -> None:
    documents = documents_of(
        CLUSTER,
        TEMPLATE,
        pod("z", "dra-extender.io/expect: node=node-1"),
        pod("a"),
        pod("z", "dra-extender.io/demo: delete"),
        pod("b"),
    )
    reported = [[document.key.name for document in step.reported] for step in steps_of(documents)]
    assert reported == [["node-1", "node-2", "gpu", "one", "two", "gpu", "z"], ["a"], ["z"], ["b"]]


async def test_each_pod_of_a_step_is_reported_at_its_own_document() -> None:
    result = await play(documents_of(pod("b"), pod("a"), TEMPLATE, CLUSTER))
    reported = {step.subject: [state.pod for state in step.pods] for step in result.steps}
    assert reported["Pod default/b"] == ["default/b"]
    assert reported["Pod default/a"] == ["default/a"]
    assert sum(map(len, reported.values())) == 2


def test_pods_of_one_age_queue_by_name_with_numbers_as_numbers() -> None:
    documents = documents_of(pod("p-10"), pod("p-9"), pod("a"), TEMPLATE)
    (step,) = steps_of(documents)
    assert [each.key.name for each in step.applied] == ["gpu", "a", "p-9", "p-10"]
