import json
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dra_extender.cli.answers import ExitStatus, ProgramFormat
from dra_extender.cli.cluster_source import ClusterSource, asks_a_cluster
from dra_extender.model.api_json import printable

if TYPE_CHECKING:
    from dra_extender.lint.report import LintReport, ReportedFinding

_STDIN: Final = Path("-")
_SUFFIXES: Final = (".yaml", ".yml")


class TargetRelease(StrEnum):
    """Releases whose API servers store slices; the oldest accepts devices beside shared counters."""

    OLDEST = "1.34"
    V1_35 = "1.35"
    V1_36 = "1.36"
    V1_37 = "1.37"


class UnreadableInputError(ValueError):
    """There is nothing to lint; the message is a sentence."""


@asks_a_cluster
def command(
    source: ClusterSource,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Manifests; a folder, or - for standard input.", show_default=False),
    ],
    output: Annotated[
        ProgramFormat, typer.Option("--output", "-o", help="Format of the findings.")
    ] = ProgramFormat.TEXT,
    kubernetes: Annotated[
        TargetRelease, typer.Option("--kubernetes", help="Release of the API server that slices are for.")
    ] = TargetRelease.V1_37,
    *,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings fail, too.")] = False,
    cluster: Annotated[
        bool,
        typer.Option("--cluster", help="Find what fits no node of the running cluster, even if all devices were free."),
    ] = False,
) -> None:
    """Find mistakes in device classes, claims, claim templates, slices, taint rules, and policy files.

    Fields are checked as the API server checks them, slices of a pool against each other, and CEL expressions beyond what compiles.
    In policies, it finds rules without effect, and together with ResourceSlices neighbours that disagree about each other.  With
    --cluster, --snapshot or ResourceSlices in the files, it finds claims that no node there can ever serve.  An
    error would be refused by the API server or fail on a device; a warning may not mean what its author thinks.  Exit status: 0
    no error, 1 an error (with --strict, a warning, too), 2 something cannot be read.
    """
    from dra_extender.cel.lint.findings import Severity
    from dra_extender.inspection.never_fits import never_fits
    from dra_extender.lint.report import lint_files

    texts, problems = _texts(files)
    objects = source.read() if cluster or source.options() else None
    report = lint_files(texts, beside_counters=kubernetes is TargetRelease.OLDEST, further=never_fits(objects, texts))
    errors, warnings = report.count(Severity.ERROR), report.count(Severity.WARNING)
    typer.echo(_as_json(report) if output is ProgramFormat.JSON else _as_text(report))
    for sentence in (*problems, *report.unreadable):
        sys.stderr.write(f"dra-extender: {printable(sentence)}\n")
    if problems or report.unreadable:
        raise typer.Exit(ExitStatus.UNKNOWN)
    if errors or (strict and warnings):
        raise typer.Exit(ExitStatus.NEGATIVE)


def _texts(files: Sequence[Path]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return names and texts of the readable files, and a sentence for each of the others."""
    texts: list[tuple[str, str]] = []
    problems: list[str] = []
    for file in files:
        try:
            if file == _STDIN:
                texts.append(("standard input", sys.stdin.buffer.read().decode()))
            else:
                texts.extend((str(each), each.read_text(encoding="utf-8")) for each in _inside(file))
        except UnicodeDecodeError:
            problems.append(f"cannot read {file}: it is not UTF-8 text")
        except OSError as problem:
            problems.append(f"cannot read {file}: {problem.strerror}")
        except UnreadableInputError as problem:
            problems.append(str(problem))
    return texts, problems


def _inside(file: Path) -> list[Path]:
    if not file.is_dir():
        return [file]
    found = sorted(each for each in file.iterdir() if each.suffix in _SUFFIXES)
    if not found:
        raise UnreadableInputError(f"folder {file} has no *.yaml or *.yml")
    return found


def _as_json(report: "LintReport") -> str:
    import msgspec

    from dra_extender.cel.lint.findings import Severity

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


def _as_text(report: "LintReport") -> str:
    from dra_extender.cel.lint.findings import Severity

    errors, warnings = report.count(Severity.ERROR), report.count(Severity.WARNING)
    counts = f"{_number(errors, 'error')}, {_number(warnings, 'warning')}, {report.expected} expected"
    read = [_number(report.objects, "object"), _number(report.expressions, "expression")]
    read += ["1 policy" if report.policies == 1 else f"{report.policies} policies"] if report.policies else []
    summary = f"{', '.join(read)}: {counts}"
    return "\n".join((*(_finding_text(each) for each in report.findings), summary))


def _finding_text(found: "ReportedFinding") -> str:
    severity = f"expected {found.severity}" if found.expected else found.severity
    lines = [f"{found.file}:{found.line}:{found.column}: {severity}: {found.message} [{found.code}]"]
    lines.append(f"    in {found.object}{f', {found.field}' if found.field else ''}")
    if found.suggestion:
        lines.append(f"    write {found.suggestion}")
    return "\n".join(map(printable, lines))


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
