"""What is wrong at rest: a pod waits although devices for it are free, or keeps what it does not use."""

import asyncio

import pytest
from dra_extender.model.resource_claim import EXTENDED_ANNOTATION
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.simulator.apiserver.objects import StoredKind

from tests.support.audit.waiting_pods import FITS, KEPT, MADE, waiting_pods
from tests.support.scheduling.world import InMemoryExtender
from tests.support.turns import until


@pytest.fixture
def world() -> InMemoryExtender:
    world = InMemoryExtender()
    for name in ("n1", "n2"):
        world.node(name)
        world.gpus(name, 1)
    world.device_class()
    for name in ("1", "2", "3"):
        world.add_claim(f"c{name}")
        world.add_pod(f"p{name}", f"c{name}")
    return world


def findings(world: InMemoryExtender) -> list[tuple[str, str]]:
    world.sync()
    found = waiting_pods(world.ledger, NodeAllocator(world.ledger, world.features, world.options))
    return [(each.rule, each.about.removeprefix("default/")) for each in found]


async def bound(world: InMemoryExtender, pod: str, node: str) -> None:
    async with world.watching():
        await world.bind(pod, node)
    world.sync()


async def test_every_waiting_pod_that_fits_somewhere_is_named(world: InMemoryExtender) -> None:
    assert findings(world) == [(FITS, "p1"), (FITS, "p2"), (FITS, "p3")]
    await bound(world, "p1", "n1")
    assert findings(world) == [(FITS, "p2"), (FITS, "p3")]
    await bound(world, "p2", "n2")
    assert findings(world) == []


async def test_a_pod_with_allocated_claims_fits_where_these_can_be_used_and_keeps_them_from_others(
    world: InMemoryExtender,
) -> None:
    hung_up = asyncio.Event()
    hung_up.set()
    async with world.watching():
        with pytest.raises(RetryableError):
            await world.bind("p1", "n1", hung_up)
    assert findings(world)[:2] == [(KEPT, "c1"), (FITS, "p1")]
    world.delete(StoredKind.NODE, "n1")
    assert findings(world)[0] == (KEPT, "c1")
    assert (FITS, "p1") not in findings(world)


async def test_pods_that_nobody_could_place_are_not_named(world: InMemoryExtender) -> None:
    """Their claims are missing or ask for too much, they are over or being deleted, or wait for other members of a group."""
    for name in ("p1", "p2", "p3"):
        world.delete(StoredKind.POD, name)
    world.add_claim("huge", count=3)
    for pod, claim in (("missing", "c9"), ("huge", "huge"), ("over", "c1")):
        world.add_pod(pod, claim)

    over = world.pod("over")
    over["status"]["phase"] = "Failed"
    world.cluster.store.update_status(StoredKind.POD, over)
    spec = {
        "containers": [{"name": "main", "image": "pause"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "c2"}],
        "schedulingGroup": {"podGroupName": "gang"},
    }
    world.create(StoredKind.POD, {"metadata": {"name": "member"}, "spec": spec})

    assert findings(world) == []


GPU = "example.com/gpu"


def without_pods(world: InMemoryExtender) -> InMemoryExtender:
    for name in ("p1", "p2", "p3"):
        world.delete(StoredKind.POD, name)
    return world


async def test_a_pod_that_waits_although_a_class_could_serve_its_extended_resource_is_named(
    world: InMemoryExtender,
) -> None:
    without_pods(world).device_class("backing", extendedResourceName=GPU)
    world.add_pod("one", resources={GPU: "1"})
    world.add_pod("two", resources={GPU: "2"})
    world.add_pod("implicit", resources={"deviceclass.resource.kubernetes.io/gpu": "1"})
    world.add_pod("both", "c1", resources={GPU: "1"})
    assert findings(world) == [(FITS, "one"), (FITS, "implicit")]
    world.node("n3")
    world.gpus("n3", 2)
    assert findings(world) == [(FITS, "one"), (FITS, "two"), (FITS, "implicit"), (FITS, "both")]
    async with world.watching():
        for pod, node in (("one", "n1"), ("implicit", "n2"), ("two", "n3")):
            await world.bind(pod, node)
    assert findings(world) == []


async def test_extended_resources_of_device_plugins_are_the_schedulers_to_count(world: InMemoryExtender) -> None:
    """A node that lists one is passed over, as is a pod that asks for what no class backs, whatever its claims."""
    without_pods(world)
    world.add_pod("unbacked", "c1", resources={GPU: "1"})
    assert findings(world) == []
    world.delete(StoredKind.NODE, "n1")
    world.delete(StoredKind.NODE, "n2")
    world.node("listing", **{GPU: "1"})
    world.gpus("listing", 1)
    world.device_class("backing", extendedResourceName=GPU)
    assert findings(world) == []


async def test_a_claim_that_was_made_for_a_pod_that_waits_is_named(world: InMemoryExtender) -> None:
    without_pods(world).device_class("backing", extendedResourceName=GPU)
    world.add_pod("one", resources={GPU: "1"})
    uid = world.pod("one")["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "one", "uid": uid, "controller": True}
    annotations = {EXTENDED_ANNOTATION: "true"}
    metadata = {"name": "left", "namespace": "default", "annotations": annotations, "ownerReferences": [owner]}
    request = {"name": "r", "exactly": {"deviceClassName": "backing", "count": 1}}
    world.create(StoredKind.CLAIM, {"metadata": metadata, "spec": {"devices": {"requests": [request]}}})
    assert findings(world) == [(MADE, "left"), (FITS, "one")]
    hung_up = asyncio.Event()
    hung_up.set()
    async with world.watching():
        with pytest.raises(RetryableError):
            await world.bind("one", "n1", hung_up)
    (kept,) = [name for rule, name in findings(world) if rule == KEPT]
    assert MADE not in dict(findings(world))
    assert kept in {each["metadata"]["name"] for each in world.cluster.store.all(StoredKind.CLAIM)}


async def test_devices_that_failed_under_a_bound_pod_serve_no_further_pod() -> None:
    """A bound pod keeps its claim, so that the claim cannot be released; a claim of waiting pods would be allocated anew."""
    world = InMemoryExtender()
    world.node("n1")
    world.slice("n1", [{"name": "gpu-0", "bindingConditions": ["Attached"], "bindingFailureConditions": ["Failed"]}])
    world.device_class()
    world.add_claim("c1")
    world.add_pod("p1", "c1")
    world.add_pod("p2", "c1")
    async with world.watching():
        binding = asyncio.ensure_future(world.bind("p1", "n1"))
        await until(lambda: world.claim("c1").get("status", {}).get("allocation") is not None)
        world.report("Attached")
        await binding
    assert findings(world) == [(FITS, "p2")]
    world.report("Failed")
    assert findings(world) == []
    world.delete(StoredKind.POD, "p1")
    assert findings(world) == [(FITS, "p2")]
