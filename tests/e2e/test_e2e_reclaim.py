"""What nobody uses is given back by itself; what another scheduler wrote stays, however alike it looks."""

import os
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

import pytest
import pytest_asyncio
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION
from dra_extender.model.resource_claim import FINALIZER

from tests.controlplane import objects
from tests.controlplane.apiclient import ApiClient
from tests.controlplane.objects import Object, binding, device
from tests.controlplane.planes import SECOND_DEFAULTS
from tests.controlplane.resources import PODS, RESOURCE_CLAIMS
from tests.support.e2e.fabric import ATTACHED, FAILED
from tests.support.e2e.installed_extender import InstalledExtender, Setup
from tests.support.e2e.namespace_fixture import SECONDS, NamespaceFixture, devices_of
from tests.support.e2e.scenes import carry_out_apart

pytestmark = [pytest.mark.e2e, pytest.mark.plane(SECOND_DEFAULTS), pytest.mark.asyncio(loop_scope="module")]

GRACE = 2.0
OURS = "dra-extender"
FOREIGN = "kube-scheduler"


@pytest.fixture(scope="module")
def setup() -> Setup:
    scheduling = {
        "RECLAIM_GRACE_SECONDS": GRACE,
        "RECLAIM_UNFIT_SECONDS": 0.5,
        "RECLAIM_INTERVAL_SECONDS": 0.25,
        "RECLAIM_PAUSE_SECONDS": 0.01,
    }
    environment = {f"DRA_EXTENDER_SCHEDULING__{name}": str(value) for name, value in scheduling.items()}
    return Setup(environment=environment)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(world: InstalledExtender) -> AsyncIterator[ApiClient]:
    async with ApiClient.from_kubeconfig(world.kubeconfig) as client:
        yield client


@dataclass(frozen=True)
class Left:
    """A claim as somebody left it: where its device is, for whom it is reserved, and what more its allocation says."""

    name: str
    node: str
    consumers: Sequence[str] = ()
    conditions: Sequence[str] = ()
    reported: Sequence[str] = ()
    allocated: timedelta = field(default_factory=timedelta)


async def leave(scene: NamespaceFixture, client: ApiClient, manager: str, left: Left) -> None:
    """Brings a claim of this name into this state, under the name of this field manager."""
    await scene.claim(left.name)
    claim = await scene.stored_claim(left.name)
    claim["metadata"]["finalizers"] = [FINALIZER]
    claim = await client.replace(RESOURCE_CLAIMS, claim, manager=manager)
    result: Object = {"request": "gpu", "driver": scene.driver, "pool": left.node, "device": left.name}
    status = {key: result[key] for key in ("driver", "pool", "device")}
    if left.conditions:
        result |= {"bindingConditions": list(left.conditions), "bindingFailureConditions": [FAILED]}
    since = (datetime.now(UTC) - left.allocated).strftime("%Y-%m-%dT%H:%M:%SZ")
    claim["status"] = objects.allocated(
        result,
        consumers=[objects.consumer(each, (await scene.read(each))["metadata"]["uid"]) for each in left.consumers],
        nodeSelector=objects.on_node(left.node),
        allocationTimestamp=since,
    )
    # Whatever the extender does meanwhile to a claim that nobody allocates.
    del claim["metadata"]["resourceVersion"]
    claim = await client.replace(RESOURCE_CLAIMS, claim, "status", manager=manager)
    if left.reported:
        told = {"status": "True", "reason": "Test", "message": "", "lastTransitionTime": since}
        status["conditions"] = [{"type": each, **told} for each in left.reported]
        await scene.api.patch(
            RESOURCE_CLAIMS, left.name, {"status": {"devices": [status]}}, scene.name, subresource="status"
        )


async def waiting_pod(scene: NamespaceFixture, name: str, claim: str) -> None:
    """A pod that waits, because its scheduler does not run, and names the claim before it exists."""
    await scene.pod(name, claim=claim, scheduler="nobody")


async def taken(scene: NamespaceFixture, names: Sequence[str]) -> list[str]:
    """Those of the claims that are allocated or reserved."""
    claims = [await scene.stored_claim(name) for name in names]
    return [each["metadata"]["name"] for each in claims if devices_of(each) or each["status"].get("reservedFor")]


async def bind(scene: NamespaceFixture, pod: str, node: str) -> None:
    """What a scheduler of that name would do."""
    await scene.api.create(PODS, binding(pod, scene.name, node), name=pod, subresource="binding")


async def released(scene: NamespaceFixture, *names: str) -> None:
    """Waits until none of the claims is allocated or reserved, and none has a finalizer or a snapshot of ours any more."""

    async def done() -> bool:
        return not await taken(scene, names)

    async def clean() -> bool:
        found = [(await scene.stored_claim(name))["metadata"] for name in names]
        return not any(each.get("finalizers") or SNAPSHOT_ANNOTATION in each.get("annotations", {}) for each in found)

    await scene.api.wait_for(done, SECONDS, f"{names} are released; left: {await taken(scene, names)}")
    await scene.api.wait_for(clean, SECONDS, f"{names} have neither finalizer nor snapshot any more")


REASONS: Final = ("unreserved", "pod_idle", "node_gone", "device_failed", "device_timed_out", "pod_elsewhere")


