"""Ways to make a sound cluster unsound, each with what an audit has to find then.

A mutation edits API objects as a careless client or a second scheduler would, and returns the check and the object that it broke.
Nothing here asks the program what is wrong.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION
from dra_extender.model.resource_claim import FINALIZER

from tests.controlplane import objects
from tests.support.audit.sound_cluster import (
    ATTACHED,
    FABRIC,
    GPUS,
    PARTITIONS,
    SHARED,
    TAKEOVER,
    Placed,
    SoundCluster,
    stamp,
)
from tests.support.audit.sound_workloads import extended_resource, pod_group
from tests.support.inspection.made_cluster import NAMESPACE, NOW, Json


class Injected(NamedTuple):
    """What has to be found: the check by name, and the end of the finding's `about`."""

    check: str
    about: str


Mutation = Callable[[SoundCluster], Injected]


def _any(cluster: SoundCluster, *drivers: str) -> Placed:
    """One of the allocations of devices of these drivers, of any if none is named."""
    return cluster.random.choice([each for each in cluster.placed if not drivers or each.driver in drivers])


def _bound(cluster: SoundCluster) -> Placed:
    """One whose pod runs."""
    return _any(cluster, GPUS, PARTITIONS, SHARED)


def _remove(cluster: SoundCluster, kind: str, name: str) -> None:
    kept = [each for each in cluster.made.objects[kind] if each["metadata"]["name"] != name]
    cluster.made.objects[kind] = kept


def _bare(placed: Placed) -> None:
    """As an allocation of a scheduler that keeps no snapshot."""
    placed.claim["metadata"].pop("annotations", None)


def whole_device_twice(cluster: SoundCluster) -> Injected:
    first = _any(cluster, GPUS)
    cluster.place(GPUS, first.node, first.pool, first.device)
    return Injected("double_allocation", first.device_id)


def device_twice_in_one_claim(cluster: SoundCluster) -> Injected:
    placed = _any(cluster, GPUS, PARTITIONS)
    placed.claim["status"]["allocation"]["devices"]["results"].append(dict(placed.result))
    _bare(placed)
    return Injected("double_allocation", placed.device_id)


def whole_device_beside_a_share(cluster: SoundCluster) -> Injected:
    placed = _any(cluster, SHARED)
    cluster.place(SHARED, placed.node, placed.pool, placed.device)
    return Injected("double_allocation", placed.device_id)


def share_id_twice(cluster: SoundCluster) -> Injected:
    placed = _any(cluster, SHARED)
    second = cluster.place(SHARED, placed.node, placed.pool, placed.device)
    second.result.update(shareID=placed.result["shareID"], consumedCapacity={"bandwidth": "0"})
    _bare(second)
    return Injected("double_allocation", placed.device_id)


def capacity_exceeded(cluster: SoundCluster) -> Injected:
    placed = _any(cluster, SHARED)
    left = cluster.capacity[placed.node, placed.device]
    used = int(placed.result["consumedCapacity"]["bandwidth"])
    placed.result["consumedCapacity"]["bandwidth"] = str(used + left + cluster.random.randint(1, 50))
    return Injected("capacity", placed.device_id)


def capacity_shrunk(cluster: SoundCluster) -> Injected:
    placed = _any(cluster, SHARED)
    used = 100 - cluster.capacity[placed.node, placed.device]
    published = cluster.slice_of(SHARED, placed.node)["spec"]["devices"][0]
    published["capacity"]["bandwidth"]["value"] = str(used - 1)
    return Injected("capacity", placed.device_id)


def bound_device_on_two_nodes(cluster: SoundCluster) -> Injected:
    """Two shares of a device of the fabric, each bound to a node, as a scheduler that does not keep the device there."""
    published = next(each for each in cluster.made.objects["resourceslices"] if each["spec"]["driver"] == FABRIC)
    published["spec"]["devices"].append(objects.device("port-bound", allowMultipleAllocations=True, bindsToNode=True))
    for number, node in enumerate(cluster.nodes[:2]):
        placed = cluster.place(FABRIC, node, "rack-1", "port-bound", allocated=TAKEOVER + 2000)
        placed.claim["status"]["allocation"]["nodeSelector"] = objects.on_node(node)
        placed.result.update(shareID=f"bound-{number}")
        _bare(placed)
        placed.claim["metadata"]["labels"] = {"made-by": "another"}
    return Injected("node_binding", f"{FABRIC}/rack-1/port-bound")


