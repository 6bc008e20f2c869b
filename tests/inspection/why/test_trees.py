"""What `why` prints of each kind of cause: a cluster that has it, and the whole answer as it is meant to read."""

from typing import Any, Final

import pytest
from dra_extender.inspection.lines import WIDTH
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
    resource_slice,
)
from tests.support.inspection.made_cluster import NAMESPACE, Cases, MadeCluster

HEAD: Final = "ml/train  Pending 12m, dra-extender-scheduler, "
ALLOCATED: Final = "2026-11-25T09:46:00Z"
AWAY_FROM_OTHERS: Final = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "train"}}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}
case: Final = Cases()
"""The answer about the pod `train` of the cluster that the function builds."""


@pytest.mark.parametrize("name", case.by_name)
def test_answer_reads_as_it_is_meant_to(name: str) -> None:
    build, expected = case.by_name[name]
    made = MadeCluster()
    made.add(device_class("gpu"))
    build(made)
    assert tree(why(made.view(), NAMESPACE, "train")) == expected


@pytest.mark.parametrize(
    "name", ["device_in_use", "counters_exhausted", "several_devices_in_use", "gang_of_which_some_members_fit"]
)
def test_pod_fits_once_the_pods_that_are_named_have_ended(name: str) -> None:
    made = MadeCluster()
    made.add(device_class("gpu"))
    case.by_name[name][0](made)
    step = next(each for each in why(made.view(), NAMESPACE, "train").next if each.text.startswith("end "))
    ended = {each.rpartition("/")[2] for each in step.text.removeprefix("end ").split(", ")}

    made.objects["pods"] = [each for each in made.objects["pods"] if each["metadata"]["name"] not in ended]
    for claim in made.objects["resourceclaims"]:
        if {each["name"] for each in claim.get("status", {}).get("reservedFor", ())} & ended:
            del claim["status"]

    report = why(made.view(), NAMESPACE, "train")
    assert report.cause == "something else than devices"
    assert report.gang is None or report.gang.placed >= report.gang.min_count


def memory(amount: str) -> str:
    return f'device.capacity["gpu.example.com"].memory.compareTo(quantity("{amount}")) >= 0'


def model(name: str) -> str:
    return f'device.attributes["gpu.example.com"].model == "{name}"'


def reports(made: MadeCluster, message: str) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    made.objects["pods"][-1]["status"] = {"phase": "Pending", "conditions": [condition]}


def mig_and_vgpu(made: MadeCluster, node: str) -> None:
    """A GPU of 98 multiprocessors that is divided by MIG or by vGPU."""
    made.partitions(
        node,
        [counter_set("gpu-0", sm="98")],
        [
            *(
                device(
                    f"mig-{index}",
                    attributes={"model": "mig"},
                    consumes=[consumption("gpu-0", groups=["mig"], sm="42")],
                )
                for index in range(3)
            ),
            device("vgpu-0", attributes={"model": "vgpu"}, consumes=[consumption("gpu-0", groups=["vgpu"], sm="48")]),
        ],
    )


def allocated(made: MadeCluster, **conditions: Any) -> None:
    """The pod `train` has its device, which waits for conditions, and is not bound."""
    made.nodes("n1", "n2")
    made.gpus(
        "n1", device("gpu-0", bindsToNode=True, bindingConditions=["Attached"], bindingFailureConditions=["Failed"])
    )
    made.running("train", "n1", "gpu-0", request("gpu", "gpu"))
    made.objects["pods"][-1]["spec"]["nodeName"] = ""
    status = made.objects["resourceclaims"][-1]["status"]
    status["allocation"]["devices"]["results"][0].update(
        bindingConditions=["Attached"], bindingFailureConditions=["Failed"]
    )
    status["allocation"]["allocationTimestamp"] = ALLOCATED
    if conditions:
        status["devices"] = [{"driver": "gpu.example.com", "pool": "n1", "device": "gpu-0", **conditions}]


# Not devices.


@case(
    "ml/train  Pending 12m, dra-extender-scheduler, waits until its scheduling gates\n    are removed: example.com/quota\n"
)
def scheduling_gates(made: MadeCluster) -> None:
    made.pod("train", request("gpu", "gpu"), schedulingGates=[{"name": "example.com/quota"}])


@case(
    HEAD + "asks for no devices that Dynamic\n"
    "    Resource Allocation serves\n"
    "  kube-scheduler reports: 1 Insufficient cpu\n"
    "  1 node  Insufficient cpu\n"
    "  next  ask for 64 of cpu  ok on n1\n"
)
def cpu_of_a_pod_without_devices(made: MadeCluster) -> None:
    made.nodes("n1")
    made.add(pod("train", NAMESPACE, cpu="100"))
    reports(made, "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No victims.")


