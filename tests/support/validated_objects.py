"""Objects that an API server of Kubernetes 1.37 refuses or accepts, each for one reason; lint has to agree with it about all."""

from collections.abc import Iterator
from typing import Any, NamedTuple

Json = dict[str, Any]


class ValidatedObject(NamedTuple):
    """An object, and whether it is refused."""

    name: str
    thing: Json
    refused: bool


def all_objects() -> list[ValidatedObject]:
    """Every object of the tables, each with a name of its own."""
    found = [
        *(
            _slice(name, spec, refused=refused)
            for refused, specs in ((True, _BAD), (False, _GOOD))
            for name, spec in specs
        ),
        *_others(),
    ]
    assert len({each.name for each in found}) == len(found)
    return found


def _slice(name: str, spec: Json, *, refused: bool) -> ValidatedObject:
    thing = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}
    return ValidatedObject(name, thing, refused)


def _spec(**changes: Any) -> Json:
    """A slice that is accepted, with these fields; those that are None are left out."""
    spec = {
        "driver": "gpu.example.com",
        "nodeName": "node-1",
        "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0"}],
        **changes,
    }
    return {name: value for name, value in spec.items() if value is not None}


def _device(**fields: Any) -> Json:
    return _spec(devices=[{"name": "gpu-0", **fields}])


def _devices(number: int, **fields: Any) -> Json:
    return _spec(devices=[{"name": f"gpu-{index}", **fields} for index in range(number)])


def _pool(**fields: Any) -> Json:
    return _spec(pool={"name": "node-1", "generation": 1, "resourceSliceCount": 1, **fields})


def _attribute(**fields: Any) -> Json:
    return _device(attributes={"a": fields})


def _draws(*sets: Json) -> Json:
    return _device(consumesCounters=list(sets))


def _draw(name: str = "set", counters: Any = None, **fields: Any) -> Json:
    return {"counterSet": name, "counters": {"c": {"value": "1"}} if counters is None else counters, **fields}


def _sets(*sets: Json) -> Json:
    return _spec(devices=None, sharedCounters=list(sets))


def _set(name: str = "set", counters: Any = None) -> Json:
    return {"name": name, "counters": {"c": {"value": "1"}} if counters is None else counters}


def _counters(number: int) -> Json:
    return {f"c-{index}": {"value": "1"} for index in range(number)}


def _shared(policy: Json, *, multiple: bool = True, value: str = "10") -> Json:
    more = {"allowMultipleAllocations": True} if multiple else {}
    return _device(capacity={"memory": {"value": value, "requestPolicy": policy}}, **more)


def _range(
    least: str | None = "1", most: str | None = None, step: str | None = None, default: str | None = "1"
) -> Json:
    span = {name: value for name, value in (("min", least), ("max", most), ("step", step)) if value is not None}
    return _shared({"validRange": span} | ({} if default is None else {"default": default}))


def _selector(*terms: Json) -> Json:
    return _spec(nodeName=None, nodeSelector={"nodeSelectorTerms": list(terms)})