def counters_shrunk(cluster: SoundCluster) -> Injected:
    placed = _any(cluster, PARTITIONS)
    name = _set_of(cluster, placed)
    used = 98 - cluster.sets[placed.node, name].left
    counters = cluster.slice_of(PARTITIONS, placed.node, "sharedCounters")["spec"]["sharedCounters"]
    next(each for each in counters if each["name"] == name)["counters"]["sm"]["value"] = str(used - 1)
    return Injected("counters", f"{PARTITIONS}/{placed.pool}/{name}")


def counters_overdrawn(cluster: SoundCluster) -> Injected:
    """A further device of the same groups that draws more than is left."""
    placed = _any(cluster, PARTITIONS)
    name = _set_of(cluster, placed)
    account = cluster.sets[placed.node, name]
    drawn = objects.consumption(name, groups=account.common, sm=str(account.left + 1))
    _publish_and_allocate(cluster, placed, drawn)
    return Injected("counters", f"{PARTITIONS}/{placed.pool}/{name}")


def groups_in_conflict(cluster: SoundCluster) -> Injected:
    """A further device with groups that no member has, allocated without a snapshot: its slice counts."""
    placed = _any(cluster, PARTITIONS)
    name = _set_of(cluster, placed)
    _publish_and_allocate(cluster, placed, objects.consumption(name, groups=["of-nobody"], sm="0"))
    return Injected("groups", f"{PARTITIONS}/{placed.pool}/{name}")


def groups_in_conflict_by_snapshot(cluster: SoundCluster) -> Injected:
    """The slice says that all is well; what the allocation froze says otherwise."""
    placed = _any(cluster, PARTITIONS)
    name = _set_of(cluster, placed)
    drawn = objects.consumption(name, groups=cluster.sets[placed.node, name].common, sm="0")
    second = _publish_and_allocate(cluster, placed, drawn)
    second.result["compatibilityGroups"] = {name: ["frozen-otherwise"]}
    return Injected("groups", f"{PARTITIONS}/{placed.pool}/{name}")


def neighbour_refused(cluster: SoundCluster) -> Injected:
    """A device that is compatible with no device beside it on its counter set."""
    placed = _any(cluster, PARTITIONS)
    name = _set_of(cluster, placed)
    drawn = objects.consumption(name, groups=cluster.sets[placed.node, name].common, sm="0")
    second = _publish_and_allocate(cluster, placed, drawn, compatibleOnlyWith={"expression": "false"})
    return Injected("neighbours", second.device_id)


def unreadable_amount(cluster: SoundCluster) -> Injected:
    placed = _any(cluster, SHARED)
    placed.result["consumedCapacity"]["bandwidth"] = "many"
    return Injected("unreadable_allocation", placed.name)


def pod_without_reservation(cluster: SoundCluster) -> Injected:
    placed = _bound(cluster)
    placed.claim["status"]["reservedFor"] = []
    return Injected("unreserved_pod", _pod(placed))


def pod_without_allocation(cluster: SoundCluster) -> Injected:
    placed = _bound(cluster)
    del placed.claim["status"]["allocation"]
    return Injected("unreserved_pod", _pod(placed))


def pod_away_from_its_devices(cluster: SoundCluster) -> Injected:
    placed = _bound(cluster)
    other = next(each for each in cluster.nodes if each != placed.node)
    placed.claim["status"]["allocation"]["nodeSelector"] = objects.on_node(other)
    return Injected("unreserved_pod", _pod(placed))


def claim_of_a_running_pod_gone(cluster: SoundCluster) -> Injected:
    placed = _bound(cluster)
    _remove(cluster, "resourceclaims", placed.claim["metadata"]["name"])
    return Injected("missing_claim", _pod(placed))


