"""What hardly ever happens, often: changes to scenarios of any family, by topic."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

from dra_extender.allocator.state.features import FIELD_OF_NAME

from tests.parity.fuzz.allocator.chance import Json

_NAMES: Final = ("A", "a", "a-1", "a-10", "a-2", "a.b", "z", "0", "gpu-0", "d1")
_AMOUNTS: Final = (
    *("0", "1", "1.0", "0.1", "100m", "1500m", "1e3", "1E3", "1E", "2Ki", "1.5Ki", "1000", "1024", "8e-1"),
    *("0.0000000001", "1n", "3u", "9223372036854775807", "9223372036854775808", "9223372036854775806", "8Ei"),
    *("7.9Ei", "16Ei", "20E", "1k", "1Ti", "0.5Gi", "512Mi", "+1", "00"),
)
_POLICIES: Final[Sequence[Json]] = (
    {"default": "9", "validRange": {"min": "1", "max": "4"}},
    {"default": "3", "validRange": {"min": "1", "step": "3", "max": "8"}},
    {"default": "1", "validRange": {"min": "4", "max": "2"}},
    {"default": "1", "validRange": {"min": "100m", "step": "300m"}},
    {"default": "1", "validRange": {"min": "1n", "step": "1n"}},
    {"default": "1", "validRange": {"min": "0", "step": "4Ei", "max": "7Ei"}},
    {"default": "1", "validRange": {"min": "1k", "step": "1Ki"}},
    {"default": "1", "validRange": {"max": "2"}},
    {"default": "2", "validValues": ["4", "2", "1"]},
    {"default": "5", "validValues": ["1", "2"]},
    {"default": "1", "validValues": []},
    {"validRange": {"min": "1", "step": "500m"}},
    {},
)
_SELECTORS: Final = (
    'device.attributes["gpu.example.com"].?links.orValue([]).exists(x, x.startsWith("x"))',
    'device.attributes["gpu.example.com"].?lanes.orValue([]).size() > 1',
    '"links" in device.attributes["gpu.example.com"]',
    '"none.example.com" in device.attributes',
    "device.attributes.exists(d, d == device.driver)",
    "device.capacity[device.driver].all(c, device.capacity[device.driver][c].isGreaterThan(quantity('1')))",
    'device.attributes["gpu.example.com"].?numa.orValue(0) == 1',
    'device.attributes["gpu.example.com"].?numa.orValue(dyn(0)).includes(1)',
    "cel.bind(a, device.attributes[device.driver], has(a.island) && a.island in [0, 2])",
    'device.attributes["gpu.example.com"].?firmware.orValue(semver("0.1.0")) == semver("2.0.0")',
    "device.capacity[device.driver].?memory.orValue(quantity('1Gi')).asInteger() % 2 == 0",
    'device.attributes["gpu.example.com"].island < 2 || device.driver.startsWith("nic")',
    'device.attributes["gpu.example.com"].?model.orValue("") in ["a100", "h100"] ? true : device.allowMultipleAllocations',
)
_TERMS: Final[Sequence[Json]] = (
    {"matchExpressions": [{"key": "slots", "operator": "Gt", "values": ["-1"]}]},
    {"matchExpressions": [{"key": "slots", "operator": "Lt", "values": ["many"]}]},
    {"matchExpressions": [{"key": "slots", "operator": "Gt", "values": ["1", "2"]}]},
    {"matchExpressions": [{"key": "region", "operator": "DoesNotExist"}]},
    {"matchExpressions": [{"key": "region", "operator": "Exists", "values": ["west"]}]},
    {"matchExpressions": [{"key": "region", "operator": "Near", "values": ["west"]}]},
    {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["node-0"]}]},
    {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node-1"]}]},
    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-0", "node-1"]}]},
    {"matchFields": [{"key": "metadata.namespace", "operator": "In", "values": ["x"]}]},
    {"matchExpressions": [], "matchFields": []},
    {},
)
_TAINTS: Final[Sequence[Json]] = (
    {"key": "broken", "effect": "NoSchedule", "value": ""},
    {"key": "broken", "effect": "PreferNoSchedule"},
    {"key": "hot", "effect": "NoExecute", "value": "yes", "timeAdded": "2026-01-01T00:00:00Z"},
    {"key": "example.com/odd", "effect": "NoSchedule", "value": "no"},
    {"key": "broken", "effect": "None"},
)
_TOLERATIONS: Final[Sequence[Json]] = (
    {"operator": "Exists"},
    {"operator": "Exists", "effect": "NoExecute"},
    {"key": "broken"},
    {"key": "broken", "operator": "Equal"},
    {"operator": "Equal", "value": ""},
    {"key": "hot", "operator": "Equal", "value": "yes", "effect": "NoExecute", "tolerationSeconds": 0},
    {"key": "example.com/odd", "operator": "Exists", "value": "no"},
    {"key": "broken", "operator": "Lt", "value": "yes"},
)


def _devices(found: Json) -> list[Json]:
    return [device for each in found["slices"] for device in each["spec"].get("devices") or []]


def _bodies(found: Json) -> Iterator[Json]:
    for claim in found["claims"]:
        for request in claim["spec"]["devices"].get("requests") or []:
            if "exactly" in request:
                yield request["exactly"]
            yield from request.get("firstAvailable") or []


def _some(random: Random, things: Sequence[Json], most: int = 3) -> list[Json]:
    return random.sample(list(things), min(len(things), random.randint(1, most)))


def _limits(random: Random, found: Json) -> None:
    """Many devices, and counts around what a claim may have."""
    devices = [each for each in found["slices"] if each["spec"].get("devices")]
    for each in _some(random, devices, 2):
        own = each["spec"]["devices"]
        for index in range(random.choice([10, 20, 31, 34])):
            own.append({**copy.deepcopy(random.choice(own[:6])), "name": f"more-{index}"})
    for body in _some(random, list(_bodies(found)), 3):
        if random.random() < 0.25:
            body["allocationMode"] = "All"
            body.pop("count", None)
        else:
            body |= {"allocationMode": "ExactCount", "count": random.choice([1, 8, 15, 16, 17, 31, 32, 33])}


def _names(random: Random, found: Json) -> None:
    """Names whose order is a matter of bytes; the same name in several places."""
    for each in _some(random, found["slices"]):
        match random.randrange(3):
            case 0:
                each["metadata"]["name"] = random.choice(_NAMES)
            case 1 if each["spec"].get("devices"):
                random.choice(each["spec"]["devices"])["name"] = random.choice(_NAMES)
            case _:
                old, new = each["spec"]["pool"]["name"], random.choice([*_NAMES, "a/b", "node-0"])
                for other in found["slices"]:
                    if other["spec"]["pool"]["name"] == old:
                        other["spec"]["pool"]["name"] = new


def _drivers(random: Random, found: Json) -> None:
    """Pools of one name of several drivers: some pools once more, for another driver."""
    pools = sorted({(each["spec"]["driver"], each["spec"]["pool"]["name"]) for each in found["slices"]})
    for driver, pool in random.sample(pools, min(len(pools), 2)):
        new = random.choice(["nic.example.com", "fpga.example.com", "Gpu.example.com", "gpu.example.com.a"])
        if (new, pool) not in pools:
            for each in [each for each in found["slices"] if each["spec"]["driver"] == driver]:
                if each["spec"]["pool"]["name"] == pool:
                    again = copy.deepcopy(each)
                    again["spec"]["driver"] = new
                    again["metadata"]["name"] = f"{random.choice('amz')}-{each['metadata']['name']}"
                    found["slices"].append(again)
    random.shuffle(found["slices"])


def _quantities(random: Random, found: Json) -> None:
    """Amounts in every spelling, in counters, capacities, requests and what is held."""
    holders = list(_holders(found["slices"]))
    for each in _some(random, holders, 5):
        each["value"] = random.choice(_AMOUNTS)
    for body in _some(random, list(_bodies(found)), 2):
        for name in (body.get("capacity") or {}).get("requests") or {}:
            body["capacity"]["requests"][name] = random.choice(_AMOUNTS)
    results = [each for each in _results(found) if each.get("consumedCapacity")]
    for result in _some(random, results, 2):
        result["consumedCapacity"][random.choice(sorted(result["consumedCapacity"]))] = random.choice(_AMOUNTS)


def _holders(thing: Any) -> Iterator[Json]:
    if isinstance(thing, dict):
        if isinstance(thing.get("value"), str) and "effect" not in thing:
            yield thing
        for each in thing.values():
            yield from _holders(each)
    elif isinstance(thing, list):
        for each in thing:
            yield from _holders(each)


def _results(found: Json) -> list[Json]:
    allocations = [each["status"]["allocation"] for each in found.get("allocated") or []]
    return [result for each in allocations for result in each["devices"].get("results") or []]


def _policies(random: Random, found: Json) -> None:
    """Request policies that contradict themselves, or that need care."""
    capacities = [each for device in _devices(found) for each in (device.get("capacity") or {}).values()]
    for each in _some(random, capacities, 4):
        each["requestPolicy"] = copy.deepcopy(random.choice(_POLICIES))


def _reach(random: Random, found: Json) -> None:
    """Nodes chosen in unusual ways, by slices and by devices."""
    for each in _some(random, found["slices"]):
        spec = each["spec"]
        selector = {"nodeSelectorTerms": [copy.deepcopy(term) for term in _some(random, _TERMS, 2)]}
        for key in ("nodeName", "allNodes", "nodeSelector", "perDeviceNodeSelection"):
            spec.pop(key, None)
        if random.random() < 0.4:
            spec["perDeviceNodeSelection"] = random.random() < 0.85
            for device in spec.get("devices") or []:
                places: list[Json] = [{"nodeName": "node-0"}, {"nodeName": "node-1"}, {"allNodes": True}]
                device.update(random.choice([*places, {"nodeSelector": selector}, {}]))
        else:
            spec |= random.choice(
                [{"nodeSelector": selector}, {"nodeSelector": selector}, {"allNodes": False}, {"nodeName": ""}]
            )


def _gates(random: Random, found: Json) -> None:
    """Two or more features off."""
    off = random.sample(sorted(FIELD_OF_NAME), random.choice([2, 2, 3, 5, 8, 11]))
    found["features"] = {name: name not in off for name in FIELD_OF_NAME if name not in off or random.random() < 0.5}


def _past(random: Random, found: Json) -> None:
    """Others hold what is not there, hold it twice, or hold shares of what cannot be shared."""
    devices = [
        (each["spec"]["driver"], each["spec"]["pool"]["name"], device["name"])
        for each in found["slices"]
        for device in each["spec"].get("devices") or []
    ]
    for number in range(random.randint(1, 4)) if devices else ():
        driver, pool, name = random.choice(devices)
        result: Json = {
            "request": "r",
            "driver": driver,
            "pool": pool,
            "device": random.choice([name, name, name, "gone"]),
        }
        match random.randrange(5):
            case 0 | 1:
                result["shareID"] = f"00000000-0000-4000-a000-{random.randrange(10**12):012}"
                if random.random() < 0.6:
                    names = random.sample(["memory", "cores", "m", "other"], random.randint(0, 2))
                    result["consumedCapacity"] = {each: random.choice(_AMOUNTS[:10]) for each in names}
            case 2:
                result["adminAccess"] = random.random() < 0.7
            case 3:
                result["consumedCapacity"] = {"memory": "1"}
        held = {"metadata": {"name": f"nasty-{number}", "namespace": "default"}, "spec": {"devices": {}}}
        claim = {**held, "status": {"allocation": {"devices": {"results": [result]}}}}
        found.setdefault("allocated", []).append(claim)


def _taints(random: Random, found: Json) -> None:
    """Taints and tolerations with odd operators and effects."""
    for device in _some(random, _devices(found), 5):
        device["taints"] = [dict(each) for each in _some(random, _TAINTS, 2)]
    for body in _some(random, list(_bodies(found)), 3):
        body["tolerations"] = [dict(each) for each in _some(random, _TOLERATIONS, 2)]


def _selectors(random: Random, found: Json) -> None:
    """Selectors that look at lists, maps, versions and amounts."""
    for body in _some(random, list(_bodies(found)), 2):
        body["selectors"] = [{"cel": {"expression": random.choice(_SELECTORS)}} for _ in range(random.randint(1, 2))]


def _wishes(random: Random, found: Json) -> None:
    """Alternatives of every kind: an exact request becomes one of several alternatives, taken from anywhere."""
    bodies = [copy.deepcopy(each) for each in _bodies(found)]
    for claim in found["claims"]:
        for request in claim["spec"]["devices"].get("requests") or []:
            if random.random() < 0.5 and bodies:
                request.pop("exactly", None)
                request["firstAvailable"] = [
                    {**copy.deepcopy(random.choice(bodies)), "name": f"n{index}"}
                    for index in range(random.randint(1, 4))
                ]
                for option in request["firstAvailable"]:
                    option.pop("adminAccess", None)


def _sharing(random: Random, found: Json) -> None:
    """Partitions that are shared, waited for, bound to the node or done without node operations."""
    for device in _some(random, _devices(found), 5):
        device["allowMultipleAllocations"] = random.random() < 0.8
        if random.random() < 0.5:
            device["capacity"] = {"memory": {"value": random.choice(["0", "1", "2Gi", "3"])}}
        if random.random() < 0.3:
            device["bindsToNode"] = random.random() < 0.8
        if random.random() < 0.3:
            device["bindingConditions"] = random.choice([[], ["ready"], ["ready", "attached"]])
            device["bindingFailureConditions"] = random.choice([[], ["failed"]])
    for each in _some(random, found["slices"], 2):
        if each["spec"].get("devices"):
            each["spec"]["skipNodeOperations"] = random.choice([[], ["NodePrepareResources"], ["All"]])


def _admin(random: Random, found: Json) -> None:
    """Admin access here and there, in several claims for the same devices."""
    if found["claims"] and random.random() < 0.6:
        again = copy.deepcopy(random.choice(found["claims"]))
        again["metadata"]["name"] = "once-more"
        found["claims"].insert(random.randint(0, len(found["claims"])), again)
    for claim in found["claims"]:
        for request in claim["spec"]["devices"].get("requests") or []:
            if "exactly" in request and random.random() < 0.5:
                request["exactly"]["adminAccess"] = random.random() < 0.8


def _config(random: Random, found: Json) -> None:
    """Configuration for requests, alternatives and nobody, of classes and claims."""
    for claim in found["claims"]:
        devices = claim["spec"]["devices"]
        names = [request["name"] for request in devices.get("requests") or []]
        names += [
            f"{r['name']}/{o['name']}" for r in devices.get("requests") or [] for o in r.get("firstAvailable") or []
        ]
        devices["config"] = [
            {
                "requests": random.sample([*names, "nobody"], random.randint(1, min(3, len(names) + 1))),
                "opaque": {"driver": "gpu.example.com", "parameters": {"n": index, "deep": [{"x": None}]}},
            }
            for index in range(random.randint(1, 4))
        ]
        if random.random() < 0.5:
            del devices["config"][0]["requests"]
    for each in found.get("classes") or []:
        if random.random() < 0.5:
            each["spec"]["config"] = [
                {"opaque": {"driver": "d.example.com", "parameters": {"class": each["metadata"]["name"]}}}
            ]


def _empty(random: Random, found: Json) -> None:
    """Lists with nothing in them."""
    for each in _some(random, found["slices"], 1):
        if random.random() < 0.5 and "sharedCounters" not in each["spec"]:
            each["spec"]["devices"] = []
    for device in _some(random, _devices(found), 4):
        key = random.choice(["consumesCounters", "taints", "bindingConditions", "attributes", "capacity"])
        device[key] = {} if key in {"attributes", "capacity"} else []
    for claim in found["claims"]:
        key = random.choice(["constraints", "config", "requests" if random.random() < 0.2 else "config"])
        claim["spec"]["devices"][key] = []
    for body in _some(random, list(_bodies(found)), 2):
        key = random.choice(["selectors", "tolerations", "capacity", "derivedAttributes"])
        body[key] = random.choice([{}, {"requests": {}}]) if key == "capacity" else []
    if random.random() < 0.1:
        found[random.choice(["claims", "nodes", "classes", "slices"])] = []


TOPICS: Final[Mapping[str, Callable[[Random, Json], None]]] = {
    "admin": _admin,
    "config": _config,
    "drivers": _drivers,
    "empty": _empty,
    "gates": _gates,
    "limits": _limits,
    "names": _names,
    "past": _past,
    "policies": _policies,
    "quantities": _quantities,
    "reach": _reach,
    "selectors": _selectors,
    "sharing": _sharing,
    "taints": _taints,
    "wishes": _wishes,
}
"""The topics of nasty families."""


def spoil(random: Random, scenario: Json, topic: str) -> Json:
    """The scenario with something nasty of this topic, and at times of others."""
    found = copy.deepcopy(scenario)
    others = random.choices(sorted(TOPICS), k=random.choice([0, 0, 1, 1, 2, 4]))
    for each in random.sample([topic, *others], len(others) + 1):
        TOPICS[each](random, found)
    return found
