"""Pods whose extended resources device classes back: where they fit, what is written for them, and what is left after trouble."""

import asyncio
import re
import tracemalloc
from typing import Any

import pytest
from dra_extender.model.fields import Gate
from dra_extender.scheduling.ports.cluster import ClusterError, RequestRejectedError, ServerUnavailableError
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options
from dra_extender.simulator.apiserver.cluster import MemoryCluster, MemoryPods
from dra_extender.simulator.apiserver.objects import Json, StoredKind
from dra_extender.simulator.apiserver.served_fields import Served

from tests.support.scheduling.reclaiming import GRACE, OPTIONS, pass_by, reclaimed
from tests.support.scheduling.seam import Seam, restart
from tests.support.scheduling.world import DRIVER, InMemoryExtender

GPU = "example.com/gpu"
NIC = "example.com/nic"
IMPLICIT = "deviceclass.resource.kubernetes.io/gpu"
ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
FINALIZER = "resource.kubernetes.io/delete-protection"
SHARED = "claim for extended resources"


def filled(options: Options | None = None) -> InMemoryExtender:
    """Two nodes with two devices each, a class behind GPU, and pod p1 that asks for one."""
    world = InMemoryExtender(options)
    for name in ("n1", "n2"):
        world.node(name)
        world.gpus(name, 2)
    world.device_class(extendedResourceName=GPU)
    world.add_pod("p1", resources={GPU: "1"})
    return world


@pytest.fixture
def world() -> InMemoryExtender:
    return filled()


def lacking(resource: str) -> str:
    """The text for a node that lacks the resource."""
    return f'node(s): cannot fit resource "{resource}"'


def asked(container: str, resource: str = GPU) -> str:
    """What a refusal says of the resource that a container asks for."""
    return f'extended resource {resource} of container "{container}"'


def claims(world: InMemoryExtender) -> list[Json]:
    return world.cluster.store.all(StoredKind.CLAIM)


def devices_of(claim: Json) -> list[str]:
    allocation = claim.get("status", {}).get("allocation") or {}
    return [f"{each['pool']}/{each['device']}" for each in allocation.get("devices", {}).get("results", [])]


async def bind(world: InMemoryExtender, pod: str, node: str) -> Json:
    """Binds the pod; its one claim afterwards."""
    await world.bind_through(pod, node)
    (claim,) = (each for each in claims(world) if each["metadata"]["ownerReferences"][0]["name"] == pod)
    return claim


def told(world: InMemoryExtender, pod: str) -> Json:
    found: Json = world.pod(pod)["status"].get("extendedResourceClaimStatus", {})
    return found


async def test_the_bind_writes_the_claim_and_tells_the_pod_as_upstream_does(world: InMemoryExtender) -> None:
    assert set((await world.filter("p1", "n1", "n2")).fitting) == {"n1", "n2"}
    claim = await bind(world, "p1", "n1")

    pod, metadata = world.pod("p1"), claim["metadata"]
    assert metadata["name"].startswith("p1-extended-resources-")
    assert len(metadata["name"]) == len("p1-extended-resources-12345")
    assert (metadata["generateName"], metadata["annotations"][ANNOTATION]) == ("p1-extended-resources-", "true")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p1", "uid": pod["metadata"]["uid"], "controller": True}
    assert metadata["ownerReferences"] == [owner]
    assert FINALIZER in metadata["finalizers"]
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    assert claim["spec"] == {"devices": {"requests": [{"name": "container-0-request-0", "exactly": exactly}]}}
    assert devices_of(claim) in (["n1/gpu-0"], ["n1/gpu-1"])
    assert [each["uid"] for each in claim["status"]["reservedFor"]] == [pod["metadata"]["uid"]]
    mapping = {"containerName": "main", "resourceName": GPU, "requestName": "container-0-request-0"}
    assert told(world, "p1") == {"resourceClaimName": metadata["name"], "requestMappings": [mapping]}
    assert pod["spec"]["nodeName"] == "n1"


