"""After any events, exactly those devices of deleted claims are counted that pods still run on."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dra_extender.ledger.claim_record import Orphan
from dra_extender.ledger.events import ClaimOrphaned
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.sinks import sinks_of
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.ledger.ledger_events import encode, holdings_by_device, raw_node, raw_slice

DRIVER = "gpu.example.com"
CLAIMS, PODS, DEVICES = ("c1", "c2"), ("a", "b", "g1", "g2"), ("s-0", "s-1", "s-2")
GROUP = "team"


@dataclass
class Gone:
    """A deleted claim of the oracle: its devices, and the pods that run on them."""

    key: str
    devices: tuple[str, ...]
    pods: set[str]


@dataclass
class Oracle:
    """Everything from scratch: live claims as (devices, consumers, nodes), pods as (node, phase), and deleted claims in use."""

    claims: dict[str, tuple[str, tuple[str, ...], tuple[str, ...], str]] = field(default_factory=dict)
    pods: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    gone: list[Gone] = field(default_factory=list)

    def runs(self, name: str, consumers: tuple[str, ...], node: str, claim: str) -> bool:
        uid, at, phase = self.pods[name]
        reserved = uid in consumers or (name.startswith("g") and "group" in consumers)
        named = uid in consumers or names_of(name) == claim
        return reserved and named and at == node and phase not in ("Succeeded", "Failed")

    def delete_claim(self, name: str) -> None:
        _, devices, consumers, node = self.claims.pop(name)
        pods = {self.pods[pod][0] for pod in self.pods if self.runs(pod, consumers, node, name)}
        pods -= {uid for each in self.gone if each.key == name for uid in each.pods}
        if pods and devices:
            self.gone.append(Gone(name, devices, pods))

    def leave(self, uid: str) -> None:
        for each in self.gone:
            each.pods.discard(uid)
        self.gone = [each for each in self.gone if each.pods]

    def used(self) -> Counter[str]:
        live = (device for _, devices, _, _ in self.claims.values() for device in devices)
        kept = (device for each in self.gone for device in each.devices)
        return Counter([*live, *kept])


def names_of(pod: str) -> str:
    """The claim that a pod names: members of the group the first, the others the second."""
    return "c1" if pod.startswith("g") else "c2"


def raw_claim(
    name: str, uid: str, version: int, devices: tuple[str, ...], consumers: tuple[str, ...], node: str
) -> dict[str, Any]:
    results = [{"request": "r", "driver": DRIVER, "pool": "p1", "device": each} for each in devices]
    selector = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]}
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": GROUP, "uid": "group"}
    reserved = [group if each == "group" else {"resource": "pods", "name": each, "uid": each} for each in consumers]
    status = {"allocation": {"devices": {"results": results}, "nodeSelector": selector}, "reservedFor": reserved}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": uid, "resourceVersion": str(version)},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
        "status": status if devices else {},
    }


def raw_pod(name: str, uid: str, version: int, node: str, phase: str) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "nodeName": node,
        "resourceClaims": [{"name": "gpu", "resourceClaimName": names_of(name)}],
    }
    if name.startswith("g"):
        spec["schedulingGroup"] = {"podGroupName": GROUP}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": uid, "resourceVersion": str(version)},
        "spec": spec,
        "status": {"phase": phase},
    }


nodes = st.sampled_from(("n1", "n2"))
events = st.lists(
    st.one_of(
        st.tuples(
            st.just("claim"),
            st.sampled_from(CLAIMS),
            st.integers(0, 1),
            st.lists(st.sampled_from(DEVICES), max_size=2, unique=True).map(tuple),
            st.lists(st.sampled_from(("a-0", "b-0", "b-1", "group")), unique=True, max_size=3).map(tuple),
            nodes,
        ),
        st.tuples(
            st.just("pod"),
            st.sampled_from(PODS),
            st.integers(0, 1),
            st.sampled_from(("", "n1", "n1", "n2")),
            st.sampled_from(("Pending", "Running", "Running", "Succeeded", "Failed")),
        ),
        st.tuples(st.just("no claim"), st.sampled_from(CLAIMS)),
        st.tuples(st.just("no pod"), st.sampled_from(PODS)),
    ),
    max_size=40,
)


class Fed:
    """A ledger and the oracle, fed with the same events."""

    def __init__(self) -> None:
        self.ledger, self.oracle = Ledger(), Oracle()
        for node in ("n1", "n2"):
            sinks_of(self.ledger)["nodes"].changed(encode(raw_node(node, 1)))
        sinks_of(self.ledger)["resourceslices"].changed(encode(raw_slice("s", 1, pool="p1", node=None, devices=3)))
        self.seen = set[str]()

    def apply(self, event: tuple[Any, ...], version: int) -> None:
        do: Callable[..., None] = getattr(self, "_" + event[0].replace(" ", "_"))
        do(*event[1:], version)

    def _claim(
        self, name: str, life: int, devices: tuple[str, ...], consumers: tuple[str, ...], node: str, version: int
    ) -> None:
        uid = f"claim-{name}-{life}"
        known = self.oracle.claims.get(name)
        if uid in self.seen and (known is None or known[0] != uid):
            return
        self.seen.add(uid)
        if known is not None and known[0] != uid:
            self.oracle.delete_claim(name)
        self.oracle.claims[name] = (uid, devices, consumers if devices else (), node)
        sinks_of(self.ledger)["resourceclaims"].changed(encode(raw_claim(name, uid, version, devices, consumers, node)))

    def _pod(self, name: str, life: int, node: str, phase: str, version: int) -> None:
        uid = f"{name}-{life}"
        known = self.oracle.pods.get(name)
        if uid in self.seen and (known is None or known[0] != uid):
            return
        if known is not None and known[0] == uid:
            node = known[1] or node
            phase = known[2] if known[2] in ("Succeeded", "Failed") else phase
        self.seen.add(uid)
        if known is not None and known[0] != uid:
            self.oracle.leave(known[0])
        self.oracle.pods[name] = (uid, node, phase)
        if phase in ("Succeeded", "Failed"):
            self.oracle.leave(uid)
        sinks_of(self.ledger)["pods"].changed(encode(raw_pod(name, uid, version, node, phase)))

    def _no_claim(self, name: str, version: int) -> None:
        if name in self.oracle.claims:
            uid = self.oracle.claims[name][0]
            self.oracle.delete_claim(name)
            sinks_of(self.ledger)["resourceclaims"].deleted("default", name, uid)

    def _no_pod(self, name: str, version: int) -> None:
        if name in self.oracle.pods:
            uid = self.oracle.pods.pop(name)[0]
            self.oracle.leave(uid)
            sinks_of(self.ledger)["pods"].deleted("default", name, uid)

    def used(self) -> Counter[str]:
        pools = holdings_by_device(self.ledger.claims.usage)
        return Counter({device: sum(found.values()) for pool in pools.values() for device, found in pool.items()})


@given(events)
@examples(100)
def test_devices_of_deleted_claims_count_while_pods_run_on_them(sequence: list[tuple[Any, ...]]) -> None:
    fed = Fed()
    for version, event in enumerate(sequence, 1):
        before, state, progress = fed.used(), fed.ledger.state_versions.version("n1"), fed.ledger.changes.devices
        fed.apply(event, version)
        now = fed.used()
        assert now == fed.oracle.used()
        assert len(fed.ledger.claims.orphans) == len(fed.oracle.gone)
        if now != before:
            assert fed.ledger.state_versions.version("n1") > state
        if before - now:
            assert fed.ledger.changes.devices > progress
    for name in PODS:
        fed.apply(("no pod", name), len(sequence) + 1)
    assert len(fed.ledger.claims.orphans) == 0
    assert fed.used() == fed.oracle.used()


def test_claim_made_anew_under_the_old_name_adds_nothing_to_what_the_pod_uses() -> None:
    fed, found = Fed(), list[Orphan]()
    fed.ledger.events.subscribe(ClaimOrphaned, lambda event: found.append(event.orphan))
    fed.apply(("pod", "b", 0, "n1", "Running"), 1)
    for life, device in enumerate(("s-0", "s-1")):
        fed.apply(("claim", "c2", life, (device,), ("b-0",), "n1"), 2 + life)
        fed.apply(("no claim", "c2"), 3)
    assert fed.used() == Counter({"s-0": 1})
    assert [each.record.holdings[0].device for each in found] == ["s-0"]


def test_pod_whose_binding_is_on_its_way_uses_the_devices_until_the_binding_fails() -> None:
    fed = Fed()
    fed.apply(("pod", "b", 0, "", "Pending"), 1)
    pod = fed.ledger.pods.by_uid("b-0")
    assert pod is not None
    fed.ledger.pods.begin_binding(pod)
    fed.apply(("claim", "c2", 0, ("s-0",), ("b-0",), "n1"), 2)
    sinks_of(fed.ledger)["resourceclaims"].deleted("default", "c2", "claim-c2-0")
    assert fed.used() == Counter({"s-0": 1})
    fed.ledger.pods.binding_failed("b-0")
    fed.ledger.release_orphans("b-0")
    assert fed.used() == Counter()