@case(
    HEAD + "has its devices on 2 of 2 nodes,\n"
    "    and may use none of them\n"
    "  kube-scheduler reports: 1 Insufficient cpu, 1 node(s) had untolerated taint\n"
    "      {team: a}\n"
    "  1 node  Insufficient cpu\n"
    "  1 node  node(s) had untolerated taint(s): team=a:NoSchedule\n"
    "  next  ask for 4 of cpu  ok on n1\n"
    "  next  tolerate team=a:NoSchedule  ok on n2\n"
)
def cpu_and_taints_of_nodes(made: MadeCluster) -> None:
    made.nodes("n1", "n2")
    made.objects["nodes"][0]["status"]["allocatable"]["cpu"] = "4"
    made.objects["nodes"][1]["spec"] = {"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]}
    for name in ("n1", "n2"):
        made.gpus(name, device("gpu-0"))
    made.pod("train", request("gpu", "gpu"), cpu="6")
    reports(
        made, "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint {team: a}. preemption: x."
    )


@case(
    HEAD + "has its devices on 1 of 1 nodes,\n"
    "    and may use none of them\n"
    "  1 node  node(s) didn't match Pod's node affinity/selector\n"
    "          no node has label zone\n"
    "  next  ask for no node selector and no node affinity  ok on n1\n"
)
def node_affinity(made: MadeCluster) -> None:
    made.nodes("n1")
    made.gpus("n1", device("gpu-0"))
    made.pod("train", request("gpu", "gpu"), nodeSelector={"zone": "b"})


@case(
    HEAD + "has its devices on 1 of 1 nodes,\n"
    "    and may use none of them\n"
    "  1 node  node(s) were unschedulable\n"
    "  next  uncordon n1  ok on n1\n"
)
def cordoned_node(made: MadeCluster) -> None:
    made.nodes("n1")
    made.objects["nodes"][0]["spec"] = {"unschedulable": True}
    made.gpus("n1", device("gpu-0"))
    made.pod("train", request("gpu", "gpu"))


@case(
    HEAD
    + "devices would suffice on 1 of 1\n    nodes\n  kube-scheduler reports: 1 node(s) didn't match pod anti-affinity rules\n"
    "  has its devices on n1\n"
)
def something_that_is_not_judged(made: MadeCluster) -> None:
    made.nodes("n1")
    made.gpus("n1", device("gpu-0"))
    made.pod("train", request("gpu", "gpu"))
    reports(made, "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules.")


@case(
    HEAD + "devices would suffice on 1 of 1\n    nodes\n"
    "  has its devices on n1; not bound yet: kube-scheduler has not reported on it\n"
    "  kube-scheduler also looks at affinity to other pods, which is not judged here\n"
)
def something_that_is_not_judged_and_not_reported(made: MadeCluster) -> None:
    made.nodes("n1")
    made.gpus("n1", device("gpu-0"))
    made.pod("train", request("gpu", "gpu"), affinity=AWAY_FROM_OTHERS)


@case(
    HEAD + "fits 0 of 1 nodes\n"
    "└ claim gpu, request gpu (2 x gpu)\n"
    "  1 node  no combination of devices fits\n"
    "          1 of 2 devices on n1, which has 1 that match\n"
    "  next  ask for 1 device  ok on n1 (not tried: other pods)\n"
)
def something_that_is_not_judged_beside_devices(made: MadeCluster) -> None:
    made.nodes("n1")
    made.gpus("n1", device("gpu-0"))
    made.pod("train", request("gpu", "gpu", count=2), affinity=AWAY_FROM_OTHERS)


@case("ml/train  dra-extender-scheduler, has ended: Succeeded\n")
def pod_that_has_ended(made: MadeCluster) -> None:
    made.pod("train", request("gpu", "gpu"))
    made.objects["pods"][-1]["status"] = {"phase": "Succeeded"}


# Selectors.


@case(
    HEAD + "fits 0 of 5 nodes\n"
    "└ claim gpu, request gpu (1 x large)\n"
    "  2 nodes  no device matches the selectors; nearest n2/gpu-0\n"
    "           memory is 40Gi, wanted at least 80Gi (class selector 2)\n"
    "  1 node   no device matches the selectors; nearest n5/gpu-0\n"
    '           model is "B", wanted "A" (request selector 1)\n'
    "  1 node   no device of driver gpu.example.com\n"
    "  1 node   no devices on the node\n"
    "  next  have DeviceClass large ask for memory >= 40Gi  ok on n2\n"
    '  next  ask for model == "B"  ok on n5\n'
)
def nodes_without_a_match_by_what_differs(made: MadeCluster) -> None:
    made.nodes("n1", "n2", "n3", "n4", "n5")
    for name, size, kind in (("n1", "20Gi", "A"), ("n2", "40Gi", "A"), ("n5", "80Gi", "B")):
        made.gpus(name, device("gpu-0", attributes={"model": kind}, capacity={"memory": size}))
    made.gpus("n3", device("nic-0"), driver="nic.example.com")
    made.objects["deviceclasses"].clear()
    made.add(device_class("large", 'device.driver == "gpu.example.com"', memory("80Gi")))
    made.pod("train", request("gpu", "large", model("A")))


@case(
    HEAD + "fits 0 of 1 nodes\n"
    "└ claim gpu, request gpu (1 x gpu)\n"
    "  1 node  no device matches the selectors; nearest n1/gpu-1\n"
    "          memory is 40Gi, wanted at least 80Gi (request selector 1)\n"
    "          also in use, held by ml/old\n"
    "  next  ask for memory >= 20Gi  ok on n1\n"
)
def nearest_device_that_is_taken_does_not_help(made: MadeCluster) -> None:
    made.nodes("n1")
    made.gpus("n1", device("gpu-0", capacity={"memory": "20Gi"}), device("gpu-1", capacity={"memory": "40Gi"}))
    made.running("old", "n1", "gpu-1", request("gpu", "gpu"))
    made.pod("train", request("gpu", "gpu", memory("80Gi")))


@case(
    HEAD + "fits 0 of 1 nodes\n"
    "└ claim gpu, request gpu\n"
    "  1 node  device class does not exist: device class gpu.example.co; nearest name\n"
    "          gpu.example.com\n"
    "  next  use the DeviceClass gpu.example.com  ok on n1\n"
)
def class_missing(made: MadeCluster) -> None:
    made.nodes("n1")
    made.gpus("n1", device("gpu-0"))
    made.add(device_class("gpu.example.com"))
    made.pod("train", request("gpu", "gpu.example.co"))


# Devices that are held, counters, groups, capacity, taints.


@case(
    HEAD + "fits 0 of 1 nodes\n"
    "└ claim gpu, request gpu (1 x gpu)\n"
    "  1 node  matching devices are in use; nearest n1/gpu-0\n"
    "          held by ml/old 40s\n"
    "  next  end ml/old  ok on n1\n"
    "        ml/old: no owner, priority 0, 12m old\n"
)
def device_in_use(made: MadeCluster) -> None:
    made.nodes("n1")
    made.gpus("n1", device("gpu-0"))
    made.running("old", "n1", "gpu-0", request("gpu", "gpu"))
    made.objects["resourceclaims"][-1]["status"]["allocation"]["allocationTimestamp"] = ALLOCATED
    made.pod("train", request("gpu", "gpu"))


@case(
    HEAD + "fits 0 of 1 nodes\n"
    "└ claim gpu, request gpu (1 x gpu)\n"
    "  1 node  matching devices are in use; nearest n1/gpu-0\n"
    "          held by claim ml/claim-old\n"
    "  next  delete claim ml/claim-old, which no pod uses  ok on n1\n"
)
def device_of_a_claim_that_no_pod_uses(made: MadeCluster) -> None:
    made.nodes("n1")
    made.gpus("n1", device("gpu-0"))
    made.running("old", "n1", "gpu-0", request("gpu", "gpu"))
    made.objects["resourceclaims"][-1]["status"]["reservedFor"] = []
    made.objects["pods"].clear()
    made.pod("train", request("gpu", "gpu"))


@case(
    HEAD + "fits 0 of 1 nodes\n"
    "└ claim gpu, request gpu (1 x gpu)\n"
    "  1 node  matching devices are in use; nearest n1/gpu-0\n"
    "          held by ml/old\n"
    "          also Insufficient cpu on n1\n"
    "  next  ask for 4 of cpu, end ml/old  ok on n1\n"
    "        ml/old: no owner, priority 0, 12m old\n"
)
def end_that_frees_devices_but_not_enough_cpu(made: MadeCluster) -> None:
    made.nodes("n1")
    made.objects["nodes"][0]["status"]["allocatable"]["cpu"] = "4"
    made.gpus("n1", device("gpu-0"))
    made.running("old", "n1", "gpu-0", request("gpu", "gpu"))
    made.pod("train", request("gpu", "gpu"), cpu="6")


@case(
    HEAD
    + "fits 0 of 1 nodes\n"
    "└ claim gpu, request gpu (1 x gpu)\n"
    "  1 node  shared counters are exhausted; nearest n1/mig-2 [mig]\n"
    "          gpu-0 sm: needs 42, 14 of 98 left\n"
    "          held by ml/a 42, ml/b 42\n"
    "  next  end ml/a  ok on n1\n"
    "        ml/a: no owner, priority 0, 12m old\n".replace(" [mig]", "")
)
def counters_exhausted(made: MadeCluster) -> None:
    made.nodes("n1")
    mig_and_vgpu(made, "n1")
    made.running("a", "n1", "mig-0", request("gpu", "gpu"))
    made.running("b", "n1", "mig-1", request("gpu", "gpu"))
    made.pod("train", request("gpu", "gpu", model("mig")))


@case(
    HEAD + "fits 0 of 1 nodes\n"
    "└ claim gpu, request gpu (1 x gpu)\n"
    "  1 node  compatibility groups in conflict; nearest n1/mig-0 [mig]\n"
    "          gpu-0 is in [vgpu]: claim claim-desk, pod ml/desk, 40s\n"
    "          counters would suffice: sm 50 of 98 left\n"
    "  next  end ml/desk  ok on n1\n"
    "        ml/desk: no owner, priority 0, 12m old\n"
)
def groups_in_conflict_where_counters_would_suffice(made: MadeCluster) -> None:
    made.nodes("n1")
    mig_and_vgpu(made, "n1")
    made.running("desk", "n1", "vgpu-0", request("gpu", "gpu"))
    made.objects["resourceclaims"][-1]["status"]["allocation"]["allocationTimestamp"] = ALLOCATED
    made.pod("train", request("gpu", "gpu", model("mig")))


@case(
    HEAD + "fits 0 of 1 nodes\n"
    "└ claim gpu, request gpu (1 x gpu)\n"
    "  1 node  compatibility groups in conflict; nearest n1/vgpu-0 [vgpu]\n"
    "          gpu-0 is in [mig]: claim claim-a, pod ml/a; claim claim-b, pod ml/b\n"
    "          also gpu-0 sm: needs 48, 14 of 98 left\n"
    "          held by ml/a 42, ml/b 42\n"
    "  next  end ml/a, ml/b  ok on n1\n"
    "        ml/a: no owner, priority 0, 12m old\n"
    "        ml/b: no owner, priority 0, 12m old\n"
)
def groups_in_conflict_where_counters_would_not_suffice_either(made: MadeCluster) -> None:
    made.nodes("n1")
    mig_and_vgpu(made, "n1")
    made.running("a", "n1", "mig-0", request("gpu", "gpu"))
    made.running("b", "n1", "mig-1", request("gpu", "gpu"))
    made.pod("train", request("gpu", "gpu", model("vgpu")))


@case(
    HEAD + "fits 0 of 1 nodes\n"
    "└ claim gpu, request gpu (1 x gpu)\n"
    "  1 node  capacity does not suffice; nearest n1/gpu-0\n"
    "          memory: needs 10Gi, 4Gi of 16Gi left\n"
    "          held by ml/old 12Gi\n"
    "  next  ask for 4Gi of capacity memory  ok on n1\n"
    "  next  end ml/old  ok on n1\n"
    "        ml/old: no owner, priority 0, 12m old\n"
)
def capacity_exhausted(made: MadeCluster) -> None:
    made.nodes("n1")
    made.gpus("n1", device("gpu-0", capacity={"memory": "16Gi"}, allowMultipleAllocations=True))
    made.running("old", "n1", "gpu-0", request("gpu", "gpu"))
    result = made.objects["resourceclaims"][-1]["status"]["allocation"]["devices"]["results"][0]
    result.update(shareID="11111111-1111-1111-1111-111111111111", consumedCapacity={"memory": "12Gi"})
    made.pod("train", request("gpu", "gpu", capacity={"requests": {"memory": "10Gi"}}))


@case(
    HEAD + "fits 0 of 1 nodes\n"
    "└ claim gpu, request gpu (1 x gpu)\n"
    "  1 node  matching devices are tainted; nearest n1/gpu-0\n"
    "          gpu-0 has taint example.com/broken=yes:NoSchedule\n"
    "  next  tolerate example.com/broken=yes:NoSchedule  ok on n1\n"
)
def taints_of_devices(made: MadeCluster) -> None:
    made.nodes("n1")
    made.gpus("n1", device("gpu-0", taints=[{"key": "example.com/broken", "value": "yes", "effect": "NoSchedule"}]))
    made.pod("train", request("gpu", "gpu"))


# Several devices, constraints, pools.


@case(
    HEAD + "fits 0 of 2 nodes\n"
    "└ claim gpu, request gpu (8 x gpu)\n"
    "  2 nodes  no combination of devices fits\n"
    "           3 of 8 devices on n2, which has 3 that match\n"
    "  next  ask for 3 devices  ok on n2\n"
)
def too_few_devices(made: MadeCluster) -> None:
    made.nodes("n1", "n2")
    made.gpus("n1", *(device(f"gpu-{index}") for index in range(2)))
    made.gpus("n2", *(device(f"gpu-{index}") for index in range(3)))
    made.pod("train", request("gpu", "gpu", count=8))


@case(
    HEAD + "fits 0 of 1 nodes\n"
    "└ claim gpu, request gpu (3 x gpu)\n"
    "  1 node  matching devices are in use; nearest n1/gpu-0\n"
    "          1 of 3 devices on n1\n"
    "          held by ml/a\n"
    "  next  ask for 1 device  ok on n1\n"
    "  next  end ml/a, ml/b  ok on n1\n"
    "        ml/a: no owner, priority 0, 12m old\n"
    "        ml/b: no owner, priority 0, 12m old\n"
)
def several_devices_in_use(made: MadeCluster) -> None:
    made.nodes("n1")
    made.gpus("n1", *(device(f"gpu-{index}") for index in range(3)))
    made.running("a", "n1", "gpu-0", request("gpu", "gpu"))
    made.running("b", "n1", "gpu-1", request("gpu", "gpu"))
    made.pod("train", request("gpu", "gpu", count=3))


def numa(made: MadeCluster, kind: str, *nodes: int) -> None:
    made.nodes("n1")
    made.gpus("n1", *(device(f"gpu-{index}", attributes={"numa": each}) for index, each in enumerate(nodes)))
    made.add(
        resource_claim(
            "claim-train", NAMESPACE, request("gpu", "gpu", count=2), constraints=[{kind: "gpu.example.com/numa"}]
        )
    )
    made.add(pod("train", NAMESPACE, claims={"gpu": "claim-train"}))


@case(
    HEAD + "fits 0 of 1 nodes\n"
    "└ claim gpu, request gpu (2 x gpu)\n"
    "  1 node  constraint is not satisfied; nearest n1/gpu-1\n"
    "          2 of 2 devices on n1\n"
    "          1 of 2 devices found; gpu-1 does not satisfy matchAttribute\n"
    "          gpu.example.com/numa: it has 1, the others have 0\n"
    "          matchAttribute gpu.example.com/numa on n1: 1 with 0, 1 with 1\n"
    "  next  do without matchAttribute gpu.example.com/numa  ok on n1\n"
    "  next  ask for 1 device  ok on n1\n"
)
def match_attribute(made: MadeCluster) -> None:
    numa(made, "matchAttribute", 0, 1)


@case(
    HEAD + "fits 0 of 1 nodes\n"
    "└ claim gpu, request gpu (2 x gpu)\n"
    "  1 node  constraint is not satisfied; nearest n1/gpu-1\n"
    "          2 of 2 devices on n1\n"
    "          1 of 2 devices found; gpu-1 does not satisfy matchAttribute\n"
    "          gpu.example.com/numa: it has 1, the others have 0\n"
    "          matchAttribute gpu.example.com/numa on n1: 1 with 0, 1 with 1, 1 with\n"
    "          2\n"
    "  next  do without matchAttribute gpu.example.com/numa  ok on n1\n"
    "  next  ask for 1 device  ok on n1\n"
)
def match_attribute_with_more_devices_than_asked_for(made: MadeCluster) -> None:
    numa(made, "matchAttribute", 0, 1, 2)


@case(
    HEAD + "fits 0 of 1 nodes\n"
    "└ claim gpu, request gpu (2 x gpu)\n"
    "  1 node  constraint is not satisfied; nearest n1/gpu-1\n"
    "          2 of 2 devices on n1\n"
    "          1 of 2 devices found; gpu-1 does not satisfy distinctAttribute\n"
    "          gpu.example.com/numa: another one has 7 too\n"
    "          distinctAttribute gpu.example.com/numa on n1: 2 with 7\n"
    "  next  do without distinctAttribute gpu.example.com/numa  ok on n1\n"
    "  next  ask for 1 device  ok on n1\n"
)
def distinct_attribute(made: MadeCluster) -> None:
    numa(made, "distinctAttribute", 7, 7)


@case(
    HEAD + "fits 0 of 1 nodes\n"
    "└ claim gpu, request gpu (1 x gpu)\n"
    "  1 node  resource pool is being updated\n"
    "          gpu.example.com/n1: 1 of 2 slices of generation 7\n"
    "  next  wait; check driver gpu.example.com, which publishes the other slices\n"
)
def pool_incomplete(made: MadeCluster) -> None:
    made.nodes("n1")
    made.add(resource_slice("half", node="n1", devices=[device("gpu-0")], slice_count=2, generation=7))
    made.pod("train", request("gpu", "gpu"))


# Claims.


@case(
    HEAD + "fits 0 of 1 nodes\n"
    "└ claim gpu\n"
    "  1 node  claim does not exist: ml/absent\n"
    "  next  create ResourceClaim ml/absent\n"
)
def claim_missing(made: MadeCluster) -> None:
    made.nodes("n1")
    made.gpus("n1", device("gpu-0"))
    made.add(pod("train", NAMESPACE, claims={"gpu": "absent"}))


@case(
    HEAD + "fits 0 of 1 nodes\n"
    "└ claim gpu\n"
    "  1 node  claim is not created yet: from template absent\n"
    "  next  create ResourceClaimTemplate ml/absent\n"
)
def template_missing(made: MadeCluster) -> None:
    made.nodes("n1")
    made.gpus("n1", device("gpu-0"))
    made.add(pod("train", NAMESPACE, templates={"gpu": "absent"}))


# Conditions.


@case(
    "ml/train  allocated 40s ago on n1, not bound\n"
    "└ claim gpu, request gpu: gpu.example.com/n1/gpu-0\n"
    "  waits for Attached, not reported yet; limit in 560s if the binding timeout is\n"
    "      600s, the default\n"
    "  next  wait; check driver gpu.example.com\n"
)
def condition_awaited(made: MadeCluster) -> None:
    allocated(made)


@case(
    "ml/train  allocated 40s ago on n1, not bound\n"
    "└ claim gpu, request gpu: gpu.example.com/n1/gpu-0\n"
    "  reports Failed: no cable\n"
    "  next  check driver gpu.example.com\n"
)
def condition_failed(made: MadeCluster) -> None:
    allocated(made, conditions=[{"type": "Failed", "status": "True", "reason": "Cable", "message": "no cable"}])


@case(
    "ml/train  allocated 40s ago on n1, not bound\n"
    '└ extended resource example.com/gpu of container "main":\n'
    "    gpu.example.com/n1/gpu-0\n"
    "  waits for Attached, not reported yet; limit in 560s if the binding timeout is\n"
    "      600s, the default\n"
    "  next  wait; check driver gpu.example.com\n"
)
def condition_awaited_of_an_extended_resource(made: MadeCluster) -> None:
    """The bind has made the claim."""
    allocated(made)
    made.objects["pods"].pop()
    made.add(device_class("backed", extendedResourceName="example.com/gpu"))
    made.add(pod("train", NAMESPACE, cpu="0", extended={"example.com/gpu": "1"}))
    claim, owner = made.objects["resourceclaims"][-1], made.objects["pods"][-1]["metadata"]
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "train", "uid": owner["uid"], "controller": True}
    annotations = {"resource.kubernetes.io/extended-resource-claim": "true"}
    claim["metadata"].update(ownerReferences=[reference], annotations=annotations)
    name = "container-0-request-1"
    exactly = {"deviceClassName": "backed", "allocationMode": "ExactCount", "count": 1}
    claim["spec"] = {"devices": {"requests": [{"name": name, "exactly": exactly}]}}
    claim["status"]["allocation"]["devices"]["results"][0]["request"] = name
    claim["status"]["reservedFor"] = [{"resource": "pods", "name": "train", "uid": owner["uid"]}]