def consumer_gone(cluster: SoundCluster) -> Injected:
    placed = _any(cluster)
    _remove(cluster, "pods", placed.pod["metadata"]["name"])
    return Injected("stale_reservation", placed.name)


def consumer_ended(cluster: SoundCluster) -> Injected:
    placed = _any(cluster)
    placed.pod["status"] = {"phase": cluster.random.choice(("Succeeded", "Failed"))}
    return Injected("stale_reservation", placed.name)


def consumer_replaced_by_a_namesake(cluster: SoundCluster) -> Injected:
    placed = _any(cluster)
    placed.pod["metadata"]["uid"] = "another"
    return Injected("stale_reservation", placed.name)


def consumer_of_no_kind(cluster: SoundCluster) -> Injected:
    placed = _any(cluster)
    placed.claim["status"]["reservedFor"].append(
        {"apiGroup": "example.com", "resource": "widgets", "name": "w", "uid": "w"}
    )
    return Injected("stale_reservation", placed.name)


def allocation_for_nobody(cluster: SoundCluster) -> Injected:
    placed = _any(cluster)
    _remove(cluster, "pods", placed.pod["metadata"]["name"])
    placed.claim["status"]["reservedFor"] = []
    return Injected("orphaned_claim", placed.name)


def group_gone(cluster: SoundCluster) -> Injected:
    """The PodGroup is gone, and the claim is still reserved for it."""
    cluster.made.objects["podgroups"].clear()
    _remove(cluster, "resourceclaims", "of-group")
    _remove(cluster, "pods", "member-0")
    _remove(cluster, "pods", "member-1")
    pod_group(cluster.made, cluster.nodes[0])
    cluster.made.objects["podgroups"].clear()
    return Injected("stale_reservation", f"{NAMESPACE}/of-group")


def extended_claim_unused(cluster: SoundCluster) -> Injected:
    """The pod is gone for whose extended resource a claim was made."""
    _extended_resource(cluster)
    _remove(cluster, "pods", "extended")
    return Injected("orphaned_claim", f"{NAMESPACE}/extended-x")


def extended_claim_of_a_pod_that_was_told_of_none(cluster: SoundCluster) -> Injected:
    _extended_resource(cluster)
    del cluster.made.objects["pods"][-1]["status"]["extendedResourceClaimStatus"]
    return Injected("orphaned_claim", f"{NAMESPACE}/extended-x")


def owner_gone(cluster: SoundCluster) -> Injected:
    cluster.made.add(objects.resource_claim("generated", NAMESPACE, objects.request("r", "gpu")))
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "was", "uid": "was", "controller": True}
    cluster.made.objects["resourceclaims"][-1]["metadata"]["ownerReferences"] = [owner]
    return Injected("orphaned_claim", f"{NAMESPACE}/generated")


def deleted_and_kept(cluster: SoundCluster) -> Injected:
    cluster.made.add(objects.resource_claim("kept", NAMESPACE, objects.request("r", "gpu")))
    metadata = cluster.made.objects["resourceclaims"][-1]["metadata"]
    metadata.update(deletionTimestamp=stamp(NOW - 3600), finalizers=["example.com/forgotten"])
    return Injected("stuck_claim", f"{NAMESPACE}/kept")


def node_gone(cluster: SoundCluster) -> Injected:
    placed = _any(cluster, GPUS, PARTITIONS, SHARED)
    _remove(cluster, "nodes", placed.node)
    return Injected("stuck_claim", placed.name)


def finalizer_removed(cluster: SoundCluster) -> Injected:
    placed = _any(cluster)
    placed.claim["metadata"]["finalizers"] = []
    return Injected("finalizer", placed.name)


def finalizer_left(cluster: SoundCluster) -> Injected:
    claim = next(each for each in cluster.made.objects["resourceclaims"] if each["metadata"]["name"] == "claim-waits")
    claim["metadata"]["finalizers"] = [FINALIZER]
    return Injected("finalizer", f"{NAMESPACE}/claim-waits")


