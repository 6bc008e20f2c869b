"""However objects change what they are known by, the ledger is what one built from the final objects is, and nothing raises."""

from collections import Counter
from typing import Any

from dra_extender.kube.reflector import EventDispatcher, read_meta
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.sinks import sinks_of
from dra_extender.model.resource_claim import EXTENDED_ANNOTATION
from dra_extender.model.templated_claim import ENTRY_ANNOTATION
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.kube.recording import CountingObserver
from tests.support.ledger.ledger_events import encode, holdings_by_device

DRIVER = "gpu.example.com"
NAMES = ("a", "b")
UIDS = ("1", "2", "3")
NODES = ("n1", "n2")
Object = dict[str, Any]

names, uids, nodes = st.sampled_from(NAMES), st.sampled_from(UIDS), st.sampled_from(NODES)
labels = st.dictionaries(st.sampled_from(("zone", "size")), st.sampled_from(("x", "y")), max_size=2)


def owner(uid: str, *, group: bool, controls: bool) -> Object:
    version, kind = ("scheduling.k8s.io/v1alpha2", "PodGroup") if group else ("v1", "Pod")
    return {"apiVersion": version, "kind": kind, "name": "a", "uid": uid, "controller": controls}


owners = st.lists(
    st.builds(owner, uids, group=st.booleans(), controls=st.booleans()), max_size=2, unique_by=lambda each: each["uid"]
)
annotations = st.dictionaries(
    st.sampled_from((EXTENDED_ANNOTATION, ENTRY_ANNOTATION)), st.sampled_from(("true", "gpu", "")), max_size=2
)
consumers = st.lists(st.builds(lambda uid: {"resource": "pods", "name": uid, "uid": uid}, uids), max_size=3)
results = st.lists(
    st.builds(
        lambda pool, device: {"request": "r", "driver": DRIVER, "pool": pool, "device": device},
        st.sampled_from(("p", "q")),
        st.sampled_from(("d", "e")),
    ),
    max_size=3,
)
selectors = st.builds(
    lambda key, value: {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}]
    },
    st.sampled_from(("zone", "size", "not a label!")),
    st.sampled_from(("x", "y")),
)
places = st.one_of(
    nodes.map(lambda name: {"nodeName": name}),
    st.just({"allNodes": True}),
    selectors.map(lambda each: {"nodeSelector": each}),
)

SPECS: dict[str, st.SearchStrategy[Object]] = {
    "nodes": st.builds(lambda given: {"metadata": {"labels": given}}, labels),
    "deviceclasses": st.builds(
        lambda name: {"spec": {"extendedResourceName": name} if name else {}},
        st.sampled_from(("", "x.example/gpu", "deviceclass.resource.kubernetes.io/a")),
    ),
    "devicetaintrules": st.builds(
        lambda pool, effect: {
            "spec": {
                "deviceSelector": {"driver": DRIVER, "pool": pool},
                "taint": {"key": "k", "effect": effect},
            }
        },
        st.sampled_from(("p", "q")),
        st.sampled_from(("NoSchedule", "NoExecute")),
    ),
    "resourceslices": st.builds(
        lambda pool, generation, place: {
            "spec": {
                "driver": DRIVER,
                "pool": {"name": pool, "generation": generation, "resourceSliceCount": 1},
                "devices": [{"name": "d"}],
                **place,
            }
        },
        st.sampled_from(("p", "q")),
        st.integers(0, 2),
        places,
    ),
    "resourceclaims": st.builds(
        lambda notes, owned, found, users: {
            "metadata": {"annotations": notes, "ownerReferences": owned},
            "status": {"reservedFor": users}
            | ({"allocation": {"devices": {"results": found}}} if found is not None else {}),
        },
        annotations,
        owners,
        st.none() | results,
        consumers,
    ),
    "podgroups": st.builds(
        lambda count: {"spec": {"schedulingPolicy": {"gang": {"minCount": count}}}}, st.integers(1, 3)
    ),
    "pods": st.builds(
        lambda group, node, nominated, phase: {
            "spec": {"nodeName": node} | ({"schedulingGroup": {"podGroupName": group}} if group else {}),
            "status": {"phase": phase, "nominatedNodeName": nominated},
        },
        st.sampled_from(("", *NAMES)),
        st.sampled_from(("", *NODES)),
        st.sampled_from(("", *NODES)),
        st.sampled_from(("Pending", "Running", "Failed")),
    ),
}
CLUSTERED = ("nodes", "deviceclasses", "devicetaintrules", "resourceslices")
events = st.lists(
    st.sampled_from(tuple(SPECS)).flatmap(
        lambda kind: st.tuples(
            st.just(kind), st.sampled_from(NODES) if kind == "nodes" else names, uids, st.none() | SPECS[kind]
        )
    ),
    max_size=30,
)
Event = tuple[str, str, str, Object | None]

FOR_POD: Object = {
    "metadata": {
        "annotations": {EXTENDED_ANNOTATION: "true"},
        "ownerReferences": [owner("1", group=False, controls=True)],
    }
}


