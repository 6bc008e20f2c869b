"""What stands in the way beside the first reason: it is named together with it."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.text.why import tree
from dra_extender.inspection.why.why import why

from tests.controlplane.objects import (
    device,
    device_class,
    pod,
    pod_group,
    request,
    resource_claim,
    resource_claim_template,
)
from tests.support.inspection.made_cluster import NAMESPACE, MadeCluster

GPU = "gpu.example.com"
MODEL_A, MODEL_B = (f'device.attributes["{GPU}"].model == "{model}"' for model in "AB")
TAINT = {"key": "example.com/x", "effect": "NoSchedule"}
GATES: dict[str, Any] = {"schedulingGates": [{"name": "example.com/quota"}]}
IN_GROUP: dict[str, Any] = {"schedulingGroup": {"podGroupName": "train"}}


def gpu(name: str, numa: str = "0", model: str = "A", **fields: Any) -> dict[str, Any]:
    return device(name, attributes={"numa": numa, "model": model}, **fields)


def other_model_is_held_and_tainted(made: MadeCluster) -> None:
    made.gpus("n1", gpu("gpu-0", model="B", taints=[TAINT]))
    made.running("old", "n1", "gpu-0", request("r", "gpu"))
    made.pod("train", request("r", "gpu", MODEL_A))


def other_model_is_tainted(made: MadeCluster) -> None:
    made.gpus("n1", gpu("gpu-0", model="B", taints=[TAINT]))
    made.pod("train", request("r", "gpu", MODEL_A))


def other_model_is_held_and_tolerated(made: MadeCluster) -> None:
    made.gpus("n1", gpu("gpu-0", model="B", taints=[TAINT]))
    made.running("old", "n1", "gpu-0", request("r", "gpu"))
    made.pod("train", request("r", "gpu", MODEL_A, tolerations=[{"operator": "Exists"}]))


def other_model_is_free_on_one_of_two(made: MadeCluster) -> None:
    made.gpus("n1", gpu("gpu-0", model="B"), gpu("gpu-1", model="B", taints=[TAINT]), gpu("gpu-2", model="B"))
    made.running("old", "n1", "gpu-0", request("r", "gpu"))
    made.pod("train", request("r", "gpu", MODEL_A))


def held_and_tainted(made: MadeCluster) -> None:
    made.gpus("n1", gpu("gpu-0", taints=[TAINT]))
    made.running("old", "n1", "gpu-0", request("r", "gpu"))
    made.pod("train", request("r", "gpu"))


def constrained(made: MadeCluster, *requests: dict[str, Any]) -> None:
    made.pod("train", *requests)
    constraints = [{"matchAttribute": f"{GPU}/numa"}]
    made.objects["resourceclaims"][-1]["spec"]["devices"]["constraints"] = constraints


def common_value_is_held(made: MadeCluster) -> None:
    made.gpus("n1", gpu("a0"), gpu("b0", model="B"), gpu("b1", "1", model="B"))
    made.running("old", "n1", "b0", request("r", "gpu"))
    constrained(made, request("a", "gpu", MODEL_A), request("b", "gpu", MODEL_B))


def common_value_of_one_request_is_held(made: MadeCluster) -> None:
    made.gpus("n1", gpu("a0"), gpu("a1"), gpu("a2", "1"))
    made.running("old", "n1", "a1", request("r", "gpu"))
    constrained(made, request("a", "gpu", count=2))


def no_value_is_common(made: MadeCluster) -> None:
    made.gpus("n1", gpu("a0"), gpu("b0", "1", model="B"), gpu("b1", "2", model="B"))
    made.running("old", "n1", "b0", request("r", "gpu"))
    constrained(made, request("a", "gpu", MODEL_A), request("b", "gpu", MODEL_B))


def gated_with_a_misspelt_class(made: MadeCluster) -> None:
    made.add(device_class("large-gpu"))
    made.pod("train", request("r", "large-gpus"), **GATES)


def gated_with_a_misspelt_template(made: MadeCluster) -> None:
    made.add(resource_claim_template("trainer", NAMESPACE, request("r", "gpu")))
    made.add(pod("train", NAMESPACE, templates={"a": "trainr"}, **GATES))


def gated_with_a_misspelt_class_in_its_template(made: MadeCluster) -> None:
    made.add(device_class("large-gpu"), resource_claim_template("trainer", NAMESPACE, request("r", "large-gpus")))
    made.add(pod("train", NAMESPACE, templates={"a": "trainer"}, **GATES))


def gated_with_a_misspelt_claim(made: MadeCluster) -> None:
    made.add(resource_claim("shared-gpu", NAMESPACE, request("r", "gpu")))
    made.add(pod("train", NAMESPACE, claims={"a": "shared-gpus"}, **GATES))


def gated_with_an_unserved_resource(made: MadeCluster) -> None:
    made.objects["deviceclasses"][0]["spec"]["extendedResourceName"] = "example.com/large-gpu"
    made.add(pod("train", NAMESPACE, extended={"example.com/large-gpus": "1"}, **GATES))


def gated_and_nothing_else(made: MadeCluster) -> None:
    made.add(resource_claim_template("trainer", NAMESPACE, request("r", "gpu")))
    made.add(pod("train", NAMESPACE, templates={"a": "trainer"}, **GATES))


def member_with_a_misspelt_claim(made: MadeCluster) -> None:
    made.add(
        pod_group("train", NAMESPACE, min_count=2), resource_claim("claim-train-2", NAMESPACE, request("r", "gpu"))
    )
    made.gpus("n1", gpu("gpu-0"), gpu("gpu-1"))
    made.pod("train", request("r", "gpu"), **IN_GROUP)
    made.add(pod("train-2", NAMESPACE, claims={"gpu": "claim-train2"}, **IN_GROUP))


def extended_resource_beside_a_claim(made: MadeCluster) -> None:
    made.objects["deviceclasses"][0]["spec"]["extendedResourceName"] = "example.com/gpu"
    made.gpus("n1", gpu("gpu-0"))
    made.pod("train", request("r", "gpu"), extended={"example.com/gpu": "1"})


def cpu_of_a_lower_priority(made: MadeCluster, policy: str = "PreemptLowerPriority", priority: int = 0) -> None:
    made.gpus("n1", gpu("gpu-0"))
    made.add(pod("large", NAMESPACE, cpu="63.5", nodeName="n1", priority=priority))
    made.objects["pods"][-1]["status"] = {"phase": "Running"}
    made.pod("train", request("r", "gpu"), cpu="2", priority=1_000, preemptionPolicy=policy)


def cpu_of_a_lower_priority_without_preemption(made: MadeCluster) -> None:
    cpu_of_a_lower_priority(made, "Never")


def cpu_of_an_equal_priority(made: MadeCluster) -> None:
    cpu_of_a_lower_priority(made, priority=1_000)


def device_of_a_lower_priority(made: MadeCluster) -> None:
    made.gpus("n1", gpu("gpu-0"))
    made.running("old", "n1", "gpu-0", request("r", "gpu"))
    made.pod("train", request("r", "gpu"), priority=1_000, preemptionPolicy="PreemptLowerPriority")


CASES: dict[Callable[[MadeCluster], None], tuple[list[str], list[str]]] = {
    other_model_is_held_and_tainted: (
        ['model is "B", wanted "A"', "also in use, held by ml/old", "also gpu-0 has taint example.com/x:NoSchedule"],
        [],
    ),
    other_model_is_tainted: (["also gpu-0 has taint example.com/x:NoSchedule"], ["in use"]),
    other_model_is_held_and_tolerated: (["also in use, held by ml/old"], ["taint"]),
    other_model_is_free_on_one_of_two: (["nearest n1/gpu-2"], ["also"]),
    held_and_tainted: (["held by ml/old", "also gpu-0 has taint example.com/x:NoSchedule"], []),
    common_value_is_held: (["b0 has the common value 0, and is held by ml/old", "next end ml/old ok on n1"], []),
    common_value_of_one_request_is_held: (["a1 has the common value 0, and is held by ml/old"], []),
    no_value_is_common: (["constraint is not satisfied"], ["common value", "end ml/old"]),
    gated_with_a_misspelt_class: (
        ["example.com/quota", "device class does not exist: device class large-gpus; nearest name large- gpu"],
        [],
    ),
    gated_with_a_misspelt_template: (["is not created yet: from template trainr; nearest name trainer"], []),
    gated_with_a_misspelt_class_in_its_template: (
        ['claim "a", request "r": device class does not exist: device class large-gpus; nearest name large- gpu'],
        [],
    ),
    gated_with_a_misspelt_claim: (['claim "a" does not exist: ml/shared-gpus; nearest name shared-gpu'], []),
    gated_with_an_unserved_resource: (["no node has example.com/large-gpus (nearest name example.com/large-gpu)"], []),
    gated_and_nothing_else: (["example.com/quota"], ["beside", "does not exist"]),
    member_with_a_misspelt_claim: (["ml/claim-train2; nearest name claim-train-2"], []),
    cpu_of_a_lower_priority: (["ml/large: no owner, priority 0, 12m old; kube-scheduler may preempt it by itself"], []),
    cpu_of_a_lower_priority_without_preemption: (
        ["end ml/large", "the pod's preemptionPolicy is Never"],
        ["may preempt"],
    ),
    cpu_of_an_equal_priority: (["end ml/large"], ["preempt"]),
    device_of_a_lower_priority: (["end ml/old", "kube-scheduler preempts no pod for devices"], ["may preempt"]),
    extended_resource_beside_a_claim: (["next do without example.com/gpu ok on n1"], []),
}


@pytest.mark.parametrize("build", CASES, ids=lambda build: build.__name__)
def test_answer_names_all_that_stands_in_the_way(build: Callable[[MadeCluster], None]) -> None:
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu"))
    build(made)
    text = " ".join(tree(why(made.view(), NAMESPACE, "train")).split())
    expected, false = CASES[build]
    assert [each for each in expected if each not in text] == [], text
    assert [each for each in false if each in text] == [], text


@pytest.mark.parametrize("depth", [500, 940, 5_000])
def test_parameters_that_nest_deep_leave_the_answer_as_it_is(depth: int) -> None:
    """The end of a holder and other requests are tried on copies of the claim."""
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu"))
    made.gpus("n1", gpu("gpu-0"))
    made.running("old", "n1", "gpu-0", request("r", "gpu"))
    made.pod("train", request("r", "gpu"), request("s", "gpu", count=2))
    without = tree(why(made.view(), NAMESPACE, "train"))
    claim = made.objects["resourceclaims"][-1]
    opaque = {"driver": "dra-extender.io", "parameters": "PARAMETERS"}
    claim["spec"]["devices"]["config"] = [{"requests": ["r"], "opaque": opaque}]
    found = made.cluster()
    nested = ('{"a":' * depth + "1" + "}" * depth).encode()
    claims = [*found.of_kind("resourceclaims")[:-1], msgspec.json.encode(claim).replace(b'"PARAMETERS"', nested)]

    view = ClusterView(found._replace(by_kind={**found.by_kind, "resourceclaims": claims}))

    assert tree(why(view, NAMESPACE, "train")) == without


def test_object_whose_metadata_cannot_be_read_has_no_name_to_be_meant() -> None:
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu"))
    made.add(pod("train", NAMESPACE, claims={"a": "shared-gpus"}))
    made.add(resource_claim("shared-gpu", NAMESPACE, request("r", "gpu")))
    found = made.cluster()
    claims = [*found.of_kind("resourceclaims"), b'{"metadata":[],"spec":{}}']

    view = ClusterView(found._replace(by_kind={**found.by_kind, "resourceclaims": claims}))

    assert "nearest name shared-gpu" in " ".join(tree(why(view, NAMESPACE, "train")).split())


@pytest.mark.parametrize("containers", [{}, {"containers": None}])
def test_a_pod_of_an_edited_snapshot_may_have_only_init_containers(containers: dict[str, None]) -> None:
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu"))
    extended_resource_beside_a_claim(made)
    spec = made.objects["pods"][-1]["spec"]
    spec["initContainers"] = spec.pop("containers")
    spec.update(containers)
    (step,) = why(made.view(), NAMESPACE, "train").next
    assert step.text == "do without example.com/gpu"
