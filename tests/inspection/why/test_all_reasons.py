"""All that stands in the way of a pod: pods that wait for several reasons at once, or for a name that is misspelt."""

from typing import Any, Final

import pytest
from dra_extender.inspection.text.why import tree
from dra_extender.inspection.why.why import why

from tests.controlplane.objects import (
    consumption,
    counter_set,
    device,
    device_class,
    pod,
    pod_group,
    request,
    resource_claim,
    resource_claim_template,
    resource_slice,
    taint_rule,
)
from tests.support.inspection.made_cluster import CREATED, NAMESPACE, Cases, MadeCluster

GPU: Final = "gpu.example.com"
HEAD: Final = "ml/train  Pending 12m, dra-extender-scheduler, "
ZONE: Final = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]}]}
case: Final = Cases()
"""The answer about the pod `train` of the cluster that the function builds, after HEAD and before what would help."""


@pytest.mark.parametrize("name", case.by_name)
def test_answer_names_all_that_stands_in_the_way(name: str) -> None:
    build, expected = case.by_name[name]
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu"))
    build(made)
    reasons, _, _ = tree(why(made.view(), NAMESPACE, "train")).removeprefix(HEAD).partition("  next")
    assert reasons == expected


def test_answer_tells_of_few_taints_of_many_rules_and_of_each_once() -> None:
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu"))
    made.gpus("n1", device("gpu-0"))
    for name, key in enumerate("aabcde"):
        taint = {"key": f"example.com/{key}", "effect": "NoSchedule", "timeAdded": CREATED}
        rule = {"metadata": {"name": f"{name}"}, "spec": {"deviceSelector": {}, "taint": taint}}
        made.add({"kind": "DeviceTaintRule", **rule})
    made.pod("train", request("r", "gpu"))
    (branch,) = why(made.view(), NAMESPACE, "train").branches
    assert branch.reasons[0].further == (
        "example.com/a:NoSchedule is set by DeviceTaintRule 0, 1",
        "example.com/b:NoSchedule is set by DeviceTaintRule 2",
        "example.com/c:NoSchedule is set by DeviceTaintRule 3",
    )


def model(name: str) -> str:
    return f'device.attributes["{GPU}"].model == "{name}"'


def memory(amount: str) -> str:
    return f'device.capacity["{GPU}"].memory.compareTo(quantity("{amount}")) >= 0'


def alternative(name: str, device_class: str, *expressions: str, count: int = 1) -> dict[str, Any]:
    exactly = request(name, device_class, *expressions, count=count, allocationMode="ExactCount")["exactly"]
    return {"name": name, **exactly}


def first_available(made: MadeCluster, *alternatives: dict[str, Any]) -> None:
    made.pod("train", request("r", "gpu"))
    requests = [{"name": "r", "firstAvailable": list(alternatives)}]
    made.objects["resourceclaims"][-1]["spec"]["devices"]["requests"] = requests


def two_claims(made: MadeCluster, first: dict[str, Any], second: dict[str, Any]) -> None:
    made.add(resource_claim("first", NAMESPACE, first), resource_claim("second", NAMESPACE, second))
    made.add(pod("train", NAMESPACE, claims={"a": "first", "b": "second"}))


def asks_beyond(made: MadeCluster, policy: dict[str, Any]) -> None:
    """A request for 20Gi of a device with this request policy."""
    shared = device("gpu-0", allowMultipleAllocations=True)
    made.gpus("n1", {**shared, "capacity": {"memory": {"value": "40Gi", "requestPolicy": policy}}})
    made.pod("train", request("r", "gpu", capacity={"requests": {"memory": "20Gi"}}))


def beside_30_of_40(made: MadeCluster, wanted: dict[str, Any]) -> None:
    """A device of 40Gi in steps of 10Gi, by default 20Gi, of which pod `old` has 30Gi."""
    policy = {"default": "20Gi", "validRange": {"min": "10Gi", "step": "10Gi"}}
    shared = device("gpu-0", allowMultipleAllocations=True)
    made.gpus("n1", {**shared, "capacity": {"memory": {"value": "40Gi", "requestPolicy": policy}}})
    made.running("old", "n1", "gpu-0", request("r", "gpu"))
    (result,) = made.objects["resourceclaims"][-1]["status"]["allocation"]["devices"]["results"]
    result.update(shareID="a671734a-e8e5-11e4-8fde-42010af09327", consumedCapacity={"memory": "30Gi"})
    made.pod("train", request("r", "gpu", **wanted))


