"""The same scenarios with the in-tree scheduler and with the extender, on the same nodes: the table of docs/start/comparison.md."""

import copy
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, Final

import pytest
import pytest_asyncio

from tests.controlplane import objects
from tests.controlplane.node.options import NodeOptions
from tests.controlplane.objects import SCHEDULER_NAME, Object, device, resource_claim_template
from tests.controlplane.resources import NAMESPACES, PRIORITY_CLASSES, RESOURCE_CLAIM_TEMPLATES
from tests.controlplane.schedulers import IN_TREE
from tests.support.e2e.gpus import gpu, partition
from tests.support.e2e.workloads import backed, create_group, member
from tests.support.node.comparison import OURS, RIVAL, ROWS
from tests.support.node.nodes import NodesSetup, RealNodes
from tests.support.node.outcome import Names, outcome
from tests.support.node.pod_scene import RUN_SECONDS, PodScene

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

PLAIN: Final = "127.0.0.2"
CARDS: Final = "127.0.0.3"
RIVAL_GATES: Final = {"DRADeviceCompatibilityGroups": True, "GenericWorkload": True, "DRAWorkloadResourceClaims": True}
"""Of the in-tree scheduler alone; they are off by default."""
HIGH: Final = "comparison-high"
ENDS: Final = ("env", "exit", "0")
Play = Callable[[PodScene], AsyncIterator[None]]
PLAYS: Final[dict[str, Play]] = {}


def kind(name: str, word: str, **fields: Any) -> Object:
    return device(name, attributes={"kind": word, "numa": 0}, **fields)


DEVICES: Final = (
    kind("gpu-0", "plain"),
    kind("gpu-1", "plain"),
    kind("gpu-2", "large"),
    kind("gpu-3", "small"),
    kind("nic-0", "shared", capacity={"bandwidth": "10Gi"}, allowMultipleAllocations=True),
    kind("old-0", "tainted", taints=[{"key": "example.com/broken", "effect": "NoSchedule"}]),
)
HALVES: Final = [partition("half", index, "50", groups=()) for index in range(2)]
CARD: Final = [*HALVES, partition("whole", 0, "100", groups=())]
MODES: Final = [partition("vgpu", 0, "50"), partition("mig", 0, "20"), partition("mig", 1, "20")]


@pytest.fixture(scope="module")
def setup() -> NodesSetup:
    """Kubelets are administrators: whatever they say about a pod's devices is about the devices."""
    return NodesSetup(
        {
            PLAIN: NodeOptions(identity="admin", devices=DEVICES),
            CARDS: NodeOptions(identity="admin", devices=CARD, counter_sets=[gpu()]),
        }
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def rival(nodes: RealNodes) -> AsyncIterator[None]:
    """The in-tree scheduler with all that it has, and a priority."""
    cluster = nodes.cluster
    async with cluster.in_tree_scheduler(feature_gates=RIVAL_GATES):
        high = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": HIGH},
            "value": 1000,
        }
        await nodes.api.create(PRIORITY_CLASSES, high)
        yield


def play(key: str) -> Callable[[Play], Play]:
    """The function plays the scenario of this row, and yields after each step."""

    def note(function: Play) -> Play:
        PLAYS[key] = function
        return function

    return note


def of_kind(scene: PodScene, *words: str) -> str:
    """CEL for devices of these kinds."""
    wanted = ", ".join(f"'{word}'" for word in words)
    return f"device.attributes['{scene.driver}'].?kind.orValue('') in [{wanted}]"


def of_type(scene: PodScene, word: str) -> str:
    """CEL for parts of a card of this type."""
    return f"device.attributes['{scene.driver}'].?type.orValue('') == '{word}'"


@play("one-each")
async def one_each(scene: PodScene) -> AsyncIterator[None]:
    await scene.template("plain", of_kind(scene, "plain"))
    for name in "ab":
        await scene.pod(name, template="plain")
    yield


@play("two-containers")
async def two_containers(scene: PodScene) -> AsyncIterator[None]:
    await scene.template("plain", of_kind(scene, "plain"))
    await scene.pod("a", template="plain", containers={"first": ("gpu",), "second": ("gpu",)})
    yield


