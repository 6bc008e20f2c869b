"""Scenarios of kind cel and derived, asked of our engine and told in the words of the labelled answers."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from dra_extender.cel.device import Attribute, DeviceActivation, prepare_device
from dra_extender.cel.errors import CelCompileError, CelRuntimeError
from dra_extender.cel.program import compile_expression

Json = Mapping[str, Any]

_FIELDS: Final = {
    "int": "int_value",
    "bool": "bool_value",
    "string": "string_value",
    "version": "version_value",
    "ints": "int_values",
    "bools": "bool_values",
    "strings": "string_values",
    "versions": "version_values",
}


class Outcome(NamedTuple):
    """What an expression gives for a device.

    `verdict` is compile-error, run-error, match, no-match or, of a derived attribute, its kind and value; `cost` is known for
    values only.
    """

    verdict: str
    cost: int | None


def device(raw: Json) -> DeviceActivation:
    """The device of a scenario, prepared for evaluation."""
    attributes = {name: _attribute(value) for name, value in (raw.get("Attributes") or {}).items()}
    capacity = {name: value["value"] for name, value in (raw.get("Capacity") or {}).items()}
    return prepare_device(raw["Driver"], attributes, capacity, bool(raw.get("AllowMultipleAllocations")))


def ours(scenario: Json) -> Outcome:
    """Our answer; an exception that is not one of the engine's own is a verdict nobody else has."""
    try:
        return _answered(scenario)
    except Exception as crash:  # noqa: BLE001 - whatever it is, it must be shown with its scenario
        return Outcome(f"crash: {type(crash).__name__}: {crash}", None)


def _answered(scenario: Json) -> Outcome:
    derived = scenario["kind"] == "derived"
    try:
        program = compile_expression(scenario["expression"], derived=derived)
    except CelCompileError:
        return Outcome("compile-error", None)
    try:
        cost = program.evaluate(device(scenario["device"]))[1]
        prepared = device(scenario["device"])
        if derived:
            return Outcome(_shown(program.attribute(prepared)), cost)
        return Outcome("match" if program.matches(prepared) else "no-match", cost)
    except CelRuntimeError:
        return Outcome("run-error", None)


def theirs(answer: Json) -> Outcome:
    """Upstream's answer; the text of an oracle that panicked counts as a run-time error."""
    if "compileError" in answer:
        return Outcome("compile-error", None)
    if "runError" in answer or "panic" in answer:
        return Outcome("run-error", None)
    if "value" in answer:
        return Outcome(_shown(_attribute(answer["value"])), answer["cost"])
    return Outcome("match" if answer["match"] else "no-match", answer["cost"])


def _attribute(raw: Json) -> Attribute:
    values: dict[str, Any] = {}
    for kind, value in raw.items():
        values[_FIELDS[kind]] = tuple(value) if isinstance(value, list) else value
    return Attribute(**values)


def _shown(attribute: Attribute) -> str:
    found = {field: getattr(attribute, field) for field in _FIELDS.values()}
    return repr({field: value for field, value in found.items() if value is not None and value != ()})
