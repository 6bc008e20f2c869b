import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.controlplane import objects
from tests.controlplane.apiclient import ApiClient
from tests.controlplane.apierror import ApiError
from tests.controlplane.cluster import ControlPlane, KubectlError
from tests.controlplane.options import ControlPlaneOptions, default_gates
from tests.controlplane.ports import is_open
from tests.controlplane.process import ComponentError
from tests.controlplane.resources import (
    ADMISSION_POLICIES,
    ADMISSION_POLICY_BINDINGS,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    SERVICE_ACCOUNTS,
)
from tests.controlplane.schedulers import in_tree_config
from tests.controlplane.sweeping import SWEPT, sweep
from tests.support.e2e.installed_extender import APPLIED, DEPLOY

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

RBAC = "rbac.authorization.k8s.io"
GROUPS = ["whole", "halves"]
SECONDS = 60.0


@pytest_asyncio.fixture(loop_scope="module")
async def namespace(cluster: ControlPlane, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    name = request.node.name.replace("_", "-")[:60].strip("-")
    await cluster.api.create(NAMESPACES, objects.namespace(name))
    yield name
    await cluster.api.delete(NAMESPACES, name)


def partition() -> tuple[objects.Object, objects.Object]:
    """Both slices of a pool with one counter set and a device that declares compatibility groups."""
    consumption = objects.consumption("gpu-0", memory="40Gi", groups=GROUPS)
    counters = objects.resource_slice(
        "counters",
        node="n0",
        pool="partitions",
        slice_count=2,
        counter_sets=[objects.counter_set("gpu-0", memory="80Gi")],
    )
    devices = objects.resource_slice(
        "devices",
        node="n0",
        pool="partitions",
        slice_count=2,
        devices=[objects.device("half-0", consumes=[consumption])],
    )
    return counters, devices


async def kept_consumption(cluster: ControlPlane) -> list[objects.Object]:
    """What the API server keeps of the partition's counter consumption."""
    for part in partition():
        await cluster.api.create(RESOURCE_SLICES, part)
    kept = await cluster.api.get(RESOURCE_SLICES, "devices")
    consumed: list[objects.Object] = kept["spec"]["devices"][0].get("consumesCounters", [])
    return consumed


async def test_slices_keep_compatibility_groups_with_the_gate(cluster: ControlPlane) -> None:
    assert [entry.get("compatibilityGroups") for entry in await kept_consumption(cluster)] == [GROUPS]


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        pytest.param(
            ControlPlaneOptions(feature_gates=default_gates() | {"DRADeviceCompatibilityGroups": False}),
            True,
            id="gate off",
        ),
        pytest.param(ControlPlaneOptions(emulated_version="1.36"), True, id="1.36"),
        pytest.param(ControlPlaneOptions(emulated_version="1.35"), False, id="1.35"),
        pytest.param(ControlPlaneOptions(emulated_version="1.34"), False, id="1.34"),
    ],
)
async def test_slices_lose_what_a_version_does_not_know(
    binaries: Path, tmp_path: Path, options: ControlPlaneOptions, kept: bool
) -> None:
    """Compatibility groups go without the gate, counter consumption goes before 1.36."""
    async with ControlPlane.start(tmp_path, options) as cluster:
        if not kept:
            await cluster.api.create(RESOURCE_SLICES, partition()[1])
            assert "consumesCounters" not in (await cluster.api.get(RESOURCE_SLICES, "devices"))["spec"]["devices"][0]
            return
        consumed = await kept_consumption(cluster)
        assert consumed == [objects.consumption("gpu-0", memory="40Gi")]


async def prepare(cluster: ControlPlane, namespace: str) -> None:
    """One node with one device, its class, and a template."""
    await cluster.api.create(NODES, objects.node("worker"))
    await cluster.api.create(
        RESOURCE_SLICES, objects.resource_slice("worker", node="worker", devices=[objects.device("gpu-0")])
    )
    await cluster.api.create(DEVICE_CLASSES, objects.device_class("gpu"))
    template = objects.resource_claim_template("one", namespace, objects.request("gpu", "gpu"))
    await cluster.api.create(RESOURCE_CLAIM_TEMPLATES, template)


async def test_in_tree_scheduler_binds_a_pod_with_a_claim_from_a_template(
    cluster: ControlPlane, namespace: str
) -> None:
    """The controllers make and release the claim, the scheduler allocates; both schedulers' restarts and watches work."""
    api = cluster.api
    await prepare(cluster, namespace)
    async with api.watch(PODS, namespace) as events:
        await api.create(PODS, objects.pod("first", namespace, templates={"gpu": "one"}))
        await cluster.start_scheduler(in_tree_config(objects.SCHEDULER_NAME))
        async with asyncio.timeout(120):
            async for event in events:
                if event["object"]["spec"].get("nodeName"):
                    break
        assert event["object"]["spec"]["nodeName"] == "worker"
    (claim,) = await api.list(RESOURCE_CLAIMS, namespace)
    assert [result["device"] for result in claim["status"]["allocation"]["devices"]["results"]] == ["gpu-0"]

    await api.create(PODS, objects.pod("second", namespace, templates={"gpu": "one"}))
    await cluster.restart_scheduler()
    await api.delete(PODS, "first", namespace, grace_seconds=0)

    async def bound() -> bool:
        return bool((await api.get(PODS, "second", namespace))["spec"].get("nodeName"))

    await api.wait_for(bound, SECONDS, "the second pod gets the device that the first one released")
    await cluster.stop_scheduler()


