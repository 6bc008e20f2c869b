"""Claims follow the pods that use them, as kube-controller-manager makes them."""

import pytest
from dra_extender.model.names import is_label
from dra_extender.model.resource_claim import FINALIZER
from dra_extender.model.templated_claim import ENTRY_ANNOTATION, generated_base
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind
from dra_extender.simulator.apiserver.store import Store
from dra_extender.simulator.controllers.claims import ClaimController
from hypothesis import given
from hypothesis import strategies as st

from tests.support.simulator.things import Steady, allocation, claim, consumer, pod, template


@pytest.fixture
def store() -> Store:
    return Store(Steady())


def templated(name: str) -> Json:
    return pod(name, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "t"}])


def running(store: Store, thing: Json, node: str = "node-1") -> str:
    made = store.create(StoredKind.POD, thing)
    store.edit_unchecked(
        Key(StoredKind.POD, "default", made["metadata"]["name"]), lambda each: each["spec"].update(nodeName=node)
    )
    uid: str = made["metadata"]["uid"]
    return uid


def reserve(store: Store, name: str, *uids: str, finalizer: bool = True) -> None:
    thing = store.get(Key(StoredKind.CLAIM, "default", name))
    if finalizer:
        thing["metadata"]["finalizers"] = [FINALIZER]
        thing = store.update(StoredKind.CLAIM, thing)
    thing["status"] = {"allocation": allocation(), "reservedFor": [consumer(uid, uid) for uid in uids]}
    store.update_status(StoredKind.CLAIM, thing)


def test_a_template_entry_gets_a_claim_of_its_own(store: Store) -> None:
    store.create(StoredKind.TEMPLATE, template("t", {"made": "by-template"}))
    made = store.create(StoredKind.POD, templated("p"))
    ClaimController(store).reconcile()
    (found,) = store.all(StoredKind.CLAIM)
    assert found["metadata"]["name"].startswith("p-gpu-")
    assert found["metadata"]["labels"] == {"made": "by-template"}
    assert found["metadata"]["annotations"] == {ENTRY_ANNOTATION: "gpu"}
    (owner,) = found["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Pod", made["metadata"]["uid"], True)
    status = store.get(Key(StoredKind.POD, "default", "p"))["status"]
    assert status["resourceClaimStatuses"] == [{"name": "gpu", "resourceClaimName": found["metadata"]["name"]}]


def test_a_claim_that_was_made_and_not_recorded_is_found_again(store: Store) -> None:
    store.create(StoredKind.TEMPLATE, template("t"))
    store.create(StoredKind.POD, templated("p"))
    ClaimController(store).reconcile()
    store.edit_unchecked(Key(StoredKind.POD, "default", "p"), lambda each: each["status"].pop("resourceClaimStatuses"))
    ClaimController(store).reconcile()
    assert len(store.all(StoredKind.CLAIM)) == 1
    assert store.get(Key(StoredKind.POD, "default", "p"))["status"]["resourceClaimStatuses"]


def test_a_missing_template_is_told_and_made_up_for_later(store: Store) -> None:
    store.create(StoredKind.POD, templated("p"))
    controller = ClaimController(store)
    controller.reconcile()
    assert controller.problems == ['Pod default/p: resourceclaimtemplates "t" not found']
    store.create(StoredKind.TEMPLATE, template("t"))
    controller.reconcile()
    assert controller.problems == []
    assert len(store.all(StoredKind.CLAIM)) == 1


def test_the_last_consumer_frees_the_devices_and_the_finalizer(store: Store) -> None:
    store.create(StoredKind.CLAIM, claim("c"))
    first, second = running(store, pod("one", "c")), running(store, pod("two", "c"))
    reserve(store, "c", first, second)
    store.delete(Key(StoredKind.POD, "default", "one"))
    ClaimController(store).reconcile()
    kept = store.get(Key(StoredKind.CLAIM, "default", "c"))
    assert kept["status"]["allocation"]
    assert kept["status"]["reservedFor"] == [consumer(second, second)]
    store.edit_unchecked(Key(StoredKind.POD, "default", "two"), lambda each: each["status"].update(phase="Succeeded"))
    ClaimController(store).reconcile()
    freed = store.get(Key(StoredKind.CLAIM, "default", "c"))
    assert not freed.get("status")
    assert not freed["metadata"].get("finalizers")


def test_a_running_pod_gets_the_reservation_that_was_forgotten(store: Store) -> None:
    store.create(StoredKind.CLAIM, claim("c"))
    uid = running(store, pod("p", "c"))
    reserve(store, "c")
    ClaimController(store).reconcile()
    assert [each["uid"] for each in store.get(Key(StoredKind.CLAIM, "default", "c"))["status"]["reservedFor"]] == [uid]


def test_reservations_of_other_kinds_stay(store: Store) -> None:
    store.create(StoredKind.CLAIM, claim("c"))
    reserve(store, "c")
    thing = store.get(Key(StoredKind.CLAIM, "default", "c"))
    other = {"apiGroup": "batch", "resource": "jobs", "name": "g", "uid": "g"}
    thing["status"]["reservedFor"] = [other]
    store.update_status(StoredKind.CLAIM, thing)
    ClaimController(store).reconcile()
    assert store.get(Key(StoredKind.CLAIM, "default", "c"))["status"]["reservedFor"] == [other]


NAMES = st.text("abc", min_size=1, max_size=200)


@given(NAMES, NAMES)
def test_generated_names_are_labels_whatever_they_are_made_of(pod_name: str, entry: str) -> None:
    assert is_label(generated_base(pod_name, entry) + "x2345")
