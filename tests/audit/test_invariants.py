import msgspec
from dra_extender.inspection.audit.findings import Invariant
from dra_extender.model.allocation import AllocationResult, DeviceAllocation, DeviceHolding, DeviceResult
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION, encode_snapshot
from dra_extender.model.device import CounterConsumption
from dra_extender.model.metadata import ObjectMeta, OwnerReference
from dra_extender.model.node import Node
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import PodGroup, group_consumer
from dra_extender.model.resource_claim import (
    EXTENDED_ANNOTATION,
    FINALIZER,
    ConsumerReference,
    ResourceClaim,
    claim_from,
)
from dra_extender.model.resource_slice import ResourceSlice, SliceReader

from tests.support.audit.raw_objects import audit
from tests.support.model.reading import pod_from

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


def test_consumers_are_pods_and_pod_groups_of_their_api_groups() -> None:
    held, rule = claim("c0", "g0"), "reservation that the controller-manager cannot read"
    for api_group, resource in (("batch", "jobs"), ("example.com", "pods"), ("", "podgroups")):
        consumer = ConsumerReference(api_group=api_group, resource=resource, name="p", uid="p")
        odd = msgspec.structs.replace(held, status=msgspec.structs.replace(held.status, reserved_for=(consumer,)))
        assert rules([odd], published(()), [POD]) == [rule]


def test_a_bound_pod_needs_its_claims() -> None:
    good = published((), ())
    assert rules([], good, [POD]) == [Invariant.KUBELET]
    assert rules([claim("c0", "g0", node="n1")], good, [POD]) == [Invariant.AWAY]
    other = pod_from({"metadata": {"name": "q", "namespace": "default", "uid": "q"}, "spec": {"nodeName": "n0"}})
    assert rules([claim("c0", "g0", consumer="q")], good, [POD, other]) == [Invariant.KUBELET]


def test_node_selector_that_cannot_be_read_is_a_finding() -> None:
    odd = claim("c0", "g0")
    allocation = odd.status.allocation
    assert allocation is not None
    broken = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "x", "operator": "Near", "values": ["y"]}]}]}
    raw = {**msgspec.to_builtins(allocation), "nodeSelector": broken}
    status = msgspec.structs.replace(odd.status, allocation=msgspec.convert(raw, AllocationResult))
    odd = msgspec.structs.replace(odd, status=status)
    assert rules([odd], published(()), [POD]) == [Invariant.AWAY]


def extended_pod(told: str = "", node: str = "n0") -> Pod:
    """A pod that asks for a GPU as an extended resource; its status names this claim."""
    container = {"name": "main", "resources": {"requests": {"example.com/gpu": "1"}}}
    return pod_from(
        {
            "metadata": {"name": "p", "namespace": "default", "uid": "p"},
            "spec": {"nodeName": node, "containers": [container]},
            "status": {"extendedResourceClaimStatus": {"resourceClaimName": told}} if told else {},
        }
    )


def special(name: str) -> ResourceClaim:
    """A claim that was made for extended resources of the pod."""
    owner = OwnerReference(api_version="v1", kind="Pod", name="p", uid="p", controller=True)
    found = claim(name, name)
    metadata = {"annotations": {EXTENDED_ANNOTATION: "true"}, "owner_references": (owner,)}
    return msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, **metadata))


def test_an_extended_resource_is_listed_by_the_node_or_the_pod_was_told_of_a_claim() -> None:
    listing = Node(name="n0", extended_resources=frozenset({"example.com/gpu"}))

    def found(pod: Pod, node: Node, *claims: ResourceClaim) -> list[str]:
        return [each.rule for each in audit(claims, published(()), [pod], [node])]

    assert found(extended_pod(), NODE) == [Invariant.AWAY]
    assert found(extended_pod(), listing) == []
    assert found(extended_pod("x0"), NODE) == [Invariant.KUBELET]
    assert found(extended_pod("x0"), NODE, special("x0")) == []


def test_a_pod_has_no_second_claim_for_extended_resources() -> None:
    both = [special("x0"), special("x1")]
    good = published((), ())
    assert rules(both, good, [extended_pod("x1")]) == [Invariant.UNUSED_EXTENDED_CLAIM]
    assert rules(both, good, [extended_pod(node="")]) == [Invariant.UNUSED_EXTENDED_CLAIM]
    assert rules([both[0]], good, [extended_pod(node="")]) == []
    assert rules([both[0]], good, []) == ["reservation of nobody", Invariant.UNUSED_EXTENDED_CLAIM]
    over = msgspec.structs.replace(extended_pod("x1"), phase="Succeeded")
    assert Invariant.UNUSED_EXTENDED_CLAIM not in rules(both, good, [over])


def test_pairwise_overlap_of_groups_is_not_enough() -> None:
    held = [claim("c0", "g0", "g1", "g2")]

    assert rules(held, published(("a", "b"), ("b", "c"), ("a", "c"), units="9"), [POD]) == [
        "compatibility groups in conflict"
    ]


