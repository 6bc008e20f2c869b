"""The JSON Schemas in docs/schemas, made from the reports."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec
from dra_extender.inspection import devices, usage
from dra_extender.inspection.audit import report as audit_report
from dra_extender.inspection.defrag import report as defrag
from dra_extender.inspection.what_if import report as what_if
from dra_extender.inspection.why import node, report, waiting
from dra_extender.model.metadata import Moment
from dra_extender.scheduling import hold_report, recent_decisions

FOLDER: Final = Path(__file__).parents[2] / "docs" / "schemas"
REPORTS: Final[Mapping[str, type[msgspec.Struct]]] = MappingProxyType(
    {
        audit_report.FORMAT: audit_report.AuditReport,
        defrag.FORMAT: defrag.DefragReport,
        devices.FORMAT: devices.DevicesReport,
        hold_report.FORMAT: hold_report.HoldReport,
        recent_decisions.FORMAT: recent_decisions.DecisionReport,
        node.NODE_FORMAT: node.NodeDevicesReport,
        report.FORMAT: report.WhyReport,
        usage.FORMAT: usage.UsageReport,
        waiting.WAITING_FORMAT: waiting.WaitingReport,
        what_if.FORMAT: what_if.WhatIfReport,
    }
)
"""Reports by their format, e.g. `dra-extender.io/why/v1`."""


def file_of(name: str) -> Path:
    """The file of a format: why-v1.json."""
    return FOLDER / f"{name.partition('/')[2].replace('/', '-')}.json"


def schema(name: str) -> dict[str, Any]:
    """The schema of a report; fields may be added to objects without a new format."""
    (made,), components = msgspec.json.schema_components(
        [REPORTS[name]], ref_template="#/$defs/{name}", schema_hook=_moment
    )
    title = REPORTS[name].__name__
    components[title]["properties"]["format"] = {"const": name}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"https://{name}",
        "title": title,
        **made,
        "$defs": dict(sorted(components.items())),
    }


def _moment(kind: type) -> dict[str, Any]:
    assert kind is Moment
    return {"type": "string", "format": "date-time"}


def text(name: str) -> str:
    """The file of a report."""
    return json.dumps(schema(name), indent=1, ensure_ascii=False) + "\n"
