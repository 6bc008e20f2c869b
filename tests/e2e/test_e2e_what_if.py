"""What `what-if` predicts happens: each change is made for real afterwards, and pods are bound or wait as it said.

Compared are verdicts (bound or waiting, and why), and nodes where one node alone is possible or preferred.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from tests.controlplane.objects import device
from tests.controlplane.resources import NODES, PODS
from tests.support.e2e.command import run_here
from tests.support.e2e.gpus import gpu, mig_or_vgpu
from tests.support.e2e.namespace_fixture import PROMPT_SECONDS, NamespaceFixture
from tests.support.e2e.scenes import Scenes
from tests.support.e2e.workloads import clear_groups, create_group, member

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]


async def what_if(scene: NamespaceFixture, *arguments: str, command: str = "what-if") -> dict[str, Any]:
    """The answer of the command line as JSON; nothing in the scene is changed by it."""
    before = await written(scene)
    source = ("--kubeconfig", str(scene.world.cluster.admin_kubeconfig))
    status, out, err = await run_here(command, "-n", scene.name, "-o", "json", *source, *arguments)
    assert (status, err) == (0, "")
    assert await written(scene) == before
    found: dict[str, Any] = msgspec.json.decode(out)
    return found


async def written(scene: NamespaceFixture) -> list[tuple[str, Any]]:
    pods = await scene.api.list(PODS, scene.name)
    nodes = [each for each in await scene.api.list(NODES) if each["metadata"]["name"].startswith(scene.name)]
    return [(each["metadata"]["name"], each["spec"]) for each in (*pods, *nodes)]


def own_pods(scene: NamespaceFixture, report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The pods of the scene in an answer, which has those of all scenes."""
    return [each for each in report["pods"] if each["pod"].startswith(f"{scene.name}/")]


def after(scene: NamespaceFixture, report: Mapping[str, Any]) -> dict[str, str]:
    """The node of each pod of the scene that lands, else `waits` or `ended`."""
    return {
        each["pod"].removeprefix(f"{scene.name}/"): each["after"].get("node") or each["after"]["kind"]
        for each in own_pods(scene, report)
    }


async def pod_lands_where_it_was_said_once_the_pod_in_its_way_has_ended(scene: NamespaceFixture) -> None:
    for kind in ("mig", "vgpu"):
        await scene.template(kind, f'{scene.attribute("type")} == "{kind}"')
    node = await scene.node_with_counters("a", [gpu()], mig_or_vgpu())
    await scene.pod("vgpu", template="vgpu")
    assert await scene.wait_until_bound("vgpu") == node
    await scene.pod("mig", template="mig")
    await scene.wait_until_unschedulable("mig", "compatibility groups in conflict")

    next_up = await what_if(scene)
    assert after(scene, next_up) == {"mig": "waits"}
    (pod,) = own_pods(scene, next_up)
    assert any("compatibility groups in conflict" in reason["text"] for reason in pod["after"]["reasons"])
    changed = await what_if(scene, "--without", "vgpu")
    assert after(scene, changed) == {"mig": node, "vgpu": "ended"}

    await scene.delete_pod("vgpu")
    assert await scene.wait_until_bound("mig", PROMPT_SECONDS) == node
    (lands,) = (each for each in own_pods(scene, changed) if each["pod"].endswith("/mig"))
    assert [each.split("/", 1)[1] for each in lands["after"]["devices"]] == [await scene.device_of("mig")]


async def pods_of_a_drained_node_move_or_wait_as_was_said(scene: NamespaceFixture) -> None:
    await scene.template("one")
    first = await scene.node_with_devices("a", device("gpu-0"), device("gpu-1"))
    for name in ("p-0", "p-1"):
        await scene.pod(name, template="one")
        assert await scene.wait_until_bound(name) == first
    second = await scene.node_with_devices("b", device("gpu-0"))

    report = await what_if(scene, "--drain", first)

    assert after(scene, report) == {"p-0": second, "p-1": "waits"}
    assert {claim["fate"] for each in own_pods(scene, report) for claim in each["claims"]} == {"generated"}
    await scene.api.patch(NODES, first, {"spec": {"unschedulable": True}})
    for name in ("p-0", "p-1"):
        await scene.delete_pod(name)
    await scene.wait_until_free()
    await scene.pod("p-0", template="one")
    assert await scene.wait_until_bound("p-0") == second
    await scene.pod("p-1", template="one")
    await scene.wait_until_unschedulable("p-1")


async def gang_waits_as_a_whole_and_lands_as_a_whole_as_was_said(scene: NamespaceFixture) -> None:
    await scene.template("one")
    node = await scene.node_with_devices("a", *(device(f"gpu-{index}") for index in range(3)))
    await scene.pod("holder", template="one")
    await scene.wait_until_bound("holder")
    await create_group(scene, "band", min_count=3)
    names = [f"band-{index}" for index in range(3)]
    for name in names:
        await member(scene, "band", name, template="one")
    for name in names:
        await scene.wait_until_unschedulable(name)

    assert after(scene, await what_if(scene)) == dict.fromkeys(names, "waits")
    said = after(scene, await what_if(scene, "--without", "holder"))
    assert said == {**dict.fromkeys(names, node), "holder": "ended"}

    await scene.delete_pod("holder")
    for name in names:
        assert await scene.wait_until_bound(name) == node
    await clear_groups(scene)


async def pod_fits_after_the_move_that_was_advised(scene: NamespaceFixture) -> None:
    await scene.template("one")
    await scene.template("two", count=2)
    gpus = [device(f"gpu-{index}") for index in range(2)]
    first = await scene.node_with_devices("a", *gpus)
    await scene.pod("first", template="one")
    assert await scene.wait_until_bound("first") == first
    await scene.api.patch(NODES, first, {"spec": {"unschedulable": True}})
    second = await scene.node_with_devices("b", *gpus)
    await scene.pod("second", template="one")
    assert await scene.wait_until_bound("second") == second
    await scene.api.patch(NODES, first, {"spec": {"unschedulable": False}})
    await scene.pod("train", template="two")
    await scene.wait_until_unschedulable("train")

    said = await what_if(scene, "--pod", "train", command="defrag")
    (move,) = said["moves"]
    moved, node = move["pod"].removeprefix(f"{scene.name}/"), said["lands"]["node"]
    assert (said["finding"], said["fewest"], move["before"]["node"]) == ("plan", True, node)
    predicted = after(scene, await what_if(scene, "--evict", moved))
    assert predicted == {"train": node, moved: move["after"]["node"]}

    await scene.delete_pod(moved)
    assert await scene.wait_until_bound("train", PROMPT_SECONDS) == node
    await scene.pod(moved, template="one")
    assert await scene.wait_until_bound(moved) == move["after"]["node"]


async def test_what_is_predicted_happens(scenes: Scenes) -> None:
    await scenes.carry_out(
        pod_lands_where_it_was_said_once_the_pod_in_its_way_has_ended,
        pods_of_a_drained_node_move_or_wait_as_was_said,
        gang_waits_as_a_whole_and_lands_as_a_whole_as_was_said,
        pod_fits_after_the_move_that_was_advised,
    )
