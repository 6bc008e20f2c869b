"""Labelled scenarios, changed at random: parts taken away, repeated, exchanged between scenarios, and to say something else."""

import copy
import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final

from dra_extender.allocator.state.features import FIELD_OF_NAME

from tests.parity.fuzz.allocator.chance import TIMEOUT_MS, Json

_SCENARIOS: Final = Path(__file__).parents[2] / "scenarios"
_SAME_NAME: Final = 0.3
_ODD_AMOUNTS: Final = (
    "0",
    "0.5",
    "1.5Gi",
    "250m",
    "1e1",
    "3e0",
    "1n",
    "9E",
    "7Ei",
    "100E",
    "1024Mi",
    "2000M",
    "1999999999n",
)
LABELLED: Final = tuple(
    sorted(path.name.removesuffix(".jsonl.gz") for path in _SCENARIOS.glob("*.jsonl.gz") if path.name[:4] != "cel.")
)
"""The families of labelled scenarios."""


def variation(random: Random, family: str, name: str) -> Json:
    """A scenario of a labelled family with one to six changes, some of them with parts of any other labelled scenario."""
    found = copy.deepcopy(random.choice(_labelled(family)))
    other = copy.deepcopy(random.choice(_labelled(family if random.random() < 0.5 else random.choice(LABELLED))))
    for change in random.choices(_CHANGES, k=random.randint(1, 6)):
        change(random, found, other)
    return {**found, "name": name, "timeoutMs": TIMEOUT_MS}


@cache
def _labelled(family: str) -> Sequence[Json]:
    with gzip.open(_SCENARIOS / f"{family}.jsonl.gz") as lines:
        return [found for line in lines if "nodes" in (found := json.loads(line)["scenario"])]


def _devices(scenario: Json) -> list[Json]:
    return [device for each in scenario["slices"] for device in each["spec"].get("devices", [])]


def _requests(scenario: Json) -> list[Json]:
    return [request for each in scenario["claims"] for request in each["spec"]["devices"].get("requests", [])]


def _bodies(scenario: Json) -> list[Json]:
    """What requests and their alternatives ask for."""
    return [
        body
        for request in _requests(scenario)
        for body in (*([request["exactly"]] if "exactly" in request else []), *request.get("firstAvailable", []))
    ]


def _take_away(random: Random, found: Json, _other: Json) -> None:
    """One slice, claim, held claim, device or request less."""
    places = [found["slices"], found["claims"], found.get("allocated", [])]
    places += [each["spec"]["devices"] for each in found["slices"] if each["spec"].get("devices")]
    places += [each["spec"]["devices"].get("requests", []) for each in found["claims"]]
    full = [each for each in places if each]
    if full:
        place = random.choice(full)
        del place[random.randrange(len(place))]


def _claims_of(random: Random, found: Json, other: Json) -> None:
    """The claims of another scenario instead of, or beside the own ones, with the classes they name."""
    if random.random() < 0.5:
        found["claims"] = []
    known = {each["metadata"]["name"] for each in other.get("classes", [])}
    found["classes"] = [
        *other.get("classes", []),
        *(each for each in found.get("classes", []) if each["metadata"]["name"] not in known),
    ]
    for index, claim in enumerate(other["claims"]):
        found["claims"].append({**claim, "metadata": {**claim["metadata"], "name": f"other-{index}"}})


def _slices_of(random: Random, found: Json, other: Json) -> None:
    """The slices of another scenario and what is held of them, in pools of other names or (rarely) of the same."""
    prefix = "" if random.random() < _SAME_NAME else random.choice(["a-", "z-"])
    for each in other["slices"]:
        pool = each["spec"]["pool"]
        pool["name"] = prefix + pool["name"]
    for claim in other.get("allocated", []):
        for result in claim["status"]["allocation"]["devices"].get("results", []):
            result["pool"] = prefix + result["pool"]
    found["slices"] = [*found["slices"], *other["slices"]]
    found["allocated"] = [*found.get("allocated", []), *other.get("allocated", [])]
    random.shuffle(found["slices"])


