"""Pods that wait for causes that stand behind or beside each other: the answer names all of them."""

from collections.abc import Callable
from typing import Any, Final

import pytest

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
from tests.inspection.why.test_all_reasons import alternative, first_available, model, shared, two_claims
from tests.inspection.why.test_constructed_causes import (
    GPU,
    MODEL,
    NIC,
    assert_answer,
    closed,
    gang,
    gang_with_a_gated_member,
    held,
    resource_misspelt_and_its_device_held,
    shared_with_policy,
)
from tests.support.inspection.made_cluster import CREATED, NAMESPACE, MadeCluster

Build = Callable[[MadeCluster], None]
GATES: Final = [{"name": "example.com/quota"}]
ATTRIBUTES: Final = f'device.attributes["{GPU}"]'
CASES: dict[Build, tuple[list[str], list[str]]] = {}
"""By the function that builds the cluster: texts of the answer about pod `train`, and texts that would not be so."""


def case(*expected: str, false: tuple[str, ...] = ()) -> Callable[[Build], Build]:
    def keep(build: Build) -> Build:
        CASES[build] = list(expected), list(false)
        return build

    return keep


def selected(made: MadeCluster, expression: str, **attributes: str | int | bool) -> None:
    """A GPU with these attributes, and a pod whose selector means another one."""
    made.gpus("n1", device("gpu-0", attributes=attributes, capacity={"memory": "40Gi"}))
    made.pod("train", request("r", "gpu", expression))


@case('model is "C", wanted "A"; model is "C", wanted "B"', 'next ask for model == "C" ok on n1')
def selector_with_two_values(made: MadeCluster) -> None:
    selected(made, f'{ATTRIBUTES}.model == "A" || {ATTRIBUTES}.model == "B"', model="C")


@case('model is "C", wanted anything but "C"', 'next ask for model == "C" ok on n1')
def selector_for_anything_but_the_value(made: MadeCluster) -> None:
    selected(made, f'{ATTRIBUTES}.model != "C"', model="C")


@case("healthy is false, wanted true", "next ask for healthy == false ok on n1")
def selector_for_a_flag(made: MadeCluster) -> None:
    selected(made, f"{ATTRIBUTES}.healthy", healthy=False)


@case("shared is true, wanted false", "next ask for shared == true ok on n1")
def selector_against_a_flag(made: MadeCluster) -> None:
    selected(made, f"!{ATTRIBUTES}.shared", shared=True)


@case('model is "C", wanted "A"', 'next ask for model == "C" ok on n1')
def selector_that_depends_on_a_condition(made: MadeCluster) -> None:
    selected(made, f'"model" in {ATTRIBUTES} ? {ATTRIBUTES}.model == "A" : false', model="C")


def of_class_of_another_model(made: MadeCluster, *expressions: str, **fields: Any) -> None:
    """A GPU with model and index, and a pod whose class means another model and whose own selectors are these."""
    made.add(device_class("h100", MODEL.format("h100")))
    made.gpus("n1", device("gpu-0", attributes={"model": "a100", "index": 1}, **fields))
    made.pod("train", request("r", "h100", *expressions))


@case("next ask for index == 1, use the DeviceClass gpu (1 free device) ok on n1")
def class_of_another_model_and_own_selector(made: MadeCluster) -> None:
    of_class_of_another_model(made, f"{ATTRIBUTES}.index == 2")


@case("next ask for model instead of modle, use the DeviceClass gpu (1 free device) ok on n1")
def class_of_another_model_and_own_selector_misspelt(made: MadeCluster) -> None:
    of_class_of_another_model(made, f'{ATTRIBUTES}.modle == "a100"')


@case("next use the DeviceClass gpu (1 free device), tolerate e.com/x:NoSchedule ok on n1")
def class_of_another_model_and_its_device_tainted(made: MadeCluster) -> None:
    of_class_of_another_model(made, taints=[{"key": "e.com/x", "effect": "NoSchedule"}])


@case(
    "next use the DeviceClass gpu (2 free devices) in request a, use the DeviceClass gpu (2 free devices) in request b ok on n1"
)
def class_of_another_model_in_two_requests(made: MadeCluster) -> None:
    made.add(device_class("h100", MODEL.format("h100")))
    made.gpus("n1", *(device(f"gpu-{number}", attributes={"model": "a100"}) for number in range(2)))
    made.pod("train", request("a", "h100"), request("b", "h100"))