@case(
    HEAD + "allocated 40s ago on n1, not\n"
    "    bound\n"
    "  fits n1; not bound yet: its claims are allocated: kube-scheduler binds it, or\n"
    "      tries again if the bind has failed\n"
)
def conditions_met(made: MadeCluster) -> None:
    allocated(made, conditions=[{"type": "Attached", "status": "True"}])


@case(
    "ml/train  allocated 46m ago on n1, not bound\n"
    "└ claim gpu, request gpu: gpu.example.com/n1/gpu-0\n"
    "  waits for Attached, not reported in time if the binding timeout is 600s, the\n"
    "      default\n"
    "  next  check driver gpu.example.com\n"
)
def condition_timed_out(made: MadeCluster) -> None:
    allocated(made)
    made.objects["resourceclaims"][-1]["status"]["allocation"]["allocationTimestamp"] = "2026-11-25T09:00:00Z"


@case(
    HEAD + "has its devices on 1 of 2 nodes,\n"
    "    and may use none of them\n"
    "  1 node  Too many pods\n"
    "  next  end ml/old  ok on n1\n"
    "        ml/old: no owner, priority 0, 12m old\n"
)
def shared_claim_that_is_allocated_on_a_node_that_is_full(made: MadeCluster) -> None:
    made.nodes("n1", "n2")
    made.objects["nodes"][0]["status"]["allocatable"]["pods"] = "1"
    for name in ("n1", "n2"):
        made.gpus(name, device("gpu-0"))
    made.running("old", "n1", "gpu-0", request("gpu", "gpu"))
    made.add(pod("train", NAMESPACE, claims={"gpu": "claim-old"}))


