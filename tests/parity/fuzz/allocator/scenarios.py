"""Whole scenarios: a cluster, what others hold in it, and claims."""

import copy
import itertools
from collections.abc import Iterator
from random import Random
from typing import Final

from dra_extender.allocator.state.features import FIELD_OF_NAME
from dra_extender.simulator.scenario import answer_scenario

from tests.parity.fuzz.allocator.chance import FAMILIES, TIMEOUT_MS, Chance, Json
from tests.parity.fuzz.allocator.claims import claims, classes
from tests.parity.fuzz.allocator.cluster import Slices, nodes
from tests.parity.fuzz.allocator.devices import taint
from tests.parity.fuzz.allocator.nasty import TOPICS, spoil
from tests.parity.fuzz.allocator.variations import LABELLED, variation

_OF_FEATURE: Final = {
    "AdminAccess": "admin",
    "ConsumableCapacity": "capacity",
    "DerivedAttributes": "derived",
    "PrioritizedList": "alternatives",
}
"""What makes a claim invalid while a feature is off."""

_VARIED: Final = "varied-"
_NASTY: Final = "nasty-"
_MADE_UP: Final = 0.6
NAMES: Final = (
    *sorted(FAMILIES),
    *(_VARIED + family for family in LABELLED),
    *(_NASTY + topic for topic in sorted(TOPICS)),
)
"""The families: made up from nothing, varied from labelled scenarios, and either of these spoiled."""


def scenarios(seed: int) -> Iterator[Json]:
    """Scenarios without end, the same for the same seed; their names tell family, seed and number."""
    for number in itertools.count():
        family = NAMES[number % len(NAMES)]
        random, name = Random(f"{seed} {number}"), f"{family}-{seed}-{number}"
        yield _of_family(random, family, name)


def _of_family(random: Random, family: str, name: str) -> Json:
    if family in FAMILIES:
        return scenario(random, family, name)
    if family.startswith(_VARIED):
        return variation(random, family.removeprefix(_VARIED), name)
    base = random.choice(sorted(FAMILIES)) if random.random() < _MADE_UP else _VARIED + random.choice(LABELLED)
    return spoil(random, _of_family(random, base, name), family.removeprefix(_NASTY))


def scenario(random: Random, family: str, name: str) -> Json:
    chance = Chance(random, family)
    features = (
        {name: name != "CompatibilityGroups" for name in FIELD_OF_NAME} if family == "groups-off" else _features(chance)
    )
    chance.without([topic for feature, topic in _OF_FEATURE.items() if features is not None and not features[feature]])
    found: Json = {"name": name, "nodes": nodes(chance)}
    found["slices"] = Slices(chance, [each["metadata"]["name"] for each in found["nodes"]]).all()
    found["classes"] = classes(chance)
    if features is not None:
        found["features"] = features
    found["allocated"] = []
    if chance.of("past"):
        found["allocated"] = _past(chance, found)
        if chance.rarely(0.2):
            _edit(chance, found)
    found["claims"] = claims(chance, "claim", 3)
    found["timeoutMs"] = TIMEOUT_MS
    return found


def _features(chance: Chance) -> Json | None:
    if not chance.of("switches"):
        return None
    if chance.rarely(0.4):
        off = chance.among(sorted(FIELD_OF_NAME))
        return {name: name != off for name in FIELD_OF_NAME}
    return {name: chance.rarely(0.8) for name in FIELD_OF_NAME}


def _past(chance: Chance, now: Json) -> list[Json]:
    """Claims that hold devices: allocated one after the other, or at random and perhaps against every rule."""
    if chance.rarely(0.3):
        return _random_past(chance, now)
    found: list[Json] = []
    for claim in claims(chance, "past", 3):
        features = now.get("features") if chance.rarely(0.5) else None
        question = {**now, "allocated": found, "claims": [claim], "timeoutMs": 500}
        question.pop("features", None)
        if features is not None:
            question["features"] = features
        answers = [each for each in answer_scenario(question)["nodes"] if each["fits"]]
        if answers:
            allocation = copy.deepcopy(chance.among(answers)["results"][0])
            _rename(allocation, len(found))
            found.append({**claim, "status": {"allocation": allocation}})
    return found


def _random_past(chance: Chance, now: Json) -> list[Json]:
    results: list[Json] = []
    for each in now["slices"]:
        for device in each["spec"].get("devices", []):
            for _ in range(chance.among([0, 0, 0, 1, 1, 2])):
                result: Json = {"request": "r", "driver": each["spec"]["driver"], "pool": each["spec"]["pool"]["name"]}
                result["device"] = device["name"]
                if device.get("allowMultipleAllocations") or chance.rarely(0.1):
                    result["shareID"] = f"00000000-0000-4000-8000-{len(results):012}"
                    if device.get("capacity") and not chance.rarely(0.1):
                        amounts = {name: chance.among(["0", "1", "500m", "1Gi", "2"]) for name in device["capacity"]}
                        result["consumedCapacity"] = amounts
                elif chance.rarely(0.1):
                    result["adminAccess"] = True
                results.append(result)
    return [
        {
            "metadata": {"name": f"past-{index}", "namespace": "default"},
            "spec": {"devices": {}},
            "status": {"allocation": {"devices": {"results": [result]}}},
        }
        for index, result in enumerate(results[:8])
    ]


def _rename(allocation: Json, number: int) -> None:
    for index, result in enumerate(allocation["devices"].get("results", [])):
        if "shareID" in result:
            result["shareID"] = f"00000000-0000-4000-{number:04}-{index:012}"


def _edit(chance: Chance, now: Json) -> None:
    """Change slices after devices of them were allocated."""
    slices = [each for each in now["slices"] if each["spec"].get("devices")]
    for _ in range(chance.between(1, 3)) if slices else ():
        devices = chance.among(slices)["spec"]["devices"]
        if not devices:
            continue
        device = chance.among(devices)
        match chance.between(0, 5):
            case 0:
                devices.remove(device)
            case 1:
                device["taints"] = [taint(chance)]
            case 2:
                device["allowMultipleAllocations"] = not device.get("allowMultipleAllocations")
            case 3:
                device.pop("consumesCounters", None)
            case 4:
                for entry in device.get("consumesCounters", []):
                    entry["compatibilityGroups"] = chance.some(["mig", "vgpu", "mps"], 2)
            case _:
                device.pop("capacity", None)
