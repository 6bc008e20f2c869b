"""Answers one labelled scenario: a small cluster and claims in, the allocator's decision for each node out.

The format is that of the parity scenarios: raw API objects in one JSON object per line.  An answer has for each node a verdict
(fits, does not fit, error) and the allocation results.
"""

import itertools
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from dra_extender.allocator.allocate import NodeSearch
from dra_extender.allocator.demand.build import build_demand
from dra_extender.allocator.demand.demand import NamedClaim
from dra_extender.allocator.pools.pools import node_pools
from dra_extender.allocator.state.features import FIELD_OF_NAME, UPSTREAM, Features
from dra_extender.allocator.state.reasons import Code, NoFit, Rejection
from dra_extender.allocator.state.usage import PoolUsage, any_compatibility_rule
from dra_extender.cel.device import prepare_device
from dra_extender.cel.errors import CelCompileError, CelRuntimeError
from dra_extender.cel.program import ProgramCache, compile_expression
from dra_extender.model.allocation import DeviceHolding, Placement
from dra_extender.model.allocation_snapshot import holdings_of
from dra_extender.model.api_json import ModelError
from dra_extender.model.device import Device, PoolId
from dra_extender.model.device_class import device_class_from
from dra_extender.model.node import Node, node_from
from dra_extender.model.resource_claim import ResourceClaim, claim_from
from dra_extender.model.resource_slice import ResourceSlice, SliceReader

Json = dict[str, Any]

_DEFAULT_TIMEOUT: Final = 10.0
_LONGEST_TIMEOUT: Final = 86_400_000
_ALL_ON: Final = Features(**dict.fromkeys(FIELD_OF_NAME.values(), True))


class ScenarioError(Exception):
    """A scenario cannot be read; the message names the member."""