@case(
    HEAD + "fits 0 of 1 nodes\n"
    "└ claim gpu, request gpu/big (1 x gpu)\n"
    "  1 node  no device matches the selectors; nearest n1/gpu-0\n"
    "          memory is 20Gi, wanted at least 80Gi (request selector 1)\n"
    "└ claim gpu, request gpu/small (1 x gpu)\n"
    "  1 node  no device matches the selectors; nearest n1/gpu-0\n"
    "          memory is 20Gi, wanted at least 40Gi (request selector 1)\n"
    "  next  ask for memory >= 20Gi in request gpu/big  ok on n1\n"
    "  next  ask for memory >= 20Gi in request gpu/small  ok on n1\n"
)
def alternatives_of_a_request(made: MadeCluster) -> None:
    made.nodes("n1")
    made.gpus("n1", device("gpu-0", capacity={"memory": "20Gi"}))
    options = [
        {"name": "big", "deviceClassName": "gpu", "count": 1, "selectors": [{"cel": {"expression": memory("80Gi")}}]},
        {"name": "small", "deviceClassName": "gpu", "count": 1, "selectors": [{"cel": {"expression": memory("40Gi")}}]},
    ]
    for each in options:
        each["allocationMode"] = "ExactCount"
    claim = resource_claim("claim-train", NAMESPACE)
    claim["spec"]["devices"]["requests"] = [{"name": "gpu", "firstAvailable": options}]
    made.objects["resourceclaims"].append(
        {**claim, "metadata": {**claim["metadata"], "uid": "uid-claim-train", "resourceVersion": "1"}}
    )
    made.add(pod("train", NAMESPACE, claims={"gpu": "claim-train"}))