async def test_watch_survives_a_restart_of_the_api_server(cluster: ControlPlane, namespace: str) -> None:
    """The data stays, the client reconnects, and nothing that happens after the restart is missed."""
    api = cluster.api
    await api.create(PODS, objects.pod("before", namespace))
    seen: list[tuple[str, str]] = []
    async with api.watch(PODS, namespace) as events, asyncio.timeout(2 * SECONDS):
        async for event in events:
            seen.append((event["type"], event["object"]["metadata"]["name"]))
            if len(seen) == 1:
                await cluster.restart_apiserver()
                await api.create(PODS, objects.pod("after", namespace))
            if seen[-1][1] == "after":
                break
    assert seen == [("ADDED", "before"), ("ADDED", "after")]


async def test_admission_policies_are_enforced(cluster: ControlPlane, namespace: str) -> None:
    policy = {
        "apiVersion": ADMISSION_POLICIES.group_version,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "no-secret-label"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
                ]
            },
            "validations": [
                {"expression": "!('secret' in object.metadata.?labels.orValue({}))", "message": "no secrets here"}
            ],
        },
    }
    binding = {
        "apiVersion": ADMISSION_POLICIES.group_version,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "no-secret-label"},
        "spec": {"policyName": "no-secret-label", "validationActions": ["Deny"]},
    }
    await cluster.api.create(ADMISSION_POLICIES, policy)
    await cluster.api.create(ADMISSION_POLICY_BINDINGS, binding)

    async def refusal() -> ApiError | None:
        try:
            await cluster.api.create(PODS, objects.pod("labelled", namespace, labels={"secret": "x"}))
        except ApiError as error:
            return error
        await cluster.api.delete(PODS, "labelled", namespace, grace_seconds=0)
        return None

    refused = await cluster.api.wait_for(refusal, SECONDS, "the new policy refuses a pod")
    assert refused is not None
    assert refused.status == 422
    assert "no secrets here" in refused.message
    await cluster.api.create(PODS, objects.pod("plain", namespace))
    await cluster.api.delete(ADMISSION_POLICY_BINDINGS, "no-secret-label")


async def test_service_account_has_the_rights_that_were_granted_and_no_others(
    cluster: ControlPlane, namespace: str
) -> None:
    await cluster.api.create(SERVICE_ACCOUNTS, objects.service_account("reader", namespace))
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": "reader"}, "rules": [rule]}
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": namespace}],
    }
    await cluster.api.create(CLUSTER_ROLES, role)
    await cluster.api.create(CLUSTER_ROLE_BINDINGS, binding)
    kubeconfig = cluster.service_account_kubeconfig(namespace, "reader")

    async with ApiClient.from_kubeconfig(kubeconfig) as reader:

        async def allowed() -> bool:
            return await reader.list(PODS) is not None

        assert await cluster.api.wait_for(allowed, SECONDS, "the role binding takes effect")
        with pytest.raises(ApiError, match=f"system:serviceaccount:{namespace}:reader") as refused:
            await reader.list(NODES)
    assert (refused.value.status, refused.value.reason) == (403, "Forbidden")
    with pytest.raises(KubectlError, match="Forbidden"):
        cluster.kubectl("get", "nodes", kubeconfig=kubeconfig)


async def test_a_user_without_a_role_may_read_nothing(cluster: ControlPlane) -> None:
    async with ApiClient.from_kubeconfig(cluster.kubeconfig_for("dra-extender")) as user:
        with pytest.raises(ApiError) as refused:
            await user.list(PODS)
    assert refused.value.status == 403
    with pytest.raises(KeyError, match="No token was made for the user 'nobody'"):
        cluster.kubeconfig_for("nobody")


async def test_kubectl_applies_what_it_is_given(cluster: ControlPlane) -> None:
    document = "{apiVersion: v1, kind: Namespace, metadata: {name: applied}}"
    assert cluster.kubectl("apply", "--filename=-", stdin=document) == "namespace/applied created\n"
    assert (await cluster.api.get(NAMESPACES, "applied"))["kind"] == "Namespace"


