"""Pods that wait for a cause that was built on purpose: the answer names it, and says nothing else that is not so."""

from collections.abc import Callable
from typing import Any

import pytest
from dra_extender.inspection.text.why import node_tree, tree
from dra_extender.inspection.why.node import why_on_node
from dra_extender.inspection.why.waiting import waiting
from dra_extender.inspection.why.why import why

from tests.controlplane.objects import (
    consumption,
    counter_set,
    device,
    device_class,
    node,
    pod,
    pod_group,
    request,
    resource_claim_template,
    resource_slice,
)
from tests.support.inspection.made_cluster import CREATED, NAMESPACE, MadeCluster

GPU, NIC = "gpu.example.com", "nic.example.com"
MODEL = f'device.attributes["{GPU}"].model == "{{}}"'


def cluster(*nodes: str) -> MadeCluster:
    made = MadeCluster()
    made.nodes(*nodes)
    made.add(device_class("gpu"))
    return made


def held(made: MadeCluster, node: str = "n1") -> None:
    """A GPU on the node, which pod `old` has."""
    made.gpus(node, device("gpu-0"))
    made.running("old", node, "gpu-0", request("r", "gpu"))


def pool(node: str, driver: str, **fields: Any) -> dict[str, Any]:
    """One of two slices of a pool."""
    return resource_slice(f"{driver}-{node}", node=node, driver=driver, slice_count=2, devices=[device("d", **fields)])


def said(made: MadeCluster, message: str) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    made.objects["pods"][-1]["status"] = {"phase": "Pending", "conditions": [condition]}


def closed(made: MadeCluster, node: str = "n1") -> None:
    found = next(each for each in made.objects["nodes"] if each["metadata"]["name"] == node)
    found["spec"] = {"unschedulable": True}


def foreign_pool_incomplete(made: MadeCluster) -> None:
    made.add(pool("n1", NIC))
    made.pod("train", request("r", "gpu"))


def pool_incomplete_beside_a_foreign_one(made: MadeCluster) -> None:
    made.add(pool("n1", "a.example.com"), pool("n1", GPU))
    made.pod("train", request("r", "gpu", allocationMode="All"))
    del made.objects["resourceclaims"][-1]["spec"]["devices"]["requests"][0]["exactly"]["count"]


def pool_incomplete_with_other_devices(made: MadeCluster) -> None:
    """The slice that is missing may have the model that is asked for."""
    made.add(pool("n1", GPU, attributes={"model": "A"}))
    made.pod("train", request("r", "gpu", MODEL.format("B")))


def pool_invalid_with_other_devices(made: MadeCluster) -> None:
    named = device("d", attributes={"model": "A"})
    made.gpus("n1", named, named)
    made.pod("train", request("r", "gpu", MODEL.format("B")))