def add_pod_of(world: InMemoryExtender, name: str, **containers: Json) -> None:
    """A pod whose containers make these requests."""
    made = [{"name": each.replace("_", "-"), "resources": {"requests": asks}} for each, asks in containers.items()]
    spec = {"schedulerName": "dra-scheduler", "containers": made}
    world.create(StoredKind.POD, {"metadata": {"name": name}, "spec": spec})


async def test_refusal_names_resource_and_container_with_one_text_for_all_nodes_of_a_cause(
    world: InMemoryExtender,
) -> None:
    world.device_class("nic", 'device.driver == "absent"', extendedResourceName=NIC)
    add_pod_of(world, "two", first={GPU: "1"}, second={GPU: "1", NIC: "1"})
    answer = await world.filter("two", "n1", "n2")
    assert set(answer.unresolvable.values()) == {f"node(s): {asked('second', NIC)}: no device matches the selectors"}
    (message,) = world.messages("two")
    assert message.startswith(f"2 of 2 nodes: {asked('second', NIC)}: no device matches the selectors")


async def test_pods_that_ask_for_the_same_are_told_of_their_own_containers(world: InMemoryExtender) -> None:
    """The search of the first pod answers for the second one."""
    add_pod_of(world, "one", train={GPU: "3"})
    add_pod_of(world, "other", serve={GPU: "3"})
    for name, container in (("one", "train"), ("other", "serve"), ("one", "train")):
        answer = await world.filter(name, "n1", "n2")
        (text,) = set(answer.unresolvable.values())
        assert text.startswith(f"node(s): {asked(container)}: "), name


async def test_bind_that_fails_names_resource_and_container(world: InMemoryExtender) -> None:
    await world.filter("p1", "n1")
    world.add_pod("p2", resources={GPU: "2"})
    await bind(world, "p1", "n1")
    with pytest.raises(RetryableError, match=re.escape(asked("main"))):
        await world.bind("p2", "n1")


async def test_devices_that_are_held_for_one_pod_are_not_offered_to_the_next(world: InMemoryExtender) -> None:
    world.add_pod("p2", resources={GPU: "2"})
    world.add_pod("p3", resources={GPU: "1"})
    await world.filter("p2", "n1")
    answer = await world.filter("p3", "n1")
    assert answer.fitting == ()
    assert answer.unresolvable["n1"] == f"node(s): {asked('main')}: matching devices are in use"
    await bind(world, "p2", "n1")
    assert (await world.filter("p3", "n1", "n2")).fitting == ("n2",)


async def test_the_implicit_name_of_a_class_and_a_limit_alone_are_served(world: InMemoryExtender) -> None:
    world.add_pod("p2", resources={IMPLICIT: "2"})
    claim = await bind(world, "p2", "n1")
    assert devices_of(claim) == ["n1/gpu-0", "n1/gpu-1"]


async def test_of_two_classes_with_one_name_the_younger_serves_and_then_the_first_by_name() -> None:
    world = InMemoryExtender()
    world.cluster = MemoryCluster(clock=world.clock)
    world.start()
    world.device_class("z-class", extendedResourceName=GPU)
    world.device_class("b-class", extendedResourceName=GPU)
    assert world.ledger.backing[GPU] == "b-class"
    raw = {"metadata": {"name": "y-class"}, "spec": {"extendedResourceName": GPU}}
    world.clock.seconds += 1
    world.create(StoredKind.CLASS, raw)
    assert world.ledger.backing[GPU] == "y-class"