@play("two-pods")
async def two_pods(scene: PodScene) -> AsyncIterator[None]:
    await scene.claim("shared", of_kind(scene, "plain"))
    for name in "ab":
        await scene.pod(name, claim="shared")
    yield


@play("requests")
async def requests(scene: PodScene) -> AsyncIterator[None]:
    asked = [objects.request(name, scene.name, of_kind(scene, "plain", "large")) for name in ("one", "two")]
    near = [{"requests": ["one", "two"], "matchAttribute": f"{scene.driver}/numa"}]
    await scene.api.create(
        RESOURCE_CLAIM_TEMPLATES, resource_claim_template("near", scene.name, *asked, constraints=near)
    )
    await scene.pod("a", template="near", containers={"first": ("gpu/one",), "second": ("gpu/two",)})
    yield


@play("all")
async def all_devices(scene: PodScene) -> AsyncIterator[None]:
    request = scene.request(of_kind(scene, "plain"), allocationMode="All")
    del request["exactly"]["count"]
    await scene.api.create(RESOURCE_CLAIM_TEMPLATES, resource_claim_template("all", scene.name, request))
    await scene.pod("a", template="all")
    yield


@play("first-available")
async def first_available(scene: PodScene) -> AsyncIterator[None]:
    wanted = [
        {
            "name": word,
            "deviceClassName": scene.name,
            "selectors": [{"cel": {"expression": of_kind(scene, word)}}],
        }
        for word in ("large", "small")
    ]
    template = resource_claim_template("either", scene.name, {"name": "gpu", "firstAvailable": wanted})
    await scene.api.create(RESOURCE_CLAIM_TEMPLATES, template)
    for name in "ab":
        await scene.pod(name, template="either")
        await scene.wait_until_running(name)
    yield
    await scene.pod("c", template="either")
    yield


@play("shares")
async def shares(scene: PodScene) -> AsyncIterator[None]:
    await scene.template("share", of_kind(scene, "shared"), capacity={"requests": {"bandwidth": "5Gi"}})
    for name in "ab":
        await scene.pod(name, template="share")
        await scene.wait_until_running(name)
    await scene.pod("c", template="share")
    yield
    await gone(scene, "a")
    yield


@play("admin")
async def admin(scene: PodScene) -> AsyncIterator[None]:
    labels = {"resource.kubernetes.io/admin-access": "true"}
    await scene.api.patch(NAMESPACES, scene.name, {"metadata": {"labels": labels}})
    await scene.template("plain", of_kind(scene, "large"))
    await scene.template("watch", of_kind(scene, "large"), adminAccess=True)
    await scene.pod("a", template="plain")
    await scene.wait_until_running("a")
    await scene.pod("b", template="watch")
    yield


@play("taint")
async def taint(scene: PodScene) -> AsyncIterator[None]:
    await scene.template("refuses", of_kind(scene, "tainted"))
    await scene.template("tolerates", of_kind(scene, "tainted"), tolerations=[{"operator": "Exists"}])
    await scene.pod("a", template="refuses")
    await scene.pod("b", template="tolerates")
    yield


@play("counters")
async def counters(scene: PodScene) -> AsyncIterator[None]:
    await scene.template("half", of_type(scene, "half"))
    await scene.template("whole", of_type(scene, "whole"))
    await scene.pod("a", template="half")
    await scene.wait_until_running("a")
    await scene.pod("b", template="whole")
    yield
    await gone(scene, "a")
    yield


async def vgpu_and_mig(scene: PodScene) -> None:
    await scene.nodes[CARDS].publish(MODES, [gpu()])
    for word in ("vgpu", "mig"):
        await scene.template(word, of_type(scene, word))
    await scene.pod("a", template="vgpu")
    await scene.wait_until_running("a")
    await scene.pod("b", template="mig")


@play("groups")
async def groups(scene: PodScene) -> AsyncIterator[None]:
    await vgpu_and_mig(scene)
    yield
    await gone(scene, "a")
    yield


