"""Objects of another cluster are taken over as they are, changed without rules, and announced within the write."""

import msgspec
import pytest
from dra_extender.scheduling.ports.cluster import NotFoundError
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind
from dra_extender.simulator.apiserver.store import Change, Store, WatchEventType
from dra_extender.simulator.apiserver.watch import StoreWatch

from tests.support.simulator.things import Steady, allocation, claim, consumer, pod

CLAIM = Key(StoredKind.CLAIM, "default", "c")


class Noted:
    """A sink that keeps the names of what it is told."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def changed(self, data: bytes) -> None:
        self.names.append(msgspec.json.decode(data)["metadata"]["name"])

    def deleted(self, namespace: str, name: str, uid: str) -> None:
        self.names.append(f"{name} gone")

    def listing(self) -> None:
        return

    def synced(self) -> None:
        self.names.append("synced")

    def absent(self) -> None:
        return


def claim_of(owner: str, *users: str, version: str = "7") -> Json:
    thing = claim("c")
    thing["metadata"] |= {"namespace": "default", "uid": "u", "resourceVersion": version}
    thing["metadata"]["ownerReferences"] = [{"kind": "Pod", "name": owner, "uid": owner}]
    thing["status"] = {"allocation": allocation(), "reservedFor": [consumer(each, each) for each in users]}
    return thing


def loaded(*things: Json) -> Store:
    store = Store(Steady())
    assert store.load(StoredKind.CLAIM, [msgspec.json.encode(each) for each in things]) == []
    return store


def test_objects_are_kept_byte_by_byte_and_later_writes_are_newer() -> None:
    data = msgspec.json.encode(claim_of("p"))
    store = Store(Steady())
    store.load(StoredKind.CLAIM, [data])
    assert store.read(CLAIM) == data
    assert store.put_unchecked(StoredKind.CLAIM, claim_of("q"))["metadata"]["resourceVersion"] == "8"
    store.skip_versions(20)
    assert store.put_unchecked(StoredKind.CLAIM, claim_of("q"))["metadata"]["resourceVersion"] == "21"


def test_an_object_without_a_version_is_changed_as_any_other() -> None:
    """People write such objects into files."""
    written = claim_of("p", "p")
    del written["metadata"]["resourceVersion"]
    store = loaded(written)
    status = store.get(CLAIM)
    status["status"].pop("reservedFor")
    assert store.update_status(StoredKind.CLAIM, status)["metadata"]["resourceVersion"] == "1"
    assert "reservedFor" not in store.get(CLAIM)["status"]


@pytest.mark.parametrize(
    ("kind", "thing"),
    [
        (StoredKind.CLAIM, {"metadata": {"name": "c", "namespace": "default"}}),
        (StoredKind.CLAIM, {"metadata": {"name": "c", "uid": "u"}}),
        (StoredKind.NODE, {"metadata": {"name": "n", "namespace": "default", "uid": "u"}}),
        (StoredKind.POD, {"metadata": {"name": "p", "namespace": "default", "uid": "u"}}),
        (
            StoredKind.CLAIM,
            {"metadata": {"name": "c", "namespace": "default", "uid": "u"}, "status": {"reservedFor": 1}},
        ),
    ],
    ids=["no UID", "no namespace", "a namespace", "no spec", "another type"],
)
def test_objects_that_cannot_be_found_or_edited_are_handed_back(kind: StoredKind, thing: Json) -> None:
    data, store = msgspec.json.encode(thing), Store(Steady())
    assert store.load(kind, [data]) == [data]
    assert store.all(kind) == []


def test_what_is_put_breaks_rules_and_gets_a_uid_where_it_has_none() -> None:
    store = loaded(claim_of("p"))
    other = claim_of("p")
    other["spec"] = {"devices": {}}
    store.put_unchecked(StoredKind.CLAIM, other)
    assert store.get(CLAIM)["spec"] == {"devices": {}}
    made = store.put_unchecked(StoredKind.POD, pod("new"))
    assert made["metadata"]["uid"]


def test_what_is_removed_is_gone_whatever_finalizers_it_has() -> None:
    thing = claim_of("p")
    thing["metadata"]["finalizers"] = ["example.com/keep"]
    store = loaded(thing)
    seen: list[Change] = []
    store.subscribe(seen.append)
    store.remove_unchecked(CLAIM)
    assert [each.verb for each in seen] == [WatchEventType.DELETED]
    with pytest.raises(NotFoundError):
        store.get(CLAIM)


def test_claims_are_found_by_owner_and_consumer_also_after_a_write() -> None:
    store = loaded(claim_of("p", "q"))
    assert [store.claims_of(uid) for uid in ("p", "q", "r")] == [[CLAIM], [CLAIM], []]
    store.put_unchecked(StoredKind.CLAIM, claim_of("p", "r"))
    assert [store.claims_of(uid) for uid in ("p", "q", "r")] == [[CLAIM], [], [CLAIM]]
    store.remove_unchecked(CLAIM)
    assert store.claims_of("p") == []


def test_writes_are_delivered_at_once_and_what_exists_is_not() -> None:
    store, sink = loaded(claim_of("p")), Noted()
    StoreWatch(store).deliver_at_once({"resourceclaims": sink})
    assert sink.names == []
    store.put_unchecked(StoredKind.CLAIM, claim_of("q"))
    store.remove_unchecked(CLAIM)
    assert sink.names == ["c", "c gone"]
