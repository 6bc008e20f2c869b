"""PodGroups in the embedded cluster: their claims, and gangs that are scheduled at once."""

import pytest
from dra_extender.model.resource_claim import FINALIZER
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind
from dra_extender.simulator.apiserver.store import Store
from dra_extender.simulator.controllers.claims import ClaimController
from dra_extender.simulator.scheduler.loop import PodBound, PodWaiting, SchedulingFailed

from tests.simulator.scheduler.test_loop import Bench
from tests.support.simulator.things import Steady, allocation, node, pod, template

pytestmark = pytest.mark.virtual_time

ENTRY = {"name": "gpu", "resourceClaimTemplateName": "t"}
BY_GROUP = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g"}


@pytest.fixture
def store() -> Store:
    return Store(Steady())


def group(*claims: Json, name: str = "g", min_count: int = 0) -> Json:
    policy: Json = {"gang": {"minCount": min_count}} if min_count else {"basic": {}}
    return {"metadata": {"name": name}, "spec": {"schedulingPolicy": policy, "resourceClaims": list(claims)}}


def member(name: str, *claims: Json, of: str = "g") -> Json:
    return pod(name, resourceClaims=list(claims), schedulingGroup={"podGroupName": of})


def recorded(store: Store, kind: StoredKind, name: str) -> list[str]:
    found = store.get(Key(kind, "default", name)).get("status", {}).get("resourceClaimStatuses") or []
    return [each["resourceClaimName"] for each in found]


def claims(store: Store) -> list[str]:
    return [each["metadata"]["name"] for each in store.all(StoredKind.CLAIM)]


def test_a_group_gets_one_claim_that_all_its_pods_are_told(store: Store) -> None:
    store.create(StoredKind.TEMPLATE, template("t"))
    made = store.create(StoredKind.POD_GROUP, group(ENTRY))
    store.create(StoredKind.POD, member("a", ENTRY))
    store.create(StoredKind.POD, member("b", ENTRY))
    ClaimController(store).reconcile()
    (name,) = claims(store)
    assert recorded(store, StoredKind.POD_GROUP, "g") == [name]
    assert recorded(store, StoredKind.POD, "a") == recorded(store, StoredKind.POD, "b") == [name]
    (owner,) = store.get(Key(StoredKind.CLAIM, "default", name))["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["apiVersion"], owner["uid"]) == (
        "PodGroup",
        "scheduling.k8s.io/v1beta1",
        made["metadata"]["uid"],
    )


def test_reservation_and_claim_go_with_the_group_and_not_with_its_pods(store: Store) -> None:
    store.create(StoredKind.TEMPLATE, template("t"))
    made = store.create(StoredKind.POD_GROUP, group(ENTRY))
    store.create(StoredKind.POD, member("a", ENTRY))
    controller = ClaimController(store)
    controller.reconcile()
    (name,) = claims(store)
    claim = store.get(Key(StoredKind.CLAIM, "default", name))
    claim["metadata"]["finalizers"] = [FINALIZER]
    claim = store.update(StoredKind.CLAIM, claim)
    claim["status"] = {"allocation": allocation(), "reservedFor": [{**BY_GROUP, "uid": made["metadata"]["uid"]}]}
    store.update_status(StoredKind.CLAIM, claim)
    store.delete(Key(StoredKind.POD, "default", "a"))
    controller.reconcile()
    assert store.get(Key(StoredKind.CLAIM, "default", name))["status"]["allocation"]
    store.delete(Key(StoredKind.POD_GROUP, "default", "g"))
    controller.reconcile()
    assert claims(store) == []


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.add(node("node-1"), node("node-2"))
    return made


async def test_a_gang_waits_for_its_group_and_for_enough_members(bench: Bench) -> None:
    bench.add(member("a"))
    assert [each.message for each in await bench.rest() if isinstance(each, PodWaiting)][-1:] == [
        "waiting for PodGroup g to appear"
    ]
    bench.cluster.store.create(StoredKind.POD_GROUP, group(min_count=2))
    bench.add(member("late-comer-of-another-group", of="h"))
    await bench.rest()
    assert bench.node_of("a") is None
    bench.add(member("b"))
    await bench.rest()
    assert bench.node_of("a")
    assert bench.node_of("b")


async def test_all_members_are_asked_before_any_is_bound_and_bound_at_once(bench: Bench) -> None:
    bench.cluster.store.create(StoredKind.POD_GROUP, group(min_count=2))
    bench.add(member("a"), member("b"), member("c"))
    outcomes = await bench.rest()
    verbs = [verb for verb in bench.extender.verbs() if verb != "prioritize"]
    assert verbs == ["filter"] * 3 + ["bind"] * 3
    assert sum(isinstance(each, PodBound) for each in outcomes) == 3


async def test_an_error_for_one_member_is_tried_again(bench: Bench) -> None:
    bench.cluster.store.create(StoredKind.POD_GROUP, group(min_count=2))
    failures = iter([True, False])
    bench.extender.filter = lambda body: (
        (500, b"") if body["Pod"]["metadata"]["name"] == "b" and next(failures, False) else {"NodeNames": ["node-1"]}
    )
    bench.add(member("a"), member("b"))
    outcomes = await bench.rest()
    assert any(isinstance(each, SchedulingFailed) for each in outcomes)
    assert bench.node_of("a") == bench.node_of("b") == "node-1"