@play("groups-changed")
async def groups_changed(scene: PodScene) -> AsyncIterator[None]:
    await vgpu_and_mig(scene)
    yield
    without = copy.deepcopy(MODES)
    for each in without:
        del each["consumesCounters"][0]["compatibilityGroups"]
    await scene.nodes[CARDS].publish(without, [gpu()])
    await scene.pod("c", template="mig")
    yield


@play("extended")
async def extended(scene: PodScene) -> AsyncIterator[None]:
    resource = await backed(scene, of_kind(scene, "plain"))
    await scene.pod("a", extended={resource: "2"})
    await scene.wait_until_running("a")
    await scene.pod("b", extended={resource: "2"})
    yield
    await gone(scene, "a")
    yield


@play("ended")
async def ended(scene: PodScene) -> AsyncIterator[None]:
    await scene.template("large", of_kind(scene, "large"))
    await scene.pod("a", template="large", commands=ENDS)
    await scene.wait_until_ended("a")
    await scene.pod("b", template="large")
    yield


@play("gang")
async def gang(scene: PodScene) -> AsyncIterator[None]:
    await scene.template("plain", of_kind(scene, "plain"))
    await create_group(scene, "gang", min_count=3)
    for name in "abc":
        await member(scene, "gang", name, template="plain")
    yield


@play("driver-error")
async def driver_error(scene: PodScene) -> AsyncIterator[None]:
    scene.nodes[PLAIN].behave(prepare_error="not yet")
    await scene.template("plain", of_kind(scene, "plain"))
    await scene.pod("a", template="plain")
    yield
    scene.nodes[PLAIN].behave()
    yield


@play("priority")
async def priority(scene: PodScene) -> AsyncIterator[None]:
    await scene.template("large", of_kind(scene, "large"))
    await scene.pod("a", template="large")
    await scene.wait_until_running("a")
    await scene.pod("b", template="large", priorityClassName=HIGH)
    yield


@play("group-claim")
async def group_claim(scene: PodScene) -> AsyncIterator[None]:
    await scene.template("plain", of_kind(scene, "plain"))
    await create_group(scene, "workers", templates={"gpu": "plain"})
    for name in "ab":
        await member(scene, "workers", name, template="plain")
    yield


@play("gang-search")
async def gang_search(scene: PodScene) -> AsyncIterator[None]:
    await scene.template("any", of_kind(scene, "large", "small"))
    await scene.template("large", of_kind(scene, "large"))
    await create_group(scene, "gang", min_count=2)
    await member(scene, "gang", "a", template="any")
    await member(scene, "gang", "b", template="large")
    yield


async def gone(scene: PodScene, name: str) -> None:
    await scene.delete_pod(name)
    await scene.wait_until_gone(name)


@pytest_asyncio.fixture(loop_scope="module")
async def as_at_first(nodes: RealNodes) -> AsyncIterator[None]:
    """Whatever the test lets the drivers do, they do as at first afterwards."""
    yield
    nodes[PLAIN].behave()
    await nodes[CARDS].publish(CARD, [gpu()])


@pytest.mark.parametrize("key", ROWS)
@pytest.mark.parametrize("program", [RIVAL, OURS])
async def test_pods_come_to_what_the_table_says(as_at_first: None, scene: PodScene, program: str, key: str) -> None:
    scene.scheduler = {RIVAL: IN_TREE, OURS: SCHEDULER_NAME}[program]
    names, expected = Names(), ROWS[key].expected(program)
    seen: list[str] = []
    async for _ in PLAYS[key](scene):
        words, names = await settled(scene, names, expected[len(seen)])
        seen.append(words)
    assert tuple(seen) == expected


async def settled(scene: PodScene, names: Names, expected: str) -> tuple[str, Names]:
    """What the pods have come to, with the names used: as expected, or whatever it is after a long time."""
    last = "", names

    async def as_expected() -> bool:
        nonlocal last
        added = copy.deepcopy(names)
        last = await outcome(scene, added), added
        return last[0] == expected

    with suppress(TimeoutError):
        await scene.api.wait_for(as_expected, RUN_SECONDS, expected)
    return last