@case(
    HEAD + "fits 0 of 2 nodes\n"
    "└ claim gpu, request gpu (1 x gpu)\n"
    "  1 node  no device of driver gpu.example.com\n"
    "└ claim nic, request nic (1 x nic)\n"
    "  1 node  no device of driver nic.example.com\n"
    "  next  do without claim gpu  ok on n2\n"
)
def several_claims(made: MadeCluster) -> None:
    made.nodes("n1", "n2")
    made.gpus("n1", device("gpu-0"))
    made.gpus("n2", device("nic-0"), driver="nic.example.com")
    made.add(device_class("nic", 'device.driver == "nic.example.com"'))
    made.add(
        resource_claim("a", NAMESPACE, request("gpu", "gpu")), resource_claim("b", NAMESPACE, request("nic", "nic"))
    )
    made.add(pod("train", NAMESPACE, claims={"gpu": "a", "nic": "b"}))


@case(
    HEAD + "fits 0 of 1 nodes\n"
    "└ claim gpu, request gpu (1 x gpu)\n"
    "  1 node  devices are not compatible with their neighbours; nearest n1/b\n"
    "          a (in use) is compatible only with 'kind == \"mig\"', which is false for\n"
    "          b\n"
    "          held by ml/old\n"
    "  next  end ml/old  ok on n1\n"
    "        ml/old: no owner, priority 0, 12m old\n"
)
def neighbours_that_are_not_compatible(made: MadeCluster) -> None:
    made.nodes("n1")
    rule = 'device.attributes["gpu.example.com"].kind == "mig"'
    made.partitions(
        "n1",
        [counter_set("gpu-0", sm="98")],
        [
            device(
                "a",
                attributes={"kind": "mig"},
                consumes=[consumption("gpu-0", sm="10")],
                compatibleOnlyWith={"expression": rule},
            ),
            device("b", attributes={"kind": "vgpu"}, consumes=[consumption("gpu-0", sm="10")]),
        ],
    )
    made.running("old", "n1", "a", request("gpu", "gpu"))
    made.pod("train", request("gpu", "gpu", 'device.attributes["gpu.example.com"].kind == "vgpu"'))