class Fed:
    """A ledger behind the deliveries that reflectors use."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.observer = CountingObserver()
        self.deliveries = {
            kind: EventDispatcher(kind, feed, self.observer) for kind, feed in sinks_of(self.ledger).items()
        }

    def bring(self, kind: str, raw: Object) -> None:
        data = encode(raw)
        self.deliveries[kind].deliver(read_meta(data), data)

    def remove(self, kind: str, raw: Object) -> None:
        self.deliveries[kind].removed(read_meta(encode(raw)))


def state(ledger: Ledger) -> dict[str, Any]:
    """Everything that is looked up by some key, in comparable form."""
    claims, pods, slices = ledger.claims, ledger.pods, ledger.slices

    def uids_of(found: Any) -> list[str]:
        return sorted(each.claim.metadata.uid for each in found)

    return {
        "nodes": ledger.nodes,
        "classes": ledger.classes,
        "backing": ledger.backing,
        "claims": {record.claim.metadata.uid: record.claim for record in claims.records()},
        "by key": {name: (found := claims.by_key("ns", name)) and found.claim for name in NAMES},
        "consumers": {uid: uids_of(claims.of_consumer(uid)) for uid in UIDS},
        "for extended": {uid: uids_of(claims.for_extended_resources("ns", uid)) for uid in UIDS},
        "made for": {
            (uid, entry): uids_of(claims.made_for("ns", uid, entry)) for uid in UIDS for entry in ("true", "gpu")
        },
        "pods": {pod.uid: pod for pod in pods.all()},
        "pods by key": {name: pods.by_key("ns", name) for name in NAMES},
        "members": {name: [pod.uid for pod in pods.members("ns", name)] for name in NAMES},
        "runs": {name: pods.has_running_member("ns", name) for name in NAMES},
        "groups": {name: ledger.pod_groups.get("ns", name) for name in NAMES},
        "slices": dict(slices.by_name),
        "local": {name: slices.local(name) for name in NODES},
        "near": {name: list(slices.near(node)) for name, node in ledger.nodes.items()},
        "usage": holdings_by_device(claims.usage),
        "pools": {pool: (slices.of_pool((DRIVER, pool)), slices.nodes_of((DRIVER, pool))) for pool in ("p", "q")},
    }


@given(events)
@example(
    [
        ("resourceclaims", "a", "1", FOR_POD),
        ("resourceclaims", "a", "1", {}),
        ("resourceclaims", "a", "1", None),
        ("resourceclaims", "a", "1", FOR_POD),
    ]
)
@examples(150)
def test_any_changes_end_in_what_the_final_objects_say(sequence: list[Event]) -> None:
    fed, objects = Fed(), dict[tuple[str, str], Object]()
    for version, (kind, name, uid, content) in enumerate(sequence, 1):
        if content is None:
            gone = objects.pop((kind, name), None)
            if gone is not None:
                fed.remove(kind, gone)
            continue
        meta = {"name": name, "uid": f"{kind}-{uid}", "resourceVersion": str(version)}
        if kind not in CLUSTERED:
            meta["namespace"] = "ns"
        # No two objects have one UID at the same time.
        if any(each["metadata"]["uid"] == meta["uid"] and key != (kind, name) for key, each in objects.items()):
            continue
        objects[kind, name] = raw = {**content, "metadata": {**content.get("metadata", {}), **meta}}
        fed.bring(kind, raw)

    fresh = Fed()
    for kind in fresh.deliveries:
        for (found, _), raw in objects.items():
            if found == kind:
                fresh.bring(kind, raw)
    assert state(fed.ledger) == state(fresh.ledger)
    assert fed.observer.of("unreadable") == []
    taken = Counter(holding for record in fed.ledger.claims.counted() for holding in record.counted)
    assert taken == sum(
        (each for pool in holdings_by_device(fed.ledger.claims.usage).values() for each in pool.values()), Counter()
    )


def test_a_claim_of_another_namespace_is_for_no_pod_or_group_here() -> None:
    """A claim names its owner by UID, and its author may name the pods and groups of others."""
    fed = Fed()
    for version, namespace in enumerate(("ns", "other"), 1):
        meta = {"name": "a", "namespace": namespace, "uid": namespace, "resourceVersion": str(version)}
        marks = {EXTENDED_ANNOTATION: "true", ENTRY_ANNOTATION: "gpu"}
        owners = [owner("1", group=False, controls=True)]
        fed.bring("resourceclaims", {"metadata": {**meta, "annotations": marks, "ownerReferences": owners}})
    claims = fed.ledger.claims
    for namespace in ("ns", "other"):
        (extended,), (made,) = claims.for_extended_resources(namespace, "1"), claims.made_for(namespace, "1", "gpu")
        assert extended.claim.metadata.key == made.claim.metadata.key == (namespace, "a")
    assert claims.for_extended_resources("third", "1") == claims.made_for("third", "1", "gpu") == ()