def answers(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the answers to these lines in the same order, each with its line end; blank lines are skipped."""
    for line in lines:
        if line.strip():
            yield answer_line(line) + b"\n"


def answer_line(line: bytes) -> bytes:
    """Return the answer to one line, as one line of JSON without the line end.

    A labelled line is answered for its "scenario" member.  A line that cannot be read gets an answer with `error`.
    """
    name = ""
    try:
        scenario = _scenario(line)
        name = scenario["name"]
        return msgspec.json.encode(answer_scenario(scenario))
    except (ScenarioError, ModelError) as problem:
        return _unanswered(name, str(problem))
    except RecursionError:
        return _unanswered(name, "the scenario is nested too deeply")
    except Exception as fault:  # noqa: BLE001 - a fault of ours in one line must not cost the answers to the others
        return _unanswered(name, f"internal error, {type(fault).__name__}: {fault}")


def answer_scenario(scenario: Mapping[str, Any]) -> Json:
    """Return the answer to a decoded scenario.

    Each node has `timeoutMs` (10 seconds by default) for its search.

    Raises:
        ScenarioError: a member is missing or of the wrong kind.
        ModelError: an API object cannot be read.
    """
    match scenario.get("kind"):
        case "cel":
            return {"name": scenario["name"], "cel": _answer_cel(scenario)}
        case None | "allocate":
            return _answer_allocate(scenario)
    raise ScenarioError("kind: expected allocate or cel, or the member left out")


def _answer_allocate(scenario: Mapping[str, Any]) -> Json:
    reader = SliceReader()
    slices = [reader.convert(raw) for raw in _objects(scenario, "slices")]
    classes = {
        device_class.name: device_class for device_class in map(device_class_from, _objects(scenario, "classes"))
    }
    claims = [
        NamedClaim(label=claim.metadata.name, claim=claim) for claim in map(claim_from, _objects(scenario, "claims"))
    ]
    usage = _FixedUsage(map(claim_from, _objects(scenario, "allocated")))
    features = _features(scenario.get("features"))
    demand = build_demand(claims, classes, ProgramCache(), features)
    timeout = _timeout(scenario.get("timeoutMs"))

    def answer_node(node: Node) -> Json:
        if isinstance(demand, Rejection):
            return _error(node, demand.text)
        local = [published for published in slices if published.node_name == node.name]
        shared = [published for published in slices if published.node_name is None]
        try:
            pools = node_pools(node, local, shared, pool_slices, features, UPSTREAM)
        except ModelError as problem:
            return _error(node, str(problem))
        shares = (f"share-{number}" for number in itertools.count())
        end = time.monotonic() + timeout
        search = NodeSearch(
            demand,
            node,
            pools,
            usage,
            new_share_id=lambda: next(shares),
            max_steps=sys.maxsize,
        )
        result = search.decide(lambda: time.monotonic() > end)
        if not isinstance(result, Placement):
            return _refused(node, result)
        # Opaque parameters have no other form than their bytes before they are decoded.
        results = msgspec.json.decode(msgspec.json.encode([claim.allocation for claim in result.claims]))
        return {"node": node.name, "fits": True, "results": results}

    def pool_slices(pool_id: PoolId) -> Sequence[ResourceSlice]:
        return [published for published in slices if published.pool_id == pool_id]

    nodes = [node_from(raw) for raw in _objects(scenario, "nodes")]
    return {"name": scenario["name"], "nodes": [answer_node(node) for node in nodes]}


class _FixedUsage:
    """The allocated state of a set of claims that does not change."""

    def __init__(self, claims: Iterable[ResourceClaim]) -> None:
        self._pools: dict[PoolId, dict[str, tuple[DeviceHolding, ...]]] = {}
        for claim in claims:
            for holding in holdings_of(claim):
                pool = self._pools.setdefault(holding.pool_id, {})
                pool[holding.device] = (*pool.get(holding.device, ()), holding)

    def pool(self, pool_id: PoolId) -> PoolUsage:
        return self._pools.get(pool_id, {})

    def has_compatibility_rules(self, pool_id: PoolId) -> bool:
        return any_compatibility_rule(self.pool(pool_id))


def _refused(node: Node, no_fit: NoFit) -> Json:
    if no_fit.verdict == "no":
        return {
            "node": node.name,
            "fits": False,
            "results": None,
            "reasons": [rejection.text for rejection in no_fit.rejections],
        }
    answer = _error(node, no_fit.rejections[0].text)
    if no_fit.verdict == "node":
        answer["nodeOnly"] = True
    if no_fit.rejections[0].code is Code.SEARCH_LIMIT:
        answer["timedOut"] = True
    return answer


def _unanswered(name: str, text: str) -> bytes:
    return msgspec.json.encode({"name": name, "error": text})


def _error(node: Node, text: str) -> Json:
    return {"node": node.name, "fits": False, "results": None, "error": text}


def _scenario(line: bytes) -> Mapping[str, Any]:
    try:
        scenario = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise ScenarioError(f"the line is not JSON: {problem}") from problem
    if isinstance(scenario, dict) and isinstance(scenario.get("scenario"), dict):
        scenario = scenario["scenario"]
    if not isinstance(scenario, dict) or not isinstance(scenario.get("name"), str):
        raise ScenarioError("expected a scenario, an object with a name")
    return scenario


def _timeout(milliseconds: Any) -> float:
    if milliseconds is None:
        return _DEFAULT_TIMEOUT
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float) or milliseconds <= 0:
        raise ScenarioError("timeoutMs: expected a positive number")
    return min(milliseconds, _LONGEST_TIMEOUT) / 1000


def _objects(scenario: Mapping[str, Any], member: str) -> list[Any]:
    objects = scenario.get(member)
    if objects is None:
        return []
    if not isinstance(objects, list):
        raise ScenarioError(f"{member}: expected a list of objects")
    return objects


def _features(names: Any) -> Features:
    """Return the features: all on by default; a name that a given object leaves out is off."""
    if names is None:
        return _ALL_ON
    if not isinstance(names, dict):
        raise ScenarioError("features: expected an object of booleans")
    for name, switch in names.items():
        if not isinstance(switch, bool):
            raise ScenarioError(f"features: {name}: expected true or false")
    try:
        return Features.from_names(names)
    except ValueError as problem:
        raise ScenarioError(f"features: {problem}") from problem


def _answer_cel(scenario: Mapping[str, Any]) -> Json:
    expression = scenario.get("expression")
    if not isinstance(expression, str):
        raise ScenarioError("expression: expected text")
    try:
        program = compile_expression(expression)
    except CelCompileError as problem:
        return {"compileError": str(problem), "match": False}
    device = scenario.get("device")
    if device is None:
        return {"match": False}
    driver, read = _device(device)
    capacity = {name: quantity.text for name, quantity in read.capacity}
    activation = prepare_device(driver, dict(read.attributes), capacity, read.allow_multiple_allocations)
    try:
        return {"match": program.matches(activation)}
    except CelRuntimeError as problem:
        return {"runError": str(problem), "match": False}


def _device(raw: Any) -> tuple[str, Device]:
    """(driver, device) from the form in which scenarios of kind "cel" write a device (capitals at the first level)."""
    if not isinstance(raw, dict):
        raise ScenarioError("device: expected an object")
    driver = raw.get("Driver") or ""
    device = {
        "name": "device",
        "attributes": raw.get("Attributes"),
        "capacity": raw.get("Capacity"),
        "allowMultipleAllocations": raw.get("AllowMultipleAllocations"),
    }
    spec = {"driver": driver, "pool": {"name": "pool", "resourceSliceCount": 1}, "devices": [device]}
    read = SliceReader().convert({"metadata": {"name": "device"}, "spec": spec})
    return read.driver, read.devices[0]