@case(
    HEAD + "fits 0 of 1 nodes\n"
    "└ claim gpu, request gpu (1 x gpu)\n"
    "  1 node  resource pool is invalid: pool gpu.example.com/n1: device gpu-0 is\n"
    "          published twice\n"
    "  next  check driver gpu.example.com\n"
)
def pool_invalid(made: MadeCluster) -> None:
    made.nodes("n1")
    made.add(resource_slice("one", node="n1", devices=[device("gpu-0")], slice_count=2))
    made.add(resource_slice("two", node="n1", devices=[device("gpu-0")], slice_count=2))
    made.pod("train", request("gpu", "gpu"))


@case(
    HEAD + "fits 0 of 1 nodes\n"
    '└ extended resource example.com/gpu of container "main" (1 x backed)\n'
    "  1 node  matching devices are in use; nearest n1/gpu-0\n"
    "          held by ml/old\n"
    "  next  end ml/old  ok on n1\n"
    "        ml/old: no owner, priority 0, 12m old\n"
)
def extended_resource(made: MadeCluster) -> None:
    made.nodes("n1")
    made.gpus("n1", device("gpu-0"))
    made.add(device_class("backed", extendedResourceName="example.com/gpu"))
    made.running("old", "n1", "gpu-0", request("gpu", "gpu"))
    made.add(pod("train", NAMESPACE, extended={"example.com/gpu": "1"}))