def modes(*found: tuple[str, str | None]) -> list[ResourceSlice]:
    """Devices g0, g1, ... on one counter set, each with a mode and what it is compatible with."""
    consumption = [{"counterSet": "s", "counters": {"units": {"value": "1"}}}]
    devices = [
        {
            "name": f"g{index}",
            "attributes": {"mode": {"string": mode}},
            "consumesCounters": consumption,
            **({} if expression is None else {"compatibleOnlyWith": {"expression": expression}}),
        }
        for index, (mode, expression) in enumerate(found)
    ]
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    sets = [{"name": "s", "counters": {"units": {"value": "9"}}}]
    spec = {"driver": "d", "pool": pool, "nodeName": "n0", "devices": devices, "sharedCounters": sets}
    return [SliceReader().convert({"metadata": {"name": "s"}, "spec": spec})]


MPS_ONLY = 'device.attributes["d"].mode == "mps"'


def test_neighbours_have_to_be_compatible_in_both_directions() -> None:
    both = [claim("c0", "g0"), claim("c1", "g1")]
    rule = "neighbours not compatible"
    for slices in (modes(("mps", MPS_ONLY), ("mig", None)), modes(("mig", None), ("mps", MPS_ONLY))):
        (found,) = [each for each in audit(both, slices, [POD], [NODE]) if each.rule == rule]
        other = {"d/p/g0": "g1", "d/p/g1": "g0"}[found.about]
        assert found.detail == f"compatible only with {MPS_ONLY}, which is false for {other}"
    assert rule not in rules(both, modes(("mps", MPS_ONLY), ("mps", MPS_ONLY)), [POD])
    assert rule not in rules([claim("c0", "g0")], modes(("mig", MPS_ONLY), ("mig", None)), [POD])


def test_neighbour_that_nobody_publishes_or_that_cannot_be_judged_is_not_compatible() -> None:
    failing = modes(("mps", 'device.attributes["d"].missing == 1'), ("mps", None))
    (found,) = [each for each in audit([claim("c0", "g0", "g1")], failing, [], []) if "neighbours" in each.rule]
    assert found.about == "d/p/g0"
    assert "which cannot be evaluated (" in found.detail


def test_expression_counts_as_it_was_frozen_and_for_neighbours_that_are_gone() -> None:
    """The device lost its expression, and its neighbour its slice; the snapshot keeps both."""
    results = [DeviceResult(request="r", driver="d", pool="p", device=each) for each in ("g0", "gone")]
    allocation = AllocationResult(devices=DeviceAllocation(results=tuple(results)))
    entry = CounterConsumption(counter_set="s")
    taken = tuple(
        DeviceHolding(driver="d", pool="p", device=each, consumption=(entry,), compatible_only_with=expression)
        for each, expression in (("g0", MPS_ONLY), ("gone", None))
    )
    annotations = {SNAPSHOT_ANNOTATION: encode_snapshot(allocation, taken)}
    frozen = claim_from(
        {
            "metadata": {"name": "c0", "annotations": annotations},
            "status": {"allocation": msgspec.to_builtins(allocation)},
        }
    )
    (found,) = [each for each in audit([frozen], modes(("mps", None)), [], []) if "neighbours" in each.rule]
    assert (found.about, found.detail) == ("d/p/g0", f"compatible only with {MPS_ONLY}, but no slice publishes gone")


def test_claim_whose_amounts_cannot_be_read_is_a_finding_and_hides_no_other() -> None:
    result = {"request": "r", "driver": "d", "pool": "p", "device": "g0", "consumedCapacity": {"m": "much"}}
    odd = claim_from(
        {"metadata": {"name": "odd"}, "status": {"allocation": {"devices": {"results": [{**result, "shareID": "x"}]}}}}
    )
    found = audit([odd, claim("c0", "g0"), claim("c1", "g0")], published(()), [POD], [NODE])
    assert [each.rule for each in found][:2] == ["allocation that cannot be read", "device in two claims"]
    assert "cannot read quantity 'much'" in found[0].detail


def test_a_share_belongs_to_one_claim() -> None:
    def sharing(name: str, share: str) -> ResourceClaim:
        held = claim(name, "g0")
        (result,) = held.status.allocation.devices.results if held.status.allocation else ()
        shared = msgspec.structs.replace(result, share_id=share)
        allocation = AllocationResult(devices=DeviceAllocation(results=(shared,)))
        return msgspec.structs.replace(held, status=msgspec.structs.replace(held.status, allocation=allocation))

    def about_shares(first: str, second: str) -> list[str]:
        found = rules([sharing("c0", first), sharing("c1", second)], published(()), [POD])
        return [each for each in found if "two claims" in each]

    assert about_shares("one", "two") == []
    assert about_shares("one", "one") == ["share in two claims"]


def test_a_claim_of_a_pod_group_is_reserved_for_a_group_that_exists_and_serves_its_members() -> None:
    held = claim("c0", "g0")
    consumer = group_consumer("gang", "g")
    held = msgspec.structs.replace(held, status=msgspec.structs.replace(held.status, reserved_for=(consumer,)))
    member = msgspec.structs.replace(POD, pod_group="gang")
    group = PodGroup(metadata=ObjectMeta(name="gang", namespace="default", uid="g"))

    def found(pod: Pod, groups: list[PodGroup] | None) -> list[str]:
        return [each.rule for each in audit([held], published(()), [pod], [NODE], groups)]

    assert found(member, [group]) == []
    assert found(member, None) == []
    assert found(member, []) == ["reservation of nobody"]
    assert found(POD, [group]) == [Invariant.KUBELET]