def _labels(operator: str, *values: str, key: str = "zone") -> Json:
    return _selector({"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]})


def _per_device(**fields: Any) -> Json:
    return _spec(nodeName=None, perDeviceNodeSelection=True, devices=[{"name": "gpu-0", **fields}])


def _conditions(needed: list[str] | None, failed: list[str] | None) -> Json:
    fields = {"bindingConditions": needed, "bindingFailureConditions": failed}
    return _device(**{name: value for name, value in fields.items() if value is not None})


def _standing_for(**resources: Json) -> Json:
    # A slice of one node needs a node that declares the feature.
    device = {"name": "gpu-0", "nodeAllocatableResources": resources, "capacity": {"cores": {"value": "4"}}}
    return _spec(nodeName=None, allNodes=True, devices=[device])


_TERM = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
_BAD: list[tuple[str, Json]] = [
    ("driver-missing", _spec(driver=None)),
    ("driver-empty", _spec(driver="")),
    ("driver-long", _spec(driver="a" * 64)),
    ("driver-underscore", _spec(driver="gpu_example")),
    ("pool-missing", _spec(pool=None)),
    ("pool-name-empty", _pool(name="")),
    ("pool-name-long", _pool(name="a" * 254)),
    ("pool-name-upper", _pool(name="Node")),
    ("pool-name-slash-at-end", _pool(name="a/")),
    ("pool-count-zero", _pool(resourceSliceCount=0)),
    ("pool-count-missing", _spec(pool={"name": "node-1", "generation": 1})),
    ("pool-generation-negative", _pool(generation=-1)),
    ("nodes-none", _spec(nodeName=None)),
    ("nodes-two", _spec(allNodes=True)),
    ("nodes-all-false", _spec(nodeName=None, allNodes=False)),
    ("node-name-empty", _spec(nodeName="")),
    ("node-name-upper", _spec(nodeName="Node-1")),
    ("per-device-false", _spec(perDeviceNodeSelection=False)),
    ("selector-without-terms", _selector()),
    ("selector-two-terms", _selector(_TERM, _TERM)),
    ("selector-in-without-values", _labels("In")),
    ("selector-exists-with-values", _labels("Exists", "a")),
    ("selector-gt-two-values", _labels("Gt", "1", "2")),
    ("selector-operator", _labels("Has", "a")),
    ("selector-key", _labels("In", "a", key="a b")),
    ("selector-value", _labels("In", "a b")),
    ("selector-field", _selector({"matchFields": [{"key": "metadata.uid", "operator": "In", "values": ["a"]}]})),
    (
        "selector-field-two",
        _selector({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}]}),
    ),
    ("devices-beside-counters", _spec(sharedCounters=[_set()])),
    ("devices-129", _devices(129)),
    ("devices-65-taints", _devices(65, taints=[{"key": "a", "effect": "NoSchedule"}])),
    ("devices-65-counters", _devices(65, consumesCounters=[_draw()])),
    ("devices-65-lists", _devices(65, attributes={"a": {"ints": [1]}})),
    ("devices-same-name", _spec(devices=[{"name": "a"}, {"name": "a"}])),
    ("device-name-upper", _spec(devices=[{"name": "GPU"}])),
    ("device-name-dot", _spec(devices=[{"name": "a.b"}])),
    ("device-name-long", _spec(devices=[{"name": "a" * 64}])),
    ("device-unknown-field", _device(colour="red")),
    ("device-groups-in-wrong-place", _device(compatibilityGroups=["mig"])),
    ("sets-nine", _sets(*(_set(f"s-{index}") for index in range(9)))),
    ("sets-same-name", _sets(_set(), _set())),
    ("set-name", _sets(_set("Set"))),
    ("set-without-counters", _sets(_set(counters={}))),
    ("set-33-counters", _sets(_set(counters=_counters(33)))),
    ("set-counter-name", _sets(_set(counters={"C": {"value": "1"}}))),
    ("set-counter-value", _sets(_set(counters={"c": {"value": "much"}}))),
    ("draws-three-sets", _draws(_draw("a"), _draw("b"), _draw("c"))),
    ("draws-same-set", _draws(_draw(), _draw())),
    ("draws-no-counters", _draws(_draw(counters={}))),
    ("draws-33-counters", _draws(_draw(counters=_counters(33)))),
    ("draws-counter-name", _draws(_draw(counters={"a_b": {"value": "1"}}))),
    ("draws-set-name", _draws(_draw("a_b"))),
    ("groups-three", _draws(_draw(compatibilityGroups=["a", "b", "c"]))),
    ("groups-same", _draws(_draw(compatibilityGroups=["a", "a"]))),
    ("groups-upper", _draws(_draw(compatibilityGroups=["MIG"]))),
    ("groups-empty-name", _draws(_draw(compatibilityGroups=[""]))),
    ("groups-long", _draws(_draw(compatibilityGroups=["a" * 64]))),
    ("groups-no-list", _draws(_draw(compatibilityGroups="mig"))),
    ("attribute-without-value", _attribute()),
    ("attribute-two-values", _attribute(int=1, string="a")),
    ("attribute-string-long", _attribute(string="a" * 65)),
    ("attribute-version", _attribute(version="1.0")),
    ("attribute-version-zero", _attribute(version="1.02.3")),
    ("attribute-ints-empty", _attribute(ints=[])),
    ("attribute-strings-long", _attribute(strings=["a" * 65])),
    ("attribute-versions", _attribute(versions=["1.0.0", "one"])),
    ("attribute-int-large", _attribute(int=2**63)),
    ("attribute-name-dash", _device(attributes={"a-b": {"int": 1}})),
    ("attribute-name-digit", _device(attributes={"1a": {"int": 1}})),
    ("attribute-name-long", _device(attributes={"a" * 33: {"int": 1}})),
    ("attribute-name-domain", _device(attributes={"a_b/c": {"int": 1}})),
    ("attribute-name-no-domain", _device(attributes={"/c": {"int": 1}})),
    ("attributes-33", _device(attributes={f"a{index}": {"int": 1} for index in range(33)})),
    (
        "attributes-and-capacity-33",
        _device(
            attributes={f"a{index}": {"int": 1} for index in range(20)},
            capacity={f"c{index}": {"value": "1"} for index in range(13)},
        ),
    ),
    ("attribute-values-49", _attribute(ints=list(range(49)))),
    ("capacity-value", _device(capacity={"memory": {"value": "40 Gi"}})),
    ("capacity-name", _device(capacity={"mem-ory": {"value": "1"}})),
    ("policy-on-one-allocation", _shared({"default": "1"}, multiple=False)),
    ("policy-two", _shared({"default": "1", "validValues": ["1"], "validRange": {"min": "1"}})),
    ("policy-values-no-default", _shared({"validValues": ["1"]})),
    ("policy-values-other-default", _shared({"default": "3", "validValues": ["1", "2"]})),
    ("policy-values-order", _shared({"default": "1", "validValues": ["2", "1"]})),
    ("policy-values-same", _shared({"default": "1", "validValues": ["1", "1"]})),
    ("policy-values-large", _shared({"default": "1", "validValues": ["1", "11"]})),
    ("policy-values-11", _shared({"default": "1", "validValues": [str(index) for index in range(1, 12)]}, value="20")),
    ("range-no-default", _range(default=None)),
    ("range-no-min", _range(least=None, most="5")),
    ("range-no-min-but-step", _range(least=None, step="2", default="4")),
    ("range-min-large", _range(least="11", default="11")),
    ("range-default-small", _range(least="2", default="1")),
    ("range-default-large", _range(most="3", default="4")),
    ("range-max-small", _range(least="3", most="2", default="3")),
    ("range-max-large", _range(most="11")),
    ("range-step-zero", _range(step="0")),
    ("range-step-large", _range(step="10")),
    ("range-max-off-step", _range(most="4", step="2")),
    ("range-default-off-step", _range(step="2", default="2")),
    ("range-fine", _range(least="1u", default="1")),
    ("taint-key", _device(taints=[{"key": "a b", "effect": "NoSchedule"}])),
    ("taint-key-empty", _device(taints=[{"key": "", "effect": "NoSchedule"}])),
    ("taint-value", _device(taints=[{"key": "a", "value": "a b", "effect": "NoSchedule"}])),
    ("taint-effect", _device(taints=[{"key": "a", "effect": "PreferNoSchedule"}])),
    ("taint-no-effect", _device(taints=[{"key": "a"}])),
    ("taint-time", _device(taints=[{"key": "a", "effect": "NoExecute", "timeAdded": "yesterday"}])),
    ("taints-17", _device(taints=[{"key": f"a-{index}", "effect": "None"} for index in range(17)])),
    ("per-device-none", _per_device()),
    ("per-device-two", _per_device(nodeName="a", allNodes=True)),
    ("per-device-all-false", _per_device(allNodes=False)),
    ("per-device-empty", _per_device(nodeName="")),
    ("device-node-without-per-device", _device(nodeName="node-1")),
    ("conditions-without-failures", _conditions(["a"], None)),
    ("failures-without-conditions", _conditions(None, ["a"])),
    ("conditions-overlap", _conditions(["a"], ["a"])),
    ("conditions-same", _conditions(["a", "a"], ["b"])),
    ("conditions-five", _conditions(["a", "b", "c", "d", "e"], ["f"])),
    ("conditions-name", _conditions(["a b"], ["c"])),
    ("stands-for-unknown", _standing_for(disk={"mapping": {"deviceMultiplier": "1"}})),
    ("stands-for-nothing", _standing_for(cpu={})),
    ("stands-key-alone", _standing_for(cpu={"mapping": {"capacityKey": "cores"}})),
    ("stands-key-unknown", _standing_for(cpu={"mapping": {"capacityKey": "threads", "capacityMultiplier": "1"}})),
    ("stands-multiplier-zero", _standing_for(cpu={"mapping": {"deviceMultiplier": "0"}})),
    ("stands-overhead-none", _standing_for(memory={"overhead": {}})),
    ("stands-overhead-negative", _standing_for(memory={"overhead": {"perPod": "-1"}})),
    ("type-without-counters", _spec(partitionTypeAttribute="gpu.example.com/type")),
    ("type-not-qualified", _draws(_draw()) | {"partitionTypeAttribute": "type"}),
    ("type-missing", _draws(_draw()) | {"partitionTypeAttribute": "gpu.example.com/type"}),
    (
        "type-no-string",
        _device(consumesCounters=[_draw()], attributes={"type": {"int": 1}})
        | {"partitionTypeAttribute": "gpu.example.com/type"},
    ),
    ("operations-unknown", _spec(skipNodeOperations=["Reboot"])),
    ("operations-same", _spec(skipNodeOperations=["*", "*"])),
    ("operations-prepare-alone", _spec(skipNodeOperations=["NodePrepareResources"])),
]
_GOOD: list[tuple[str, Json]] = [
    ("good", _spec()),
    ("good-driver-upper", _spec(driver="GPU.example.com")),
    ("good-pool-name", _pool(name="a/b.c/d")),
    ("good-generation-zero", _pool(generation=0)),
    ("good-without-devices", _spec(devices=None)),
    ("good-all-nodes", _spec(nodeName=None, allNodes=True)),
    ("good-selector", _selector(_TERM)),
    (
        "good-selector-exists",
        _selector({"matchExpressions": [{"key": "example.com/zone", "operator": "DoesNotExist"}]}),
    ),
    (
        "good-selector-field",
        _selector({"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["a"]}]}),
    ),
    ("good-devices-128", _devices(128)),
    ("good-devices-64-taints", _devices(64, taints=[{"key": "a", "effect": "None"}])),
    ("good-sets", _sets(*(_set(f"s-{index}", _counters(32)) for index in range(8)))),
    ("good-draws", _draws(_draw("a", compatibilityGroups=["mig", "vgpu"]), _draw("b", compatibilityGroups=[]))),
    ("good-draws-nothing", _draws(_draw(counters={"c": {"value": "0"}}))),
    ("good-draws-number", _draws(_draw(counters={"c": {"value": 3}}))),
    (
        "good-attributes",
        _device(
            attributes={
                "a": {"int": -1},
                "gpu.example.com/b": {"bool": False},
                "C_1": {"string": ""},
                "d": {"version": "1.2.3-rc.1+build"},
                "e": {"ints": [1, 1]},
                "f": {"strings": ["a"]},
                "a/b/c": {"int": 1},
            }
        ),
    ),
    ("good-attributes-32", _device(attributes={f"a{index}": {"int": 1} for index in range(32)})),
    ("good-attribute-values-48", _attribute(ints=list(range(48)))),
    ("good-capacity", _device(capacity={"memory": {"value": "40Gi"}, "gpu.example.com/cores": {"value": 4}})),
    ("good-policy-default", _shared({"default": "1"})),
    ("good-policy-empty", _shared({})),
    ("good-policy-values", _shared({"default": "2", "validValues": ["1", "2", "10"]})),
    ("good-range", _range(most="9", step="2", default="3")),
    ("good-range-fraction", _range(least="500m", most="1500m", step="500m", default="1")),
    (
        "good-taint",
        _device(
            taints=[
                {
                    "key": "example.com/a",
                    "value": "b",
                    "effect": "NoExecute",
                    "timeAdded": "2026-01-02T15:04:05Z",
                }
            ]
        ),
    ),
    ("good-per-device", _per_device(nodeSelector={"nodeSelectorTerms": [_TERM, _TERM]})),
    ("good-per-device-all", _per_device(allNodes=True)),
    ("good-conditions", _conditions(["example.com/a", "b"], ["c"])),
    ("good-conditions-empty", _conditions([], [])),
    ("good-binds-to-node", _device(bindsToNode=True)),
    (
        "good-stands",
        _standing_for(
            cpu={"mapping": {"capacityKey": "cores", "capacityMultiplier": "1"}},
            memory={"overhead": {"perPod": "0", "perContainer": "1Mi"}},
        ),
    ),
    (
        "good-type",
        _device(consumesCounters=[_draw()], attributes={"type": {"string": "mig"}})
        | {"partitionTypeAttribute": "gpu.example.com/type"},
    ),
    ("good-operations", _spec(skipNodeOperations=["NodePrepareResources", "NodeUnprepareResources"])),
    ("good-operations-all", _spec(skipNodeOperations=["NodePrepareResources", "*"])),
]


def _others() -> Iterator[ValidatedObject]:
    """Claims, templates, classes and taint rules."""
    for name, devices, refused in _CLAIMS:
        for kind, spec in (
            ("ResourceClaim", {"devices": devices}),
            ("ResourceClaimTemplate", {"spec": {"devices": devices}}),
        ):
            full = f"{name}-{'claim' if kind == 'ResourceClaim' else 'template'}"
            metadata = {"name": full, "namespace": "default"}
            thing = {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}
            yield ValidatedObject(full, thing, refused)
    for name, kind, spec, refused in _CLUSTER:
        thing = {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        yield ValidatedObject(name, thing, refused)
    for kind, refused in (
        ("ResourceClaim", False),
        ("ResourceClaimTemplate", False),
        ("DeviceClass", False),
        ("DeviceTaintRule", True),
        ("ResourceSlice", True),
    ):
        metadata = {"name": f"no-spec-{kind.lower()}", "namespace": "default"}
        thing = {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata}
        yield ValidatedObject(metadata["name"], thing, refused)


def _exactly(**fields: Any) -> Json:
    return {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu", **fields}}]}


def _first(*alternatives: Json) -> Json:
    return {"requests": [{"name": "gpu", "firstAvailable": list(alternatives)}]}


def _alternative(name: str, **fields: Any) -> Json:
    return {"name": name, "deviceClassName": "gpu", **fields}


def _opaque(parameters: Any, driver: str = "gpu.example.com") -> Json:
    return {"opaque": {"driver": driver, "parameters": parameters}}


_DERIVED = [{"name": "example.com/size", "expression": "device.attributes['x'].size"}]
_SIZE = {"matchAttribute": "example.com/size"}
_CLAIMS: list[tuple[str, Json, bool]] = [
    ("ok", _exactly(), False),
    ("ok-nothing", {}, False),
    ("ok-count-zero", _exactly(count=0), False),
    ("ok-all", _exactly(allocationMode="All"), False),
    ("ok-first", _first(_alternative("a"), _alternative("b", count=2)), False),
    ("ok-constraint", _exactly(count=2) | {"constraints": [{"requests": ["gpu"], **_SIZE}]}, False),
    (
        "ok-constraint-both",
        _exactly(count=2) | {"constraints": [_SIZE | {"distinctAttribute": "gpu.example.com/slot"}]},
        False,
    ),
    (
        "ok-derived-both",
        _exactly(derivedAttributes=_DERIVED) | {"constraints": [_SIZE | {"distinctAttribute": "gpu.example.com/slot"}]},
        False,
    ),
    ("ok-constraint-part", _first(_alternative("a")) | {"constraints": [{"requests": ["gpu/a"], **_SIZE}]}, False),
    ("ok-config", _exactly() | {"config": [_opaque({"a": 1})]}, False),
    ("ok-tolerations", _exactly(tolerations=[{"operator": "Exists"}, {"key": "a", "value": "b"}]), False),
    ("ok-derived", _exactly(derivedAttributes=_DERIVED) | {"constraints": [_SIZE]}, False),
    ("no-kind-of-request", {"requests": [{"name": "gpu"}]}, True),
    (
        "both-kinds",
        {"requests": [{"name": "a", "exactly": {"deviceClassName": "b"}, "firstAvailable": [_alternative("c")]}]},
        True,
    ),
    ("request-name", {"requests": [{"name": "GPU", "exactly": {"deviceClassName": "gpu"}}]}, True),
    ("request-names", {"requests": [*_exactly()["requests"], *_exactly()["requests"]]}, True),
    (
        "requests-33",
        {"requests": [{"name": f"a-{index}", "exactly": {"deviceClassName": "gpu"}} for index in range(33)]},
        True,
    ),
    ("no-class", {"requests": [{"name": "gpu", "exactly": {}}]}, True),
    ("class-name", _exactly(deviceClassName="GPU"), True),
    ("count-negative", _exactly(count=-1), True),
    ("all-with-count", _exactly(allocationMode="All", count=1), True),
    ("mode", _exactly(allocationMode="Some"), True),
    ("first-nine", _first(*(_alternative(f"a-{index}") for index in range(9))), True),
    ("first-names", _first(_alternative("a"), _alternative("a")), True),
    ("selector-without-cel", _exactly(selectors=[{}]), True),
    ("selectors-33", _exactly(selectors=[{"cel": {"expression": "true"}}] * 33), True),
    ("expression", _exactly(selectors=[{"cel": {"expression": "device.driver = 'a'"}}]), True),
    ("toleration-exists-value", _exactly(tolerations=[{"key": "a", "operator": "Exists", "value": "b"}]), True),
    ("toleration-operator", _exactly(tolerations=[{"key": "a", "operator": "Has"}]), True),
    ("toleration-key", _exactly(tolerations=[{"key": "a b", "operator": "Exists"}]), True),
    ("toleration-value", _exactly(tolerations=[{"key": "a", "value": "b c"}]), True),
    ("toleration-effect", _exactly(tolerations=[{"operator": "Exists", "effect": "Never"}]), True),
    (
        "constraint-both-match-bare",
        _exactly() | {"constraints": [{"matchAttribute": "size", "distinctAttribute": "gpu.example.com/slot"}]},
        True,
    ),
    ("constraint-both-distinct-bare", _exactly() | {"constraints": [_SIZE | {"distinctAttribute": "slot"}]}, True),
    (
        "derived-both-ignored",
        _exactly(derivedAttributes=_DERIVED)
        | {"constraints": [{"matchAttribute": "gpu.example.com/slot", "distinctAttribute": _SIZE["matchAttribute"]}]},
        True,
    ),
    ("constraint-nothing", _exactly() | {"constraints": [{"requests": ["gpu"]}]}, True),
    ("constraint-bare", _exactly() | {"constraints": [{"matchAttribute": "size"}]}, True),
    ("constraint-request", _exactly() | {"constraints": [{"requests": ["cpu"], **_SIZE}]}, True),
    ("constraint-requests", _exactly() | {"constraints": [{"requests": ["gpu", "gpu"], **_SIZE}]}, True),
    ("constraint-part", _first(_alternative("a")) | {"constraints": [{"requests": ["gpu/b"], **_SIZE}]}, True),
    ("config-request", _exactly() | {"config": [{"requests": ["cpu"], **_opaque({})}]}, True),
    ("config-nothing", _exactly() | {"config": [{}]}, True),
    ("config-driver", _exactly() | {"config": [_opaque({}, "a_b")]}, True),
    ("config-no-mapping", _exactly() | {"config": [_opaque([1])]}, True),
    ("config-large", _exactly() | {"config": [_opaque({"a": "b" * 10_240})]}, True),
    ("derived-unused", _exactly(derivedAttributes=_DERIVED), True),
    ("derived-bare", _exactly(derivedAttributes=[{"name": "size", "expression": "1"}]), True),
    ("derived-same", _exactly(derivedAttributes=[*_DERIVED, *_DERIVED]) | {"constraints": [_SIZE]}, True),
    ("unknown-field", _exactly(classes=["gpu"]), True),
]
_CLUSTER: list[tuple[str, str, Json, bool]] = [
    ("class-ok", "DeviceClass", {"extendedResourceName": "example.com/gpu"}, False),
    ("class-config", "DeviceClass", {"config": [_opaque({"a": 1})]}, False),
    ("class-native-name", "DeviceClass", {"extendedResourceName": "cpu"}, True),
    ("class-kubernetes-name", "DeviceClass", {"extendedResourceName": "kubernetes.io/gpu"}, True),
    ("class-selector", "DeviceClass", {"selectors": [{}]}, True),
    ("class-suitable", "DeviceClass", {"suitableNodes": {}}, True),
    (
        "rule-ok",
        "DeviceTaintRule",
        {"deviceSelector": {"driver": "a"}, "taint": {"key": "a", "effect": "NoExecute"}},
        False,
    ),
    ("rule-effect", "DeviceTaintRule", {"deviceSelector": {}, "taint": {"key": "a", "effect": "Never"}}, True),
    (
        "rule-device",
        "DeviceTaintRule",
        {"deviceSelector": {"device": "A"}, "taint": {"key": "a", "effect": "None"}},
        True,
    ),
    ("rule-no-taint", "DeviceTaintRule", {"deviceSelector": {}}, True),
]