def _request_of(random: Random, found: Json, other: Json) -> None:
    """A request asks for what another one asks for."""
    mine, theirs = _bodies(found), _bodies(found) + _bodies(other)
    if mine:
        target, source = random.choice(mine), copy.deepcopy(random.choice(theirs))
        name = target.get("name")
        target.clear()
        target.update(source)
        target.pop("name", None)
        if name is not None:
            target.pop("adminAccess", None)
            target["name"] = name


def _more_requests(random: Random, found: Json, _other: Json) -> None:
    """A request asked for once more, under another name, in any claim."""
    requests = _requests(found)
    if requests and found["claims"]:
        again = {**copy.deepcopy(random.choice(requests)), "name": f"again-{random.randrange(1000)}"}
        random.choice(found["claims"])["spec"]["devices"].setdefault("requests", []).append(again)


def _wish(random: Random, found: Json, _other: Json) -> None:
    """Another count, mode or right to admin access."""
    bodies = _bodies(found)
    if not bodies:
        return
    body = random.choice(bodies)
    match random.randrange(4):
        case 0:
            body["allocationMode"] = "All"
            body.pop("count", None)
        case 1 | 2:
            body |= {"allocationMode": "ExactCount", "count": random.choice([0, 1, 1, 2, 2, 3, 4, 6, 16, 31])}
        case _ if "name" not in body:
            body["adminAccess"] = random.random() < 0.8


def _constraint_of(random: Random, found: Json, other: Json) -> None:
    """A constraint of any claim, of this or the other kind, for all requests or those that it names."""
    known = [
        constraint
        for each in (*found["claims"], *other["claims"])
        for constraint in each["spec"]["devices"].get("constraints", [])
    ]
    if not known or not found["claims"]:
        return
    constraint = copy.deepcopy(random.choice(known))
    if random.random() < 0.4:
        turned = {"matchAttribute": "distinctAttribute", "distinctAttribute": "matchAttribute"}
        constraint = {turned.get(key, key): value for key, value in constraint.items()}
    if random.random() < 0.5:
        constraint.pop("requests", None)
    devices = random.choice(found["claims"])["spec"]["devices"]
    devices["constraints"] = [*devices.get("constraints", []), constraint]


def _member_of(random: Random, found: Json, other: Json) -> None:
    """A device says of itself what another one does, or nothing any more."""
    members = ("attributes", "capacity", "taints", "allowMultipleAllocations", "consumesCounters", "bindsToNode")
    member = random.choice((*members, "bindingConditions"))
    targets = _devices(found)
    sources = [copy.deepcopy(each[member]) for each in (*targets, *_devices(other)) if member in each]
    if not targets or not sources:
        return
    for target in random.sample(targets, min(len(targets), random.randint(1, 4))):
        if random.random() < 0.2:
            target.pop(member, None)
        else:
            target[member] = copy.deepcopy(random.choice(sources))


def _groups(random: Random, found: Json, _other: Json) -> None:
    """Other groups for some of the devices that draw on counters."""
    entries = [entry for each in _devices(found) for entry in each.get("consumesCounters", [])]
    for entry in random.sample(entries, min(len(entries), random.randint(1, 6))):
        groups = random.sample(["mig", "vgpu", "time-slice", "mps"], random.randint(0, 2))
        entry.pop("compatibilityGroups", None)
        if groups:
            entry["compatibilityGroups"] = groups


def _amounts(random: Random, found: Json, _other: Json) -> None:
    """Amounts of devices and counter sets change places, or are spelled in unusual ways."""
    values = list(_values(found["slices"]))
    for holder in random.sample(values, min(len(values), random.randint(1, 4))):
        other = random.choice(values)
        holder["value"], other["value"] = other["value"], holder["value"]
        if random.random() < 0.15:
            holder["value"] = random.choice(_ODD_AMOUNTS)