@case("next train, train-1: use the DeviceClass gpu (2 free devices) ok, the gang fits")
def class_of_another_model_of_a_gang(made: MadeCluster) -> None:
    made.add(device_class("h100", MODEL.format("h100")))
    made.gpus("n1", *(device(f"gpu-{number}", attributes={"model": "a100"}) for number in range(2)))
    gang(made)
    for claim in made.objects["resourceclaims"]:
        claim["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "h100"


DRIVER: Final = f'device.driver == "{GPU}"'


def of_class_of_nics(made: MadeCluster, *expressions: str) -> None:
    """A free NIC, and a pod whose class means NICs and whose own selectors are these."""
    made.add(device_class("nic", f'device.driver == "{NIC}"'))
    made.gpus("n1", device("nic-0"), driver=NIC)
    made.pod("train", request("r", "nic", *expressions))


@case("next use the DeviceClass a100 (1 free device) ok on n1", false=("next use the DeviceClass gpu",))
def class_that_the_own_selector_contradicts(made: MadeCluster) -> None:
    made.add(device_class("a100", DRIVER, MODEL.format("a100")))
    of_class_of_another_model(made, MODEL.format("a100"))


@case(
    f'device.driver is "{NIC}", wanted "{GPU}" (request selector 1)',
    "next use the DeviceClass gpu (1 free device) ok on n1",
)
def class_of_another_driver_than_the_own_selector_where_two_classes_have_its_devices(made: MadeCluster) -> None:
    made.add(device_class("gpu-too"))
    made.gpus("n1", device("gpu-0"))
    of_class_of_nics(made, DRIVER)


@case("next use the DeviceClass gpu (0 free devices), end ml/old ok on n1")
def class_of_another_driver_than_the_own_selector_whose_device_is_held(made: MadeCluster) -> None:
    held(made)
    of_class_of_nics(made, DRIVER)


@case(f'wanted "{GPU}" (request selector 1)', "next do without selector 1 ok on n1", false=("use the DeviceClass",))
def class_of_another_driver_than_the_own_selector_of_which_nothing_is_published(made: MadeCluster) -> None:
    of_class_of_nics(made, DRIVER)


@case("next do without selectors 1 and 3 ok on n1")
def selectors_that_nothing_can_meet(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0", attributes={"model": "A"}))
    made.pod("train", request("r", "gpu", "false", MODEL.format("A"), "1 > 2"))


@case(
    'model is "a100", wanted "h100" (class selector 1)',
    f"next create a DeviceClass with {GPU}/n1/gpu-0, which the request's selectors mean: DeviceClass h100 excludes it",
    false=("ok on", "do without"),
)
def class_that_the_own_selector_contradicts_and_no_other(made: MadeCluster) -> None:
    made.objects["deviceclasses"].clear()
    of_class_of_another_model(made, MODEL.format("a100"))


@case("DeviceClass nic excludes it", false=("check driver", "ok on"))
def class_of_an_absent_driver_that_the_own_selector_contradicts(made: MadeCluster) -> None:
    made.objects["deviceclasses"].clear()
    made.gpus("n1", device("gpu-0"))
    of_class_of_nics(made, DRIVER)
    made.objects["resourceslices"].pop()


@case("next train, train-1: use the DeviceClass gpu (2 free devices) ok, the gang fits")
def class_of_a_gang_that_the_own_selectors_contradict(made: MadeCluster) -> None:
    made.add(device_class("nic", f'device.driver == "{NIC}"'))
    made.gpus("n1", device("gpu-0"), device("gpu-1"))
    gang(made)
    for claim in made.objects["resourceclaims"]:
        contradicting = {"deviceClassName": "nic", "selectors": [{"cel": {"expression": DRIVER}}]}
        claim["spec"]["devices"]["requests"][0]["exactly"].update(contradicting)


@case("needs 40 devices on this node, a claim may have 32", "next ask for 32 devices ok on n1")
def all_devices_of_a_node_that_has_more_than_a_claim_may_have(made: MadeCluster) -> None:
    made.gpus("n1", *(device(f"gpu-{number}") for number in range(40)))
    made.pod("train", request("r", "gpu", allocationMode="All"))
    del made.objects["resourceclaims"][-1]["spec"]["devices"]["requests"][0]["exactly"]["count"]


@case("next end ml/old ok on n2", false=("use the DeviceClass",))
def class_of_another_model_whose_device_is_held(made: MadeCluster) -> None:
    made.nodes("n2")
    made.gpus("n2", device("gpu-0", attributes={"model": "h100"}))
    made.running("old", "n2", "gpu-0", request("r", "gpu"))
    of_class_of_another_model(made)


@case('next ask for model == "C" ok on n1')
def selector_with_a_variable(made: MadeCluster) -> None:
    selected(made, f'cel.bind(found, {ATTRIBUTES}.model, found == "A" || found == "B")', model="C")


@case('next ask for model == "C" ok on n1')
def selector_with_a_list_of_values(made: MadeCluster) -> None:
    selected(made, f'["A", "B"].exists(wanted, {ATTRIBUTES}.model == wanted)', model="C")


@case("memory is 40Gi, wanted at least 80Gi", "next ask for memory >= 40Gi ok on n1")
def selector_with_zero_before_the_comparison(made: MadeCluster) -> None:
    selected(made, f'0 <= device.capacity["{GPU}"].memory.compareTo(quantity("80Gi"))')


@case("next ask for model instead of modle", false=("correct the selector",))
def attribute_misspelt_on_a_cordoned_node_whose_device_is_held_and_whose_cpu_is_too_little(made: MadeCluster) -> None:
    """More is wrong than is tried together; what is certain is advised all the same."""
    made.gpus("n1", device("gpu-0", attributes={"model": "A"}))
    made.running("old", "n1", "gpu-0", request("r", "gpu"))
    closed(made)
    made.pod("train", request("r", "gpu", f'{ATTRIBUTES}.modle == "B"'), cpu="100")


def tolerated_for(made: MadeCluster, seconds: int) -> None:
    """A tainted GPU that pod `old` has, and a pod that tolerates the taint for some seconds."""
    made.gpus("n1", device("gpu-0", taints=[{"key": "e.com/x", "effect": "NoExecute"}]))
    made.running("old", "n1", "gpu-0", request("r", "gpu"))
    toleration = {"key": "e.com/x", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
    made.pod("train", request("r", "gpu", tolerations=[toleration]))


@case(
    "held by ml/old also kube-controller-manager would evict the pod 60 s after the taint was added", "next end ml/old"
)
def taint_tolerated_for_a_minute_behind_a_holder(made: MadeCluster) -> None:
    tolerated_for(made, 60)


@case("would evict the pod at once (tolerationSeconds): device gpu.example.com/n1/gpu-0 has taint e.com/x:NoExecute")
def taint_tolerated_for_no_time_behind_a_holder(made: MadeCluster) -> None:
    tolerated_for(made, 0)


@case(
    "held by ml/old also gpu-0 has taint e.com/drain:NoSchedule e.com/drain:NoSchedule is set by DeviceTaintRule drain"
)
def taint_of_a_rule_behind_a_holder(made: MadeCluster) -> None:
    held(made)
    taint = {"key": "e.com/drain", "effect": "NoSchedule", "timeAdded": CREATED}
    made.add(taint_rule("drain", taint, driver=GPU, pool="n1", device="gpu-0"))
    made.pod("train", request("r", "gpu"))


def deleted(made: MadeCluster, *finalizers: str) -> None:
    made.objects["resourceclaims"][-1]["metadata"].update(deletionTimestamp=CREATED, finalizers=list(finalizers))


@case(
    "claim is being deleted: ml/claim-train kept by finalizer example.com/keep",
    "once the claim is created again: matching devices are in use; nearest n1/gpu-0 held by ml/old",
    "next create the claim again once it is gone, end ml/old ok on n1",
)
def claim_that_is_deleted_and_its_device_held(made: MadeCluster) -> None:
    held(made)
    made.pod("train", request("r", "gpu"))
    deleted(made, "example.com/keep")


@case(
    "once the claim is created again: device class does not exist: device class large-gpuu; nearest name large-gpu",
    "next create the claim again once it is gone, use the DeviceClass large-gpu ok on n1",
)
def claim_that_is_deleted_and_misspells_its_class(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    made.pod("train", request("r", "gpu"))
    misspell_class(made, -1)
    deleted(made, "example.com/keep")


@case(
    "held by claim ml/claim-old (being deleted) claim ml/claim-old is kept by finalizer example.com/keep",
    "next wait until claim ml/claim-old is gone",
    false=("delete-protection",),
)
def claim_that_is_deleted_and_keeps_its_device(made: MadeCluster) -> None:
    held(made)
    made.objects["pods"].pop()
    deleted(made, "resource.kubernetes.io/delete-protection", "example.com/keep")
    del made.objects["resourceclaims"][-1]["status"]["reservedFor"]
    made.pod("train", request("r", "gpu"))


@case("held by ml/old (being deleted) pod ml/old is kept by finalizers example.com/a, example.com/b next wait until")
def pod_that_is_deleted_and_keeps_its_device(made: MadeCluster) -> None:
    held(made)
    metadata = made.objects["pods"][-1]["metadata"]
    metadata.update(deletionTimestamp=CREATED, finalizers=["example.com/a", "example.com/b"])
    made.pod("train", request("r", "gpu"))


@case("next wait until the claim is gone and made again from its template ok on n1", false=("create the claim",))
def generated_claim_that_is_deleted(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    made.add(resource_claim_template("one-gpu", NAMESPACE, request("r", "gpu")))
    made.add(pod("train", NAMESPACE, templates={"gpu": "one-gpu"}))
    train = made.objects["pods"][-1]
    train["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "train-gpu-x"}]
    made.add(resource_claim("train-gpu-x", NAMESPACE, request("r", "gpu")))
    deleted(made, "example.com/keep")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "train", "uid": train["metadata"]["uid"], "controller": True}
    made.objects["resourceclaims"][-1]["metadata"]["ownerReferences"] = [owner]


@case(
    "it is reserved for old",
    "next create the claim again once it is gone ok on n1",
    false=("once the claim", "end ml/"),
)
def claim_that_is_deleted_and_has_the_device(made: MadeCluster) -> None:
    held(made)
    deleted(made, "resource.kubernetes.io/delete-protection")
    made.add(pod("train", NAMESPACE, claims={"gpu": "claim-old"}))


@case(
    "once the selector does not fail: matching devices are in use; nearest n1/gpu-0 held by ml/old", "next end ml/old"
)
def selector_that_fails_on_one_device_beside_a_held_one(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0", attributes={"model": "A"}), device("gpu-1"))
    made.running("old", "n1", "gpu-0", request("r", "gpu"))
    made.pod("train", request("r", "gpu", MODEL.format("A")))


@case(
    "gpu-0 has 40Gi of memory in all, 80Gi would be needed held by ml/old also memory: 10Gi of 40Gi left",
    "next ask for 10Gi of capacity memory ok on n1",
    false=("ask for 40Gi",),
)
def amount_beyond_a_device_that_others_share(made: MadeCluster) -> None:
    shared(made, {"memory": "30Gi"}, device("gpu-0", capacity={"memory": "40Gi"}))
    made.pod("train", request("r", "gpu", capacity={"requests": {"memory": "80Gi"}}))


@case("in steps of 4Gi held by ml/old also memory: 10Gi of 40Gi left", "next ask for 8Gi of capacity memory ok on n1")
def amount_beyond_the_policy_of_a_device_that_others_share(made: MadeCluster) -> None:
    shared_with_policy(made, {"validRange": {"min": "4Gi", "max": "8Gi", "step": "4Gi"}})


@case(
    "it has memory held by ml/old also memory: 5Gi of 40Gi left",
    "instead of memoryy, ask for 5Gi of capacity memory ok",
)
def capacity_misspelt_of_a_device_that_others_share(made: MadeCluster) -> None:
    shared(made, {"memory": "35Gi"}, device("gpu-0", capacity={"memory": "40Gi"}))
    made.pod("train", request("r", "gpu", capacity={"requests": {"memoryy": "10Gi"}}))


def partitions_with_a_holder(made: MadeCluster) -> None:
    """Three partitions of 40 in a counter set of 98, of which pod `old` has one."""
    draws = [consumption("gpu-0", sm="40")]
    made.partitions("n1", [counter_set("gpu-0", sm="98")], [device(f"mig-{i}", consumes=draws) for i in range(3)])
    made.running("old", "n1", "mig-0", request("r", "gpu"))


@case("18 remain beside what the same request takes held by ml/old", "next ask for 1 device ok", "next end ml/old ok")
def counters_that_the_request_itself_and_a_holder_take(made: MadeCluster) -> None:
    partitions_with_a_holder(made)
    made.pod("train", request("r", "gpu", count=2))


@case("18 remain beside what claim a, request r takes held by ml/old")
def counters_that_another_claim_and_a_holder_take(made: MadeCluster) -> None:
    partitions_with_a_holder(made)
    two_claims(made, request("r", "gpu"), request("r", "gpu"))


@case(
    "4Gi of memory left beside what claim a, request r takes, 6Gi would be needed held by ml/old", "next end ml/old ok"
)
def capacity_that_another_claim_and_a_holder_take(made: MadeCluster) -> None:
    shared(made, {"memory": "4Gi"}, device("gpu-0", capacity={"memory": "14Gi"}))
    amount = {"requests": {"memory": "6Gi"}}
    two_claims(made, request("r", "gpu", capacity=amount), request("r", "gpu", capacity=amount))


@case(
    "claim does not exist: ml/gone", "held by ml/old", "next create ResourceClaim ml/gone, end ml/old", false=("ok on",)
)
def claim_that_is_missing_beside_a_held_device(made: MadeCluster) -> None:
    held(made)
    made.pod("train", request("r", "gpu"))
    made.objects["pods"][-1]["spec"]["resourceClaims"].append({"name": "b", "resourceClaimName": "gone"})


@case("claim does not exist: ml/gone", "next create ResourceClaim ml/gone", false=("tolerate",))
def claim_that_is_missing_beside_a_tainted_node_and_another(made: MadeCluster) -> None:
    made.nodes("n2")
    made.gpus("n2", device("gpu-0"))
    made.objects["nodes"][-1]["spec"] = {"taints": [{"key": "e.com/x", "effect": "NoSchedule"}]}
    made.add(pod("train", NAMESPACE, claims={"gpu": "gone"}))


@case(
    "device class gpu-largee; nearest name gpu-large",
    "device class gpu-smallx; nearest names gpu-small, gpu-smalls",
    "use the DeviceClass gpu-large in request a, use the DeviceClass gpu- small in request b ok on n1",
)
def two_classes_misspelt_of_which_one_may_mean_two(made: MadeCluster) -> None:
    made.add(device_class("gpu-large"), device_class("gpu-small"), device_class("gpu-smalls"))
    made.gpus("n1", device("gpu-0"), device("gpu-1"))
    made.pod("train", request("a", "gpu-largee"), request("b", "gpu-smallx"))


@case(
    "nearest names large-gpua, large-gpub",
    "next name ResourceClaimTemplate large-gpua instead of large-gpu ok on n1",
    "next name ResourceClaimTemplate large-gpub instead of large-gpu ok on n1",
)
def template_that_may_mean_two(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    for name in ("large-gpua", "large-gpub"):
        made.add(resource_claim_template(name, NAMESPACE, request("r", "gpu")))
    made.add(pod("train", NAMESPACE, templates={"gpu": "large-gpu"}))


@case("next create DeviceClass tpu", "next do without alternative r/b, ask for 40Gi of capacity memory ok on n1")
def alternatives_too_large_and_of_a_class_that_is_missing(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0", capacity={"memory": "40Gi"}, allowMultipleAllocations=True))
    large = {**alternative("a", "gpu"), "capacity": {"requests": {"memory": "80Gi"}}}
    first_available(made, large, alternative("b", "tpu"))


@case("also in use, held by ml/old", "next use the DeviceClass large-gpu in request r/b, end ml/old ok on n1")
def alternatives_held_misspelt_and_of_another_model(made: MadeCluster) -> None:
    made.add(device_class("large-gpu"))
    made.gpus("n1", device("gpu-0", attributes={"model": "A"}))
    made.running("old", "n1", "gpu-0", request("r", "gpu"))
    first_available(made, alternative("a", "gpu"), alternative("b", "large-gpuu"), alternative("c", "gpu", model("Z")))


@case(
    "claim is reserved by 256 pods already", "also Too many pods on n1", "next end ml/p0 ok on n1", false=("end a pod",)
)
def claim_with_256_pods_on_a_full_node(made: MadeCluster) -> None:
    held(made)
    made.objects["pods"].pop()
    users = []
    for number in range(256):
        user = pod(f"p{number}", NAMESPACE, claims={"gpu": "claim-old"}, nodeName="n1")
        made.add({**user, "status": {"phase": "Running"}})
        users.append({"resource": "pods", "name": f"p{number}", "uid": made.objects["pods"][-1]["metadata"]["uid"]})
    made.objects["resourceclaims"][-1]["status"]["reservedFor"] = users
    made.objects["nodes"][0]["status"]["allocatable"]["pods"] = "257"
    made.add(pod("train", NAMESPACE, claims={"gpu": "claim-old"}))


def misspell_class(made: MadeCluster, *claims: int) -> None:
    """Let these claims ask for a class whose name is misspelt."""
    made.add(device_class("large-gpu"))
    for place in claims:
        made.objects["resourceclaims"][place]["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = (
            "large-gpuu"
        )


def gang_on_a_cordoned_node(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"), device("gpu-1"))
    closed(made)
    gang(made)


@case(
    "not ready train, train-1 kube-scheduler finds no node for the pod",
    "node(s) were unschedulable. (2 members)",
    "claim gpu, request r 1 node device class does not exist: device class large-gpuu; nearest name large-gpu",
    "also node(s) were unschedulable on n1",
    "next uncordon n1, train, train-1: use the DeviceClass large-gpu ok, the gang fits",
    false=("next use",),
)
def gang_with_a_misspelt_class_on_a_cordoned_node(made: MadeCluster) -> None:
    gang_on_a_cordoned_node(made)
    misspell_class(made, 0, 1)


@case(
    "request r of pod train-1 1 node device class does not exist: device class large-gpuu; nearest name large-gpu",
    "next uncordon n1, train-1: use the DeviceClass large-gpu ok, the gang fits",
)
def gang_of_which_one_misspells_the_class_on_a_cordoned_node(made: MadeCluster) -> None:
    gang_on_a_cordoned_node(made)
    misspell_class(made, -1)


@case(
    "2 nodes node(s) were unschedulable",
    "next uncordon n2, uncordon n3 ok, the gang fits",
    false=("next uncordon n2 ok", "next uncordon n3 ok"),
)
def gang_of_three_with_two_cordoned_nodes(made: MadeCluster) -> None:
    made.nodes("n2", "n3")
    for node in ("n1", "n2", "n3"):
        made.gpus(node, device("gpu-0"))
    closed(made, "n2")
    closed(made, "n3")
    made.add(pod_group("train", NAMESPACE, min_count=3))
    for name in ("train", "train-1", "train-2"):
        made.pod(name, request("r", "gpu"), schedulingGroup={"podGroupName": "train"})


def gang_of_three(made: MadeCluster, **fields: Any) -> None:
    """Three members, with claims of their own unless they have templates, and three GPUs."""
    made.gpus("n1", *(device(f"gpu-{number}") for number in range(3)))
    made.add(pod_group("train", NAMESPACE, min_count=3))
    for name in ("train", "train-1", "train-2"):
        group = {"podGroupName": "train"}
        if "templates" in fields:
            made.add(pod(name, NAMESPACE, schedulingGroup=group, **fields))
        else:
            made.pod(name, request("r", "gpu"), schedulingGroup=group)


@case(
    "nearest name large-gpu (1 node); the same for 2 waiting members",
    "waiting train-1..2 └",
    "next train, train-1, train-2: use the DeviceClass large-gpu ok, the gang fits",
    false=('claim "gpu"', "next use the DeviceClass"),
)
def gang_of_which_all_members_misspell_the_class(made: MadeCluster) -> None:
    gang_of_three(made)
    misspell_class(made, 0, 1, 2)


@case(
    "ok train on n1",
    "blocked train-1 r: device class does not exist",
    'waiting train-2 claim "gpu", request "r": device class does not exist: device class smalll-gpu; nearest name small-gpu',
    "next train-1: use the DeviceClass large-gpu, train-2: use the DeviceClass small-gpu ok, the gang fits",
    false=("the same for",),
)
def gang_of_which_two_members_misspell_different_classes(made: MadeCluster) -> None:
    gang_of_three(made)
    made.add(device_class("small-gpu"))
    misspell_class(made, 1)
    made.objects["resourceclaims"][-1]["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "smalll-gpu"


@case(
    'not ready train, train-1, train-2 claim "gpu" is not created yet: from template large-gpuu; nearest name',
    "gpu (3 members) └",
    "next train, train-1, train-2: name ResourceClaimTemplate large-gpu instead of large-gpuu, or create",
    false=("next train-1:", "next name"),
)
def gang_of_which_all_members_misspell_the_template(made: MadeCluster) -> None:
    gang_of_three(made, templates={"gpu": "large-gpuu"})
    made.add(resource_claim_template("large-gpu", NAMESPACE, request("r", "gpu")))


@case(
    "Insufficient cpu", "next end ml/large ok, the gang fits", "next train-1: ask for 23800m of cpu ok, the gang fits"
)
def gang_of_which_another_pod_has_the_cpu(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"), device("gpu-1"))
    made.add(pod("large", NAMESPACE, cpu="40", nodeName="n1"))
    gang(made, cpu="30")


@case(
    "affinity/selector; no node has label topology- zonee; nearest name topology-zone (2 members)",
    "next train, train-1: ask for no node selector and no node affinity ok, the gang fits",
    false=("selector.;",),
)
def gang_with_a_misspelt_node_label(made: MadeCluster) -> None:
    made.objects["nodes"][0]["metadata"]["labels"]["topology-zone"] = "a"
    made.gpus("n1", device("gpu-0"), device("gpu-1"))
    gang(made, nodeSelector={"topology-zonee": "a"})
    made.objects["pods"][0]["spec"]["nodeSelector"] = {"topology-zonee": "a"}


@case(
    "request r of pod train-1 1 node device class does not exist: device class large-gpuu",
    "are removed: example.com/quota, train-1: use the DeviceClass large-gpu ok, the gang fits",
    false=("next train-1",),
)
def gang_with_a_gated_member_whose_class_is_misspelt(made: MadeCluster) -> None:
    gang_with_a_gated_member(made)
    misspell_class(made, -1)


@case(
    "no node has example.com/nic, and no DeviceClass serves it",
    "next do without example.com/nic, end ml/old ok on n1",
    "note: once it does without example.com/nic: fits 0 of 1 nodes",
    "matching devices are in use",
)
def resource_that_nothing_serves_beside_a_held_one(made: MadeCluster) -> None:
    made.add(device_class("large", extendedResourceName="example.com/large-gpu"))
    held(made)
    made.add(pod("train", NAMESPACE, extended={"example.com/large-gpu": "1", "example.com/nic": "1"}))


@case(
    "PodGroup ml/train: 0 of 2 placed, all 2 needed; launcher: kube-scheduler finds no node for the pod: 0/1 nodes",
    "not ready launcher kube-scheduler finds no node for the pod: 0/1 nodes are available: 1 Insufficient cpu.",
    "next launcher: ask for 4 of cpu ok, the gang fits",
    false=("allocated", "fits n1"),
)
def gang_whose_launcher_needs_no_device_and_fits_nowhere(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    made.add(pod("busy", NAMESPACE, nodeName="n1", cpu="59800m"), pod_group("train", NAMESPACE, min_count=2))
    made.add(pod("launcher", NAMESPACE, cpu="10", schedulingGroup={"podGroupName": "train"}))
    made.pod("train", request("r", "gpu"), schedulingGroup={"podGroupName": "train"})


@case(
    "are removed: example.com/quota, create the claim again once it is gone ok on n1",
    false=("example.com/quota ok",),
)
def gang_that_fits_without_its_gated_member_whose_claim_is_deleted(made: MadeCluster) -> None:
    made.gpus("n1", *(device(f"gpu-{number}") for number in range(3)))
    gang(made)
    made.pod("train-2", request("r", "gpu"), schedulingGroup={"podGroupName": "train"})
    made.objects["pods"][0]["spec"]["schedulingGates"] = GATES
    made.objects["resourceclaims"][0]["metadata"].update(deletionTimestamp=CREATED, finalizers=["example.com/keep"])


@case("1 of 3 placed, at least 2 needed", "blocked train-1", "next end ml/old ok, the gang fits")
def gang_that_fits_with_another_member_than_the_one_that_blocks_it(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"), device("gpu-1"))
    made.running("old", "n1", "gpu-0", request("r", "gpu"))
    gang(made, cpu="2")
    made.pod("train-2", request("r", "gpu"), schedulingGroup={"podGroupName": "train"})


@case(
    "next do without request b, train-1: ask for no node selector and no node affinity ok, the gang fits",
    false=("affinity, do without",),
)
def gang_with_a_member_that_no_node_takes_and_one_that_asks_for_too_much(made: MadeCluster) -> None:
    made.gpus("n1", *(device(f"gpu-{number}") for number in range(3)))
    made.add(pod_group("train", NAMESPACE, min_count=2))
    made.pod("train", request("a", "gpu"), request("b", "gpu", count=3), schedulingGroup={"podGroupName": "train"})
    made.pod("train-1", request("r", "gpu"), schedulingGroup={"podGroupName": "train"}, nodeSelector={"zone": "absent"})


@case("next do without request b ok, the gang fits", false=("first, do without",))
def gang_with_a_selector_that_fails_on_one_of_two_nodes(made: MadeCluster) -> None:
    made.add(device_class("model-a", f'{ATTRIBUTES}.model == "A"'))
    made.nodes("n2")
    made.gpus("n1", *(device(f"gpu-{number}", attributes={"numa": 1}) for number in range(2)))
    made.gpus("n2", device("gpu-0", attributes={"model": "A"}))
    made.add(pod_group("train", NAMESPACE, min_count=2))
    for name in ("train", "train-1"):
        made.pod(name, request("a", "gpu"), schedulingGroup={"podGroupName": "train"})
    made.objects["resourceclaims"][0]["spec"]["devices"]["requests"].append(
        {"name": "b", "exactly": request("b", "model-a", allocationMode="ExactCount")["exactly"]}
    )


@case(
    "ok launcher needs no device",
    "next use the DeviceClass large-gpu ok, the gang fits",
    false=("fits next use the DeviceClass", "allocated"),
)
def gang_with_a_launcher_and_a_misspelt_class(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"), device("gpu-1"))
    made.add(device_class("large-gpu"), pod_group("train", NAMESPACE, min_count=2))
    made.add(pod("launcher", NAMESPACE, schedulingGroup={"podGroupName": "train"}))
    made.pod("train", request("r", "large-gpuu"), schedulingGroup={"podGroupName": "train"})
    made.pod("train-1", request("r", "large-gpuu"), schedulingGroup={"podGroupName": "train"})


@case(
    "next train, train-1: ask for no node selector and no node affinity next",
    "correct the selector",
    false=("ok",),
)
def gang_whose_selectors_of_nodes_and_devices_are_wrong(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    gang(made, nodeSelector={"zone": "a"})
    made.objects["pods"][0]["spec"]["nodeSelector"] = {"zone": "a"}
    for claim in made.objects["resourceclaims"]:
        claim["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = [{"cel": {"expression": "device.nothing"}}]


@case(
    "next do without example.com/fpga and example.com/nic, end ml/old ok on n1",
    "note: once it does without example.com/fpga and example.com/nic: fits 0 of 1 nodes",
)
def resources_that_nothing_serves_beside_a_held_one(made: MadeCluster) -> None:
    resource_that_nothing_serves_beside_a_held_one(made)
    for amounts in ("requests", "limits"):
        made.objects["pods"][-1]["spec"]["containers"][0]["resources"][amounts]["example.com/fpga"] = "1"


@case("next tolerate e.com/x:NoSchedule in request a, do without request b ok on n1")
def requests_that_both_mean_tainted_devices_of_which_one_asks_for_too_many(made: MadeCluster) -> None:
    taints = [{"key": "e.com/x", "effect": "NoSchedule"}]
    made.gpus("n1", *(device(f"gpu-{number}", taints=taints) for number in range(2)))
    made.pod("train", request("a", "gpu"), request("b", "gpu", count=2))


def half_published(made: MadeCluster, name: str, driver: str = GPU) -> None:
    """A pool of node n1 of which one of two slices is there."""
    made.add(resource_slice(name, node="n1", pool=name, driver=driver, slice_count=2, devices=[device("d")]))


AWAITED: Final = f"next wait; check driver {GPU}, which publishes the other slices"


@case(f"held by ml/old also resource pool is being updated: pool {GPU}/half has 1 of", f"{AWAITED} next end ml/old ok")
def device_that_is_held_beside_a_pool_that_is_half_published(made: MadeCluster) -> None:
    held(made)
    half_published(made, "half")
    made.pod("train", request("r", "gpu"))


@case(f"{AWAITED} next ask for 3900m of cpu, end ml/old ok on n1")
def device_that_is_held_beside_a_pool_that_is_half_published_on_a_full_node(made: MadeCluster) -> None:
    held(made)
    half_published(made, "half")
    made.add(pod("large", NAMESPACE, cpu="60", nodeName="n1"))
    made.pod("train", request("r", "gpu"), cpu="20")


@case("next end ml/old ok on n1", false=("wait",))
def device_that_is_held_beside_a_pool_of_another_driver_that_is_half_published(made: MadeCluster) -> None:
    held(made)
    half_published(made, "half", NIC)
    made.pod("train", request("r", "gpu"))


@case("blocked train-1 r: matching devices are in use", f"{AWAITED} next end ml/old ok, the gang fits")
def gang_whose_device_is_held_beside_a_pool_that_is_half_published(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"), device("gpu-1"))
    made.running("old", "n1", "gpu-0", request("r", "gpu"))
    half_published(made, "half")
    gang(made)


def two_requests(made: MadeCluster, first: dict[str, Any], **published: Any) -> None:
    """One GPU, which request a is kept from, and which request b could have."""
    made.gpus("n1", device("gpu-0", **published))
    made.pod("train", request("a", "gpu", **first), request("b", "gpu"))


@case(
    "request a (1 x gpu) 1 node no device matches",
    "request b 1 node once it asks for index == 1 in request a: no combination of devices fits gpu-0 taken for request a",
    "next ask for index == 1 in request a, do without request b ok on n1",
)
def request_whose_other_device_is_that_of_another_request(made: MadeCluster) -> None:
    two_requests(made, {"selectors": [{"cel": {"expression": f"{ATTRIBUTES}.index == 2"}}]}, attributes={"index": 1})


@case("request b 1 node once it asks for 40Gi of capacity memory in request a: no combination of devices fits")
def request_that_asks_for_less_and_takes_the_device_of_another(made: MadeCluster) -> None:
    two_requests(made, {"capacity": {"requests": {"memory": "80Gi"}}}, capacity={"memory": "40Gi"})


@case(
    "once it asks for index == 1 in request a: shared counters are exhausted",
    "38 remain beside what request a takes",
    "next ask for index == 1 in request a, do without request b ok on n1",
)
def request_whose_other_device_draws_on_the_counters_of_another_request(made: MadeCluster) -> None:
    draws = [consumption("gpu-0", sm="60")]
    partitions = [device(f"mig-{i}", consumes=draws, attributes={"index": i}) for i in range(2)]
    made.partitions("n1", [counter_set("gpu-0", sm="98")], partitions)
    made.pod("train", request("a", "gpu", f"{ATTRIBUTES}.index == 7"), request("b", "gpu"))


@case(
    "once it asks for index == 2 in request a and it asks for index == 1 in request b: no combination of devices fits",
    "gpu-1 taken for request a; gpu-0 taken for request b",
)
def requests_whose_other_devices_are_those_of_a_third(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0", attributes={"index": 1}), device("gpu-1", attributes={"index": 2}))
    selecting = (request(name, "gpu", f"{ATTRIBUTES}.index == {index}") for name, index in (("a", 7), ("b", 8)))
    made.pod("train", *selecting, request("c", "gpu"))


@case(
    "request a of pod train-1 (1 x gpu) 1 node no device matches",
    "request b of pod train-1 1 node once train-1 asks for index == 1 in request a: matching devices are in use",
    "held by ml/train (planned) also gpu-1 taken for request a",
)
def member_whose_request_takes_the_device_of_its_other_request_once_it_is_changed(made: MadeCluster) -> None:
    made.gpus("n1", *(device(f"gpu-{index}", attributes={"index": index}) for index in range(2)))
    gang(made)
    for claim, index in zip(made.objects["resourceclaims"], (0, 7), strict=True):
        exactly = claim["spec"]["devices"]["requests"][0]["exactly"]
        exactly["selectors"] = [{"cel": {"expression": f"{ATTRIBUTES}.index == {index}"}}]
    requests = made.objects["resourceclaims"][-1]["spec"]["devices"]["requests"]
    requests[0]["name"] = "a"
    requests.append({"name": "b", "exactly": {**requests[0]["exactly"], "selectors": []}})


@case(
    "claim b, request r 1 node once it asks for index == 1 in request r of claim a: no combination of devices fits",
    "next do without claim a ok on n1",
)
def claim_whose_other_device_is_that_of_another_claim(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0", attributes={"index": 1}))
    two_claims(made, request("r", "gpu", f"{ATTRIBUTES}.index == 2"), request("r", "gpu"))


@case("next do without claim b, end ml/old-0 ok on n1", false=("old-0, ml/old",))
def claims_that_compete_for_devices_that_are_held(made: MadeCluster) -> None:
    made.nodes("n2")
    made.gpus("n1", device("gpu-0"), device("gpu-1"))
    made.gpus("n2", device("gpu-0"))
    for number, (name, gpu) in enumerate((("n1", "gpu-0"), ("n1", "gpu-1"), ("n2", "gpu-0"))):
        made.running(f"old-{number}", name, gpu, request("r", "gpu"))
    two_claims(made, request("r", "gpu"), request("r", "gpu"))
    requests = made.objects["resourceclaims"][-1]["spec"]["devices"]["requests"]
    requests.append({**requests[0], "name": "s"})


@case("next do without request b ok on n1")
def request_with_a_misspelt_capacity_beside_one_that_takes_the_device(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0", capacity={"memory": "40Gi"}))
    made.pod("train", request("a", "gpu"), request("b", "gpu", capacity={"requests": {"memoryy": "40Gi"}}))


@case("next tolerate e.com/a:NoSchedule and e.com/b:NoExecute ok on n1")
def device_with_two_taints(made: MadeCluster) -> None:
    taints = [{"key": "e.com/a", "effect": "NoSchedule"}, {"key": "e.com/b", "effect": "NoExecute"}]
    made.gpus("n1", device("gpu-0", taints=taints))
    made.pod("train", request("r", "gpu"))


@case(
    f"next do without {ATTRIBUTES}.productName and {ATTRIBUTES}.firmware (no device has them) ok on n1",
)
def selector_for_two_attributes_that_no_device_has(made: MadeCluster) -> None:
    selected(made, f'{ATTRIBUTES}.productName == "A" && {ATTRIBUTES}.firmware == "2"', model="A")


@case(
    'waiting train-1 claim "gpu", request "r": device class does not exist: device class smalll-gpu; nearest name small-gpu',
    "next use the DeviceClass large-gpu, train-1: use the DeviceClass small-gpu ok, the gang fits",
)
def gang_whose_members_misspell_different_classes(made: MadeCluster) -> None:
    made.add(device_class("small-gpu"))
    made.gpus("n1", device("gpu-0"), device("gpu-1"))
    gang(made)
    misspell_class(made, 0)
    made.objects["resourceclaims"][-1]["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "smalll-gpu"


@case("also node(s) were unschedulable on n1", "next create DeviceClass tpu-v5, uncordon n1", false=("ok on",))
def class_that_is_missing_on_a_cordoned_node(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    closed(made)
    made.pod("train", request("r", "tpu-v5"))


@case(
    "note: once its gates are removed and the name is right: fits 0 of 1 nodes, extended resource",
    "instead of example.com/large-gpus, end ml/old ok on n1",
)
def gated_and_a_resource_misspelt_whose_device_is_held(made: MadeCluster) -> None:
    resource_misspelt_and_its_device_held(made)
    (train,) = [each for each in made.objects["pods"] if each["metadata"]["name"] == "train"]
    train["spec"]["schedulingGates"] = GATES


@case(
    "device class does not exist: device class large-gpuu; nearest name large- gpu, once the name is right: matching",
    "are removed: example.com/quota, use the DeviceClass large-gpu, end ml/old ok on n1",
    false=("beside its gates", "large-gpuu does not exist"),
)
def gated_and_a_class_misspelt_whose_device_is_held(made: MadeCluster) -> None:
    held(made)
    made.pod("train", request("r", "gpu"), schedulingGates=GATES)
    misspell_class(made, -1)


@case(
    "is not created yet: from template large-gpuu; nearest name large-gpu",
    "are removed: example.com/quota, name ResourceClaimTemplate large-gpu instead of large-gpuu ok on n1",
)
def gated_and_a_template_misspelt(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    made.add(resource_claim_template("large-gpu", NAMESPACE, request("r", "gpu")))
    made.add(pod("train", NAMESPACE, templates={"gpu": "large-gpuu"}, schedulingGates=GATES))


@case(
    'once its gates are removed: fits 0 of 1 nodes, claim "a", request "r": matching devices are in use: gpu-0',
    "next wait until the scheduling gates of train are removed: example.com/quota, end ml/old ok on n1",
)
def gated_and_the_device_held_of_a_claim_that_is_made_later(made: MadeCluster) -> None:
    held(made)
    made.add(resource_claim_template("one-gpu", NAMESPACE, request("r", "gpu")))
    made.add(pod("train", NAMESPACE, templates={"a": "one-gpu"}, schedulingGates=GATES))


@case(
    'claim "gpu", request "r": device class does not exist: device class large-gpuu; nearest name large- gpu, too few',
    false=("large-gpuu does not exist",),
)
def gang_of_gated_members_of_which_one_misspells_the_class(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"), device("gpu-1"))
    gang(made, schedulingGates=GATES)
    made.objects["pods"][0]["spec"]["schedulingGates"] = GATES
    misspell_class(made, 0)


@case(
    "is not created yet: from template one-gpu",
    "are removed: example.com/quota, create ResourceClaimTemplate ml/one-gpu",
    false=("ok on",),
)
def gated_and_a_template_missing(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    made.add(pod("train", NAMESPACE, templates={"gpu": "one-gpu"}, schedulingGates=GATES))


@case(
    "matching devices are in use: gpu-0, also Insufficient cpu on n1",
    "are removed: example.com/quota, ask for 63900m of cpu, end ml/old ok on n1",
)
def gated_and_the_device_held_and_no_cpu(made: MadeCluster) -> None:
    held(made)
    made.pod("train", request("r", "gpu"), cpu="100", schedulingGates=GATES)


@case(
    "no scheduler named dra-extender-schedulr has acted on any pod of this cluster; nearest name dra-extender-scheduler",
    "schedulr, wait until the scheduling gates of train are removed: example.com/quota, end ml/old ok on n1",
)
def gated_and_the_scheduler_misspelt(made: MadeCluster) -> None:
    held(made)
    made.pod("train", request("r", "gpu"), scheduler="dra-extender-schedulr", schedulingGates=GATES)
    made.objects["pods"][-1]["status"] = {"phase": "Pending"}


@pytest.mark.parametrize("build", CASES, ids=lambda build: build.__name__)
def test_answer_names_all_that_stands_in_the_way(build: Build) -> None:
    assert_answer(build, *CASES[build])


@pytest.mark.parametrize(
    ("user", "step"),
    [({"resource": "pods"}, "end a pod that uses the claim"), ({"resource": "pods", "name": "old"}, "end ml/old ok")],
)
def test_users_of_a_claim_may_be_incomplete_or_occur_often(user: dict[str, str], step: str) -> None:
    def reserved(made: MadeCluster) -> None:
        held(made)
        claim = made.objects["resourceclaims"][-1]
        claim["status"]["reservedFor"] = [user] * 256
        made.add(pod("train", NAMESPACE, claims={"gpu": claim["metadata"]["name"]}))

    assert_answer(reserved, ["claim is reserved by 256 pods already", f"next {step}"], [])