def condition_overdue(cluster: SoundCluster) -> Injected:
    placed = _attached(cluster)
    placed.claim["status"].pop("devices", None)
    placed.pod["spec"].pop("nodeName", None)
    placed.pod["status"] = {"phase": "Pending"}
    placed.claim["status"]["allocation"]["allocationTimestamp"] = stamp(NOW - 601)
    _bare(placed)
    return Injected("conditions_overdue", placed.name)


def attachment_failed(cluster: SoundCluster) -> Injected:
    placed = _attached(cluster)
    failed = {"type": "FabricFailed", "status": "True", "reason": "Cable", "message": "no carrier"}
    placed.claim["status"]["devices"] = [
        {"driver": FABRIC, "pool": placed.pool, "device": placed.device, "conditions": [failed]}
    ]
    return Injected("conditions_overdue", placed.name)


def device_name_twice(cluster: SoundCluster) -> Injected:
    node = cluster.random.choice(cluster.nodes)
    devices = cluster.slice_of(GPUS, node)["spec"]["devices"]
    devices.append(dict(devices[0]))
    return Injected("slices", f"{GPUS}/{node}")


def device_name_twice_among_devices_that_name_their_nodes(cluster: SoundCluster) -> Injected:
    devices = [objects.device("shelf-0", nodeName=cluster.random.choice(cluster.nodes))] * 2
    shelf = objects.resource_slice("shelf", driver=FABRIC, devices=devices, perDeviceNodeSelection=True)
    cluster.made.add(shelf)
    return Injected("slices", f"{FABRIC}/shelf")


def counter_set_twice(cluster: SoundCluster) -> Injected:
    node = cluster.random.choice(cluster.nodes)
    sets = cluster.slice_of(PARTITIONS, node, "sharedCounters")["spec"]["sharedCounters"]
    sets.append(dict(sets[0]))
    return Injected("slices", f"{PARTITIONS}/{node}")


def counter_unknown(cluster: SoundCluster) -> Injected:
    node = cluster.random.choice(cluster.nodes)
    device = cluster.random.choice(cluster.slice_of(PARTITIONS, node)["spec"]["devices"])
    device["consumesCounters"][0]["counters"]["undeclared"] = {"value": "1"}
    return Injected("slices", f"{PARTITIONS}/{node}")


def slice_missing(cluster: SoundCluster) -> Injected:
    node = cluster.random.choice(cluster.nodes)
    member = cluster.random.choice(("devices", "sharedCounters"))
    _remove(cluster, "resourceslices", cluster.slice_of(PARTITIONS, node, member)["metadata"]["name"])
    return Injected("slices", f"{PARTITIONS}/{node}")


def allocators_in_turns(cluster: SoundCluster) -> Injected:
    """This program, the other scheduler and again this program on one node."""
    node = cluster.random.choice(cluster.nodes)
    free = [f"spare-{index}" for index in range(3)]
    devices = cluster.slice_of(GPUS, node)["spec"]["devices"]
    for index, name in enumerate(free):
        devices.append(objects.device(name, attributes={"model": "a"}))
        placed = cluster.place(GPUS, node, node, name, allocated=TAKEOVER + 2000 + 100 * index)
        if index == 1:
            _bare(placed)
    return Injected("two_allocators", f"{GPUS}/{node}")


def class_of_nothing(cluster: SoundCluster) -> Injected:
    cluster.made.add(objects.device_class("misspelt", 'device.driver == "gqu.example.com"'))
    return Injected("class_without_devices", "misspelt")


def class_that_fails(cluster: SoundCluster) -> Injected:
    cluster.made.add(objects.device_class("failing", f'device.attributes["{GPUS}"].absent == 1'))
    return Injected("class_without_devices", "failing")


def taint_rule_of_nothing(cluster: SoundCluster) -> Injected:
    _taint_rule(cluster, "typo", "NoSchedule", pool="absent")
    return Injected("policy_without_effect", "typo")


def device_not_published(cluster: SoundCluster) -> Injected:
    placed = _any(cluster, GPUS)
    spec = cluster.slice_of(GPUS, placed.node)["spec"]
    spec["devices"] = [each for each in spec["devices"] if each["name"] != placed.device]
    return Injected("missing_device", placed.name)