async def test_a_control_plane_that_the_next_module_gets_is_as_it_was_at_first(cluster: ControlPlane) -> None:
    """Claims that are protected, in use and being deleted are gone too; what the API server made itself stays."""

    async def everything() -> dict[str, list[str]]:
        return {each.plural: [thing["metadata"]["name"] for thing in await cluster.api.list(each)] for each in SWEPT}

    await sweep(cluster.api, SECONDS)
    before = await everything()
    cluster.kubectl("apply", *(f"--filename={DEPLOY / name}.yaml" for name in APPLIED))
    for resource, body in (
        (NAMESPACES, objects.namespace("left")),
        (NODES, objects.node("n0")),
        (DEVICE_CLASSES, objects.device_class("gpu")),
        (RESOURCE_CLAIM_TEMPLATES, objects.resource_claim_template("one", "left", objects.request("gpu", "gpu"))),
        (POD_GROUPS, objects.pod_group("group", "left", templates={"gpu": "one"})),
        (PODS, objects.pod("p", "left", templates={"gpu": "one"})),
        *((RESOURCE_SLICES, each) for each in partition()),
    ):
        await cluster.api.create(resource, body)

    async def generated() -> list[objects.Object]:
        return await cluster.api.list(RESOURCE_CLAIMS, "left")

    await cluster.api.wait_for(generated, SECONDS, "the claim is made")
    await sweep(cluster.api, SECONDS)

    async def as_before() -> bool:
        return await everything() == before

    # kube-controller-manager makes a claim again if it hears of its deletion before that of its owner; then it deletes that one.
    await cluster.api.wait_for(as_before, SECONDS, f"there is what was there before: {before}")
    assert before["clusterroles"]
    await cluster.api.delete(NAMESPACES, "left")


async def test_the_controller_manager_may_lack_a_gate_of_the_api_server_until_it_is_restarted_with_it(
    binaries: Path, tmp_path: Path
) -> None:
    """A PodGroup's claim is made from its template only once the controller-manager has the gate too."""
    with_gate = default_gates()
    options = ControlPlaneOptions(controller_manager_feature_gates=with_gate | {"DRAWorkloadResourceClaims": False})
    async with ControlPlane.start(tmp_path, options) as cluster:
        for resource, body in (
            (DEVICE_CLASSES, objects.device_class("gpu")),
            (
                RESOURCE_CLAIM_TEMPLATES,
                objects.resource_claim_template("one", "default", objects.request("gpu", "gpu")),
            ),
            (POD_GROUPS, objects.pod_group("group", "default", templates={"gpu": "one"})),
            (PODS, objects.pod("own", "default", templates={"gpu": "one"})),
        ):
            await cluster.api.create(resource, body)

        async def owners() -> list[str]:
            claims = await cluster.api.list(RESOURCE_CLAIMS, "default")
            return sorted(each["metadata"]["ownerReferences"][0]["kind"] for each in claims)

        await cluster.api.wait_for(owners, SECONDS, "the pod's own claim is made")
        assert await owners() == ["Pod"]
        await cluster.restart_controller_manager(with_gate)

        async def both() -> bool:
            return await owners() == ["Pod", "PodGroup"]

        await cluster.api.wait_for(both, SECONDS, "the group's claim is made")


@pytest.mark.parametrize("cancelled", [False, True])
async def test_nothing_is_left_behind(binaries: Path, tmp_path: Path, cancelled: bool) -> None:
    """Ports are closed and processes gone, whether the user of a control plane finishes or is cancelled."""
    started: asyncio.Future[tuple[ControlPlane, dict[str, int]]] = asyncio.get_running_loop().create_future()

    async def use() -> None:
        async with ControlPlane.start(tmp_path) as cluster:
            await cluster.start_scheduler(in_tree_config())
            started.set_result((cluster, cluster.pids))
            if cancelled:
                await asyncio.Event().wait()

    user = asyncio.create_task(use())
    either: list[asyncio.Future[Any]] = [user, started]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if not started.done():
        await user
    cluster, pids = started.result()
    layout = cluster.layout
    assert sorted(pids) == ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"]
    if cancelled:
        user.cancel()
    await asyncio.wait([user])
    assert user.cancelled() is cancelled
    for pid in pids.values():
        with pytest.raises(ProcessLookupError):
            os.killpg(pid, 0)
    assert not any(
        is_open(port)
        for port in (layout.etcd_port, layout.etcd_peer_port, layout.apiserver_port, layout.controller_manager_port)
    )
    assert not layout.data.exists()
    assert cluster.logs("kube-apiserver").exists()


async def test_a_component_that_refuses_its_flags_is_named_with_its_words(binaries: Path, tmp_path: Path) -> None:
    options = ControlPlaneOptions(feature_gates={"NoSuchGate": True})
    with pytest.raises(ComponentError, match=r"(?s)^kube-apiserver ended with exit code 1 .*NoSuchGate"):
        async with ControlPlane.start(tmp_path, options):
            pass
