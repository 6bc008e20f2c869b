"""The embedded API server stores, refuses and strips as a real one does, beside what tests/contract asks of both."""

from typing import Any

import msgspec
import pytest
from dra_extender.scheduling.ports.cluster import ClusterError, RequestRejectedError
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind
from dra_extender.simulator.apiserver.served_fields import served_by
from dra_extender.simulator.apiserver.store import Change, Store, WatchEventType
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.simulator.things import Steady, allocation, claim, consumer, node, pod, result

CLAIM = Key(StoredKind.CLAIM, "default", "c")


def stored(store: Store) -> Json:
    return store.get(CLAIM)


@pytest.fixture
def store() -> Store:
    filled = Store(Steady())
    filled.create(StoredKind.CLAIM, claim("c"))
    return filled


def allocate(store: Store, *uids: str) -> Json:
    thing = stored(store)
    thing["status"] = {"allocation": allocation(), "reservedFor": [consumer(each, each) for each in uids]}
    return store.update_status(StoredKind.CLAIM, thing)


def test_alternatives_and_tolerations_are_defaulted_too(store: Store) -> None:
    spec = {
        "devices": {
            "requests": [
                {
                    "name": "r",
                    "firstAvailable": [
                        {"name": "all", "deviceClassName": "gpu", "allocationMode": "All"},
                        {"name": "one", "deviceClassName": "gpu", "tolerations": [{"key": "k"}]},
                    ],
                }
            ]
        }
    }
    thing = store.create(StoredKind.CLAIM, {"metadata": {"name": "alternatives"}, "spec": spec})
    every, one = thing["spec"]["devices"]["requests"][0]["firstAvailable"]
    assert "count" not in every
    assert one["count"] == 1
    assert one["tolerations"] == [{"key": "k", "operator": "Equal"}]