def pool_not_published(cluster: SoundCluster) -> Injected:
    placed = _any(cluster, GPUS, SHARED)
    _remove(cluster, "resourceslices", cluster.slice_of(placed.driver, placed.node)["metadata"]["name"])
    return Injected("missing_device", placed.name)


def generation_without_the_device(cluster: SoundCluster) -> Injected:
    """The old slice is still there, and a newer generation is complete without it."""
    placed = _any(cluster, GPUS)
    newer = objects.resource_slice(
        "newer", node=placed.node, driver=GPUS, generation=2, devices=[objects.device("new")]
    )
    cluster.made.add(newer)
    return Injected("missing_device", placed.name)


def device_evicts(cluster: SoundCluster) -> Injected:
    placed = _bound(cluster)
    taint = {"key": "example.com/broken", "value": "yes", "effect": "NoExecute"}
    _published(cluster, placed)["taints"] = [taint]
    if cluster.random.random() < 0.5:
        placed.result["tolerations"] = [{"key": "example.com/broken", "operator": "Equal", "value": "no"}]
    return Injected("tainted_device", _pod(placed))


def rule_evicts(cluster: SoundCluster) -> Injected:
    placed = _bound(cluster)
    _taint_rule(cluster, "evict", "NoExecute", driver=placed.driver, pool=placed.pool, device=placed.device)
    return Injected("tainted_device", _pod(placed))


def fewer_devices_than_asked(cluster: SoundCluster) -> Injected:
    placed = _any(cluster)
    _request(placed)["exactly"]["count"] = cluster.random.randint(2, 5)
    return Injected("request_not_met", placed.name)


def more_devices_than_asked(cluster: SoundCluster) -> Injected:
    placed = _any(cluster, GPUS)
    cluster.slice_of(GPUS, placed.node)["spec"]["devices"].append(objects.device("further", attributes={"model": "a"}))
    placed.claim["status"]["allocation"]["devices"]["results"].append({**placed.result, "device": "further"})
    _bare(placed)
    return Injected("request_not_met", placed.name)


def result_for_no_request(cluster: SoundCluster) -> Injected:
    placed = _any(cluster)
    placed.result["request"] = cluster.random.choice(("other", "r/big"))
    return Injected("request_not_met", placed.name)


def request_without_device(cluster: SoundCluster) -> Injected:
    placed = _any(cluster)
    placed.claim["spec"]["devices"]["requests"].append(objects.request("second", "gpu"))
    return Injected("request_not_met", placed.name)