# Gangs.


@case(
    HEAD + "PodGroup ml/train: 1 of 4 placed,\n"
    "    at least 3 needed\n"
    "├ bound      runs     on n1\n"
    "├ blocked    train    gpu: matching devices are in use (1 node)\n"
    "├ waiting    train-1\n"
    '└ not ready  zero     claim "gpu" does not exist: ml/absent; there are claim-\n'
    "                      runs, claim-train, claim-train-1\n"
    "└ claim gpu, request gpu (1 x gpu)\n"
    "  1 node  matching devices are in use; nearest n1/gpu-0\n"
    "          held by ml/runs\n"
)
def gang_with_a_member_that_runs_and_one_without_its_claim(made: MadeCluster) -> None:
    made.nodes("n1")
    made.gpus("n1", device("gpu-0"))
    gang(made, 2, 3)
    made.running("runs", "n1", "gpu-0", request("gpu", "gpu"))
    made.objects["pods"][-1]["spec"]["schedulingGroup"] = {"podGroupName": "train"}
    made.add(pod("zero", NAMESPACE, claims={"gpu": "absent"}, schedulingGroup={"podGroupName": "train"}))


def gang(made: MadeCluster, size: int, min_count: int) -> None:
    made.add(pod_group("train", NAMESPACE, min_count=min_count))
    for name in ("train", *(f"train-{number}" for number in range(1, size))):
        made.pod(name, request("gpu", "gpu"), schedulingGroup={"podGroupName": "train"})


