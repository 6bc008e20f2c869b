"""Findings of lint as text for people, and as JSON, SARIF and workflow commands of GitHub for programs."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec

from dra_extender.cel.lint.findings import Severity
from dra_extender.lint.lint_files import LintReport
from dra_extender.lint.read import PlacedFinding
from dra_extender.model.api_json import number_of, printable

_SARIF_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_ESCAPES: Final[Mapping[str, str]] = MappingProxyType({"%": "%25", "\r": "%0D", "\n": "%0A"})
_ESCAPES_OF_PROPERTIES: Final[Mapping[str, str]] = MappingProxyType({**_ESCAPES, ":": "%3A", ",": "%2C"})


def as_json(report: LintReport) -> str:
    document = {
        "objects": report.objects,
        "policies": report.policies,
        "expressions": report.expressions,
        "errors": report.count(Severity.ERROR),
        "warnings": report.count(Severity.WARNING),
        "expected": report.expected,
        "findings": msgspec.to_builtins(report.findings),
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


def as_text(report: LintReport) -> str:
    errors, warnings = report.count(Severity.ERROR), report.count(Severity.WARNING)
    counts = f"{number_of(errors, 'error')}, {number_of(warnings, 'warning')}, {report.expected} expected"
    read = [number_of(report.objects, "object"), number_of(report.expressions, "expression")]
    read += ["1 policy" if report.policies == 1 else f"{report.policies} policies"] if report.policies else []
    summary = f"{', '.join(read)}: {counts}"
    return "\n".join((*(_finding_text(finding) for finding in report.findings), summary))


def as_github(report: LintReport) -> str:
    """Return a workflow command of GitHub Actions for each finding that no manifest announces: an annotation of the file's line."""
    return "\n".join(
        f"::{finding.severity} file={_property(finding.file)},line={finding.line},col={finding.column},"
        f"title={_property(finding.code)}::{_escaped(_one_line(finding), _ESCAPES)}"
        for finding in report.findings
        if not finding.expected
    )


def as_sarif(report: LintReport, version: str) -> str:
    """Return a log of SARIF 2.1.0 (OASIS); findings that a manifest announces are suppressed in it."""
    rules = [{"id": code} for code in sorted({finding.code for finding in report.findings})]
    driver = {"name": "dra-extender lint", "version": version, "rules": rules}
    sarif_run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": list(_results(report))}
    return json.dumps({"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [sarif_run]}, indent=2, ensure_ascii=False)


def _results(report: LintReport) -> Iterator[dict[str, Any]]:
    for finding in report.findings:
        place = {
            "artifactLocation": {"uri": Path(finding.file).as_posix()},
            "region": {"startLine": finding.line, "startColumn": finding.column},
        }
        result: dict[str, Any] = {
            "ruleId": finding.code,
            "level": finding.severity,
            "message": {"text": _one_line(finding)},
            "locations": [{"physicalLocation": place}],
        }
        if finding.expected:
            result["suppressions"] = [{"kind": "inSource"}]
        yield result


def _finding_text(finding: PlacedFinding) -> str:
    severity = f"expected {finding.severity}" if finding.expected else finding.severity
    lines = [
        f"{finding.file}:{finding.line}:{finding.column}: {severity}: {finding.message} [{finding.code}]",
        f"    in {_about(finding)}",
    ]
    if finding.suggestion:
        lines.append(f"    write {finding.suggestion}")
    return "\n".join(map(printable, lines))


def _one_line(finding: PlacedFinding) -> str:
    """Return message, object and suggestion in one line."""
    suggestion = f"; write {finding.suggestion}" if finding.suggestion else ""
    return printable(f"{finding.message} (in {_about(finding)}){suggestion}")


def _about(finding: PlacedFinding) -> str:
    return f"{finding.object}, {finding.field}" if finding.field else finding.object


def _property(text: str) -> str:
    return _escaped(printable(text), _ESCAPES_OF_PROPERTIES)


def _escaped(text: str, escapes: Mapping[str, str]) -> str:
    return "".join(escapes.get(character, character) for character in text)
