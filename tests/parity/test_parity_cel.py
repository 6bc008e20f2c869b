"""Every selector has the outcome that upstream gave it; the exceptions are named, and may not outlive their reason."""

import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from app.cel import CelCompileError, CelRuntimeError, DeviceActivation, compile_expression, prepare_device
from app.model.device import Attribute
from app.model.quantity import parse_quantity

Json = Mapping[str, Any]

SCENARIOS = Path(__file__).parent / "scenarios"
_NETWORK = "addresses and URLs are not offered yet"
_FORMATS = "the library of named formats is not offered yet"
_SUM = "on purpose: the result of add or sub may stand on the right of =="
DIFFERENT = {
    "cel-4242-95": _NETWORK,
    "cel-4242-107": _SUM,
    "cel-4242-132": _NETWORK,
    "cel-4242-158": _NETWORK,
    "cel-4242-192": _FORMATS,
    "cel-4242-327": _NETWORK,
    "cel-4242-377": _NETWORK,
    "S3.3-cel-31": _NETWORK,
    "S3.3-cel-32": _NETWORK,
    "S3.3-cel-33": _FORMATS,
    "S3.3-cel-45": _SUM,
}
FIELDS = {
    "int": "int_value",
    "bool": "bool_value",
    "string": "string_value",
    "version": "version_value",
    "ints": "int_values",
    "bools": "bool_values",
    "strings": "string_values",
    "versions": "version_values",
}


def labelled() -> Iterator[Json]:
    for name in ("cel.jsonl.gz", "vectors.jsonl.gz"):
        with gzip.open(SCENARIOS / name, "rt", encoding="utf-8") as lines:
            for line in lines:
                entry = json.loads(line)
                if entry["scenario"].get("kind") == "cel":
                    yield entry


ENTRIES = {entry["scenario"]["name"]: entry for entry in labelled()}


def attribute(raw: Json) -> Attribute:
    values: dict[str, Any] = {}
    for kind, value in raw.items():
        values[FIELDS[kind]] = tuple(value) if isinstance(value, list) else value
    return Attribute(**values)


def device(raw: Json) -> DeviceActivation:
    attributes = {name: attribute(value) for name, value in (raw.get("Attributes") or {}).items()}
    capacity = {name: parse_quantity(value["value"]) for name, value in (raw.get("Capacity") or {}).items()}
    return prepare_device(raw["Driver"], attributes, capacity, bool(raw.get("AllowMultipleAllocations")))


def outcome(scenario: Json) -> tuple[str, int | None]:
    try:
        program = compile_expression(scenario["expression"])
    except CelCompileError:
        return "compile-error", None
    prepared = device(scenario["device"])
    try:
        selected = program.matches(prepared)
    except CelRuntimeError:
        return "run-error", None
    return ("match" if selected else "no-match"), program.evaluate(prepared)[1]


def expected(answer: Json) -> tuple[str, int | None]:
    if "compileError" in answer:
        return "compile-error", None
    if "runError" in answer:
        return "run-error", None
    return ("match" if answer["match"] else "no-match"), answer["cost"]


def test_all_labelled_selectors_are_there() -> None:
    assert len(ENTRIES) == 466
    assert set(DIFFERENT) <= set(ENTRIES)


@pytest.mark.parametrize("name", ENTRIES)
def test_outcome_and_cost_are_upstreams(name: str) -> None:
    """A selector that is listed as different must differ; all others agree, in cost units too."""
    entry = ENTRIES[name]
    agrees = outcome(entry["scenario"]) == expected(entry["expected"]["cel"])
    assert agrees is (name not in DIFFERENT), DIFFERENT.get(name, "differs from upstream and is not listed")