async def each_kind(scene: NamespaceFixture, service: ApiClient) -> None:
    """Same objects, different field managers: reserved for nobody, for waiting pods, for devices that failed or were late."""
    for suffix in ("a", "b"):
        await scene.node(suffix)
    here, other = f"{scene.name}-a", f"{scene.name}-b"
    kinds = (
        Left("unreserved", here),
        Left("idle", here, ["idle"]),
        Left("nowhere", f"{scene.name}-gone", ["nowhere"]),
        Left("failed", here, ["failed"], [ATTACHED], [FAILED]),
        Left("late", here, ["late"], [ATTACHED], allocated=timedelta(hours=1)),
        Left("elsewhere", here, ["elsewhere"]),
    )
    twins = []
    for left in kinds:
        twin = replace(left, name=f"foreign-{left.name}", consumers=[f"foreign-{each}" for each in left.consumers])
        twins.append(twin.name)
        for each in (left, twin):
            for pod in each.consumers:
                await waiting_pod(scene, pod, each.name)
                if left.name == "elsewhere":
                    await bind(scene, pod, other)
        await leave(scene, service, OURS, left)
        await leave(scene, scene.api, FOREIGN, twin)
    keeper = Left("kept", here, ["kept"], [ATTACHED])
    await waiting_pod(scene, "kept", "kept")
    await leave(scene, service, OURS, keeper)
    await released(scene, *(left.name for left in kinds))

    async def looked_at() -> bool:
        counts = [await scene.world.metric("reclaims_total", reason=each, outcome="foreign") for each in REASONS]
        return all(counts)

    await scene.api.wait_for(looked_at, SECONDS, "the foreign claims were found and left alone")
    assert await taken(scene, twins) == twins
    assert await taken(scene, ["kept"]) == ["kept"], "its device is still being made ready"
    released_now = {"status": {"allocation": None, "reservedFor": None}}
    for name in (*twins, "kept"):
        await scene.api.patch(RESOURCE_CLAIMS, name, released_now, scene.name, subresource="status")
    for name in ("elsewhere", "foreign-elsewhere"):
        await scene.delete_pod(name)


async def node_is_full(scene: NamespaceFixture, service: ApiClient) -> None:
    """No filter of kube-scheduler lets the pod pass, so that the extender is never asked; its devices go to another pod."""
    node = await scene.node_with_devices("a", device("one"), cpu="1")
    await scene.pod("big", claim="one", cpu="64", schedulingGates=[{"name": "example.com/wait"}])
    await leave(scene, service, OURS, Left("one", node, ["big"]))
    await scene.api.patch(PODS, "big", {"spec": {"schedulingGates": None}}, scene.name)
    await scene.claim("two")
    await scene.pod("small", claim="two")
    assert await scene.wait_until_bound("small") == node
    assert devices_of(await scene.stored_claim("one")) == []
    assert await scene.node_of("big") == ""


async def half_written(scene: NamespaceFixture, service: ApiClient) -> None:
    """A process that was killed after its first write leaves finalizer and snapshot on a claim that nobody allocates any more."""
    for name, client, manager in (("half", service, OURS), ("foreign", scene.api, FOREIGN)):
        await scene.claim(name)
        claim = await scene.stored_claim(name)
        claim["metadata"]["finalizers"] = [FINALIZER]
        if client is service:
            claim["metadata"]["annotations"] = {SNAPSHOT_ANNOTATION: "{}"}
        await client.replace(RESOURCE_CLAIMS, claim, manager=manager)
    await released(scene, "half")
    assert (await scene.stored_claim("foreign"))["metadata"]["finalizers"] == [FINALIZER]


async def test_each_kind_of_leftover_of_ours_is_given_back_and_its_foreign_twin_is_not(
    scene: NamespaceFixture, world: InstalledExtender, service: ApiClient
) -> None:
    rows = {"each-kind": each_kind, "full": node_is_full, "half": half_written}
    await carry_out_apart(scene, {name: partial(row, service=service) for name, row in rows.items()})
    for reason in REASONS:
        count = 2 if reason == "pod_idle" else 1
        await world.wait_for_metric("reclaims_total", count, reason=reason, outcome="done")
        assert await world.metric("reclaims_total", reason=reason, outcome="done") == count, reason


@contextmanager
def asleep(world: InstalledExtender, component: str) -> Iterator[None]:
    """Inside, the component stands still."""
    pid = world.cluster.pids[component]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_reservations_of_pods_that_ended_go_even_when_no_controller_removes_them(
    scene: NamespaceFixture, world: InstalledExtender, service: ApiClient
) -> None:
    """The one rule for claims of all schedulers, because kube-controller-manager has it, too.

    The pods are bound: those that wait would be idle, which is another reason.
    """
    node = await scene.node("a")
    lefts = [Left(name, node, [name]) for name in ("gone", "foreign-gone", "over", "foreign-over")]
    for left in lefts:
        await waiting_pod(scene, left.name, left.name)
        await bind(scene, left.name, node)
        foreign = left.name.startswith("foreign")
        await leave(scene, scene.api if foreign else service, FOREIGN if foreign else OURS, left)
    with asleep(world, "kube-controller-manager"):
        for name in ("gone", "foreign-gone"):
            await scene.delete_pod(name)
        for name in ("over", "foreign-over"):
            await scene.api.patch(PODS, name, {"status": {"phase": "Failed"}}, scene.name, subresource="status")

        async def done() -> bool:
            return not await taken(scene, [each.name for each in lefts])

        await scene.api.wait_for(done, SECONDS, "all claims are released")
    for reason in ("pod_gone", "pod_over"):
        await world.wait_for_metric("reclaims_total", 2, reason=reason, outcome="done")