@case(
    HEAD + "PodGroup ml/train: 2 of 4 placed,\n"
    "    all 4 needed\n"
    "├ ok       train, train-1  on n1\n"
    "├ blocked  train-2         gpu: matching devices are in use (2 nodes)\n"
    "└ waiting  train-3\n"
    "└ claim gpu, request gpu of pod train-2 (1 x gpu)\n"
    "  2 nodes  matching devices are in use; nearest n2/gpu-0\n"
    "           held by ml/a\n"
    "  next  end ml/a, ml/b  ok, the gang fits\n"
    "        ml/a: no owner, priority 0, 12m old\n"
    "        ml/b: no owner, priority 0, 12m old\n"
)
def gang_of_which_some_members_fit(made: MadeCluster) -> None:
    made.nodes("n1", "n2")
    for name in ("n1", "n2"):
        made.gpus(name, device("gpu-0"), device("gpu-1"))
    made.running("a", "n2", "gpu-0", request("gpu", "gpu"))
    made.running("b", "n2", "gpu-1", request("gpu", "gpu"))
    gang(made, 4, 4)


@case(
    HEAD + "PodGroup ml/train: 2 of 3 placed,\n"
    "    all 3 needed, 2 exist\n"
    "└ ok  train, train-1  on n1\n"
    "  next  create 1 more member of PodGroup ml/train\n"
)
def gang_with_too_few_members(made: MadeCluster) -> None:
    made.nodes("n1")
    made.gpus("n1", device("gpu-0"), device("gpu-1"))
    gang(made, 2, 3)


@case(
    HEAD + "devices would suffice on 1 of 1\n"
    "    nodes\n"
    "  fits n1; not bound yet: members of PodGroup ml/train are bound together\n"
    "└ ok  train, train-1  on n1\n"
)
def gang_that_fits(made: MadeCluster) -> None:
    made.nodes("n1")
    made.gpus("n1", device("gpu-0"), device("gpu-1"))
    gang(made, 2, 2)


def test_no_line_is_wider_than_a_terminal() -> None:
    made = MadeCluster()
    made.nodes(*(f"node-with-a-rather-long-name-{index}" for index in range(4)))
    made.add(device_class("gpu"))
    made.gpus("node-with-a-rather-long-name-0", device("gpu-0", attributes={"model": "some model " * 8}))
    made.pod("train", request("gpu", "gpu", 'device.attributes["gpu.example.com"].model == "another one"'))

    assert all(len(line) <= WIDTH for line in tree(why(made.view(), NAMESPACE, "train")).splitlines())


def test_control_characters_of_tenants_are_not_sent_to_the_terminal() -> None:
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu"))
    made.gpus("n1", device("gpu-0", attributes={"model": "a\x1b[2J\x07"}))
    made.pod("train", request("gpu", "gpu", 'device.attributes["gpu.example.com"].model == "b"'))
    made.objects["pods"][-1]["spec"]["schedulerName"] = "\x1b]0;title\x07"

    text = tree(why(made.view(), NAMESPACE, "train"))

    assert all(line.isprintable() for line in text.splitlines())
    assert "\\u001b]0;title\\u0007" in text


def test_name_of_a_pool_may_have_slashes() -> None:
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu"))
    taint = {"key": "example.com/broken", "effect": "NoSchedule"}
    made.add(resource_slice("a", pool="rack-1/tray-2", node="n1", devices=[device("gpu-0", taints=[taint])]))
    made.pod("train", request("gpu", "gpu"))
    report = why(made.view(), NAMESPACE, "train")
    assert "nearest n1/rack-1/tray-2/gpu-0" in tree(report)
    assert [each.text for each in report.next] == ["tolerate example.com/broken:NoSchedule"]