def why_fully_reserved(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    made.running("old", "n1", "gpu-0", request("r", "gpu"))
    consumers = [{"resource": "pods", "name": f"p{number}", "uid": f"u{number}"} for number in range(256)]
    made.objects["resourceclaims"][-1]["status"]["reservedFor"] = consumers
    made.add(pod("train", NAMESPACE, claims={"gpu": "claim-old"}))


@case(
    "fits 0 of 1 nodes\n"
    "└ claim gpu, request r/a (1 x gpu)\n"
    "  1 node  no device matches the selectors; nearest n1/gpu-0\n"
    '          model is "C", wanted "A" (request selector 1)\n'
    "└ claim gpu, request r/b (1 x gpu)\n"
    "  1 node  no device matches the selectors; nearest n1/gpu-0\n"
    "          memory is 40Gi, wanted at least 80Gi (request selector 1)\n"
)
def alternatives_with_selectors_that_are_false(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0", attributes={"model": "C"}, capacity={"memory": "40Gi"}))
    first_available(made, alternative("a", "gpu", model("A")), alternative("b", "gpu", memory("80Gi")))


@case(
    "fits 0 of 1 nodes\n"
    "└ claim gpu, request r/a (1 x gpu)\n"
    "  1 node  matching devices are tainted; nearest n1/gpu-1\n"
    "          gpu-1 has taint example.com/x:NoSchedule\n"
    "└ claim gpu, request r/b (1 x gpu)\n"
    "  1 node  matching devices are in use; nearest n1/gpu-0\n"
    "          held by ml/old\n"
    "└ claim gpu, request r/c (4 x gpu)\n"
    "  1 node  matching devices are tainted; nearest n1/gpu-1\n"
    "          gpu-1 has taint example.com/x:NoSchedule\n"
    "          also matching devices are in use: gpu-0\n"
)
def alternatives_that_are_tainted_and_held(made: MadeCluster) -> None:
    made.gpus(
        "n1",
        device("gpu-0", attributes={"model": "A"}),
        device("gpu-1", attributes={"model": "B"}, taints=[{"key": "example.com/x", "effect": "NoSchedule"}]),
    )
    made.running("old", "n1", "gpu-0", request("r", "gpu"))
    first_available(
        made, alternative("a", "gpu", model("B")), alternative("b", "gpu", model("A")), alternative("c", "gpu", count=4)
    )


@case(
    "fits 0 of 1 nodes\n"
    "└ claim gpu, request r/a\n"
    "  1 node  device class does not exist: device class gup; nearest name gpu\n"
    "  1 node  once the name is right: matching devices are in use; nearest n1/gpu-0\n"
    "          held by ml/old\n"
    "└ claim gpu, request r/b (1 x gpu)\n"
    "  1 node  matching devices are in use; nearest n1/gpu-0\n"
    "          held by ml/old\n"
)
def alternative_whose_class_is_missing(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0", attributes={"model": "A"}))
    made.running("old", "n1", "gpu-0", request("r", "gpu"))
    first_available(made, alternative("a", "gup"), alternative("b", "gpu", model("A")))


@case(
    "fits 0 of 1 nodes\n"
    "└ claim gpu, request r (1 x gpu)\n"
    "  1 node  compatibility groups in conflict; nearest n1/vgpu-0 [vgpu]\n"
    "          gpu-0 is in [mig]: claim claim-a, pod ml/a\n"
    "          also link bw: needs 8, 2 of 10 left\n"
    "          held by ml/b 8\n"
)
def groups_beside_counters_of_another_set(made: MadeCluster) -> None:
    made.partitions(
        "n1",
        [counter_set("gpu-0", sm="98"), counter_set("link", bw="10")],
        [
            device("mig-0", attributes={"model": "mig"}, consumes=[consumption("gpu-0", groups=["mig"], sm="42")]),
            device("nv-0", attributes={"model": "nv"}, consumes=[consumption("link", bw="8")]),
            device(
                "vgpu-0",
                attributes={"model": "vgpu"},
                consumes=[consumption("gpu-0", groups=["vgpu"], sm="48"), consumption("link", bw="8")],
            ),
        ],
    )
    made.running("a", "n1", "mig-0", request("r", "gpu"))
    made.running("b", "n1", "nv-0", request("r", "gpu"))
    made.pod("train", request("r", "gpu", model("vgpu")))


@case(
    "fits 0 of 1 nodes\n"
    "└ claim gpu, request r (1 x large)\n"
    "  1 node  no device matches the selectors; nearest n1/gpu-0\n"
    "          memory is 40Gi, wanted at least 80Gi (class selector 2)\n"
    '          model is "B", wanted "A" (request selector 1)\n'
)
def selectors_of_class_and_request(made: MadeCluster) -> None:
    made.objects["deviceclasses"].clear()
    made.add(device_class("large", f'device.driver == "{GPU}"', memory("80Gi")))
    made.gpus("n1", device("gpu-0", attributes={"model": "B"}, capacity={"memory": "40Gi"}))
    made.pod("train", request("r", "large", model("A")))


@case(
    "fits 0 of 1 nodes\n"
    "└ claim b, request r (1 x gpu)\n"
    "  1 node  no combination of devices fits\n"
    "          gpu-0 taken for claim a, request r\n"
)
def claims_for_one_device(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    two_claims(made, request("r", "gpu"), request("r", "gpu"))


@case(
    "fits 0 of 1 nodes\n"
    "└ claim b, request r (1 x gpu)\n"
    "  1 node  no combination of devices fits\n"
    "          gpu-0, gpu-1 taken for claim a, request r\n"
)
def claim_for_all_devices_beside_another(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"), device("gpu-1"))
    two_claims(made, request("r", "gpu", count=2), request("r", "gpu"))


@case(
    "fits 0 of 1 nodes\n"
    "└ claim b, request r (1 x gpu)\n"
    "  1 node  matching devices are in use; nearest n1/gpu-0\n"
    "          held by ml/old\n"
    "          also gpu-1, gpu-2 taken for claim a, request r\n"
)
def claims_for_two_devices_beside_a_held_one(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"), device("gpu-1"), device("gpu-2"))
    made.running("old", "n1", "gpu-0", request("r", "gpu"))
    two_claims(made, request("r", "gpu", count=2), request("r", "gpu"))


@case(
    "fits 0 of 1 nodes\n"
    "└ claim b, request r (1 x gpu)\n"
    "  1 node  shared counters are exhausted; nearest n1/mig-1\n"
    "          mig-1 needs 60 of sm in counter set gpu-0, 38 remain beside what claim\n"
    "          a, request r takes\n"
    "          also mig-0 taken for claim a, request r\n"
)
def claims_for_one_counter_set(made: MadeCluster) -> None:
    made.partitions(
        "n1",
        [counter_set("gpu-0", sm="98")],
        [device(f"mig-{i}", consumes=[consumption("gpu-0", sm="60")]) for i in range(2)],
    )
    two_claims(made, request("r", "gpu"), request("r", "gpu"))


@case(
    "fits 0 of 1 nodes\n"
    "└ claim b, request r (1 x gpu)\n"
    "  1 node  compatibility groups in conflict; nearest n1/vgpu-0\n"
    "          vgpu-0 declares [vgpu] on counter set gpu-0; mig-0 (for claim a,\n"
    "          request r) has [mig]\n"
)
def claims_of_different_groups(made: MadeCluster) -> None:
    made.partitions(
        "n1",
        [counter_set("gpu-0", sm="98")],
        [
            device("mig-0", attributes={"model": "mig"}, consumes=[consumption("gpu-0", groups=["mig"], sm="42")]),
            device("vgpu-0", attributes={"model": "vgpu"}, consumes=[consumption("gpu-0", groups=["vgpu"], sm="48")]),
        ],
    )
    two_claims(made, request("r", "gpu", model("mig")), request("r", "gpu", model("vgpu")))


@case(
    "fits 0 of 1 nodes\n"
    "└ claim b, request r (1 x gpu)\n"
    "  1 node  capacity does not suffice; nearest n1/gpu-0\n"
    "          gpu-0 has 6Gi of memory left beside what claim a, request r takes,\n"
    "          10Gi would be needed\n"
)
def claims_for_one_capacity(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0", capacity={"memory": "16Gi"}, allowMultipleAllocations=True))
    amount = {"requests": {"memory": "10Gi"}}
    two_claims(made, request("r", "gpu", capacity=amount), request("r", "gpu", capacity=amount))


@case(
    "fits 0 of 1 nodes\n"
    "└ claim gpu, request r (1 x gpu)\n"
    "  1 node  capacity does not suffice; nearest n1/gpu-0\n"
    "          gpu-0 does not give 20Gi of memory: its request policy allows 2Gi to\n"
    "          16Gi in steps of 2Gi\n"
)
def amount_beyond_the_range(made: MadeCluster) -> None:
    asks_beyond(made, {"default": "4Gi", "validRange": {"min": "2Gi", "max": "16Gi", "step": "2Gi"}})


@case(
    "fits 0 of 1 nodes\n"
    "└ claim gpu, request r (1 x gpu)\n"
    "  1 node  capacity does not suffice; nearest n1/gpu-0\n"
    "          gpu-0 does not give 20Gi of memory: its request policy allows 4Gi,\n"
    "          8Gi, 16Gi\n"
)
def amount_beyond_the_values(made: MadeCluster) -> None:
    asks_beyond(made, {"default": "4Gi", "validValues": ["4Gi", "8Gi", "16Gi"]})


@case(
    "fits 0 of 1 nodes\n"
    "└ claim gpu, request r (1 x gpu)\n"
    "  1 node  capacity does not suffice; nearest n1/gpu-0\n"
    "          memory: needs 20Gi, 10Gi of 40Gi left\n"
    "          held by ml/old 30Gi\n"
    "          the request asks for 11Gi, which the request policy of the device\n"
    "          rounds up\n"
)
def amount_that_is_rounded_up(made: MadeCluster) -> None:
    beside_30_of_40(made, {"capacity": {"requests": {"memory": "11Gi"}}})


@case(
    "fits 0 of 1 nodes\n"
    "└ claim gpu, request r (1 x gpu)\n"
    "  1 node  capacity does not suffice; nearest n1/gpu-0\n"
    "          memory: needs 20Gi, 10Gi of 40Gi left\n"
    "          held by ml/old 30Gi\n"
    "          the request names no amount of memory: the default of the device\n"
    "          counts\n"
)
def amount_that_is_not_named(made: MadeCluster) -> None:
    beside_30_of_40(made, {})


@case(
    "fits 0 of 1 nodes\n"
    "└ claim gpu, request r (1 x gpu)\n"
    "  1 node  matching devices are tainted; nearest n1/gpu-0\n"
    "          gpu-0 has taint example.com/drain:NoSchedule\n"
    "          example.com/drain:NoSchedule is set by DeviceTaintRule drain\n"
)
def taint_of_a_rule(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    taint = {"key": "example.com/drain", "effect": "NoSchedule", "timeAdded": CREATED}
    selected = {"driver": GPU, "pool": "n1", "device": "gpu-0"}
    for name, selector in (("drain", selected), ("elsewhere", {**selected, "device": "gpu-1"})):
        spec = {"deviceSelector": selector, "taint": taint}
        made.add({"kind": "DeviceTaintRule", "metadata": {"name": name}, "spec": spec})
    made.pod("train", request("r", "gpu"))


@case(
    "fits 0 of 1 nodes\n"
    "└ claim gpu, request r (1 x gpu)\n"
    "  1 node  matching devices are tainted; nearest n1/gpu-0\n"
    "          gpu-0 has taint example.com/faulted=ecc:NoSchedule\n"
    "          the request tolerates example.com/fautled instead\n"
    "          the request tolerates example.com/faulted=xid:NoSchedule instead\n"
)
def tolerations_that_nearly_tolerate(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0", taints=[{"key": "example.com/faulted", "value": "ecc", "effect": "NoSchedule"}]))
    misspelt = {"key": "example.com/fautled", "operator": "Exists"}
    other_value = {"key": "example.com/faulted", "operator": "Equal", "value": "xid", "effect": "NoSchedule"}
    of_others = {"key": "example.com/reserved", "operator": "Exists"}
    made.pod("train", request("r", "gpu", tolerations=[misspelt, other_value, of_others]))


@case(
    "fits 0 of 1 nodes\n"
    "└ claim gpu, request r (1 x gpu)\n"
    "  1 node  matching devices are tainted; nearest n1/gpu-0\n"
    "          gpu-0 has taint example.com/faulted=ecc:NoSchedule\n"
    "          the request tolerates example.com/faulted= instead\n"
)
def toleration_without_a_value(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0", taints=[{"key": "example.com/faulted", "value": "ecc", "effect": "NoSchedule"}]))
    made.pod("train", request("r", "gpu", tolerations=[{"key": "example.com/faulted", "operator": "Equal"}]))


@case(
    "fits 0 of 1 nodes\n"
    '└ extended resource example.com/gpu of container "main" (3 x extended)\n'
    "  1 node  no combination of devices fits\n"
    "          2 of 3 devices on n1, which has 2 that match\n"
)
def extended_resource_of_which_there_are_fewer(made: MadeCluster) -> None:
    made.add(device_class("extended", extendedResourceName="example.com/gpu"))
    made.gpus("n1", device("gpu-0"), device("gpu-1"))
    made.add(pod("train", NAMESPACE, extended={"example.com/gpu": "3"}))


@case(
    "fits 0 of 1 nodes\n"
    '└ extended resource example.com/gpu of container "main" (3 x extended)\n'
    "  1 node  no combination of devices fits\n"
    "          2 of 3 devices on n1, which has 2 that match\n"
)
def extended_resource_with_null_beside_it(made: MadeCluster) -> None:
    extended_resource_of_which_there_are_fewer(made)
    (container,) = made.objects["pods"][-1]["spec"]["containers"]
    container["resources"] = {"limits": {"example.com/gpu": "3"}, "claims": None}


@case(
    "fits 0 of 1 nodes\n"
    "└ claim gpu\n"
    "  1 node  more devices than one claim may have: asks for 200 devices, a claim\n"
    "          may have 32\n"
)
def more_devices_than_a_claim_may_have_or_the_node_has(made: MadeCluster) -> None:
    made.gpus("n1", *(device(f"gpu-{index}") for index in range(20)))
    made.pod("train", request("r", "gpu", count=200))


@case(
    "fits 0 of 1 nodes\n"
    "└ claim gpu\n"
    "  1 node  claim is being deleted: ml/claim-train\n"
    "          kept by finalizers example.com/keep, resource.kubernetes.io/delete-\n"
    "          protection\n"
)
def claim_that_finalizers_keep(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    made.pod("train", request("r", "gpu"))
    claim = made.objects["resourceclaims"][-1]
    claim["metadata"].update(
        deletionTimestamp=CREATED, finalizers=["example.com/keep", "resource.kubernetes.io/delete-protection"]
    )


@case(
    "fits 0 of 1 nodes\n"
    "└ claim gpu, request r (1 x gpu)\n"
    "  1 node  no devices on the node\n"
    "          pool gpu.example.com/pool reaches no node: no node matches zone In (z)\n"
)
def pool_whose_selector_matches_no_node(made: MadeCluster) -> None:
    made.add(resource_slice("pool", devices=[device("gpu-0")], nodeSelector=ZONE))
    made.pod("train", request("r", "gpu"))


@case(
    "fits 0 of 1 nodes\n"
    "└ claim gpu, request r (1 x gpu)\n"
    "  1 node  no devices on the node\n"
    "          pool gpu.example.com/n9 reaches no node: node n9 does not exist\n"
)
def pool_of_a_node_that_is_gone(made: MadeCluster) -> None:
    made.add(resource_slice("pool", node="n9", devices=[device("gpu-0")]))
    made.pod("train", request("r", "gpu"))


@case(
    "fits 0 of 1 nodes\n"
    "└ claim gpu, request r (1 x gpu)\n"
    "  1 node  no devices on the node\n"
    "          pool gpu.example.com/pool reaches no node: node n9 does not exist\n"
)
def devices_of_a_node_that_is_gone(made: MadeCluster) -> None:
    made.add(resource_slice("pool", devices=[device("gpu-0", nodeName="n9")], perDeviceNodeSelection=True))
    made.pod("train", request("r", "gpu"))


@case(
    "fits 0 of 1 nodes\n"
    "└ claim gpu, request r (1 x gpu)\n"
    "  1 node  matching devices are in use; nearest n1/gpu-0\n"
    "          held by ml/old\n"
    "          pool gpu.example.com/pool reaches no node: no node matches zone In (z)\n"
)
def pool_that_reaches_no_node_beside_a_held_device(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    made.running("old", "n1", "gpu-0", request("r", "gpu"))
    made.add(resource_slice("pool", devices=[device("gpu-0")], nodeSelector=ZONE))
    made.pod("train", request("r", "gpu"))


@case(
    "fits 0 of 1 nodes\n"
    "└ claim gpu\n"
    "  1 node  claim is reserved by 256 pods already: pods of a PodGroup with this\n"
    "          claim in its spec.resourceClaims may be more\n"
)
def claim_with_all_its_reservations(made: MadeCluster) -> None:
    why_fully_reserved(made)


@case(
    "fits 0 of 1 nodes\n"
    "└ claim gpu\n"
    "  1 node  claim is reserved by 256 pods already: pods of a PodGroup with this\n"
    "          claim in its spec.resourceClaims may be more\n"
    "          also Too many pods on n1\n"
)
def claim_with_all_its_reservations_on_a_full_node(made: MadeCluster) -> None:
    why_fully_reserved(made)
    made.objects["nodes"][0]["status"]["allocatable"]["pods"] = "1"


@case(
    "fits 0 of 1 nodes\n"
    "└ claim gpu, request r (1 x gpu)\n"
    "  1 node  selector failed on a device:\n"
    '          \'device.attributes["gpu.exxample.com"].model == "A"\' on\n'
    "          gpu.example.com/n1/gpu-0: no such key: model\n"
    '          device.attributes["gpu.exxample.com"].model does not exist: the device\n'
    '          has no attribute of domain "gpu.exxample.com"; did you mean\n'
    '          device.attributes["gpu.example.com"].model?\n'
)
def domain_of_an_attribute_misspelt(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0", attributes={"model": "A"}))
    made.pod("train", request("r", "gpu", 'device.attributes["gpu.exxample.com"].model == "A"'))


@case(
    "fits 0 of 1 nodes\n"
    "└ claim gpu, request r (1 x gpu)\n"
    "  1 node  selector failed on a device:\n"
    '          \'device.attributes["gpu.example.com"].modle == "A"\' on\n'
    "          gpu.example.com/n1/gpu-0: no such key: modle\n"
    '          device.attributes["gpu.example.com"].modle does not exist: the device\n'
    '          has no attribute "modle" of domain "gpu.example.com"; did you mean\n'
    "          model? It has arch, model\n"
)
def attribute_misspelt(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0", attributes={"model": "A", "arch": "x"}))
    made.pod("train", request("r", "gpu", 'device.attributes["gpu.example.com"].modle == "A"'))


@case(
    "fits 0 of 1 nodes\n"
    "└ claim gpu, request r (1 x gpu)\n"
    "  1 node  selector failed on a device:\n"
    '          \'device.capacity["gpu.example.com"].memry.compareTo(quantity("1Gi"))\n'
    "          >= 0' on gpu.example.com/n1/gpu-0: no such key: memry\n"
    '          device.capacity["gpu.example.com"].memry does not exist: the device\n'
    '          has no capacity "memry" of domain "gpu.example.com"; did you mean\n'
    "          memory? It has memory\n"
)
def capacity_misspelt_in_a_selector(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0", capacity={"memory": "40Gi"}))
    made.pod("train", request("r", "gpu", 'device.capacity["gpu.example.com"].memry.compareTo(quantity("1Gi")) >= 0'))


@case(
    "fits 0 of 1 nodes\n"
    "└ claim gpu, request r (1 x gpu)\n"
    "  1 node  capacity does not suffice; nearest n1/gpu-0\n"
    "          gpu-0 has no capacity memry; it has cores, memory\n"
)
def capacity_misspelt_in_a_request(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0", capacity={"memory": "40Gi", "cores": "8"}, allowMultipleAllocations=True))
    made.pod("train", request("r", "gpu", capacity={"requests": {"memry": "1Gi"}}))


@case(
    "fits 0 of 1 nodes\n"
    "└ claim gpu, request r (1 x g2)\n"
    "  1 node  no device of driver gpu.exxample.com; nearest name gpu.example.com\n"
)
def driver_misspelt(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    made.add(device_class("g2", 'device.driver == "gpu.exxample.com"'))
    made.pod("train", request("r", "g2"))


@case(
    "fits 0 of 1 nodes\n"
    "└ claim gpu, request r (2 x gpu)\n"
    "  1 node  constraint is not satisfied; nearest n1/gpu-0\n"
    "          0 of 2 devices on n1\n"
    "          gpu-0 does not satisfy matchAttribute gpu.example.com/nmua, which it\n"
    "          does not have\n"
    "          matchAttribute gpu.example.com/nmua on n1: 2 with no value\n"
    "          none of them has gpu.example.com/nmua; nearest name\n          gpu.example.com/numa\n"
)
def attribute_misspelt_in_a_constraint(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0", attributes={"numa": 1}), device("gpu-1", attributes={"numa": 1}))
    made.add(
        resource_claim(
            "claim-train",
            NAMESPACE,
            request("r", "gpu", count=2),
            constraints=[{"matchAttribute": "gpu.example.com/nmua"}],
        )
    )
    made.add(pod("train", NAMESPACE, claims={"gpu": "claim-train"}))


@case(
    "asks for no devices that Dynamic\n"
    "    Resource Allocation serves; no node has example.com/gup (nearest name\n"
    "    example.com/gpu), and no DeviceClass serves it\n"
    "  1 node  Insufficient example.com/gup\n"
)
def extended_resource_misspelt(made: MadeCluster) -> None:
    made.objects["deviceclasses"][0]["spec"]["extendedResourceName"] = "example.com/gpu"
    made.gpus("n1", device("gpu-0"))
    made.add(pod("train", NAMESPACE, extended={"example.com/gup": "1"}))


@case(
    "fits 0 of 1 nodes\n└ claim gpu\n  1 node  claim is not created yet: from template one-gup; nearest name one-gpu\n"
)
def template_misspelt(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    made.add(resource_claim_template("one-gpu", NAMESPACE, request("r", "gpu")))
    made.add(pod("train", NAMESPACE, templates={"gpu": "one-gup"}))


@case("fits 0 of 1 nodes\n└ claim gpu\n  1 node  claim does not exist: ml/one-gup; nearest name one-gpu\n")
def claim_misspelt(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    made.add(resource_claim("one-gpu", NAMESPACE, request("r", "gpu")))
    made.add(pod("train", NAMESPACE, claims={"gpu": "one-gup"}))


@case(
    "ml/train  Pending 12m, dra-extender-schedular, devices would suffice on 1 of 1\n"
    "    nodes\n"
    "  no scheduler named dra-extender-schedular has acted on any pod of this\n"
    "      cluster; nearest name dra-extender-scheduler\n"
    "  fits n1\n"
)
def scheduler_misspelt(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    made.add(pod("seen", NAMESPACE))
    made.pod("train", request("r", "gpu"), scheduler="dra-extender-schedular")
    made.objects["pods"][-1]["status"] = {"phase": "Pending"}


@case(
    "fits 0 of 1 nodes\n"
    "└ claim gpu, request r\n"
    "  1 node  device class does not exist: device class nic; there are gpu\n"
)
def class_unlike_all(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    made.pod("train", request("r", "nic"))


@case("fits 0 of 1 nodes\n  1 node  PodGroup does not exist: ml/trainxing; nearest name training\n")
def pod_group_misspelt(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    made.add(pod_group("training", NAMESPACE, min_count=2))
    made.pod("train", request("r", "gpu"), schedulingGroup={"podGroupName": "trainxing"})


@case(
    "fits 0 of 1 nodes\n"
    "└ claim gpu, request r (1 x gpu)\n"
    "  1 node  no device matches the selectors; nearest n1/gpu-0\n"
    '          the device has no attribute "modle" of domain "gpu.example.com"; did\n'
    "          you mean model? It has arch, model (request selector 1)\n"
)
def attribute_misspelt_whose_presence_is_asked_for(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0", attributes={"model": "A", "arch": "x"}))
    made.pod("train", request("r", "gpu", f'has(device.attributes["{GPU}"].modle)'))


@case(
    "fits 0 of 1 nodes\n"
    "└ claim gpu, request r (1 x gpu)\n"
    "  1 node  no device matches the selectors; nearest n1/gpu-0\n"
    '          ?modle.orValue("") is "" (the device has no attribute "modle" of\n'
    '          domain "gpu.example.com"; did you mean model? It has arch, model),\n'
    '          wanted "A" (request selector 1)\n'
)
def optional_attribute_misspelt(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0", attributes={"model": "A", "arch": "x"}))
    made.pod("train", request("r", "gpu", f'device.attributes["{GPU}"].?modle.orValue("") == "A"'))


@case(
    "asks for no devices that Dynamic\n"
    "    Resource Allocation serves; no node has acme.io/fpga, and no DeviceClass\n"
    "    serves it; there are example.com/gpu\n"
    "  1 node  Insufficient acme.io/fpga\n"
)
def extended_resource_unlike_all(made: MadeCluster) -> None:
    made.objects["deviceclasses"][0]["spec"]["extendedResourceName"] = "example.com/gpu"
    made.add(pod("train", NAMESPACE, extended={"acme.io/fpga": "1"}))


@case(
    "fits 0 of 1 nodes\n"
    "└ claim gpu, request r (1 x gpu)\n"
    "  1 node  matching devices are tainted; nearest n1/mig-1\n"
    "          mig-1 has taint example.com/x:NoSchedule\n"
    "          also shared counters are exhausted: mig-1 needs 42 of sm in counter\n"
    "          set gpu-0, 18 remain, held by ml/old\n"
    "          also matching devices are in use: mig-0\n"
)
def tainted_device_whose_counters_are_exhausted(made: MadeCluster) -> None:
    draws = [consumption("gpu-0", sm="42")]
    free = device("mig-1", consumes=draws, taints=[{"key": "example.com/x", "effect": "NoSchedule"}])
    made.partitions("n1", [counter_set("gpu-0", sm="60")], [device("mig-0", consumes=draws), free])
    made.running("old", "n1", "mig-0", request("r", "gpu"))
    made.pod("train", request("r", "gpu"))


@case(
    "fits 0 of 1 nodes\n"
    "└ claim gpu, request r (1 x gpu)\n"
    "  1 node  matching devices are tainted; nearest n1/gpu-0\n"
    "          gpu-0 has taint example.com/x:NoSchedule\n"
    "          example.com/x:NoSchedule is set by DeviceTaintRule a, b\n"
    "          the pod tolerates example.com/x:NoSchedule, which counts for nodes\n"
    "          only; the request would have to\n"
)
def taint_of_two_rules_that_the_pod_alone_tolerates(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    taint = {"key": "example.com/x", "effect": "NoSchedule"}
    made.add(taint_rule("a", taint, device="gpu-0"), taint_rule("b", taint, pool="n1"))
    made.pod("train", request("r", "gpu"), tolerations=[{"key": "example.com/x", "operator": "Exists"}])


@case(
    "fits 0 of 1 nodes\n"
    "└ claim gpu, request r (1 x gpu)\n"
    "  1 node  capacity does not suffice; nearest n1/gpu-0\n"
    "          memory: needs 8Gi, 4Gi of 10Gi left\n"
    "          held by ml/old 6Gi\n"
    "          cores: needs 4, 2 of 8 left\n"
    "          held by ml/old 6\n"
)
def two_capacities_that_do_not_suffice(made: MadeCluster) -> None:
    shared(made, {"memory": "6Gi", "cores": "6"}, device("gpu-0", capacity={"memory": "10Gi", "cores": "8"}))
    made.pod("train", request("r", "gpu", capacity={"requests": {"memory": "8Gi", "cores": "4"}}))


@case(
    "fits 0 of 1 nodes\n"
    "└ claim gpu, request r (1 x gpu)\n"
    "  1 node  capacity does not suffice; nearest n1/gpu-0\n"
    "          memory: needs 8Gi, 4Gi of 10Gi left\n"
    "          held by ml/old 6Gi\n"
    "          also matching devices are tainted: gpu-1 has taint\n"
    "          example.com/x:NoSchedule\n"
)
def capacity_of_one_device_and_a_taint_of_the_other(made: MadeCluster) -> None:
    tainted = device("gpu-1", capacity={"memory": "10Gi"}, taints=[{"key": "example.com/x", "effect": "NoSchedule"}])
    shared(made, {"memory": "6Gi"}, device("gpu-0", capacity={"memory": "10Gi"}), tainted)
    made.pod("train", request("r", "gpu", capacity={"requests": {"memory": "8Gi"}}))


def shared(made: MadeCluster, consumed: dict[str, str], *devices: dict[str, Any]) -> None:
    """Devices that several claims may share; pod `old` has so much of gpu-0."""
    made.gpus("n1", *({**each, "allowMultipleAllocations": True} for each in devices))
    made.running("old", "n1", "gpu-0", request("r", "gpu"))
    (result,) = made.objects["resourceclaims"][-1]["status"]["allocation"]["devices"]["results"]
    result.update(consumedCapacity=consumed, shareID="a671734a-e8e5-11e4-8fde-42010af09327")


@case(
    "fits 0 of 1 nodes\n"
    "└ claim gpu, request a\n"
    "  1 node  device class does not exist: device class tape; there are gpu\n"
    "└ claim gpu, request b (1 x gpu)\n"
    "  1 node  matching devices are in use; nearest n1/gpu-0\n"
    "          held by ml/old\n"
)
def request_that_is_wrong_beside_one_whose_device_is_held(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    made.running("old", "n1", "gpu-0", request("r", "gpu"))
    made.pod("train", request("a", "tape"), request("b", "gpu"))


@case(
    "fits 0 of 1 nodes\n"
    "└ claim a\n"
    "  1 node  claim is not created yet: from template tape\n"
    "└ claim b\n"
    "  1 node  claim does not exist: ml/gone; there are claim-train\n"
    "└ claim gpu, request r\n"
    "  1 node  device class does not exist: device class tape; there are gpu\n"
)
def claims_of_which_each_lacks_something_else(made: MadeCluster) -> None:
    made.pod("train", request("r", "tape"))
    entries = made.objects["pods"][-1]["spec"]["resourceClaims"]
    entries += [
        {"name": "a", "resourceClaimTemplateName": "tape"},
        {"name": "b", "resourceClaimName": "gone"},
    ]


@case(
    "fits 0 of 2 nodes\n"
    "└ claim a, request r (1 x gpu)\n"
    "  1 node  no device matches the selectors; nearest n2/gpu-0\n"
    '          model is "B", wanted "A" (request selector 1)\n'
    "└ claim b, request r (1 x gpu)\n"
    "  1 node  no device matches the selectors; nearest n1/gpu-0\n"
    '          model is "A", wanted "B" (request selector 1)\n'
)
def claims_whose_devices_are_on_different_nodes(made: MadeCluster) -> None:
    made.nodes("n2")
    made.gpus("n1", device("gpu-0", attributes={"model": "A"}))
    made.gpus("n2", device("gpu-0", attributes={"model": "B"}))
    for name in "ab":
        made.add(resource_claim(name, NAMESPACE, request("r", "gpu", model(name.upper()))))
    made.add(pod("train", NAMESPACE, claims={"a": "a", "b": "b"}))


@case(
    "fits 0 of 2 nodes\n"
    "└ claim a\n"
    "  1 node  claim is allocated for another node\n"
    "          it is allocated for n1\n"
    "└ claim b\n"
    "  1 node  claim is allocated for another node\n"
    "          it is allocated for n2\n"
)
def claims_that_are_allocated_on_different_nodes(made: MadeCluster) -> None:
    made.nodes("n2")
    for node in ("n1", "n2"):
        made.gpus(node, device("gpu-0"))
        made.running(f"on-{node}", node, "gpu-0", request("r", "gpu"))
    made.add(pod("train", NAMESPACE, claims={"a": "claim-on-n1", "b": "claim-on-n2"}))


@case(
    "fits 0 of 1 nodes\n"
    "└ claim gpu\n"
    "  1 node  claim is allocated for another node\n"
    "          no node matches metadata.name In (n9)\n"
)
def claim_that_is_allocated_on_a_node_that_is_gone(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    made.running("old", "n9", "gpu-0", request("r", "gpu"))
    made.add(pod("train", NAMESPACE, claims={"gpu": "claim-old"}))