def capacity_unknown(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0", capacity={"memory": "40Gi"}, allowMultipleAllocations=True))
    made.pod("train", request("r", "gpu", capacity={"requests": {"vram": "10Gi"}}))


def fewer_devices_than_asked_for(made: MadeCluster) -> None:
    made.gpus("n1", *(device(f"gpu-{number}") for number in range(3)))
    made.running("old", "n1", "gpu-0", request("r", "gpu"))
    made.pod("train", request("r", "gpu", count=4))


def device_with_one_taint_beside_one_with_two(made: MadeCluster) -> None:
    first, second = ({"key": f"example.com/{name}", "effect": "NoSchedule"} for name in "xy")
    made.gpus("n1", device("gpu-0", taints=[first, second]), device("gpu-1", taints=[second]))
    made.pod("train", request("r", "gpu"))


def held_on_a_closed_node(made: MadeCluster) -> None:
    made.nodes(*(f"bare-{number}" for number in range(5)))
    held(made)
    closed(made)
    made.pod("train", request("r", "gpu"))


def holder_has_ended(made: MadeCluster) -> None:
    held(made)
    made.objects["pods"][-1]["status"] = {"phase": "Succeeded"}
    made.pod("train", request("r", "gpu"))


def holder_is_gone(made: MadeCluster) -> None:
    held(made)
    made.objects["pods"].pop()
    made.pod("train", request("r", "gpu"))


def holder_is_being_deleted(made: MadeCluster) -> None:
    held(made)
    made.objects["pods"][-1]["metadata"]["deletionTimestamp"] = CREATED
    made.pod("train", request("r", "gpu"))


def volume_missing(made: MadeCluster) -> None:
    held(made)
    made.pod("train", request("r", "gpu"))
    said(made, '0/1 nodes are available: persistentvolumeclaim "data" not found.')


def other_pods_beside(made: MadeCluster) -> None:
    held(made)
    made.pod("train", request("r", "gpu"))
    said(made, "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules.")


def scheduler_absent(made: MadeCluster) -> None:
    held(made)
    made.pod("train", request("r", "gpu"), scheduler="dra-extender-schedular")
    made.objects["pods"][-1]["status"] = {"phase": "Pending"}


def resource_of_a_domain_with_others(made: MadeCluster) -> None:
    made.add(pod("train", NAMESPACE, extended={"deviceclass.resource.kubernetes.io/gone": "1"}))


def gang(made: MadeCluster, **second: Any) -> None:
    made.add(pod_group("train", NAMESPACE, min_count=2))
    made.pod("train", request("r", "gpu"), schedulingGroup={"podGroupName": "train"})
    made.pod("train-1", request("r", "gpu"), schedulingGroup={"podGroupName": "train"}, **second)


def gang_whose_member_is_meant_for_a_node_in_use(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"), device("gpu-1"))
    made.add(node("n2", labels={"zone": "a"}))
    held(made, "n2")
    gang(made, nodeSelector={"zone": "a"})


def gang_on_a_closed_node(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"), device("gpu-1"))
    closed(made)
    gang(made)


def gang_that_uses_an_open_node(made: MadeCluster) -> None:
    made.nodes("n2")
    for name in ("n1", "n2"):
        made.gpus(name, device("gpu-0"), device("gpu-1"))
    closed(made)
    gang(made)


def gang_with_a_device_of_its_own(made: MadeCluster) -> None:
    gang(made)
    made.objects["pods"].pop()
    made.objects["resourceclaims"].pop()
    made.gpus("n1", device("gpu-0"))
    made.running("train-1", "n1", "gpu-0", request("r", "gpu"))
    made.objects["pods"][-1]["spec"]["schedulingGroup"] = {"podGroupName": "train"}


def gang_with_room_for_one(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"), device("gpu-1"))
    gang(made)
    for each in made.objects["pods"]:
        each["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "40"


def gang_with_room_for_one_pod(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"), device("gpu-1"))
    gang(made)
    made.add(pod("old", NAMESPACE, nodeName="n1"))
    made.objects["nodes"][0]["status"]["allocatable"]["pods"] = "3"


def gang_with_room_for_one_beside_a_holder(made: MadeCluster) -> None:
    gang_with_room_for_one(made)
    made.running("old", "n1", "gpu-0", request("r", "gpu"))


def gang_with_a_gated_member(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"), device("gpu-1"))
    gang(made)
    made.objects["pods"][-1]["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]


def gang_with_a_member_without_its_claim(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"), device("gpu-1"))
    gang(made)
    made.objects["pods"][-1]["spec"]["resourceClaims"][0]["resourceClaimName"] = "absent"


def driver_version_too_low(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    made.objects["resourceslices"][-1]["spec"]["devices"][0]["attributes"] = {"driverVersion": {"version": "1.2.0"}}
    lowest = f'device.attributes["{GPU}"].driverVersion.compareTo(semver("2.0.0")) >= 0'
    made.pod("train", request("r", "gpu", lowest))


def held_and_the_other_tainted(made: MadeCluster) -> None:
    broken = {"key": "example.com/x", "effect": "NoSchedule"}
    made.gpus("n1", device("gpu-0"), device("gpu-1", taints=[broken]))
    made.running("old", "n1", "gpu-0", request("r", "gpu"))
    made.pod("train", request("r", "gpu", count=2))


def tainted_on_a_closed_node(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0", taints=[{"key": "example.com/x", "effect": "NoSchedule"}]))
    closed(made)
    made.pod("train", request("r", "gpu"))


def amount_beyond_every_device(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0", capacity={"memory": "40Gi"}, allowMultipleAllocations=True))
    made.pod("train", request("r", "gpu", capacity={"requests": {"memory": "80Gi"}}))


def node_of_the_devices_is_full(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    made.add(pod("large", NAMESPACE, cpu="64", nodeName="n1"))
    made.pod("train", request("r", "gpu"), cpu="10")


def held_on_two_nodes(made: MadeCluster) -> None:
    made.nodes("n2")
    for name in ("n1", "n2"):
        made.gpus(name, device("gpu-0"))
        made.running(f"old-{name}", name, "gpu-0", request("r", "gpu"))
    made.pod("train", request("r", "gpu"))


def devices_on_several_nodes(made: MadeCluster) -> None:
    made.nodes("n2")
    for name in ("n1", "n2"):
        made.gpus(name, device("gpu-0"))
    made.pod("train", request("r", "gpu", count=2))


def two_selectors_of_which_one_is_false(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0", attributes={"model": "A", "form": "SXM"}))
    made.pod("train", request("r", "gpu", MODEL.format("A"), f'device.attributes["{GPU}"].form == "PCIe"'))


def constraint_between_requests(made: MadeCluster) -> None:
    made.gpus("n1", *(device(f"gpu-{number}", attributes={"numa": number}) for number in range(2)))
    made.pod("train", request("a", "gpu"), request("b", "gpu"))
    devices = made.objects["resourceclaims"][-1]["spec"]["devices"]
    devices["constraints"] = [{"requests": ["a", "b"], "matchAttribute": f"{GPU}/numa"}]


def class_of_which_nothing_is_published(made: MadeCluster) -> None:
    made.add(device_class("nic", f'device.driver == "{NIC}"'))
    made.gpus("n1", device("gpu-0"))
    made.pod("train", request("r", "nic"))


def class_misspelt_and_its_device_held(made: MadeCluster) -> None:
    made.add(device_class("large-gpu"))
    held(made)
    made.pod("train", request("r", "large-gpus"))


def classes_misspelt_in_two_requests(made: MadeCluster) -> None:
    made.add(device_class("gpu-large"), device_class("gpu-small"))
    made.gpus("n1", device("gpu-0"), device("gpu-1"))
    made.pod("train", request("a", "gpu-largee"), request("b", "gpu-smal"))


def class_misspelt_in_one_alternative_and_the_other_held(made: MadeCluster) -> None:
    made.add(device_class("large-gpu"))
    held(made)
    made.pod("train", request("r", "gpu"))
    alternatives = [
        {"name": name, "deviceClassName": device_class, "allocationMode": "ExactCount", "count": 1}
        for name, device_class in (("a", "gpu"), ("b", "large-gpuu"))
    ]
    requests = [{"name": "r", "firstAvailable": alternatives}]
    made.objects["resourceclaims"][-1]["spec"]["devices"]["requests"] = requests


def attribute_misspelt_and_the_device_tainted(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0", attributes={"model": "A"}, taints=[{"key": "e.com/x", "effect": "NoSchedule"}]))
    made.pod("train", request("r", "gpu", MODEL.format("A").replace("model", "modle")))


def scheduler_misspelt_and_the_device_held(made: MadeCluster) -> None:
    held(made)
    made.pod("train", request("r", "gpu"), scheduler="dra-extender-schedulr")
    made.objects["pods"][-1]["status"] = {"phase": "Pending"}


def scheduler_misspelt_and_the_claim_missing(made: MadeCluster) -> None:
    scheduler_misspelt_and_the_device_held(made)
    made.objects["pods"][-1]["spec"]["resourceClaims"][0]["resourceClaimName"] = "absent"


def class_that_excludes_the_model(made: MadeCluster) -> None:
    made.add(device_class("newer", f'device.driver == "{GPU}"', f'device.attributes["{GPU}"].model != "a100"'))
    made.gpus("n1", device("gpu-0", attributes={"model": "a100"}))
    made.pod("train", request("r", "newer"))


def class_that_wants_a_flag(made: MadeCluster) -> None:
    made.add(device_class("ecc", f'device.driver == "{GPU}"', f'device.attributes["{GPU}"].ecc'))
    made.gpus("n1", device("gpu-0", attributes={"ecc": False}))
    made.pod("train", request("r", "ecc"))


def class_of_another_model(made: MadeCluster) -> None:
    made.add(device_class("h100", MODEL.format("h100")))
    made.gpus("n1", device("gpu-0", attributes={"model": "a100"}))
    made.pod("train", request("r", "h100"))


def gang_with_a_member_of_an_absent_scheduler(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"), device("gpu-1"))
    gang(made, scheduler="volcano")
    made.objects["pods"][-1]["status"] = {"phase": "Pending"}


def gang_with_a_member_whose_class_is_misspelt(made: MadeCluster) -> None:
    made.add(device_class("large-gpu"))
    made.gpus("n1", device("gpu-0"), device("gpu-1"))
    gang(made)
    made.objects["resourceclaims"][-1]["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "large-gpuu"


def gang_with_a_member_whose_class_is_unlike_all(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"), device("gpu-1"))
    gang(made)
    made.objects["resourceclaims"][-1]["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "tpu-v5"


def pool_of_more_slices_than_it_declares(made: MadeCluster) -> None:
    for name in ("a", "b"):
        made.add(resource_slice(name, node="n1", pool="n1", devices=[device(f"gpu-{name}")]))
    made.pod("train", request("r", "gpu"))


def amount_that_is_no_quantity(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0", capacity={"memory": "40Gi"}, allowMultipleAllocations=True))
    made.pod("train", request("r", "gpu", capacity={"requests": {"memory": "ten"}}))


def shared_with_policy(made: MadeCluster, policy: dict[str, Any]) -> None:
    """A GPU with 10 of 40Gi left, of which a request for 9Gi needs more."""
    shared = device("gpu-0", capacity={"memory": "40Gi"}, allowMultipleAllocations=True)
    shared["capacity"]["memory"]["requestPolicy"] = {"default": "8Gi", **policy}
    made.gpus("n1", shared)
    made.running("old", "n1", "gpu-0", request("r", "gpu"))
    share = {"shareID": "00000000-0000-0000-0000-000000000001", "consumedCapacity": {"memory": "30Gi"}}
    made.objects["resourceclaims"][-1]["status"]["allocation"]["devices"]["results"][0].update(share)
    made.pod("train", request("r", "gpu", capacity={"requests": {"memory": "9Gi"}}))


def amount_that_its_steps_round_up(made: MadeCluster) -> None:
    shared_with_policy(made, {"validRange": {"min": "4Gi", "step": "4Gi"}})


def amount_that_its_values_round_up(made: MadeCluster) -> None:
    shared_with_policy(made, {"validValues": ["8Gi", "16Gi"]})


def constraint_with_a_misspelt_attribute(made: MadeCluster) -> None:
    made.gpus("n1", *(device(f"gpu-{number}", attributes={"numa": 0}) for number in range(2)))
    made.pod("train", request("r", "gpu", count=2))
    devices = made.objects["resourceclaims"][-1]["spec"]["devices"]
    devices["constraints"] = [{"matchAttribute": f"{GPU}/nmua"}]


def overhead_beside_what_is_asked_for(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    made.pod("train", request("r", "gpu"), cpu="64", overhead={"cpu": "1"})


def generated_claim_that_is_gone(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    made.add(resource_claim_template("one-gpu", NAMESPACE, request("r", "gpu")))
    made.add(pod("train", NAMESPACE, templates={"gpu": "one-gpu"}))
    statuses = [{"name": "gpu", "resourceClaimName": "train-gpu-x"}]
    made.objects["pods"][-1]["status"]["resourceClaimStatuses"] = statuses


def template_misspelt(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    made.add(resource_claim_template("large-gpu", NAMESPACE, request("r", "gpu")))
    made.add(pod("train", NAMESPACE, templates={"gpu": "large-gpuu"}))


def template_misspelt_and_its_device_held(made: MadeCluster) -> None:
    template_misspelt(made)
    made.running("old", "n1", "gpu-0", request("r", "gpu"))


def template_misspelt_whose_class_is_misspelt(made: MadeCluster) -> None:
    made.add(device_class("large-gpu"))
    template_misspelt(made)
    requests = made.objects["resourceclaimtemplates"][-1]["spec"]["spec"]["devices"]["requests"]
    requests[0]["exactly"]["deviceClassName"] = "large-gpuu"


def claim_misspelt_and_its_device_held(made: MadeCluster) -> None:
    held(made)
    made.pod("train", request("r", "gpu"))
    made.objects["pods"][-1]["spec"]["resourceClaims"][0]["resourceClaimName"] = "claim-trian"


def pod_group_misspelt_and_its_device_held(made: MadeCluster) -> None:
    held(made)
    made.add(pod_group("training", NAMESPACE, min_count=1))
    made.pod("train", request("r", "gpu"), schedulingGroup={"podGroupName": "trainnig"})


def gang_with_a_misspelt_template_and_a_device_in_use(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"), device("gpu-1"))
    gang(made)
    made.add(resource_claim_template("large-gpu", NAMESPACE, request("r", "gpu")))
    entry = {"name": "gpu", "resourceClaimTemplateName": "large-gpuu"}
    made.objects["pods"][0]["spec"]["resourceClaims"] = [entry]


def template_in_another_namespace(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    made.add(resource_claim_template("one-gpu", "other", request("r", "gpu")))
    made.add(pod("train", NAMESPACE, templates={"gpu": "one-gpu"}))


def gang_with_a_member_of_too_much_cpu(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"), device("gpu-1"))
    gang(made, cpu="100")
    made.objects["pods"][0]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "30"


def gang_with_a_member_of_too_much_cpu_beside_a_full_one(made: MadeCluster) -> None:
    gang_with_a_member_of_too_much_cpu(made)
    made.objects["pods"][0]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "64"


def tolerated_for(made: MadeCluster, seconds: int | None) -> None:
    made.gpus("n1", device("gpu-0", taints=[{"key": "e.com/x", "effect": "NoExecute"}]))
    toleration: dict[str, Any] = {"key": "e.com/x", "operator": "Exists", "effect": "NoExecute"}
    toleration |= {} if seconds is None else {"tolerationSeconds": seconds}
    made.pod("train", request("r", "gpu", tolerations=[toleration]))


def taint_tolerated_for_a_minute(made: MadeCluster) -> None:
    tolerated_for(made, 60)


def taint_tolerated_for_no_time(made: MadeCluster) -> None:
    tolerated_for(made, 0)


def taint_tolerated_for_ever(made: MadeCluster) -> None:
    tolerated_for(made, None)


def gang_whose_second_node_is_closed(made: MadeCluster) -> None:
    made.nodes("n2")
    for name in ("n1", "n2"):
        made.gpus(name, device("gpu-0"))
    closed(made, "n2")
    gang(made)


def value_that_is_none_of_a_list(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0", attributes={"model": "C"}))
    made.pod("train", request("r", "gpu", f'device.attributes["{GPU}"].model in ["A", "B"]'))


def attribute_without_its_domain(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0", attributes={"model": "A"}))
    made.pod("train", request("r", "gpu", 'device.attributes.model == "A"'))


def attribute_in_a_domain_of_no_device(made: MadeCluster) -> None:
    held(made)
    made.objects["resourceslices"][-1]["spec"]["devices"][0]["attributes"] = {"model": {"string": "A"}}
    made.pod("train", request("r", "gpu", 'device.attributes["vendor.com"].model == "A"'))


def attribute_that_one_device_lacks(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"), device("gpu-1", attributes={"model": "A"}))
    made.pod("train", request("r", "gpu", MODEL.format("A")))


def attribute_that_one_device_lacks_and_the_other_has_otherwise(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"), device("gpu-1", attributes={"model": "B"}))
    made.pod("train", request("r", "gpu", MODEL.format("A")))


def asked_for(made: MadeCluster, *conditions: str, device_class_name: str = "gpu") -> None:
    """A GPU of model A with 40Gi, beside a device of another driver, and a pod that asks for these conditions."""
    made.add(device_class("any", "true"))
    made.add(resource_slice("a-n1", node="n1", driver="a.example.com", devices=[device("other")]))
    made.gpus("n1", device("gpu-0", attributes={"model": "A", "arch": "x"}, capacity={"memory": "40Gi"}))
    made.pod("train", request("r", device_class_name, *conditions))


def guarded(subject: str, *, value: str = '"A"') -> str:
    return f"has({subject}) && {subject} == {value}"


def presence_of_a_misspelt_attribute(made: MadeCluster) -> None:
    asked_for(made, guarded(f'device.attributes["{GPU}"].modle'), device_class_name="any")


def presence_of_a_misspelt_attribute_and_another_value(made: MadeCluster) -> None:
    asked_for(made, guarded(f'device.attributes["{GPU}"].modle', value='"B"'))


def key_of_a_misspelt_attribute(made: MadeCluster) -> None:
    asked_for(made, f'"modle" in device.attributes["{GPU}"] && device.attributes["{GPU}"].modle == "A"')


def key_in_a_domain_of_no_device(made: MadeCluster) -> None:
    asked_for(made, '"model" in device.attributes["gpus.com"] && device.attributes["gpus.com"].model == "A"')


def domain_of_no_device_that_is_tested(made: MadeCluster) -> None:
    asked_for(made, '"gpus.com" in device.attributes && device.attributes["gpus.com"].model == "A"')


def optional_domain_of_no_device(made: MadeCluster) -> None:
    asked_for(made, 'device.attributes[?"gpus.com"].model.orValue("") == "A"')


def presence_of_an_attribute_that_is_a_capacity(made: MadeCluster) -> None:
    memory = f'device.attributes["{GPU}"].memory'
    asked_for(made, f'has({memory}) && {memory}.compareTo(quantity("40Gi")) >= 0')


def presence_of_a_capacity_that_is_an_attribute(made: MadeCluster) -> None:
    asked_for(made, guarded(f'device.capacity["{GPU}"].model'))


def presence_of_what_no_device_has(made: MadeCluster) -> None:
    asked_for(made, f'{MODEL.format("A")} && {guarded(f"""device.attributes["{GPU}"].productName""")}')


def optional_attribute_that_no_device_has(made: MadeCluster) -> None:
    asked_for(made, f'device.attributes["{GPU}"].?productName.orValue("") == "A"')


def class_that_tests_what_no_device_has(made: MadeCluster) -> None:
    made.add(device_class("large", f'device.driver == "{GPU}"', guarded(f'device.attributes["{GPU}"].productName')))
    asked_for(made, device_class_name="large")


def value_only_where_the_attribute_is(made: MadeCluster) -> None:
    asked_for(made, f'!has(device.attributes["{GPU}"].model) || {MODEL.format("B")}')


def attribute_with_its_type_behind_it(made: MadeCluster) -> None:
    asked_for(made, 'device.attributes["model"].string == "A"')


def presence_that_decides_between_a_value_and_false(made: MadeCluster) -> None:
    misspelt = f'device.attributes["{GPU}"].modle'
    asked_for(made, f'has({misspelt}) ? {misspelt} == "A" : false')


def resource_misspelt(made: MadeCluster) -> None:
    made.add(device_class("large", extendedResourceName="example.com/large-gpu"))
    made.gpus("n1", device("gpu-0"))
    made.add(pod("train", NAMESPACE, extended={"example.com/large-gpus": "1"}))


def gang_with_a_member_that_misspells_a_resource(made: MadeCluster) -> None:
    made.add(device_class("large", extendedResourceName="example.com/large-gpu"))
    made.gpus("n1", *(device(f"gpu-{number}") for number in range(3)))
    gang(made)
    resources = {"requests": {"example.com/large-gpus": "1"}, "limits": {"example.com/large-gpus": "1"}}
    made.objects["pods"][0]["spec"]["containers"][0]["resources"] = resources


def resource_whose_device_is_tainted(made: MadeCluster) -> None:
    made.add(device_class("large", extendedResourceName="example.com/large-gpu"))
    made.gpus("n1", device("gpu-0", taints=[{"key": "e.com/x", "effect": "NoSchedule"}]))
    made.add(pod("train", NAMESPACE, extended={"example.com/large-gpu": "1"}))


def resource_misspelt_and_its_device_held(made: MadeCluster) -> None:
    resource_misspelt(made)
    made.running("old", "n1", "gpu-0", request("r", "gpu"))


def class_misspelt_and_the_node_closed(made: MadeCluster) -> None:
    class_misspelt_and_its_device_held(made)
    made.objects["pods"] = [each for each in made.objects["pods"] if each["metadata"]["name"] != "old"]
    made.objects["resourceclaims"].pop(0)
    closed(made)


def gang_whose_members_all_misspell_the_class(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"), device("gpu-1"))
    made.add(device_class("large-gpu"))
    gang(made)
    for claim in made.objects["resourceclaims"]:
        claim["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "large-gpuu"


def gang_whose_members_all_misspell_the_scheduler(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"), device("gpu-1"))
    gang(made)
    for each in made.objects["pods"]:
        each["spec"]["schedulerName"] = "dra-extender-schedulr"
        each["status"] = {"phase": "Pending"}


def resource_misspelt_and_no_cpu(made: MadeCluster) -> None:
    resource_misspelt(made)
    made.objects["pods"][-1]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "100"


def gang_with_a_gated_member_and_a_device_in_use(made: MadeCluster) -> None:
    gang_with_a_gated_member(made)
    made.running("old", "n1", "gpu-0", request("r", "gpu"))


def gang_with_a_member_of_an_absent_scheduler_and_a_device_in_use(made: MadeCluster) -> None:
    gang_with_a_member_of_an_absent_scheduler(made)
    made.running("old", "n1", "gpu-0", request("r", "gpu"))


def counters_of_two_sets_that_do_not_suffice(made: MadeCluster) -> None:
    sets = [counter_set("first", mem="4"), counter_set("second", sm="4")]
    both = [consumption("first", mem="3"), consumption("second", sm="3")]
    draws = {"x": both, "y": [consumption("first", mem="2")], "z": [consumption("second", sm="2")]}
    made.partitions("n1", sets, [device(name, consumes=entries) for name, entries in draws.items()])
    made.running("old-y", "n1", "y", request("r", "gpu"))
    made.running("old-z", "n1", "z", request("r", "gpu"))
    made.pod("train", request("r", "gpu"))


def port_of_the_host_in_use(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    made.add(pod("other", NAMESPACE, nodeName="n1"))
    made.pod("train", request("r", "gpu"))
    for each in made.objects["pods"]:
        each["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}]


def port_of_the_host_and_device_in_use(made: MadeCluster) -> None:
    port_of_the_host_in_use(made)
    made.running("old", "n1", "gpu-0", request("r", "gpu"))


def node_label_misspelt(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    made.objects["nodes"][0]["metadata"]["labels"]["topology-zone"] = "a"
    made.pod("train", request("r", "gpu"), nodeSelector={"topology-zonee": "a"})


def node_label_without_the_value(made: MadeCluster) -> None:
    node_label_misspelt(made)
    term = {"matchExpressions": [{"key": "topology-zone", "operator": "In", "values": ["b"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    spec = made.objects["pods"][-1]["spec"]
    del spec["nodeSelector"]
    spec["affinity"] = {"nodeAffinity": required}


def two_devices_with_different_taints(made: MadeCluster) -> None:
    taints = [{"key": f"e.com/{name}", "effect": "NoSchedule"} for name in "ab"]
    made.gpus("n1", *(device(f"gpu-{number}", taints=[taint]) for number, taint in enumerate(taints)))
    made.pod("train", request("r", "gpu", count=2))


def gated_and_the_device_held(made: MadeCluster) -> None:
    held(made)
    made.pod("train", request("r", "gpu"), schedulingGates=[{"name": "example.com/quota"}])


def gated_and_the_node_closed(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    closed(made)
    made.pod("train", request("r", "gpu"), schedulingGates=[{"name": "example.com/quota"}])


def gated_and_resource_misspelt(made: MadeCluster) -> None:
    resource_misspelt(made)
    made.objects["pods"][-1]["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]


def gated_with_a_claim_that_is_made_later(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    made.add(resource_claim_template("one-gpu", NAMESPACE, request("r", "gpu")))
    gates = [{"name": "example.com/quota"}]
    made.add(pod("train", NAMESPACE, templates={"gpu": "one-gpu"}, schedulingGates=gates))


def pool_incomplete_on_a_closed_node(made: MadeCluster) -> None:
    made.add(pool("n1", GPU))
    closed(made)
    made.pod("train", request("r", "gpu"))


def selector_false_on_a_closed_node(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0", attributes={"model": "A"}))
    closed(made)
    made.pod("train", request("r", "gpu", MODEL.format("B")))


def all_devices_of_which_one_is_tainted_and_one_held(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"), device("gpu-1", taints=[{"key": "e.com/x", "effect": "NoSchedule"}]))
    made.running("old", "n1", "gpu-0", request("r", "gpu"))
    made.pod("train", request("r", "gpu", allocationMode="All"))
    del made.objects["resourceclaims"][-1]["spec"]["devices"]["requests"][0]["exactly"]["count"]


def gang_of_too_few_with_a_misspelt_class(made: MadeCluster) -> None:
    made.add(device_class("large-gpu"))
    made.gpus("n1", *(device(f"gpu-{number}") for number in range(3)))
    made.add(pod_group("train", NAMESPACE, min_count=3))
    made.pod("train-1", request("r", "gpu"), schedulingGroup={"podGroupName": "train"})
    made.pod("train", request("r", "large-gpuu"), schedulingGroup={"podGroupName": "train"})


def value_that_has_to_differ_and_the_other_held(made: MadeCluster) -> None:
    made.gpus("n1", *(device(f"gpu-{number}", attributes={"numa": number // 2}) for number in range(3)))
    made.running("old", "n1", "gpu-2", request("r", "gpu"))
    made.pod("train", request("r", "gpu", count=2))
    devices = made.objects["resourceclaims"][-1]["spec"]["devices"]
    devices["constraints"] = [{"distinctAttribute": f"{GPU}/numa"}]


CASES: dict[Callable[[MadeCluster], None], tuple[list[str], list[str]]] = {
    foreign_pool_incomplete: (
        [f"1 node no device of driver {GPU}; there are {NIC}"],
        ["no devices on the node", "being updated", f"{NIC}/"],
    ),
    pool_incomplete_beside_a_foreign_one: (["being updated", f"check driver {GPU}"], ["a.example.com"]),
    pool_incomplete_with_other_devices: (["being updated", f"check driver {GPU}"], ["no devices", "no device of"]),
    pool_invalid_with_other_devices: (
        ["1 node no device matches the selectors"],
        ["no devices", "no device of driver"],
    ),
    capacity_unknown: (["capacity does not suffice", "gpu-0 has no capacity vram"], ["exhausted"]),
    fewer_devices_than_asked_for: (["2 of 4 devices on n1, which has 3 that match", "ask for 2 devices"], ["end ml/"]),
    device_with_one_taint_beside_one_with_two: (
        ["nearest n1/gpu-1", "tolerate example.com/y:NoSchedule ok on n1"],
        ["gpu-0", "example.com/x"],
    ),
    held_on_a_closed_node: (["1 node matching devices are in use", "next uncordon n1, end ml/old ok on n1"], []),
    holder_has_ended: (
        ["held by ml/old (ended)", "wait until claim ml/claim-old is released, whose pods have ended ok on n1"],
        ["end ml/old"],
    ),
    holder_is_gone: (["held by ml/old (ended)", "wait until claim ml/claim-old is released"], ["end ml/old"]),
    holder_is_being_deleted: (["whose pods are being deleted ok on n1"], ["end ml/old"]),
    volume_missing: (['kube-scheduler reports: persistentvolumeclaim "data" not found'], ["next"]),
    other_pods_beside: (["anti-affinity rules", "end ml/old ok on n1 (not tried: other pods)"], []),
    scheduler_absent: (["no scheduler named dra-extender-schedular has acted"], ["next end"]),
    scheduler_misspelt_and_the_device_held: (
        ["use schedulerName dra-extender-scheduler instead of dra-extender- schedulr, end ml/old ok on n1"],
        ["next end"],
    ),
    scheduler_misspelt_and_the_claim_missing: (
        [
            "next use schedulerName dra-extender-scheduler instead of dra-extender- schedulr, create ResourceClaim ml/absent",
        ],
        ["next create"],
    ),
    class_that_excludes_the_model: (['next have DeviceClass newer ask for model == "a100" ok on n1'], []),
    class_that_wants_a_flag: (["next have DeviceClass ecc ask for ecc == false ok on n1"], []),
    class_of_another_model: (
        ['model is "a100", wanted "h100"', "next use the DeviceClass gpu (1 free device) ok on n1"],
        [],
    ),
    class_misspelt_and_its_device_held: (
        [
            "nearest name large-gpu",
            "once the name is right: matching devices are in use; nearest n1/gpu-0 held by ml/old",
            "use the DeviceClass large-gpu, end ml/old ok on n1",
        ],
        ["1 x large-gpu", "create"],
    ),
    classes_misspelt_in_two_requests: (
        ["use the DeviceClass gpu-large in request a, use the DeviceClass gpu- small in request b ok on n1"],
        ["once the name is right", "create"],
    ),
    class_misspelt_in_one_alternative_and_the_other_held: (
        ["use the DeviceClass large-gpu in request r/b, end ml/old ok on n1"],
        ["once the name is right"],
    ),
    attribute_misspelt_and_the_device_tainted: (
        [
            "once the name is right: matching devices are tainted",
            "ask for model instead of modle, tolerate e.com/x:NoSchedule ok on n1",
        ],
        ["correct the selector"],
    ),
    gang_with_a_member_of_an_absent_scheduler: (
        ["next train-1: use schedulerName dra-extender-scheduler instead of volcano ok, the gang fits"],
        [],
    ),
    gang_with_a_member_whose_class_is_misspelt: (
        [
            "claim gpu, request r of pod train-1 1 node device class does not exist",
            "next train-1: use the DeviceClass large-gpu ok, the gang fits",
        ],
        ["next use", "request r 1 node"],
    ),
    gang_with_a_member_whose_class_is_unlike_all: (["next train-1: create DeviceClass tpu-v5"], ["ok, the gang"]),
    pool_of_more_slices_than_it_declares: (
        ["2 of 1 slices", "check driver gpu.example.com, which has published more slices than it declares"],
        ["the other slices"],
    ),
    amount_that_its_steps_round_up: (["ask for 8Gi of capacity memory ok on n1", "end ml/old ok on n1"], []),
    amount_that_its_values_round_up: (["ask for 8Gi of capacity memory ok on n1", "end ml/old ok on n1"], []),
    constraint_with_a_misspelt_attribute: (
        [f"next ask for matchAttribute {GPU}/numa instead of {GPU}/nmua ok on n1 next do without"],
        [],
    ),
    overhead_beside_what_is_asked_for: (["ask for 62900m of cpu ok on n1"], []),
    generated_claim_that_is_gone: (["claim does not exist: ml/train-gpu-x", "next wait; no Event says"], ["create "]),
    template_misspelt: (["next name ResourceClaimTemplate large-gpu instead of large-gpuu ok on n1"], ["or create"]),
    template_misspelt_and_its_device_held: (
        [
            "once the name is right: matching devices are in use; nearest n1/gpu-0 held by ml/old",
            "next name ResourceClaimTemplate large-gpu instead of large-gpuu, end ml/old ok on n1",
        ],
        ["or create"],
    ),
    template_misspelt_whose_class_is_misspelt: (
        ["ResourceClaimTemplate large-gpu instead of large-gpuu, use the DeviceClass large-gpu ok on n1"],
        ["or create"],
    ),
    claim_misspelt_and_its_device_held: (
        [
            "once the name is right: matching devices are in use; nearest n1/gpu-0 held by ml/old",
            "next name ResourceClaim claim-train instead of claim-trian, end ml/old ok on n1",
        ],
        ["or create"],
    ),
    pod_group_misspelt_and_its_device_held: (
        [
            "once the name is right: matching devices are in use",
            "next name PodGroup training instead of trainnig, end ml/old ok on n1",
        ],
        ["or create"],
    ),
    gang_with_a_misspelt_template_and_a_device_in_use: (["large-gpu instead of large-gpuu ok, the gang fits"], []),
    template_in_another_namespace: (["from template one-gpu; there is other/one- gpu"], []),
    gang_with_a_member_of_too_much_cpu: (["next train-1: ask for 33900m of cpu ok, the gang fits"], ["64 of cpu"]),
    gang_with_a_member_of_too_much_cpu_beside_a_full_one: (["1 Insufficient cpu"], ["next"]),
    taint_tolerated_for_a_minute: (
        [
            "evicts it from n1 60 s after the taint was added (tolerationSeconds): device",
            "gpu-0 has taint e.com/x:NoEx",
        ],
        [],
    ),
    taint_tolerated_for_no_time: (["evicts it from n1 at once (tolerationSeconds): device"], ["after"]),
    taint_tolerated_for_ever: (["devices would suffice on 1 of 1 nodes"], ["evicts"]),
    gang_whose_second_node_is_closed: (
        ["PodGroup ml/train: 1 of 2 placed", "blocked train-1", "uncordon n2 ok, the gang fits"],
        ["may use none of them"],
    ),
    value_that_is_none_of_a_list: (['next ask for model == "C" ok on n1'], []),
    attribute_without_its_domain: (
        [f'next ask for device.attributes["{GPU}"].model instead of device.attributes.model ok on n1'],
        ["correct the selector"],
    ),
    attribute_in_a_domain_of_no_device: (
        [
            "once the name is right: matching devices are in use; nearest n1/gpu-0 held by ml/old",
            'instead of device.attributes["vendor.com"].model, end ml/old ok on n1',
        ],
        ["correct the selector"],
    ),
    attribute_that_one_device_lacks: ([f'ask for "model" in device.attributes["{GPU}"] first ok on n1'], ["correct"]),
    attribute_that_one_device_lacks_and_the_other_has_otherwise: (
        [f'ask for "model" in device.attributes["{GPU}"] first, ask for model == "B" ok on n1'],
        ["correct the selector"],
    ),
    presence_of_a_misspelt_attribute: (
        [
            'nearest n1/gpu-0 the device has no attribute "modle"',
            "did you mean model? It has arch, model",
            "next ask for model instead of modle ok on n1",
        ],
        ["do without"],
    ),
    presence_of_a_misspelt_attribute_and_another_value: (
        ['next ask for model instead of modle, ask for model == "A" ok on n1'],
        ["do without"],
    ),
    key_of_a_misspelt_attribute: (
        ["did you mean model? It has arch, model", "next ask for model instead of modle ok on n1"],
        ["in it"],
    ),
    key_in_a_domain_of_no_device: (
        [
            f'the device has no attribute of domain "gpus.com"; did you mean device.attributes["{GPU}"].model?',
            f'next ask for device.attributes["{GPU}"].model instead of device.attributes["gpus.com"].model ok on n1',
        ],
        [],
    ),
    domain_of_no_device_that_is_tested: (
        [f'next ask for device.attributes["{GPU}"].model instead of device.attributes["gpus.com"].model ok on n1'],
        ["in it"],
    ),
    optional_domain_of_no_device: (
        [f'next ask for device.attributes["{GPU}"].model instead of device.attributes["gpus.com"].model ok on n1'],
        ["do without"],
    ),
    presence_of_an_attribute_that_is_a_capacity: (
        [
            f'did you mean device.capacity["{GPU}"].memory?',
            f'ask for device.capacity["{GPU}"].memory instead of device.attributes["{GPU}"].memory ok on n1',
        ],
        [],
    ),
    presence_of_a_capacity_that_is_an_attribute: (
        [f'ask for device.attributes["{GPU}"].model instead of device.capacity["{GPU}"].model ok on n1'],
        ["correct the selector"],
    ),
    presence_of_what_no_device_has: (
        [
            f'the device has no attribute "productName" of domain "{GPU}"; it has arch, model',
            f'next do without device.attributes["{GPU}"].productName (no device has it) ok on n1',
        ],
        ["].model"],
    ),
    optional_attribute_that_no_device_has: (
        [f'next do without device.attributes["{GPU}"].productName (no device has it) ok on n1'],
        ['== ""'],
    ),
    class_that_tests_what_no_device_has: (
        [f'next correct DeviceClass large: no device has device.attributes["{GPU}"].productName'],
        ["do without"],
    ),
    value_only_where_the_attribute_is: (
        ['nearest n1/gpu-0 model is "A", wanted "B" (request selector 1) next ask for model == "A" ok on n1'],
        [],
    ),
    attribute_with_its_type_behind_it: (
        [
            f'did you mean device.attributes["{GPU}"].model?',
            "next ask for attributes without their type as a suffix ok",
        ],
        ["do without"],
    ),
    presence_that_decides_between_a_value_and_false: (
        ["did you mean model?", "next ask for model instead of modle ok on n1"],
        ["always false"],
    ),
    resource_misspelt: (["ask for example.com/large-gpu instead of example.com/large-gpus ok on n1"], ["once the"]),
    gang_with_a_member_that_misspells_a_resource: (
        ["next ask for example.com/large-gpu instead of example.com/large-gpus ok, the gang fits"],
        [],
    ),
    resource_whose_device_is_tainted: (
        ["next ask for DeviceClass large with a ResourceClaim that tolerates e.com/x:NoSchedule: an extended resource"],
        ["next tolerate"],
    ),
    resource_misspelt_and_its_device_held: (
        [
            "ask for example.com/large-gpu instead of example.com/large-gpus, end ml/old ok on n1",
            "once the name is right: fits 0 of 1 nodes, ",
            "matching devices are in use",
        ],
        ["next end"],
    ),
    class_misspelt_and_the_node_closed: (
        ["also node(s) were unschedulable on n1", "next use the DeviceClass large-gpu, uncordon n1 ok on n1"],
        ["devices only"],
    ),
    gang_whose_members_all_misspell_the_class: (
        ["next train, train-1: use the DeviceClass large-gpu ok, the gang fits"],
        [],
    ),
    gang_whose_members_all_misspell_the_scheduler: (
        ["next train, train-1: use schedulerName dra-extender-scheduler instead of dra- extender-schedulr ok, the"],
        [],
    ),
    resource_misspelt_and_no_cpu: (
        ["example.com/large-gpus, ask for 63900m of cpu ok on n1", "once the name is right", "Insufficient cpu"],
        [],
    ),
    gang_with_a_gated_member_and_a_device_in_use: (
        [
            "next wait until the scheduling gates of train-1 are removed: example.com/quota, end ml/old ok, the gang fits"
        ],
        [],
    ),
    gang_with_a_member_of_an_absent_scheduler_and_a_device_in_use: (
        ["next train-1: use schedulerName dra-extender-scheduler instead of volcano, end ml/old ok, the gang fits"],
        [],
    ),
    counters_of_two_sets_that_do_not_suffice: (
        ["first mem: needs 3, 2 of 4 left held by ml/old-y 2 also second sm: needs 3, 2 left, held by ml/old-z"],
        [],
    ),
    port_of_the_host_in_use: (
        [
            "free ports for the requested pod ports: 8080/TCP in use on n1 by ml/other",
            "next ask for other ports of the host ok on n1",
            "next end ml/other ok on n1",
        ],
        [],
    ),
    port_of_the_host_and_device_in_use: (
        ["pod ports: 8080/TCP on n1", "ask for other ports of the host, end ml/old ok on n1"],
        [],
    ),
    node_label_misspelt: (
        ["affinity/selector no node has label topology-zonee; nearest name topology-zone", "ask for no node selector"],
        [],
    ),
    node_label_without_the_value: (["no node has label topology-zone with value b; there are a"], ["nearest name"]),
    gated_and_the_device_held: (
        [
            "next wait until the scheduling gates of train are removed: example.com/quota, end ml/old ok on n1",
            'once its gates are removed: fits 0 of 1 nodes, claim "gpu", request "r": matching devices are in use',
        ],
        [],
    ),
    gated_and_the_node_closed: (
        ["train are removed: example.com/quota, uncordon n1 ok on n1", "may use none of them"],
        [],
    ),
    gated_and_resource_misspelt: (
        ["example.com/quota, ask for example.com/large-gpu instead of example.com/large-gpus ok on n1"],
        ["next ask", "once its gates"],
    ),
    gated_with_a_claim_that_is_made_later: (
        ["next wait until the scheduling gates of train are removed: example.com/quota ok on n1"],
        ["once its gates"],
    ),
    pool_incomplete_on_a_closed_node: (["being updated", "also node(s) were unschedulable on n1"], []),
    selector_false_on_a_closed_node: (
        ['model is "A", wanted "B"', "also node(s) were unschedulable on n1", 'model == "A", uncordon n1 ok on n1'],
        [],
    ),
    all_devices_of_which_one_is_tainted_and_one_held: (
        ["held by ml/old also matching devices are tainted: gpu-1", "tolerate e.com/x:NoSchedule, end ml/old ok on n1"],
        [],
    ),
    gang_of_too_few_with_a_misspelt_class: (
        ["next create 1 more member of PodGroup ml/train", "next use the DeviceClass large-gpu"],
        ["ok, the gang fits"],
    ),
    value_that_has_to_differ_and_the_other_held: (
        ["also matching devices are in use: gpu-2"],
        ["in use: 1 of 2 devices found"],
    ),
    two_devices_with_different_taints: (
        [
            "gpu-0 has taint e.com/a:NoSchedule also gpu-1 has taint e.com/b:NoSchedule",
            "tolerate e.com/a:NoSchedule, tolerate e.com/b:NoSchedule ok on n1",
        ],
        [],
    ),
    amount_that_is_no_quantity: (["cannot read quantity 'ten'", "next correct the amount of capacity"], []),
    resource_of_a_domain_with_others: (["no DeviceClass serves it"], ["nearest name"]),
    gang_whose_member_is_meant_for_a_node_in_use: (
        [
            "1 of 2 placed",
            "ok train on n1",
            "blocked train-1 r: matching devices are in use",
            "end ml/old ok, the gang",
        ],
        ["train, train-1"],
    ),
    gang_on_a_closed_node: (["not ready train", "node(s) were unschedulable"], ["ok train", "1 can be placed"]),
    gang_that_uses_an_open_node: (["fits n2", "ok train, train-1 on n2"], ["unschedulable", "next"]),
    gang_with_room_for_one: (
        [
            "train-1 does not fit on n1 beside the other members: Insufficient cpu",
            "next train-1: ask for 23900m of cpu ok, the gang fits",
        ],
        ["fits n1", "end ml/train"],
    ),
    gang_with_room_for_one_pod: (
        ["train-1 does not fit on n1 beside the other members: Too many pods", "next end ml/old ok, the gang fits"],
        ["fits n1"],
    ),
    gang_with_room_for_one_beside_a_holder: (["1 of 2 placed", "held by ml/old"], ["end ml/old"]),
    gang_with_a_device_of_its_own: (["1 of 2 placed", "held by ml/train-1"], ["next"]),
    gang_with_a_gated_member: (
        ["wait until the scheduling gates of train-1 are removed: example.com/quota ok, the gang fits"],
        ["ask for", "create"],
    ),
    gang_with_a_member_without_its_claim: (["next train-1: create ResourceClaim ml/absent"], ["ok, the gang fits"]),
    driver_version_too_low: (["ask for driverVersion >= 1.2.0 ok on n1"], ["held by"]),
    held_and_the_other_tainted: (["also matching devices are in use: gpu-0", "example.com/x"], []),
    tainted_on_a_closed_node: (["gpu-0 has taint example.com/x:NoSchedule", "uncordon n1"], ["end ml/"]),
    amount_beyond_every_device: (["capacity", "80Gi"], ["held by", "end ml/"]),
    node_of_the_devices_is_full: (["Insufficient cpu", "end ml/large ok on n1"], ["in use"]),
    held_on_two_nodes: (["2 nodes matching devices are in use", "end ml/old-n"], ["end ml/old-n1, ml/old-n2"]),
    devices_on_several_nodes: (["1 of 2 devices", "ask for 1 device ok on n1"], ["end ml/", "held by"]),
    two_selectors_of_which_one_is_false: (['form is "SXM", wanted "PCIe"', 'ask for form == "SXM" ok'], ["model is"]),
    constraint_between_requests: ([f"do without matchAttribute {GPU}/numa ok on n1"], ["held by", "end ml/"]),
    class_of_which_nothing_is_published: ([NIC], ["held by", "end ml/"]),
}


def assert_answer(build: Callable[[MadeCluster], None], expected: list[str], false: list[str]) -> None:
    """Assert that the answer about pod `train` of the cluster has all expected texts, and none that is not so."""
    made = cluster("n1")
    build(made)
    made.add(pod("seen", NAMESPACE, nodeName="n1"))
    text = " ".join(tree(why(made.view(), NAMESPACE, "train")).split())
    assert [each for each in expected if each not in text] == [], text
    assert [each for each in false if each in text] == [], text


@pytest.mark.parametrize("build", CASES, ids=lambda build: build.__name__)
def test_answer_names_the_cause_and_nothing_that_is_not_so(build: Callable[[MadeCluster], None]) -> None:
    assert_answer(build, *CASES[build])


@pytest.mark.parametrize("build", [class_misspelt_and_its_device_held, template_misspelt_and_its_device_held])
def test_reasons_count_each_node_once_although_a_misspelt_name_hides_another_cause(
    build: Callable[[MadeCluster], None],
) -> None:
    made = cluster("n1")
    build(made)
    branches = why(made.view(), NAMESPACE, "train").branches
    assert sum(reason.nodes for branch in branches for reason in branch.reasons) == 1
    assert [reason.code for branch in branches for reason in branch.after_correction] == ["IN_USE"]


def test_closed_node_with_devices_decides_the_row_beside_nodes_without() -> None:
    made = cluster("n1")
    held_on_a_closed_node(made)
    assert waiting(made.view()).causes[0].code == "IN_USE"


def test_report_in_an_event_decides_the_row() -> None:
    made = cluster("n1")
    made.gpus("n1", device("gpu-0"))
    made.pod("train", request("r", "gpu"))
    made.objects["pods"][-1]["status"] = {"phase": "Pending"}
    about = {"kind": "Pod", "namespace": NAMESPACE, "name": "train", "uid": made.objects["pods"][-1]["metadata"]["uid"]}
    made.add(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "train.1", "namespace": NAMESPACE},
            "type": "Warning",
            "reason": "FailedScheduling",
            "message": '0/1 nodes are available: persistentvolumeclaim "data" not found.',
            "involvedObject": about,
            "source": {"component": "dra-extender-scheduler"},
        }
    )
    assert waiting(made.view()).causes[0].text == 'persistentvolumeclaim "data" not found'


def test_node_that_something_else_keeps_from_the_pod_does_not_fit() -> None:
    made = cluster("n1")
    made.gpus("n1", device("gpu-0"))
    closed(made)
    made.pod("train", request("r", "gpu"))
    report = why_on_node(made.view(), NAMESPACE, "train", "n1")
    assert report.fits
    assert node_tree(report).splitlines()[:2] == [
        "ml/train on n1  does not fit",
        "  beside devices: node(s) were unschedulable",
    ]