async def test_each_node_serves_by_its_plugin_or_by_a_class_or_not_at_all() -> None:
    """A node whose plugin lists the resource needs no claim, on another one it is made, and what nobody has fits nowhere."""
    world = InMemoryExtender()
    world.node("plugin", **{GPU: "4"})
    world.node("none", **{GPU: "0"})
    world.node("both", **{GPU: "1", NIC: "2"})
    for name in ("none", "both"):
        world.gpus(name, 1)
    world.device_class(extendedResourceName=GPU)
    world.add_pod("p1", resources={GPU: "1"})
    world.add_pod("p2", resources={GPU: "1"})
    assert set((await world.filter("p1", "plugin", "none")).fitting) == {"plugin", "none"}
    await world.bind_through("p1", "plugin")
    assert (claims(world), told(world, "p1")) == ([], {})
    assert world.ledger.holds.of_pod(world.uid("p1")) == ()

    assert devices_of(await bind(world, "p2", "none")) == ["none/gpu-0"]
    world.add_pod("p3", resources={GPU: "1", NIC: "1"})
    answer = await world.filter("p3", "plugin", "none", "both")
    assert (answer.fitting, answer.unresolvable) == (
        ("both",),
        {"plugin": lacking(NIC), "none": lacking(NIC)},
    )


@pytest.mark.parametrize("resource", [GPU, IMPLICIT])
async def test_what_a_class_backed_is_checked_when_the_class_is_gone(world: InMemoryExtender, resource: str) -> None:
    """kube-scheduler may not know yet that it is, and leaves the resource unchecked until then."""
    world.add_pod("p2", resources={resource: "1"})
    world.node("plugin", **{resource: "1"})
    assert set((await world.filter("p2", "n1", "plugin")).fitting) == {"n1", "plugin"}
    world.delete(StoredKind.CLASS, "gpu")
    answer = await world.filter("p2", "n1", "plugin")
    assert (answer.fitting, answer.unresolvable) == (("plugin",), {"n1": lacking(resource)})
    with pytest.raises(RetryableError, match="cannot fit resource"):
        await world.bind("p2", "n1")
    assert not world.node_of("p2")


async def test_a_name_that_only_a_class_can_back_is_checked_without_the_class(world: InMemoryExtender) -> None:
    world.add_pod("p2", resources={"deviceclass.resource.kubernetes.io/missing": "1"})
    assert (await world.filter("p2", "n1")).unresolvable == {
        "n1": lacking("deviceclass.resource.kubernetes.io/missing")
    }
    with pytest.raises(RetryableError, match="cannot fit resource"):
        await world.bind("p2", "n1")


async def test_other_claims_of_the_pod_are_decided_together_with_it(world: InMemoryExtender) -> None:
    """Two devices for the claim and one for the resource fit on no node, though each alone would."""
    world.add_claim("c1", count=2)
    world.add_pod("p2", "c1", resources={GPU: "1"})
    assert (await world.filter("p2", "n1", "n2")).fitting == ()
    world.node("n3")
    world.gpus("n3", 3)
    assert (await world.filter("p2", "n1", "n2", "n3")).fitting == ("n3",)
    await world.bind_through("p2", "n3")
    assert sorted(world.devices("c1") + [each for one in claims(world)[1:] for each in devices_of(one)]) == [
        "n3/gpu-0",
        "n3/gpu-1",
        "n3/gpu-2",
    ]


async def test_an_amount_that_is_no_number_of_devices_fits_nowhere(world: InMemoryExtender) -> None:
    world.add_pod("p2", resources={GPU: "500m"})
    assert (await world.filter("p2", "n1")).fitting == ()
    assert "container main asks for no whole number" in world.messages("p2")[-1]


async def test_switched_off_the_nodes_that_list_the_resource_are_left_and_no_claim_is_made() -> None:
    world = filled(Options(hold_wait_seconds=0.0, extended_resources=False))
    world.node("n3", **{GPU: "1"})
    answer = await world.filter("p1", "n1", "n3")
    assert (answer.fitting, answer.unresolvable) == (("n3",), {"n1": lacking(GPU)})
    async with world.watching():
        with pytest.raises(RetryableError, match="DRAExtendedResource is off"):
            await world.bind("p1", "n1")
        await world.bind("p1", "n3")
    assert claims(world) == []


async def test_a_server_that_is_known_not_to_tell_pods_serves_none_by_claim() -> None:
    world = InMemoryExtender()
    world.cluster = MemoryCluster(served=Served(off=frozenset({Gate.EXTENDED_RESOURCES})))
    world.start()
    world.node("n1")
    world.gpus("n1", 1)
    world.device_class()
    world.add_pod("p1", resources={IMPLICIT: "1"})
    assert (await world.filter("p1", "n1")).unresolvable == {"n1": lacking(IMPLICIT)}


