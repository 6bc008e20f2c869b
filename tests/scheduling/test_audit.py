from app.model.node import Node
from app.model.pod import Pod, pod_from
from app.model.resource_claim import FINALIZER, ResourceClaim, claim_from
from app.model.resource_slice import ResourceSlice, SliceReader
from app.scheduling.audit import audit

POD = pod_from(
    {
        "metadata": {"name": "p", "namespace": "default", "uid": "p"},
        "spec": {"nodeName": "n0", "resourceClaims": [{"name": "gpu", "resourceClaimName": "c0"}]},
    }
)
NODE = Node(name="n0")


def claim(name: str, *devices: str, consumer: str = "p", finalizer: bool = True, node: str = "n0") -> ResourceClaim:
    results = [{"request": "r", "driver": "d", "pool": "p", "device": each} for each in devices]
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return claim_from(
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": name,
                "finalizers": [FINALIZER] if finalizer else [],
            },
            "status": {
                "allocation": {
                    "devices": {"results": results},
                    "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
                },
                "reservedFor": [{"resource": "pods", "name": consumer, "uid": consumer}] if consumer else [],
            },
        }
    )


def published(*groups: tuple[str, ...], units: str = "4") -> list[ResourceSlice]:
    devices = [
        {
            "name": f"g{index}",
            "consumesCounters": [
                {"counterSet": "s", "counters": {"units": {"value": "2"}}, "compatibilityGroups": list(found)}
            ],
        }
        for index, found in enumerate(groups)
    ]
    spec = {
        "driver": "d",
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "n0",
        "devices": devices,
        "sharedCounters": [{"name": "s", "counters": {"units": {"value": units}}}],
    }
    return [SliceReader().convert({"metadata": {"name": "s"}, "spec": spec})]


def rules(claims: list[ResourceClaim], slices: list[ResourceSlice], pods: list[Pod]) -> list[str]:
    return [each.rule for each in audit(claims, slices, pods, [NODE])]


def test_a_sound_cluster_has_no_findings() -> None:
    assert rules([claim("c0", "g0", "g1")], published(("a",), ("a", "b")), [POD]) == []


def test_each_rule_is_noticed_when_broken() -> None:
    good = published((), ())
    assert rules([claim("c0", "g0"), claim("c1", "g0")], good, [POD]) == ["device in two claims"]
    assert rules([claim("c0", "g0", "g1")], published((), (), units="3"), [POD]) == ["counter overdrawn"]
    assert rules([claim("c0", "g0", "g1")], published(("a",), ("b",)), [POD]) == ["compatibility groups in conflict"]
    assert rules([claim("c0", "g0", "g1")], published(("a",), ()), [POD]) == ["compatibility groups in conflict"]
    assert rules([claim("c0", "g0", finalizer=False)], good, [POD]) == ["allocation without finalizer"]
    assert rules([claim("c1", "g0", consumer=""), claim("c0", "g1")], good, [POD]) == ["allocation without consumer"]
    assert rules([claim("c1", "g0", consumer="x"), claim("c0", "g1")], good, [POD]) == ["reservation of nobody"]


def test_a_bound_pod_needs_its_claims() -> None:
    rule = ["bound pod without its devices"]
    good = published((), ())
    assert rules([], good, [POD]) == rule
    assert rules([claim_from({"metadata": {"name": "c0", "namespace": "default"}})], good, [POD]) == rule
    assert rules([claim("c0", "g0", node="n1")], good, [POD]) == rule
    other = pod_from({"metadata": {"name": "q", "namespace": "default", "uid": "q"}, "spec": {"nodeName": "n0"}})
    assert rules([claim("c0", "g0", consumer="q")], good, [POD, other]) == rule


def test_pairwise_overlap_of_groups_is_not_enough() -> None:
    held = [claim("c0", "g0", "g1", "g2")]

    assert rules(held, published(("a", "b"), ("b", "c"), ("a", "c"), units="9"), [POD]) == [
        "compatibility groups in conflict"
    ]
