"""Random device classes and claims."""

from collections.abc import Sequence
from typing import Final

from tests.parity.fuzz.allocator.chance import Chance, Json
from tests.parity.fuzz.allocator.devices import known_attributes

_SELECTORS: Final = (
    'device.driver == "gpu.example.com"',
    'device.attributes["gpu.example.com"].?model.orValue("") == "a100"',
    'device.attributes["gpu.example.com"].?island.orValue(0) > 0',
    'device.attributes["gpu.example.com"].?healthy.orValue(true)',
    'has(device.attributes["shared.example.org"].zone)',
    'device.attributes["shared.example.org"].?zone.orValue("a") == "a"',
    'device.capacity["gpu.example.com"].?memory.orValue(quantity("1Gi")).compareTo(quantity("2Gi")) >= 0',
    "!device.allowMultipleAllocations",
    "device.allowMultipleAllocations",
    'device.attributes["gpu.example.com"].?firmware.orValue(semver("1.0.0")).isGreaterThan(semver("1.0.0"))',
    'device.attributes["gpu.example.com"].?links.orValue([]).includes("x")',
)
_FAILING: Final = ('device.attributes["gpu.example.com"].model == "a100"', "1 + 1", "device.driver ==", "[1][2] == 1")
_DERIVED: Final = (
    "1",
    "device.driver",
    'device.attributes["gpu.example.com"].?island.orValue(7) % 2',
    'device.attributes["gpu.example.com"].?model.orValue("none").startsWith("a")',
    'device.attributes["gpu.example.com"].?firmware.orValue(semver("1.0.0"))',
    'device.attributes["gpu.example.com"].?numa.orValue(0)',
    'device.attributes["gpu.example.com"].?lanes.orValue([])',
    "lists.range(2).map(i, i + 1)",
    "[]",
    "device.allowMultipleAllocations",
    'device.capacity["gpu.example.com"].?memory.hasValue()',
)
_DERIVED_FAILING: Final = (
    'device.attributes["gpu.example.com"].island',
    "1.5",
    "{1: 2}",
    "device.",
    "[dyn(1), dyn('a')]",
    "quantity('1')",
)
_ATTRIBUTES: Final = (
    "gpu.example.com/model",
    "gpu.example.com/island",
    "gpu.example.com/numa",
    "gpu.example.com/firmware",
    "gpu.example.com/links",
    "gpu.example.com/lanes",
    "gpu.example.com/runtimes",
    "nic.example.com/model",
    "shared.example.org/zone",
    "derived.example.com/key",
)
_AMOUNTS: Final = ("0", "1", "2", "3", "500m", "700m", "1500m", "1Gi", "768Mi", "2Gi", "5Gi", "1u")
_MODEST: Final = {"memory": ("0", "256Mi", "768Mi", "1Gi", "2Gi"), "cores": ("0", "1", "500m", "700m", "2")}
CLASSES: Final = ("any", "gpu", "good", "plain")


def classes(chance: Chance) -> list[Json]:
    """The classes that claims name; one of them may be missing."""
    selectors = {"gpu": [_SELECTORS[0]], "good": [chance.among(_SELECTORS), chance.among(_SELECTORS)]}
    if chance.rarely(0.02):
        selectors["good"].append(chance.among(_FAILING))
    found: list[Json] = []
    for name in CLASSES:
        spec: Json = {}
        if name in selectors:
            spec["selectors"] = [_cel(each) for each in selectors[name]]
        if chance.of("config"):
            spec["config"] = [{"opaque": _opaque(chance, name)} for _ in range(chance.between(1, 2))]
        found.append({"metadata": {"name": name}, "spec": spec})
    if chance.rarely(0.02):
        found.pop()
    return found


def claims(chance: Chance, prefix: str, most: int) -> list[Json]:
    """Claims to be allocated together."""
    return [_claim(chance, f"{prefix}-{index}") for index in range(chance.among([1, 1, 1, *range(1, most + 1)]))]


def _claim(chance: Chance, name: str) -> Json:
    many = [2, 2] if chance.gentle else [2, 2, 3, 4]
    requests = [_request(chance, f"req-{index}") for index in range(chance.among([1, 1, 1, 1, *many]))]
    devices: Json = {"requests": requests}
    if chance.of("constraints"):
        devices["constraints"] = [_constraint(chance, requests) for _ in range(chance.among([1, 1, 2]))]
    if chance.of("config"):
        devices["config"] = [_config(chance, requests, index) for index in range(chance.between(1, 3))]
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"devices": devices}}


