"""Random devices: attributes, capacities with policies, counters with groups, taints, conditions."""

from collections.abc import Mapping, Sequence
from typing import Final

from tests.parity.fuzz.allocator.chance import Chance, Json

DRIVERS: Final = ("gpu.example.com", "nic.example.com")
SETS: Final = ("set-a", "set-b")
COUNTERS: Final = ("memory", "slots")

_VALUES: Final[Mapping[str, Sequence[Json]]] = {
    "model": [{"string": "a100"}, {"string": "h100"}, {"string": "a30"}],
    "island": [{"int": 0}, {"int": 1}, {"int": 2}],
    "healthy": [{"bool": True}, {"bool": False}],
    "firmware": [{"version": "1.0.0"}, {"version": "2.0.0"}, {"version": "2.0.0+b"}, {"version": "2.0.0-rc.1"}],
    "numa": [{"int": 0}, {"int": 1}, {"string": "1"}, {"ints": [0, 1]}, {"ints": [1, 2]}],
    "shared.example.org/zone": [{"string": "a"}, {"string": "b"}, {"int": 1}],
}
_LISTS: Final[Mapping[str, Sequence[Json]]] = {
    "links": [{"strings": ["x"]}, {"strings": ["x", "y"]}, {"strings": ["y", "z"]}, {"strings": []}, {"string": "x"}],
    "lanes": [{"ints": [1]}, {"ints": [1, 2]}, {"ints": [2, 3]}, {"int": 2}, {"strings": ["1"]}],
    "modes": [{"bools": [True]}, {"bools": [True, False]}, {"bool": False}],
    "runtimes": [{"versions": ["1.0.0"]}, {"versions": ["1.0.0", "2.0.0"]}, {"version": "2.0.0"}],
}
_POLICIES: Final[Sequence[Json]] = [
    {"default": "1"},
    {"default": "2", "validRange": {"min": "1"}},
    {"default": "1", "validRange": {"min": "1", "max": "4"}},
    {"default": "1", "validRange": {"min": "1", "step": "1"}},
    {"default": "2", "validRange": {"min": "2", "step": "2", "max": "6"}},
    {"default": "500m", "validRange": {"min": "500m", "step": "250m"}},
    {"default": "500m", "validRange": {"min": "500m", "step": "250m", "max": "2"}},
    {"default": "1500m", "validRange": {"min": "500m", "step": "500m", "max": "3"}},
    {"default": "1m", "validRange": {"min": "1m", "step": "1500u"}},
    {"default": "0", "validRange": {"min": "0", "step": "3"}},
    {"default": "1", "validValues": ["1", "2", "4"]},
    {"default": "2", "validValues": ["500m", "2", "5"]},
    {"validValues": ["1", "3"]},
]
_UNITS: Final = {"memory": "Gi", "cores": ""}


def device(chance: Chance, name: str, driver: str, *, counters: bool, selects: bool, nodes: Sequence[str]) -> Json:
    """A device; with `selects` it says by itself which nodes reach it."""
    found: Json = {"name": name}
    if chance.of("attributes"):
        found["attributes"] = attributes(chance, driver)
    if chance.here("capacity") and not chance.rarely(0.1):
        found["capacity"] = _capacity(chance)
    if chance.of("shareable"):
        found["allowMultipleAllocations"] = not chance.rarely(0.1)
    if counters and not chance.rarely(0.25):
        found["consumesCounters"] = [_draw(chance, each) for each in chance.some(SETS, 2)]
    if chance.of("taints"):
        found["taints"] = [taint(chance) for _ in range(chance.between(1, 2))]
    if chance.of("binding"):
        found |= _binding(chance)
    if selects and not chance.rarely(0.1):
        found |= where(chance, nodes)
    return found


def known_attributes(chance: Chance) -> list[str]:
    """Names of the attributes that most devices of the scenario have."""
    return chance.familiar("attributes", [*_VALUES, *_LISTS], 6)