async def test_a_server_that_turns_out_not_to_tell_pods_has_no_claim_left_and_nothing_bound(
    world: InMemoryExtender,
) -> None:
    class Forgetful(MemoryPods):
        async def record_extended_claim(self, *_: object) -> bool:
            return False

    restart(world, pods=Forgetful(world.cluster.store))
    async with world.watching():
        with pytest.raises(RetryableError, match=r"does not keep status\.extendedResourceClaimStatus"):
            await world.bind("p1", "n1")
    assert (claims(world), world.pod("p1")["spec"].get("nodeName")) == ([], None)
    assert (await world.filter("p1", "n1")).fitting == ()


def failing(port: Any, method: str, when: str, fault: BaseException) -> Seam:
    """The port, of which the first call of the method fails before or after it took effect."""
    seam = Seam(port)
    return seam.before(method, fault) if when == "before" else seam.after(method, fault)


class Killed(BaseException):
    """The process ends here."""


BOUNDARIES = [
    *((name, when) for name in ("create", "update", "update_status") for when in ("before", "after")),
    *((name, when) for name in ("record_extended_claim", "bind") for when in ("before", "after")),
]


@pytest.mark.parametrize(("method", "when"), BOUNDARIES)
@pytest.mark.parametrize("elsewhere", [False, True])
async def test_killed_at_any_write_the_next_process_carries_on_or_starts_anew(
    world: InMemoryExtender, method: str, when: str, *, elsewhere: bool
) -> None:
    """The next bind adopts what is there for the same node, and replaces it for another one; one claim is left in the end."""
    await world.filter("p1", "n1")
    claims_and_pods = [failing(port, method, when, Killed()) for port in (world.cluster.claims, world.cluster.pods)]
    restart(world, claims=claims_and_pods[0], pods=claims_and_pods[1])
    async with world.watching():
        with pytest.raises((Killed, RetryableError)):
            await asyncio.wait_for(world.bind("p1", "n1"), 60)
    before = [each["metadata"]["uid"] for each in claims(world)]
    restart(world)
    bound = world.pod("p1")["spec"].get("nodeName")
    target = "n2" if elsewhere and not bound else "n1"
    await world.bind_through("p1", target)
    (claim,) = claims(world)
    assert devices_of(claim) in ([f"{target}/gpu-0"], [f"{target}/gpu-1"])
    assert told(world, "p1")["resourceClaimName"] == claim["metadata"]["name"]
    had_devices = (method, when) not in BOUNDARIES[:5]
    if before and (target == "n1" or not had_devices):
        assert [claim["metadata"]["uid"]] == before
    taken = [each for each in world.ledger.claims.records() if each.counted]
    assert len(taken) == 1


