"""The rules between the fields of an object, as `pkg/apis/resource/validation` has them.

A rule is asked about an object each of whose fields is right; a field that is null is as good as one that is left out.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from dra_extender.cel.values.quantity import NANO, parse_quantity
from dra_extender.manifests.problems import Problem, Problems, shown
from dra_extender.model.allocation import DeviceToleration
from dra_extender.model.api_json import Value
from dra_extender.model.device import (
    AttributeBody,
    CapacityBody,
    DeviceBody,
    NodeAllocatable,
    ResourceMapping,
    ResourceOverhead,
)
from dra_extender.model.fields import fields_of
from dra_extender.model.names import is_node_allocatable, is_subdomain
from dra_extender.model.node_selector import NODE_NAME_FIELD, FieldRequirement, NodeSelectorRequirement
from dra_extender.model.objects import WorkloadSpec
from dra_extender.model.pod import GroupResourceClaim, PodResourceClaim, WholePodSpec
from dra_extender.model.pod_group import SchedulingPolicy
from dra_extender.model.resource_claim import DeviceClaim, DeviceConstraint, DeviceRequest, ExactRequest, SubRequest
from dra_extender.model.resource_slice import SliceSpec

_MILLI: Final = NANO // 1000
_MOST: Final = (2**63 - 1) * NANO


class Amount:
    """A quantity as it is written, and in nano-units."""

    def __init__(self, written: str | float) -> None:
        self.text = str(written)
        self.value = parse_quantity(self.text)


def _check_policy(capacity: str | float, policy: Mapping[str, Any]) -> Problems:
    """Find what is wrong with the `requestPolicy` of a capacity, at paths below it."""
    values, span = [Amount(amount) for amount in policy.get("validValues") or ()], policy.get("validRange")
    default, total = _amount(policy, "default"), Amount(capacity)
    if values and span is not None:
        yield Problem((), "expected validValues or validRange, got both")
    elif (values or span is not None) and default is None:
        field = "validValues" if values else "validRange"
        yield Problem(("default",), f"expected a value beside {field}, the field is missing")
    elif values and default is not None:
        yield from _check_values(values, default, total)
    elif span is not None and default is not None:
        yield from _check_range(span, default, total)


def _amount(value: Mapping[str, Any], name: str) -> Amount | None:
    return None if value.get(name) is None else Amount(value[name])


def _check_values(values: Sequence[Amount], default: Amount, total: Amount) -> Problems:
    for index, amount in enumerate(values):
        where = ("validValues", index)
        if index and values[index - 1].value > amount.value:
            yield Problem(
                where, f"expected amounts in ascending order, got {amount.text} after {values[index - 1].text}"
            )
        elif index and values[index - 1].value == amount.value:
            yield Problem(where, f"expected each amount once, got {amount.text} again")
        if amount.value > total.value:
            yield Problem(where, f"expected at most the capacity of {total.text}, got {amount.text}")
    if default.value not in {amount.value for amount in values}:
        yield Problem(("default",), f"expected one of validValues, got {default.text}")


def _check_range(span: Mapping[str, Any], default: Amount, total: Amount) -> Problems:
    lower, upper, step = (_amount(span, name) for name in ("min", "max", "step"))
    if lower is None:
        yield Problem(("validRange", "min"), "expected a value, the field is missing")
        return
    if lower.value > total.value:
        yield Problem(("validRange", "min"), f"expected at most the capacity of {total.text}, got {lower.text}")
    if default.value < lower.value:
        yield Problem(("default",), f"expected at least min, {lower.text}, got {default.text}")
    if upper is not None:
        if lower.value > upper.value:
            yield Problem(("validRange", "max"), f"expected at least min, {lower.text}, got {upper.text}")
        if upper.value > total.value:
            yield Problem(("validRange", "max"), f"expected at most the capacity of {total.text}, got {upper.text}")
        if default.value > upper.value:
            yield Problem(("default",), f"expected at most max, {upper.text}, got {default.text}")
    amounts = [(("default",), default), (("validRange", "min"), lower)]
    amounts += [
        (("validRange", name), amount) for name, amount in (("max", upper), ("step", step)) if amount is not None
    ]
    yield from _check_steps(amounts, lower, step, total)


def _check_steps(
    amounts: Sequence[tuple[tuple[str, ...], Amount]], lower: Amount, step: Amount | None, total: Amount
) -> Problems:
    fractional = any(amount.value % NANO for _, amount in amounts)
    fine = [(where, amount) for where, amount in amounts if fractional and amount.value % _MILLI]
    if fine:
        for where, amount in fine:
            yield Problem(where, f"expected a multiple of one thousandth, got {amount.text}")
        return
    if step is None:
        return
    if step.value <= 0:
        yield Problem(("validRange", "step"), f"expected an amount above 0, got {step.text}")
        return
    if lower.value + step.value > total.value:
        text = f"expected min and one step to be at most the capacity of {total.text}, got {lower.text} and {step.text}"
        yield Problem(("validRange", "step"), text)
    beyond = [(where, amount) for where, amount in amounts if not fractional and not 0 <= amount.value <= _MOST]
    for where, amount in beyond:
        yield Problem(where, f"expected an amount from 0 to 2^63 - 1, got {amount.text}")
    for where, amount in () if beyond else amounts:
        if where[-1] in ("default", "max") and (amount.value - lower.value) % step.value:
            yield Problem(
                where, f"expected min, {lower.text}, and a multiple of the step, {step.text}; got {amount.text}"
            )


MAX_NAMES: Final = 32
"""Attributes and capacities of a device together."""
MAX_VALUES: Final = 48
"""Attribute values of a device, those in lists one by one."""
MAX_ADVANCED_DEVICES: Final = 64
"""Devices of a slice where one has taints, counters or lists of attribute values."""
_LISTS: Final = ("ints", "bools", "strings", "versions")
_NODES_OF_DEVICE: Final = ("nodeName", "nodeSelector", "allNodes")
_CLAIM_SOURCES: Final = ("resourceClaimName", "resourceClaimTemplateName")

Json = Mapping[str, Any]
Rule = Callable[[Json], Problems]


def present_fields(value: Json, names: Collection[str]) -> list[str]:
    """Return the names of the fields that have a value."""
    return [name for name in names if value.get(name) is not None]


def _exactly_one_of(*names: str) -> Rule:
    def check(value: Json) -> Problems:
        present = present_fields(value, names)
        if len(present) != 1:
            yield Problem((), f"expected exactly one of {' or '.join(names)}, got {' and '.join(present) or 'none'}")

    return check


def _check_slice(spec: Json) -> Problems:
    yield from _check_nodes(spec)
    devices = spec.get("devices") or ()
    if len(devices) > MAX_ADVANCED_DEVICES and any(map(_is_advanced, devices)):
        text = (
            f"expected at most {MAX_ADVANCED_DEVICES} devices where one has taints, consumesCounters or lists of values"
        )
        yield Problem(("devices",), f"{text}, got {len(devices)}")
    yield from _check_partition_types(spec)
    skipped = spec.get("skipNodeOperations") or ()
    if "NodePrepareResources" in skipped and not {"NodeUnprepareResources", "*"} & set(skipped):
        yield Problem(("skipNodeOperations",), "expected NodeUnprepareResources beside NodePrepareResources")


def _check_nodes(spec: Json) -> Problems:
    selector = spec.get("nodeSelector")
    terms = 1 if selector is None else len(selector["nodeSelectorTerms"])
    if terms != 1:
        yield Problem(("nodeSelector", "nodeSelectorTerms"), f"expected one term, got {terms}")
    for index, device in enumerate(spec.get("devices") or ()):
        node_fields = present_fields(device, _NODES_OF_DEVICE)
        if spec.get("perDeviceNodeSelection") and len(node_fields) != 1:
            got = " and ".join(node_fields) or "none"
            expected = "expected exactly one of nodeName, nodeSelector or allNodes beside perDeviceNodeSelection"
            yield Problem(("devices", index), f"{expected}, got {got}")
        elif not spec.get("perDeviceNodeSelection") and node_fields:
            yield Problem(
                ("devices", index, node_fields[0]), "expected only in a slice with perDeviceNodeSelection: true"
            )


def _is_advanced(device: Json) -> bool:
    """Return whether a slice with this device may have fewer devices."""
    lists = any(present_fields(attribute, _LISTS) for attribute in (device.get("attributes") or {}).values())
    return bool(device.get("taints") or device.get("consumesCounters") or lists)


def _check_partition_types(spec: Json) -> Problems:
    name = spec.get("partitionTypeAttribute")
    if name is None:
        return
    consuming = [
        (index, device) for index, device in enumerate(spec.get("devices") or ()) if device.get("consumesCounters")
    ]
    if not consuming:
        yield Problem(("partitionTypeAttribute",), "expected only in a slice with devices that consume counters")
    bare = name.removeprefix(f"{spec['driver']}/")
    for index, device in consuming:
        attributes = device.get("attributes") or {}
        attribute = attributes.get(name) or attributes.get(bare)
        if attribute is None:
            text = f"expected attribute {name}, for partitionTypeAttribute names it and the device consumes counters"
            yield Problem(("devices", index), text)
        elif attribute.get("string") is None:
            text = "expected a string, for partitionTypeAttribute names this attribute"
            yield Problem(("devices", index, "attributes", name if name in attributes else bare), text)


def _check_device(device: Json) -> Problems:
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    together = len(attributes) + len(capacity)
    if together > MAX_NAMES:
        yield Problem((), f"expected at most {MAX_NAMES} attributes and capacities together, got {together}")
    values = sum(max(1, *(len(attribute.get(name) or ()) for name in _LISTS)) for attribute in attributes.values())
    if values > MAX_VALUES:
        yield Problem(("attributes",), f"expected at most {MAX_VALUES} attribute values, got {values}")
    for name, entry in capacity.items():
        if entry.get("requestPolicy") is not None and not device.get("allowMultipleAllocations"):
            text = "expected only on a device with allowMultipleAllocations: true"
            yield Problem(("capacity", name, "requestPolicy"), text)
    yield from _check_conditions(device)
    for name, entry in (device.get("nodeAllocatableResources") or {}).items():
        where = ("nodeAllocatableResources", name)
        if not is_node_allocatable(name):
            yield Problem(where, f"expected cpu, memory or hugepages-SIZE, got {shown(name)}")
        key = (entry.get("mapping") or {}).get("capacityKey")
        if key is not None and key not in capacity:
            yield Problem((*where, "mapping", "capacityKey"), f"expected a capacity of the device, got {shown(key)}")


def _check_conditions(device: Json) -> Problems:
    needed, failed = device.get("bindingConditions") or (), device.get("bindingFailureConditions") or ()
    if bool(needed) != bool(failed):
        missing = "bindingFailureConditions" if needed else "bindingConditions"
        yield Problem((missing,), "expected a list: the two lists of conditions go together")
    for index, condition in enumerate(failed):
        if condition in needed:
            text = f"expected a condition that is not in bindingConditions, got {shown(condition)}"
            yield Problem(("bindingFailureConditions", index), text)


def _check_capacity(capacity: Json) -> Problems:
    policy = capacity.get("requestPolicy")
    if policy is not None:
        for problem in _check_policy(capacity["value"], policy):
            yield problem.below(("requestPolicy",))


def _check_mapping(mapping: Json) -> Problems:
    both = ("capacityKey", "capacityMultiplier")
    present = present_fields(mapping, both)
    if len(present) == 1:
        (missing,) = set(both) - set(present)
        yield Problem((missing,), f"expected a value beside {present[0]}, the field is missing")
    for name in present_fields(mapping, ("capacityMultiplier", "deviceMultiplier")):
        if parse_quantity(str(mapping[name])) <= 0:
            yield Problem((name,), f"expected an amount above 0, got {mapping[name]}")


def _check_overhead(overhead: Json) -> Problems:
    names = present_fields(overhead, ("perPod", "perContainer"))
    if not names:
        yield Problem((), "expected perPod or perContainer, got none")
    negative = next((name for name in names if parse_quantity(str(overhead[name])) < 0), None)
    if negative is not None:
        yield Problem((negative,), f"expected an amount of at least 0, got {overhead[negative]}")


def _check_node_allocatable(resource: Json) -> Problems:
    if not present_fields(resource, ("mapping", "overhead")):
        yield Problem((), "expected mapping or overhead, got none")


def _check_requirement(requirement: Json) -> Problems:
    number, operator = len(requirement.get("values") or ()), requirement["operator"]
    if operator in ("In", "NotIn") and not number:
        yield Problem(("values",), f"expected at least 1 item beside operator: {operator}")
    if operator in ("Exists", "DoesNotExist") and number:
        yield Problem(("values",), f"expected no values beside operator: {operator}")
    if operator in ("Gt", "Lt") and number != 1:
        yield Problem(("values",), f"expected one value beside operator: {operator}, got {number}")


def _check_field_requirement(requirement: Json) -> Problems:
    values: Sequence[str] = requirement.get("values") or ()
    if requirement["key"] != NODE_NAME_FIELD:
        yield Problem(("key",), f"expected {NODE_NAME_FIELD}, got {shown(requirement['key'])}")
    if len(values) != 1:
        yield Problem(("values",), f"expected one value, got {len(values)}")
    elif not is_subdomain(values[0]):
        yield Problem(("values", 0), f"expected the name of a node, got {shown(values[0])}")


def _check_toleration(toleration: Json) -> Problems:
    if toleration.get("operator") == "Exists" and toleration.get("value"):
        yield Problem(("value",), "expected no value beside operator: Exists")


def _check_request_count(body: Json) -> Problems:
    if body.get("allocationMode") == "All" and body.get("count"):
        yield Problem(("count",), "expected no count beside allocationMode: All")


def _check_constraint(constraint: Json) -> Problems:
    if _attribute(constraint) is None:
        yield Problem((), "expected matchAttribute or distinctAttribute, got none")


def _attribute(constraint: Json) -> Any:
    """Return the attribute that the allocator compares: API servers accept both, and kube-scheduler reads `matchAttribute` then."""
    matched = constraint.get("matchAttribute")
    return constraint.get("distinctAttribute") if matched is None else matched


def _check_claim(devices: Json) -> Problems:
    requests = devices.get("requests") or ()
    request_names = {request["name"] for request in requests}
    request_names |= {name for request in requests for _, name, _ in _bodies(request)}
    for field in ("constraints", "config"):
        for place, entry in enumerate(devices.get(field) or ()):
            for index, name in enumerate(entry.get("requests") or ()):
                if name not in request_names:
                    text = f"expected the name of a request, or REQUEST/ALTERNATIVE, got {shown(name)}"
                    yield Problem((field, place, "requests", index), text)
    for place, request in enumerate(requests):
        for path, name, body in _bodies(request):
            for index, derived in enumerate(body.get("derivedAttributes") or ()):
                if not any(_compares(entry, derived["name"], name) for entry in devices.get("constraints") or ()):
                    where = ("requests", place, *path, "derivedAttributes", index, "name")
                    text = f"expected a name that a constraint on this request refers to, got {shown(derived['name'])}"
                    yield Problem(where, text)


def _bodies(request: Json) -> Iterator[tuple[tuple[str | int, ...], str, Json]]:
    """Yield path, name for constraints, and fields of each alternative."""
    if request.get("exactly") is not None:
        yield ("exactly",), request["name"], request["exactly"]
    for index, alternative in enumerate(request.get("firstAvailable") or ()):
        yield ("firstAvailable", index), f"{request['name']}/{alternative['name']}", alternative


def _compares(constraint: Json, attribute: str, request: str) -> bool:
    names: Sequence[str] = constraint.get("requests") or ()
    concerned = not names or request in names or request.partition("/")[0] in names
    return concerned and attribute == _attribute(constraint)


def _check_container_claims(spec: Json) -> Problems:
    # Of a container nothing else is checked: its fields may be anything.
    names = [entry["name"] for entry in spec.get("resourceClaims") or ()]
    for field in ("initContainers", "containers"):
        for number, container in _objects(spec.get(field)):
            resources = container.get("resources")
            for index, use in _objects(resources.get("claims") if isinstance(resources, dict) else None):
                name = use.get("name")
                if name not in names:
                    where = (field, number, "resources", "claims", index, "name")
                    yield Problem(where, f"expected the name of an entry of resourceClaims, got {shown(name)}")


def _objects(values: object) -> Iterator[tuple[int, Json]]:
    """Yield the objects in a list with their places."""
    return (
        (index, item) for index, item in enumerate(values if isinstance(values, list) else ()) if isinstance(item, dict)
    )


RULES: Final[Mapping[type[Value], Sequence[Rule]]] = {
    SliceSpec: (
        _exactly_one_of("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"),
        _check_slice,
    ),
    DeviceBody: (_check_device,),
    AttributeBody: (_exactly_one_of("int", "bool", "string", "version", *_LISTS),),
    CapacityBody: (_check_capacity,),
    ResourceMapping: (_check_mapping,),
    ResourceOverhead: (_check_overhead,),
    NodeAllocatable: (_check_node_allocatable,),
    NodeSelectorRequirement: (_check_requirement,),
    FieldRequirement: (_check_field_requirement,),
    DeviceToleration: (_check_toleration,),
    ExactRequest: (_check_request_count,),
    SubRequest: (_check_request_count,),
    DeviceRequest: (_exactly_one_of("exactly", "firstAvailable"),),
    DeviceConstraint: (_check_constraint,),
    DeviceClaim: (_check_claim,),
    GroupResourceClaim: (_exactly_one_of(*_CLAIM_SOURCES),),
    PodResourceClaim: (_exactly_one_of(*_CLAIM_SOURCES, "podGroupResourceClaim"),),
    WholePodSpec: (_check_container_claims,),
    SchedulingPolicy: (_exactly_one_of("basic", "gang"),),
    WorkloadSpec: (_exactly_one_of("podGroupTemplates", "podGroups"),),
}
HINTS: Final[Mapping[type[Value], Mapping[str, str]]] = {
    DeviceRequest: dict.fromkeys(
        [field.name for field in fields_of(ExactRequest)], "in resource.k8s.io/v1 it belongs under 'exactly'"
    ),
    DeviceBody: {
        "compatibilityGroups": "it belongs into an entry of consumesCounters",
        "nodeAllocatableResourceMappings": "Kubernetes 1.37 has nodeAllocatableResources in its place",
    },
}
"""What to say of a field that does not exist in an object, by its name."""
