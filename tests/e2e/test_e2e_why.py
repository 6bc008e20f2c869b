"""`why` on a real cluster: what it says of waiting pods is so, and its next step works."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.controlplane.resources import Resource
from tests.support.e2e.command import run
from tests.support.e2e.gpus import gpu, mig_or_vgpu
from tests.support.e2e.namespace_fixture import PROMPT_SECONDS, NamespaceFixture

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

SECONDS = 60.0
QUOTAS = Resource("v1", "resourcequotas")


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
        for event in report.get("events", ()):
            event.pop("age")
    assert live == kept
    assert reason(kept, "NO_MATCH")["examples"] == [node]


async def test_account_that_may_not_list_pods_is_told_what_is_forbidden(scene: NamespaceFixture) -> None:
    await one_gpu(scene)
    await scene.pod("mig", template="mig")
    await scene.wait_until_bound("mig")
    status, out, err = await run("why", "mig", "-n", scene.name, "--kubeconfig", kubeconfig(scene), "--as", "nobody")

    assert (status, out) == (2, "")
    assert "the account may not list pods" in err
    assert "dra-viewer" in err


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


async def test_claim_that_a_quota_forbids_is_explained_by_the_event_of_the_pod(
    scene: NamespaceFixture, tmp_path: Path
) -> None:
    await one_gpu(scene)
    hard = {"count/resourceclaims.resource.k8s.io": "0"}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": hard}}
    await scene.api.create(QUOTAS, {**quota, "metadata": {"name": "none", "namespace": scene.name}})
    try:

        async def enforced() -> bool:
            stored = await scene.api.get(QUOTAS, "none", scene.name)
            return bool(stored.get("status", {}).get("hard") == hard)

        await scene.api.wait_for(enforced, SECONDS, "the quota is enforced")
        await scene.pod("mig", template="mig")

        async def explained() -> dict[str, Any]:
            report = await why(scene, "mig")
            return report if report.get("events") else {}

        report = await scene.api.wait_for(explained, SECONDS, "kube-controller-manager reports the quota")
        (event,) = report["events"]
        assert (event["subject"], event["reason"]) == (f"Pod {scene.name}/mig", "FailedResourceClaimCreation")
        assert "exceeded quota: none" in event["message"]
        steps = [each["text"] for each in report["next"]]
        assert steps == [f"end what uses ResourceQuota {scene.name}/none, or raise it"]
        file = tmp_path / "cluster.tar.gz"
        status, _, err = await run("snapshot", "-o", str(file), "--kubeconfig", kubeconfig(scene))
        assert (status, err) == (0, "")
        kept = await why(scene, "mig", "--snapshot", str(file))
        assert [each["reason"] for each in kept["events"]] == [event["reason"]]
        assert "exceeded quota: none" in kept["events"][0]["message"]
    finally:
        await scene.api.delete(QUOTAS, "none", scene.name)


async def test_scheduler_that_nobody_runs_is_named(scene: NamespaceFixture) -> None:
    node = await one_gpu(scene)
    await scene.pod("placed", template="mig")
    assert await scene.wait_until_bound("placed") == node
    await scene.pod("lost", template="mig", scheduler=f"{scene.scheduler}s")
    report = await why(scene, "lost")
    assert report["schedulerAbsent"].startswith(
        f"no scheduler named {scene.scheduler}s has acted on any pod of this cluster; nearest name {scene.scheduler}"
    )
    assert "schedulerAbsent" not in await why(scene, "placed")


async def test_missing_volume_is_quoted_from_kube_scheduler_without_advice_about_devices(
    scene: NamespaceFixture,
) -> None:
    await one_gpu(scene)
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "absent"}}]
    await scene.pod("mig", template="mig", volumes=volumes)
    await scene.wait_until_unschedulable("mig", "absent")

    report = await why(scene, "mig")

    assert report["cause"] == "something else than devices"
    assert report["summary"].startswith("devices would suffice on ")
    assert any("absent" in each["text"] for each in report["reported"])
    assert "next" not in report
    status, out, err = await run("what-if", "-n", scene.name, "-o", "json", "--kubeconfig", kubeconfig(scene))
    assert (status, err) == (0, "")
    rows = msgspec.json.decode(out)["pods"]
    (after,) = [each["after"] for each in rows if each["pod"] == f"{scene.name}/mig"]
    assert (after["kind"], "PersistentVolumeClaim absent" in after["unjudged"]) == ("lands", True)
