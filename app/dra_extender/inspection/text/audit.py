"""The answer of an audit as lines for a terminal of 80 columns: findings by severity and check."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Final

from dra_extender.inspection.audit.findings import Check, CheckSeverity
from dra_extender.inspection.audit.report import AuditReport, Soundness
from dra_extender.inspection.holders import held_lines
from dra_extender.inspection.lines import INDENT, Part, as_text, paragraph
from dra_extender.model.api_json import number_of

_NAMES: Final = {
    "nodes": "node",
    "resourceslices": "slice",
    "resourceclaims": "claim",
    "pods": "pod",
    "deviceclasses": "class",
}


@as_text
def audit_tree(report: AuditReport) -> Iterator[Part]:
    looked_at = ", ".join(number_of(number, _NAMES[kind]) for kind, number in report.objects.items())
    errors = sum(finding.severity is CheckSeverity.ERROR for finding in report.findings)
    headline = {
        Soundness.SOUND: "sound",
        Soundness.UNKNOWN: "nothing found, but not everything could be judged",
        Soundness.UNSOUND: f"{number_of(errors, 'error')}, {number_of(len(report.findings) - errors, 'warning')}",
    }[report.verdict]
    yield paragraph(f"{headline} ({looked_at or 'no kind could be read whole'})")
    for check, group in groupby(report.findings, key=lambda finding: finding.check):
        findings = tuple(group)
        yield f"└ {check.severity.value}: {check_text(check)} ({len(findings)})"
        for finding in findings:
            yield paragraph(finding.about, INDENT)
            yield paragraph(finding.detail, INDENT * 2)
    yield partial(held_lines, report.held)
    for unjudged in report.unjudged:
        yield paragraph(f"not judged: {checks_text(unjudged.checks)}")
        yield paragraph(unjudged.reason, INDENT)


def check_text(check: Check) -> str:
    return check.value.replace("_", " ")


def checks_text(checks: Sequence[Check]) -> str:
    """Return the names of checks that were not made."""
    return ", ".join(map(check_text, checks)) or "an object that no check reads"