def results_of_two_alternatives(cluster: SoundCluster) -> Injected:
    placed = _any(cluster, GPUS)
    options = [{"name": name, "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1} for name in "ab"]
    placed.claim["spec"]["devices"]["requests"] = [{"name": "r", "firstAvailable": options}]
    cluster.slice_of(GPUS, placed.node)["spec"]["devices"].append(objects.device("further", attributes={"model": "a"}))
    first, second = {**placed.result, "request": "r/a"}, {**placed.result, "request": "r/b", "device": "further"}
    placed.claim["status"]["allocation"]["devices"]["results"] = [first, second]
    _bare(placed)
    return Injected("request_not_met", placed.name)


def all_devices_but_one(cluster: SoundCluster) -> Injected:
    """The slice has never changed, so the device was there when mode All took the others."""
    placed = _any(cluster, GPUS)
    _request(placed)["exactly"]["allocationMode"] = "All"
    _never_changed(cluster, placed)
    return Injected("request_not_met", placed.name)


def device_never_matched(cluster: SoundCluster) -> Injected:
    placed = _any(cluster, GPUS)
    selector = {"cel": {"expression": f'device.attributes["{GPUS}"].model == "z"'}}
    _request(placed)["exactly"]["selectors"] = [selector]
    _never_changed(cluster, placed)
    return Injected("device_mismatch", placed.name)


def share_is_none_that_was_asked_for(cluster: SoundCluster) -> Injected:
    placed = _any(cluster, SHARED)
    asked = int(placed.result["consumedCapacity"]["bandwidth"]) + 1
    _request(placed)["exactly"]["capacity"] = {"requests": {"bandwidth": str(asked)}}
    _never_changed(cluster, placed)
    return Injected("device_mismatch", placed.name)


def device_matches_no_more(cluster: SoundCluster) -> Injected:
    placed = _any(cluster, GPUS)
    model = _published(cluster, placed)["attributes"]["model"]["string"]
    selector = {"cel": {"expression": f'device.attributes["{GPUS}"].model == "{model}"'}}
    _request(placed)["exactly"]["selectors"] = [selector]
    _published(cluster, placed)["attributes"]["model"] = {"string": "renamed"}
    cluster.slice_of(GPUS, placed.node)["metadata"]["generation"] = 2
    return Injected("device_drift", placed.name)


def allocation_for_another_node(cluster: SoundCluster) -> Injected:
    placed = _bound(cluster)
    other = next(each for each in cluster.nodes if each != placed.node)
    placed.claim["status"]["allocation"]["nodeSelector"] = objects.on_node(other)
    return Injected("allocation_nodes", placed.name)


def _extended_resource(cluster: SoundCluster) -> None:
    """Make the pod with an extended resource and its claim, in the place of those that there may be."""
    _remove(cluster, "pods", "extended")
    _remove(cluster, "resourceclaims", "extended-x")
    extended_resource(cluster.made, cluster.nodes[0])


def _taint_rule(cluster: SoundCluster, name: str, effect: str, **selector: str) -> None:
    taint = {"key": "example.com/x", "effect": effect}
    cluster.made.add(objects.taint_rule(name, taint, **selector))


def _pod(placed: Placed) -> str:
    return f"{NAMESPACE}/{placed.pod['metadata']['name']}"


def _request(placed: Placed) -> Json:
    found: Json = placed.claim["spec"]["devices"]["requests"][0]
    return found


def _published(cluster: SoundCluster, placed: Placed) -> Json:
    devices = cluster.slice_of(placed.driver, placed.node)["spec"]["devices"]
    found: Json = next(each for each in devices if each["name"] == placed.device)
    return found


def _never_changed(cluster: SoundCluster, placed: Placed) -> None:
    """Make the slices of the driver and its class older than every allocation."""
    name = placed.driver.partition(".")[0]
    classes = [each for each in cluster.made.objects["deviceclasses"] if each["metadata"]["name"] == name]
    for each in (*classes, cluster.slice_of(placed.driver, placed.node)):
        each["metadata"].update(generation=1, creationTimestamp=stamp(TAKEOVER - 200_000))


def _set_of(cluster: SoundCluster, placed: Placed) -> str:
    devices = cluster.slice_of(PARTITIONS, placed.node)["spec"]["devices"]
    found = next(each for each in devices if each["name"] == placed.device)
    return str(found["consumesCounters"][0]["counterSet"])


def _publish_and_allocate(cluster: SoundCluster, beside: Placed, drawn: Json, **fields: Json) -> Placed:
    """A further device on the node of `beside`, allocated as by a scheduler that keeps no snapshot."""
    name = "injected"
    cluster.slice_of(PARTITIONS, beside.node)["spec"]["devices"].append(
        objects.device(name, consumes=[drawn], **fields)
    )
    placed = cluster.place(PARTITIONS, beside.node, beside.pool, name)
    placed.claim["metadata"].get("annotations", {}).pop(SNAPSHOT_ANNOTATION, None)
    return placed


def _attached(cluster: SoundCluster) -> Placed:
    """An allocation whose device has binding conditions."""
    found = cluster.of(FABRIC)
    if found:
        return cluster.random.choice(found)
    placed = cluster.place(FABRIC, cluster.nodes[0], "rack-1", "port-0", allocated=NOW - 60)
    placed.result.update(bindingConditions=[ATTACHED], bindingFailureConditions=["FabricFailed"])
    return placed


MUTATIONS: Final[tuple[Mutation, ...]] = tuple(
    each for each in list(globals().values()) if getattr(each, "__annotations__", {}).get("return") is Injected
)
"""Every function of this module that returns what it injected."""