def test_a_pod_starts_pending_and_limits_become_requests(store: Store) -> None:
    thing = pod("p")
    thing["spec"]["containers"][0]["resources"] = {"limits": {"cpu": 2}}
    thing["status"] = {"phase": "Running"}
    made = store.create(StoredKind.POD, thing)
    assert made["status"]["phase"] == "Pending"
    assert made["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "2"}


CONDITIONS = {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}


@pytest.mark.parametrize(
    ("status", "offence"),
    [
        ({"allocation": allocation(*[result()] * 33)}, "must have at most 32"),
        ({"allocation": allocation(result(shareID="share-0"))}, "must be a UUID"),
        ({"allocation": allocation(result(**{**CONDITIONS, "bindingFailureConditions": ["ready"]}))}, "overlap"),
        ({"allocation": allocation(result(**{**CONDITIONS, "bindingConditions": ["r"] * 2}))}, "at most 4 different"),
        ({"allocation": {"devices": {"config": [{"source": "Elsewhere"}]}}}, "supported values: FromClass, FromClaim"),
        ({"allocation": {"devices": {"config": [{"source": "FromClaim", "requests": ["x"]}]}}}, "name of a request"),
        (
            {"allocation": allocation(nodeSelector={"nodeSelectorTerms": [{"matchFields": [{"key": "x"}]}]})},
            "nodeSelector",
        ),
        ({"allocation": allocation(), "reservedFor": [{"resource": "pods", "name": "a"}]}, "uid: Required"),
    ],
)
def test_a_status_that_the_api_refuses_is_refused(store: Store, status: Json, offence: str) -> None:
    thing = stored(store)
    thing["status"] = status
    with pytest.raises(RequestRejectedError, match=offence):
        store.update_status(StoredKind.CLAIM, thing)
    assert "status" not in stored(store)


def slice_with_everything() -> Json:
    device = {
        "name": "gpu-0",
        "bindsToNode": True,
        **CONDITIONS,
        "consumesCounters": [{"counterSet": "s", "counters": {"c": {"value": 1}}, "compatibilityGroups": ["mig"]}],
    }
    pool = {"name": "node-1", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "pool": pool, "nodeName": "node-1", "devices": [device]}
    return {"metadata": {"name": "slice"}, "spec": spec}


@pytest.mark.parametrize(
    ("minor", "groups", "conditions"), [(34, False, False), (35, False, False), (36, False, True), (37, True, True)]
)
def test_each_release_keeps_the_fields_it_knows(minor: int, *, groups: bool, conditions: bool) -> None:
    store = Store(Steady(), served_by(minor))
    device = store.create(StoredKind.SLICE, slice_with_everything())["spec"]["devices"][0]
    assert ("compatibilityGroups" in device["consumesCounters"][0]) is groups
    assert device["consumesCounters"][0]["counters"] == {"c": {"value": "1"}}
    assert ("bindingConditions" in device) is ("bindsToNode" in device) is conditions
    thing = store.create(StoredKind.CLAIM, claim("c"))
    wanted = result(compatibilityGroups={"s": ["mig"]}, **CONDITIONS)
    thing["status"] = {"allocation": allocation(wanted, allocationTimestamp="2026-01-01T00:00:00Z")}
    kept = store.update_status(StoredKind.CLAIM, thing)["status"]["allocation"]
    assert "compatibilityGroups" not in kept["devices"]["results"][0]
    assert ("bindingConditions" in kept["devices"]["results"][0]) is conditions
    assert ("allocationTimestamp" in kept) is (minor > 34)


@pytest.mark.parametrize("minor", [34, 35, 36, 37])
def test_slice_with_devices_beside_counters_is_kept_by_1_34_alone(minor: int) -> None:
    """Later releases refuse it, created or made by an update, with this message."""
    store = Store(Steady(), served_by(minor))
    both, plain = slice_with_everything(), slice_with_everything()
    plain["metadata"]["name"] = "plain"
    plain = store.create(StoredKind.SLICE, plain)
    sets = [{"name": "s", "counters": {"c": {"value": "1"}}}]
    both["spec"]["sharedCounters"] = plain["spec"]["sharedCounters"] = sets
    if minor == 34:
        assert store.create(StoredKind.SLICE, both)["spec"]["sharedCounters"]
        assert store.update(StoredKind.SLICE, plain)["spec"]["devices"]
        return
    words = r"spec: Invalid value: \"\": only one of `sharedCounters` or `devices` is allowed"
    with pytest.raises(RequestRejectedError, match=words):
        store.create(StoredKind.SLICE, both)
    with pytest.raises(RequestRejectedError, match=words):
        store.update(StoredKind.SLICE, plain)


@pytest.mark.parametrize("minor", [33, 38])
def test_an_unknown_release_is_refused(minor: int) -> None:
    with pytest.raises(ValueError, match=f"cannot emulate Kubernetes 1.{minor}"):
        served_by(minor)


def test_a_nodes_status_is_stored_and_amounts_become_text(store: Store) -> None:
    thing = node("node-1")
    thing["status"]["allocatable"] = {"cpu": 4}
    assert store.create(StoredKind.NODE, thing)["status"]["allocatable"] == {"cpu": "4"}


def test_readers_cannot_change_what_is_stored(store: Store) -> None:
    stored(store)["metadata"]["name"] = "changed"
    store.all(StoredKind.CLAIM)[0]["spec"].clear()
    assert stored(store)["metadata"]["name"] == "c"
    assert stored(store)["spec"]


WRITES = st.sampled_from(
    ["create", "label", "finalize", "unfinalize", "allocate", "reserve", "clear", "delete", "stale"]
)


def _attempt(store: Store, write: str, name: str, number: int, held: dict[str, Json]) -> None:
    key = Key(StoredKind.CLAIM, "default", name)
    if write == "create":
        store.create(StoredKind.CLAIM, claim(name))
        return
    thing: Json = held[name] if write == "stale" and name in held else store.get(key)
    held.setdefault(name, store.get(key))
    metadata, status = thing["metadata"], thing.setdefault("status", {})
    match write:
        case "label" | "stale":
            metadata["labels"] = {"number": str(number)}
            store.update(StoredKind.CLAIM, thing)
        case "finalize" | "unfinalize":
            metadata["finalizers"] = ["f"] if write == "finalize" else []
            store.update(StoredKind.CLAIM, thing)
        case "allocate":
            status["allocation"] = allocation(result(device=f"gpu-{number % 3}"))
            store.update_status(StoredKind.CLAIM, thing)
        case "reserve":
            status["reservedFor"] = [*(status.get("reservedFor") or []), consumer(str(number), str(number % 4))]
            store.update_status(StoredKind.CLAIM, thing)
        case "clear":
            status.pop("allocation", None)
            if number % 2:
                status.pop("reservedFor", None)
            store.update_status(StoredKind.CLAIM, thing)
        case _:
            store.delete(key)


@given(st.lists(st.tuples(WRITES, st.sampled_from("ab")), max_size=60))
@examples(150)
def test_no_sequence_of_writes_breaks_the_rules(writes: list[tuple[str, str]]) -> None:
    """Whatever is tried: versions grow, events replay to the stored objects, allocations stay, reservations need one."""
    store = Store(Steady())
    replayed: dict[Key, Any] = {}
    versions: list[int] = []

    def note(change: Change) -> None:
        before, after = replayed.get(change.key), msgspec.json.decode(change.data)
        versions.append(change.version)
        if change.verb is WatchEventType.DELETED:
            assert not after["metadata"].get("finalizers")
            del replayed[change.key]
            return
        assert (before is None) is (change.verb is WatchEventType.ADDED)
        if before is not None:
            assert before["metadata"]["uid"] == after["metadata"]["uid"]
            old = before.get("status", {}).get("allocation")
            assert old is None or after.get("status", {}).get("allocation") in (None, old)
        replayed[change.key] = after

    store.subscribe(note)
    held: dict[str, Json] = {}
    for number, (write, name) in enumerate(writes):
        before = store.version
        try:
            _attempt(store, write, name, number, held)
        except ClusterError:
            assert store.version == before
    assert versions == sorted(set(versions))
    assert {key: store.get(key) for key in replayed} == replayed
    assert len(store.all(StoredKind.CLAIM)) == len(replayed)
    for thing in replayed.values():
        reserved = thing.get("status", {}).get("reservedFor") or []
        assert not reserved or thing["status"].get("allocation")
        assert len({each["uid"] for each in reserved}) == len(reserved)