def _asked_amounts(random: Random, found: Json, _other: Json) -> None:
    """A request asks for other amounts of what it asks for, or for amounts where it did not."""
    names = {name for each in _devices(found) for name in each.get("capacity", {})}
    bodies = _bodies(found)
    if not names or not bodies:
        return
    body = random.choice(bodies)
    requests = body.setdefault("capacity", {}).setdefault("requests", {})
    for name in random.sample(sorted(names), random.randint(1, min(2, len(names)))):
        requests[name] = random.choice([*_ODD_AMOUNTS, "1", "2", "1Gi", "4Gi", "1G"])


def _values(thing: Any) -> Iterator[Json]:
    if isinstance(thing, dict):
        if isinstance(thing.get("value"), str) and "effect" not in thing and "operator" not in thing:
            yield thing
        for each in thing.values():
            yield from _values(each)
    elif isinstance(thing, list):
        for each in thing:
            yield from _values(each)


def _pool(random: Random, found: Json, _other: Json) -> None:
    """A slice of another generation, count, name or reach, or with a device of another's name."""
    if not found["slices"]:
        return
    published = random.choice(found["slices"])
    pool = published["spec"]["pool"]
    match random.randrange(5):
        case 0:
            pool["generation"] = max(0, pool.get("generation", 0) + random.choice([-1, 1]))
        case 1:
            pool["resourceSliceCount"] = max(1, pool["resourceSliceCount"] + random.choice([-1, 1]))
        case 2:
            published["metadata"]["name"] = f"{random.choice('amz')}-{random.randrange(100)}"
        case 3 if published["spec"].get("devices") and random.random() < 0.5:
            random.choice(published["spec"]["devices"])["name"] = random.choice(_devices(found))["name"]
        case 3 if "nodeName" in published["spec"]:
            del published["spec"]["nodeName"]
            published["spec"]["allNodes"] = True
        case _:
            random.shuffle(found["slices"])


def _features(random: Random, found: Json, _other: Json) -> None:
    """One feature the other way round, or several at random."""
    features = found.setdefault("features", dict.fromkeys(FIELD_OF_NAME, True))
    for name in random.sample(sorted(FIELD_OF_NAME), random.choice([1, 1, 1, 2, 4])):
        features[name] = not features.get(name)


def _held(random: Random, found: Json, _other: Json) -> None:
    """One more device held: whole, in a share, or with admin access."""
    devices = [
        (each["spec"]["driver"], each["spec"]["pool"]["name"], device)
        for each in found["slices"]
        for device in each["spec"].get("devices", [])
    ]
    if not devices:
        return
    driver, pool, device = random.choice(devices)
    result: Json = {"request": "r", "driver": driver, "pool": pool, "device": device["name"]}
    if device.get("allowMultipleAllocations"):
        result["shareID"] = f"00000000-0000-4000-9000-{random.randrange(10**12):012}"
        if device.get("capacity") and random.random() < 0.8:
            result["consumedCapacity"] = {key: random.choice(["0", "1", "1Gi"]) for key in device["capacity"]}
    elif random.random() < 0.15:
        result["adminAccess"] = True
    held = {"metadata": {"name": f"held-{random.randrange(10**6)}", "namespace": "default"}, "spec": {"devices": {}}}
    found.setdefault("allocated", []).append({**held, "status": {"allocation": {"devices": {"results": [result]}}}})


_CHANGES: Final[Sequence[Callable[[Random, Json, Json], None]]] = (
    _take_away,
    _claims_of,
    _slices_of,
    _request_of,
    _more_requests,
    _wish,
    _wish,
    _constraint_of,
    _member_of,
    _member_of,
    _groups,
    _amounts,
    _asked_amounts,
    _pool,
    _features,
    _held,
)