def attributes(chance: Chance, driver: str) -> Json:
    """Attributes under bare or full names; now and then one that no expression survives."""
    palette = {**_VALUES, **_LISTS}
    found: Json = {}
    for name in known_attributes(chance):
        full = f"{driver}/{name}" if "/" not in name and chance.rarely(0.15) else name
        found[full] = dict(chance.among(palette[name]))
    if chance.rarely(0.003):
        found["broken"] = chance.among([{}, {"version": "1.0"}])
    return found


def where(chance: Chance, nodes: Sequence[str]) -> Json:
    """By which nodes a slice or a device can be used."""
    kind = chance.between(0, 5)
    if kind <= 2:
        return {"nodeName": chance.among(nodes)}
    if kind == 3:
        return {"allNodes": True}
    return {"nodeSelector": selector(chance)}


def selector(chance: Chance) -> Json:
    """A node selector, usually with one term."""
    terms = [_term(chance) for _ in range(2 if chance.rarely(0.04) else 1)]
    return {"nodeSelectorTerms": terms}


def _term(chance: Chance) -> Json:
    if chance.rarely(0.04):
        return {}
    found: list[Json] = [
        chance.among(
            [
                {"key": "region", "operator": "In", "values": ["west"]},
                {"key": "region", "operator": "In", "values": ["east", "west"]},
                {"key": "region", "operator": "NotIn", "values": ["east"]},
                {"key": "rack", "operator": "Exists"},
                {"key": "rack", "operator": "DoesNotExist"},
                {"key": "slots", "operator": "Gt", "values": ["2"]},
                {"key": "slots", "operator": "Lt", "values": ["4"]},
            ]
        )
        for _ in range(chance.between(1, 2))
    ]
    if chance.rarely(0.004):
        found[0] = {"key": "region", "operator": "In"}
    term: Json = {"matchExpressions": found}
    if chance.rarely(0.1):
        term["matchFields"] = [{"key": "metadata.name", "operator": "In", "values": ["node-0"]}]
    return term


def taint(chance: Chance) -> Json:
    """A taint; not every effect keeps claims away."""
    found: Json = {"key": chance.among(["broken", "hot"]), "effect": chance.among(["NoSchedule", "NoExecute", "None"])}
    if chance.rarely(0.5):
        found["value"] = chance.among(["yes", "no"])
    return found


def _capacity(chance: Chance) -> Json:
    found: Json = {}
    for name in chance.familiar("capacity", ["memory", "cores"], 2):
        unit = _UNITS[name]
        entry: Json = {"value": f"{chance.among([1, 2, 4, 8])}{unit}"}
        if not unit and chance.rarely(0.6):
            entry["requestPolicy"] = dict(chance.among(_POLICIES))
        elif unit and chance.rarely(0.4):
            entry["requestPolicy"] = chance.among(
                [
                    {"default": "1Gi"},
                    {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}},
                    {"default": "512Mi", "validRange": {"min": "256Mi", "step": "256Mi", "max": "4Gi"}},
                    {"default": "1Gi", "validValues": ["1Gi", "2Gi"]},
                ]
            )
        found[name] = entry
    return found


def _draw(chance: Chance, counter_set: str) -> Json:
    counters = {name: {"value": str(chance.among([0, 1, 1, 2, 2, 3, 4]))} for name in chance.some(COUNTERS, 2)}
    found: Json = {"counterSet": counter_set, "counters": counters}
    if chance.of("groups"):
        found["compatibilityGroups"] = chance.some(["mig", "vgpu", "mps"], 2)
    return found


def _binding(chance: Chance) -> Json:
    found: Json = {}
    if chance.rarely(0.7):
        found["bindingConditions"] = [] if chance.rarely(0.1) else chance.some(["ready", "attached"], 2)
        found["bindingFailureConditions"] = ["failed"]
    if chance.rarely(0.4):
        found["bindsToNode"] = True
    return found
