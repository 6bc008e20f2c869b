"""What else a sound cluster may have: PodGroups, templates, extended resources, neighbours, pools that several nodes reach."""

from random import Random
from typing import Any

from dra_extender.model.resource_claim import EXTENDED_ANNOTATION, FINALIZER

from tests.controlplane import objects
from tests.support.inspection.made_cluster import NAMESPACE, Json, MadeCluster

RACK = "rack.example.com"


def add_workloads(made: MadeCluster, nodes: list[str], chance: Random) -> None:
    """Some of them; `chance` decides which."""
    _publish(made, nodes)
    node = chance.choice(nodes)
    if chance.random() < 0.7:
        pod_group(made, node)
    if chance.random() < 0.7:
        generated_claim(made, node)
    if chance.random() < 0.7:
        extended_resource(made, node)
    if chance.random() < 0.7:
        neighbours(made, node)


def _publish(made: MadeCluster, nodes: list[str]) -> None:
    """A rack that all nodes reach, one that two nodes reach by a selector, and what an older generation has left."""
    made.add(objects.device_class("rack", f'device.driver == "{RACK}"', extendedResourceName="example.com/rack"))
    devices = [objects.device(f"d{index}") for index in range(6)]
    fields: dict[str, Any] = {"driver": RACK, "pool": "rack", "slice_count": 2, "generation": 3}
    made.add(
        objects.resource_slice("rack-a", allNodes=True, devices=devices[:3], **fields),
        objects.resource_slice("rack-b", allNodes=True, devices=devices[3:], **fields),
        objects.resource_slice("rack-old", allNodes=True, devices=devices[:1], **{**fields, "generation": 2}),
    )
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": nodes[:2]}]}
    picky = [
        objects.device(f"p{index}", compatibleOnlyWith={"expression": 'device.driver == "picky.example.com"'})
        for index in range(3)
    ]
    made.add(
        objects.resource_slice(
            "picky", driver="picky.example.com", pool="picky", nodeSelector={"nodeSelectorTerms": [term]}, devices=picky
        ),
        objects.device_class("picky", 'device.driver == "picky.example.com"'),
    )


def _allocated(made: MadeCluster, node: str, device: str, consumer: Json, **metadata: Any) -> Json:
    """The last claim, allocated with a device of the rack for a consumer."""
    claim = made.objects["resourceclaims"][-1]
    claim["metadata"].update(finalizers=[FINALIZER], **metadata)
    result = {"request": "r", "driver": RACK, "pool": "rack", "device": device}
    claim["status"] = objects.allocated(result, consumers=[consumer], nodeSelector=objects.on_node(node))
    return claim


def _runs(made: MadeCluster, node: str) -> Json:
    """The last pod, running on the node."""
    pod = made.objects["pods"][-1]
    pod["spec"]["nodeName"] = node
    pod["status"] = {"phase": "Running", "conditions": [{"type": "PodReadyToStartContainers", "status": "True"}]}
    return pod


def pod_group(made: MadeCluster, node: str) -> None:
    """A PodGroup for which a claim is reserved, and two members that run with it."""
    made.add(objects.pod_group("group", NAMESPACE))
    group = made.objects["podgroups"][-1]
    made.add(objects.resource_claim("of-group", NAMESPACE, objects.request("r", "rack")))
    consumer = {
        "apiGroup": "scheduling.k8s.io",
        "resource": "podgroups",
        "name": "group",
        "uid": group["metadata"]["uid"],
    }
    _allocated(made, node, "d0", consumer)
    for index in range(2):
        fields: dict[str, Any] = {"schedulingGroup": {"podGroupName": "group"}}
        made.add(objects.pod(f"member-{index}", NAMESPACE, claims={"gpu": "of-group"}, **fields))
        _runs(made, node)


def generated_claim(made: MadeCluster, node: str) -> None:
    """A pod with a claim that was made from a template."""
    made.add(objects.pod("templated", NAMESPACE, templates={"gpu": "template"}))
    pod = _runs(made, node)
    pod["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "templated-gpu-x"}]
    made.add(objects.resource_claim("templated-gpu-x", NAMESPACE, objects.request("r", "rack")))
    uid = pod["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "templated", "uid": uid, "controller": True}
    annotations = {"resource.kubernetes.io/pod-claim-name": "gpu"}
    consumer = objects.consumer("templated", uid)
    _allocated(made, node, "d1", consumer, ownerReferences=[owner], annotations=annotations)


def extended_resource(made: MadeCluster, node: str) -> None:
    """A pod that asks for an extended resource, which a claim serves that its status names."""
    made.add(objects.pod("extended", NAMESPACE, extended={"example.com/rack": "1"}))
    pod = _runs(made, node)
    pod["status"]["extendedResourceClaimStatus"] = {
        "resourceClaimName": "extended-x",
        "requestMappings": [{"containerName": "main", "resourceName": "example.com/rack", "requestName": "r"}],
    }
    made.add(objects.resource_claim("extended-x", NAMESPACE, objects.request("r", "rack")))
    uid = pod["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "extended", "uid": uid, "controller": True}
    consumer = objects.consumer("extended", uid)
    _allocated(made, node, "d2", consumer, ownerReferences=[owner], annotations={EXTENDED_ANNOTATION: "true"})


def neighbours(made: MadeCluster, node: str) -> None:
    """Two devices, each of which accepts the other beside it."""
    for index in range(2):
        made.running(f"picky-{index}", node, f"p{index}", objects.request("r", "picky"), driver="picky.example.com")
        claim = made.objects["resourceclaims"][-1]
        claim["metadata"]["finalizers"] = [FINALIZER]
        claim["status"]["allocation"]["devices"]["results"][0]["pool"] = "picky"