def _request(chance: Chance, name: str) -> Json:
    if chance.of("alternatives"):
        options = [{**_body(chance, admin=False), "name": f"alt-{index}"} for index in range(chance.between(1, 3))]
        return {"name": name, "firstAvailable": options}
    return {"name": name, "exactly": _body(chance, admin=True)}


def _body(chance: Chance, *, admin: bool) -> Json:
    found: Json = {"deviceClassName": "any" if chance.rarely(0.7 if chance.gentle else 0.5) else chance.among(CLASSES)}
    if chance.rarely(0.1 if chance.gentle else 0.15):
        found["allocationMode"] = "All"
    else:
        count = chance.among([1, 1, 1, 1, 1, 1, 2, 2, 2] + ([] if chance.gentle else [3, 4]))
        found |= {
            "allocationMode": "ExactCount",
            "count": chance.among([0, 0, 20, 33]) if chance.rarely(0.02) else count,
        }
    if chance.of("selectors"):
        choices = _FAILING if chance.rarely(0.02) else _SELECTORS
        found["selectors"] = [_cel(chance.among(choices)) for _ in range(chance.among([1, 1, 2]))]
    if admin and chance.of("admin"):
        found["adminAccess"] = not chance.rarely(0.15)
    if chance.of("taints"):
        found["tolerations"] = [_toleration(chance) for _ in range(chance.between(1, 2))]
    if chance.here("capacity") and chance.rarely(0.6):
        names = chance.familiar("capacity", ["memory", "cores"], 2) + (["other"] if chance.rarely(0.03) else [])
        amounts = _MODEST if chance.gentle else {}
        found["capacity"] = {"requests": {each: chance.among(amounts.get(each, _AMOUNTS)) for each in names}}
        if chance.rarely(0.04):
            found["capacity"] = {}
    if chance.of("derived"):
        pool = _DERIVED_FAILING if chance.rarely(0.04) else _DERIVED
        names = [f"gpu.example.com/{each}" for each in known_attributes(chance) if "/" not in each]
        names = chance.some([*names, *chance.some(_ATTRIBUTES, 2)], 4)
        found["derivedAttributes"] = [{"name": each, "expression": chance.among(pool)} for each in names]
    return found


def _toleration(chance: Chance) -> Json:
    found: Json = {"operator": chance.among(["Exists", "Exists", "Equal"])}
    if chance.rarely(0.7):
        found["key"] = chance.among(["broken", "hot"])
    if chance.rarely(0.4):
        found["effect"] = chance.among(["NoSchedule", "NoExecute"])
    if found["operator"] == "Equal":
        found["value"] = chance.among(["yes", "no"])
    if chance.rarely(0.1):
        found["tolerationSeconds"] = 60
    return found


def _names(chance: Chance, requests: Sequence[Json]) -> list[str]:
    known = [each["name"] for each in requests]
    known += [f"{each['name']}/{option['name']}" for each in requests for option in each.get("firstAvailable", [])]
    return chance.some(known, 3)


def _constraint(chance: Chance, requests: Sequence[Json]) -> Json:
    kind = "distinctAttribute" if chance.rarely(0.35) else "matchAttribute"
    known = [name if "/" in name else f"gpu.example.com/{name}" for name in known_attributes(chance)]
    found: Json = {kind: chance.among(known if known and not chance.rarely(0.15) else _ATTRIBUTES)}
    if chance.rarely(0.5):
        found["requests"] = _names(chance, requests)
    return found


def _config(chance: Chance, requests: Sequence[Json], index: int) -> Json:
    found: Json = {"opaque": _opaque(chance, f"claim-{index}")}
    if chance.rarely(0.7):
        found["requests"] = _names(chance, requests)
    return found


def _opaque(chance: Chance, setting: str) -> Json:
    return {"driver": chance.among(["gpu.example.com", "nic.example.com"]), "parameters": {"setting": setting}}


def _cel(expression: str) -> Json:
    return {"cel": {"expression": expression}}