@pytest.mark.parametrize("method", ["update_status", "update", "delete"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_claim_whose_deletion_is_interrupted_never_has_devices_that_no_finalizer_protects(
    world: InMemoryExtender, method: str, when: str
) -> None:
    """The claim of an earlier bind is useless on the node of the next one, which is killed while it deletes the claim."""
    await world.abandoned("p1", "n2")
    assert [devices_of(each) for each in claims(world)] == [["n2/gpu-0"]]
    restart(world, claims=failing(world.cluster.claims, method, when, Killed()))
    async with world.watching():
        with pytest.raises(Killed):
            await asyncio.wait_for(world.bind("p1", "n1"), 60)

    left = claims(world)
    assert all(FINALIZER in each["metadata"]["finalizers"] for each in left if devices_of(each))
    restart(world)
    await world.bind_through("p1", "n1")
    (claim,) = claims(world)
    assert devices_of(claim) == ["n1/gpu-0"]


async def test_a_left_over_with_devices_draws_the_pod_to_its_node(world: InMemoryExtender) -> None:
    await world.abandoned("p1", "n2")
    world.start()
    assert (await world.filter("p1", "n1", "n2")).fitting == ("n2",)
    assert (await world.filter("p1", "n1")).fitting == ("n1",)


async def test_a_left_over_that_takes_the_last_fitting_devices_is_given_up_soon() -> None:
    """The pod fits only where the left-over cannot be used: everything is refused, and the claim is deleted at once."""
    world = filled(OPTIONS)
    world.add_pod("big", resources={GPU: "2"})
    await world.abandoned("p1", "n2")
    await bind(world, "big", "n1")
    assert (await world.filter("p1", "n1")).unresolvable == {"n1": f"node(s): {SHARED} is allocated for another node"}
    await pass_by(world, OPTIONS.reclaim_unfit_seconds)
    assert [each["metadata"]["ownerReferences"][0]["name"] for each in claims(world)] == ["big"]


@pytest.mark.parametrize("method", ["update", "update_status"])
async def test_a_write_that_is_refused_leaves_no_claim(world: InMemoryExtender, method: str) -> None:
    restart(world, claims=failing(world.cluster.claims, method, "before", RequestRejectedError("denied")))
    async with world.watching():
        with pytest.raises(RetryableError, match="denied"):
            await world.bind("p1", "n1")
    assert claims(world) == []


async def test_claims_that_were_created_and_that_could_not_be_are_counted_under_upstreams_name(
    world: InMemoryExtender,
) -> None:
    """Metric of KEP-4381; a claim that exists already is neither."""
    name = "dynamic_resource_allocation_resourceclaim_creates_total"
    labels = {"admin_access": "false", "owner_api_group": "", "owner_api_kind": "Pod"}
    restart(world, claims=failing(world.cluster.claims, "create", "before", RequestRejectedError("denied")))
    with pytest.raises(RetryableError, match="denied"):
        await world.bind("p1", "n1")
    assert [await world.metric(name, status=status, **labels) for status in ("success", "failure")] == [0, 1]
    restart(world)
    await bind(world, "p1", "n1")
    assert [await world.metric(name, status=status, **labels) for status in ("success", "failure")] == [1, 0]


async def test_a_create_of_which_the_answer_is_lost_is_found_by_its_name(world: InMemoryExtender) -> None:
    fault: ClusterError = ServerUnavailableError("no answer")
    restart(world, claims=failing(world.cluster.claims, "create", "after", fault))
    with pytest.raises(RetryableError, match="no answer"):
        await world.bind("p1", "n1")
    (made,) = claims(world)
    restart(world)
    claim = await bind(world, "p1", "n1")
    assert claim["metadata"]["uid"] == made["metadata"]["uid"]


@pytest.mark.parametrize("anew", [False, True], ids=["the-same-pod", "made-anew-under-its-name"])
async def test_a_left_over_is_deleted_unless_the_live_pod_is_bound(world: InMemoryExtender, *, anew: bool) -> None:
    """A bound pod may run with the claim; the watch has not brought yet that the pod is bound, or another pod in its place."""
    await world.abandoned("p1", "n2")
    world.start()
    uid = world.uid("p1")
    world.silence("pods")
    if anew:
        world.delete(StoredKind.POD, "p1")
        world.add_pod("p1", resources={GPU: "1"})
    await world.cluster.pods.bind("default", "p1", world.uid("p1"), "n2")
    async with world.watching():
        with pytest.raises(RetryableError) as refused:
            await world.extender.bind("default", "p1", uid, "n1", asyncio.Event())
    assert [devices_of(each) for each in claims(world)] == [["n1/gpu-0" if anew else "n2/gpu-0"]]
    assert ("is bound to node n2 already" in str(refused.value)) is not anew


async def test_a_pod_that_was_told_of_a_claim_is_kept_off_nodes_that_need_none(world: InMemoryExtender) -> None:
    """The API server lets nobody take the field back, and the kubelet would wait for the claim."""
    world.node("n3", **{GPU: "1"})
    restart(world, pods=failing(world.cluster.pods, "bind", "before", RequestRejectedError("denied")))
    async with world.watching():
        with pytest.raises(RetryableError, match="denied"):
            await world.bind("p1", "n1")
    restart(world)
    assert (await world.filter("p1", "n3")).fitting == ()
    with pytest.raises(RetryableError, match="which is not needed there"):
        await world.bind("p1", "n3")
    await bind(world, "p1", "n1")


async def test_what_is_left_of_a_pod_that_only_waits_is_deleted_after_a_while() -> None:
    world = filled(OPTIONS)
    restart(world, claims=failing(world.cluster.claims, "update", "before", Killed()))
    async with world.watching():
        with pytest.raises(Killed):
            await world.bind("p1", "n1")
    assert len(claims(world)) == 1
    restart(world)
    await world.filter("p1", "n2")
    await pass_by(world, GRACE)
    assert len(claims(world)) == 1
    world.ledger.hold_book.release_pod(world.uid("p1"))
    await pass_by(world, GRACE)
    assert (claims(world), await reclaimed(world, "half_written")) == ([], 1)


async def test_a_reservation_of_a_pod_that_only_waits_goes_with_the_whole_claim() -> None:
    world = filled(OPTIONS)
    await world.abandoned("p1", "n2")
    world.sync()
    await pass_by(world, GRACE)
    assert (claims(world), await reclaimed(world, "pod_idle")) == ([], 1)


async def test_a_device_that_fails_takes_the_claim_with_it(world: InMemoryExtender) -> None:
    world.node("n3")
    world.slice("n3", [{"name": "gpu-0", "bindingConditions": ["Attached"], "bindingFailureConditions": ["Failed"]}])
    async with world.watching():
        task = asyncio.create_task(world.bind("p1", "n3"))
        while not (found := claims(world)) or not devices_of(found[0]):  # noqa: ASYNC110 - the store signals nothing
            await asyncio.sleep(0)
        failed = {
            "type": "Failed",
            "status": "True",
            "reason": "R",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        device = {"driver": DRIVER, "pool": "n3", "device": "gpu-0", "conditions": [failed]}
        world.cluster.store.update_status(
            StoredKind.CLAIM, {**found[0], "status": {**found[0]["status"], "devices": [device]}}
        )
        with pytest.raises(RetryableError, match="binding conditions failed"):
            await task
    assert claims(world) == []


async def test_victims_free_the_devices_of_their_extended_resources(world: InMemoryExtender) -> None:
    world.add_pod("low", resources={GPU: "2"})
    await bind(world, "low", "n1")
    world.add_pod("big", resources={GPU: "2"})
    await bind(world, "big", "n2")
    world.add_pod("high", resources={GPU: "2"})
    uids = {name: world.uid(name) for name in ("low", "big")}
    pod = world.ledger.pods.by_uid(world.uid("high"))
    assert pod is not None
    kept = await world.extender.preempt(pod, {"n1": [uids["low"]], "n2": []})
    assert kept == {"n1": [uids["low"]]}


async def test_containers_that_ask_for_more_devices_than_a_claim_may_have_are_not_matched_with_each_other() -> None:
    world = filled()
    resources = {GPU: "1000"}
    spec = {
        "initContainers": [{"name": f"i{index}", "resources": {"requests": resources}} for index in range(300)],
        "containers": [{"name": f"c{index}", "resources": {"requests": {GPU: "1"}}} for index in range(300)],
    }
    world.create(StoredKind.POD, {"metadata": {"name": "many"}, "spec": {"schedulerName": "dra-scheduler", **spec}})

    tracemalloc.start()
    answer = await world.filter("many", "n1", "n2")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert set(answer.unresolvable.values()) == {f"node(s): {SHARED}: more devices than one claim may have"}
    detail = "more devices than one claim may have: asks for 1000 devices, a claim may have 32"
    assert world.messages("many") == [
        f"2 of 2 nodes: {SHARED}: {detail} (on n1). More: kubectl dra why many -n default"
    ]
    assert peak < 2 * 2**20
