"""`why` on a real cluster: what it says of waiting pods is so, and its next step works."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.e2e.command import run
from tests.support.e2e.gpus import gpu, mig_or_vgpu
from tests.support.e2e.namespace_fixture import PROMPT_SECONDS, NamespaceFixture

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

SECONDS = 60.0


def kubeconfig(scene: NamespaceFixture) -> str:
    return str(scene.world.cluster.admin_kubeconfig)


async def why(scene: NamespaceFixture, pod: str, *more: str) -> dict[str, Any]:
    source = more or ("--kubeconfig", kubeconfig(scene))
    status, out, err = await run("why", pod, "-n", scene.name, "-o", "json", *source)
    assert (status, err) == (0, "")
    found: dict[str, Any] = msgspec.json.decode(out)
    return found


async def one_gpu(scene: NamespaceFixture) -> str:
    for kind in ("mig", "vgpu"):
        await scene.template(kind, f'{scene.attribute("type")} == "{kind}"')
    return await scene.node_with_counters("a", [gpu()], mig_or_vgpu())


def reason(report: dict[str, Any], code: str) -> dict[str, Any]:
    found: dict[str, Any] = next(
        each for branch in report["branches"] for each in branch["reasons"] if each["code"] == code
    )
    return found


async def test_pod_kept_out_by_groups_is_placed_after_the_next_step_that_why_names(scene: NamespaceFixture) -> None:
    node = await one_gpu(scene)
    await scene.pod("vgpu", template="vgpu")
    assert await scene.wait_until_bound("vgpu") == node
    await scene.pod("mig", template="mig")
    await scene.wait_until_unschedulable("mig", "compatibility groups in conflict")

    report = await why(scene, "mig")

    nearest = reason(report, "GROUPS")["nearest"]
    assert nearest["node"] == node
    assert nearest["inForce"] == ["vgpu"]
    assert nearest["holders"][0]["holder"]["consumers"] == [f"{scene.name}/vgpu"]
    assert {"text": f"end {scene.name}/vgpu", "nodes": [node], "verified": "devices and nodes"} in report["next"]
    await scene.delete_pod("vgpu")
    assert await scene.wait_until_bound("mig", PROMPT_SECONDS) == node


async def test_snapshot_of_the_cluster_has_the_same_answer_and_none_of_the_secrets(
    scene: NamespaceFixture, tmp_path: Path
) -> None:
    node = await one_gpu(scene)
    await scene.claim("large", f'{scene.attribute("type")} == "none"')
    await scene.pod("large", claim="large")
    await scene.wait_until_unschedulable("large", "no device matches the selectors", again=True)
    file = tmp_path / "cluster.tar.gz"

    status, out, err = await run("snapshot", "-o", str(file), "--kubeconfig", kubeconfig(scene))

    assert (status, err) == (0, "")
    assert "pods" in out
    live, kept = await why(scene, "large"), await why(scene, "large", "--snapshot", str(file))
    for report in (live, kept):
        report.pop("origin")
        report.pop("age")
    assert live == kept
    assert reason(kept, "NO_MATCH")["examples"] == [node]


async def test_account_that_may_not_list_pods_is_told_what_is_forbidden(scene: NamespaceFixture) -> None:
    await one_gpu(scene)
    await scene.pod("mig", template="mig")
    await scene.wait_until_bound("mig")
    status, out, err = await run("why", "mig", "-n", scene.name, "--kubeconfig", kubeconfig(scene), "--as", "nobody")

    assert (status, out) == (1, "")
    assert "pods could not be read" in err
    assert "forbidden" in err


async def test_unknown_pod_and_unreadable_kubeconfig_are_said_in_a_sentence(
    scene: NamespaceFixture, tmp_path: Path
) -> None:
    status, out, err = await run("why", "absent", "-n", scene.name, "--kubeconfig", kubeconfig(scene))
    assert (status, out) == (1, "")
    assert f"pod {scene.name}/absent does not exist" in err
    status, out, err = await run("why", "absent", "--kubeconfig", str(tmp_path / "none"))
    assert (status, out) == (2, "")
    assert "does not exist" in err
    assert "Traceback" not in err
