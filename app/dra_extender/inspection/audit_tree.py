"""The answer of an audit as lines for a terminal of 80 columns: findings by severity and check; lines are wrapped and never cut."""

from collections.abc import Iterator
from itertools import groupby
from textwrap import wrap
from typing import Final

from dra_extender.audit.findings import AuditFinding, Check, CheckSeverity
from dra_extender.inspection.audit_report import AuditReport, Soundness
from dra_extender.inspection.held_devices import held_lines
from dra_extender.inspection.holders import printable

WIDTH: Final = 80
"""Columns of the terminal for which the lines are laid out."""
_INDENT: Final = "  "
_NAMES: Final = {
    "nodes": "nodes",
    "resourceslices": "slices",
    "resourceclaims": "claims",
    "pods": "pods",
    "deviceclasses": "classes",
}


def audit_tree(report: AuditReport, width: int = WIDTH) -> str:
    """The whole answer; ends with a line break."""
    return "\n".join(map(printable, _lines(report, width))) + "\n"


def _lines(report: AuditReport, width: int) -> Iterator[str]:
    looked_at = ", ".join(f"{number} {_NAMES[kind]}" for kind, number in report.objects.items())
    yield from _wrapped(f"{_headline(report)} ({looked_at})", "", width)
    for check, found in groupby(report.findings, key=lambda each: each.check):
        findings = tuple(found)
        yield f"└ {check.severity.value}: {_label(check)} ({len(findings)})"
        for each in findings:
            yield from _finding(each, width)
    yield from held_lines(report.held, width)
    for unjudged in report.unjudged:
        checks = ", ".join(map(_label, unjudged.checks)) or "an object that no check reads"
        yield from _wrapped(f"not judged: {checks}", "", width)
        yield from _wrapped(unjudged.reason, _INDENT, width)


def _headline(report: AuditReport) -> str:
    if report.verdict is Soundness.SOUND:
        return "sound"
    if report.verdict is Soundness.UNKNOWN:
        return "nothing found, but not everything could be judged"
    errors = sum(each.severity is CheckSeverity.ERROR for each in report.findings)
    warnings = len(report.findings) - errors
    return f"{_number(errors, 'error')}, {_number(warnings, 'warning')}"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _finding(found: AuditFinding, width: int) -> Iterator[str]:
    yield from _wrapped(found.about, _INDENT, width)
    yield from _wrapped(found.detail, _INDENT * 2, width)


def _label(check: Check) -> str:
    return check.value.replace("_", " ")


def _wrapped(text: str, indent: str, width: int) -> list[str]:
    return wrap(text, width, initial_indent=indent, subsequent_indent=indent + _INDENT, break_long_words=False)
