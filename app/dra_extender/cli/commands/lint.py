import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from dra_extender.cel.lint.findings import LintCode, LintFinding, Severity, error
from dra_extender.cel.lint.limits import claim_limit_findings
from dra_extender.cel.lint.lint import lint, units_of
from dra_extender.lint.manifests import LINT, Expression, LintedObject, read_subjects
from dra_extender.lint.policy import PolicyText, is_policy, policy_findings, slices_in
from dra_extender.manifests.documents import YamlError, read_documents
from dra_extender.model.resource_slice import ResourceSlice

EXIT_WRONG: Final = 1
EXIT_UNREADABLE: Final = 2
_STDIN: Final = Path("-")
_SUFFIXES: Final = (".yaml", ".yml")


class LintOutput(StrEnum):
    """Text for people, JSON for programs."""

    TEXT = "text"
    JSON = "json"


class ReportedFinding(msgspec.Struct, frozen=True):
    """A finding at its place in a file; `expected` says that the manifest announces it."""

    file: str
    line: int
    column: int
    object: str
    field: str
    code: str
    severity: str
    message: str
    suggestion: str
    expected: bool


class UnreadableInputError(ValueError):
    """Something that cannot be linted; the message is a sentence."""


def register(app: typer.Typer) -> None:
    """Add the command `lint`."""
    app.command("lint")(command)


def command(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Manifests; a folder, or - for standard input.", show_default=False),
    ],
    output: Annotated[LintOutput, typer.Option("--output", "-o", help="How to tell what was found.")] = LintOutput.TEXT,
    *,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings fail, too.")] = False,
) -> None:
    """Find mistakes in the CEL expressions of device classes, resource claims and claim templates, and in policy files.

    Of a policy it says which rules have no effect, and together with ResourceSlices which neighbours judge each other differently.
    An error would be refused by the API server or fail on a device; a warning may not mean what its author thinks.  Exit status: 0
    no error, 1 an error (with --strict, a warning, too), 2 something cannot be read.
    """
    texts, problems = _texts(files)
    subjects: list[tuple[str, LintedObject]] = []
    policies: list[PolicyText] = []
    slices: dict[str, list[ResourceSlice]] = {}
    for name, text in texts:
        try:
            if any(is_policy(each.value) for each in read_documents(text)):
                policies.append(PolicyText(name, text))
                continue
            subjects.extend((name, subject) for subject in read_subjects(text))
            slices.setdefault(name, []).extend(slices_in(text))
        except YamlError as problem:
            problems.append(problem.located(name))
    found = [*report(subjects), *_of_policies(policies, slices)]
    errors, warnings = _counts(found)
    count = sum(len(subject.expressions) for _, subject in subjects)
    expected = sum(each.expected for each in found)
    parts = (_number(errors, "error"), _number(warnings, "warning"), f"{expected} expected")
    summary = f"{_number(count, 'expression')}: {', '.join(parts)}"
    if output is LintOutput.JSON:
        answer = {
            "expressions": count,
            "errors": errors,
            "warnings": warnings,
            "expected": expected,
            "findings": msgspec.to_builtins(found),
        }
        typer.echo(json.dumps(answer, indent=2, ensure_ascii=False))
    else:
        typer.echo("\n".join([*(_text(each) for each in found), summary]))
    for sentence in problems:
        sys.stderr.write(f"dra-extender: {sentence}\n")
    if problems:
        raise typer.Exit(EXIT_UNREADABLE)
    if errors or (strict and warnings):
        raise typer.Exit(EXIT_WRONG)


def report(subjects: Sequence[tuple[str, LintedObject]]) -> Iterator[ReportedFinding]:
    """The findings of objects (with the names of their files), in order; classes among them are what requests rely on."""
    classes = {
        subject.class_name: tuple(each.value for each in subject.expressions if each.value is not None)
        for _, subject in subjects
        if subject.class_name is not None
    }
    for file, subject in subjects:
        yield from _of_subject(file, subject, classes)


def _of_policies(
    policies: Sequence[PolicyText], slices: Mapping[str, Sequence[ResourceSlice]]
) -> Iterator[ReportedFinding]:
    for file, finding in policy_findings(policies, slices):
        code, severity, message = finding.code.value, finding.severity.value, finding.message
        about = "policy" if policies else "ResourceSlices"
        yield ReportedFinding(file, 1, 1, about, "", code, severity, message, "", expected=False)


def _of_subject(file: str, subject: LintedObject, classes: Mapping[str, tuple[str, ...]]) -> Iterator[ReportedFinding]:
    expectation, met = subject.expectation, False
    for finding in _of_all(subject):
        expected = expectation is not None and (not expectation.codes or finding.code in expectation.codes)
        met = met or expected
        code, severity, message = finding.code.value, finding.severity.value, finding.message
        yield ReportedFinding(file, subject.line, 1, subject.name, "", code, severity, message, "", expected=expected)
    for expression in subject.expressions:
        for finding in _findings(expression, classes):
            expected = expectation is not None and (not expectation.codes or finding.code in expectation.codes)
            met = met or expected
            yield _reported(file, expression, finding, expected=expected)
    if expectation is not None and expectation.required and not met:
        wanted = ", ".join(sorted(expectation.codes)) or "a finding"
        message = f"annotation {LINT} expects {wanted}, but there is none"
        yield ReportedFinding(
            file, subject.line, 1, subject.name, "", "expectation", Severity.ERROR, message, "", expected=False
        )


def _of_all(subject: LintedObject) -> Iterable[LintFinding]:
    """What there is to say about all expressions of a claim together."""
    if subject.class_name is not None:
        return ()
    texts = {(each.value, each.condition) for each in subject.expressions if each.value is not None}
    return claim_limit_findings(sum(units_of(text, condition=condition) for text, condition in texts))


def _findings(expression: Expression, classes: Mapping[str, tuple[str, ...]]) -> Iterable[LintFinding]:
    if expression.value is None:
        message = "an expression must be a text; put it in quotes"
        return [error(LintCode.DOES_NOT_COMPILE, 0, message)]
    before: Sequence[str] | None = expression.earlier
    if expression.class_name is not None:
        known = classes.get(expression.class_name)
        before = None if known is None else (*known, *expression.earlier)
    return lint(expression.value, before=before, condition=expression.condition)


def _reported(file: str, expression: Expression, finding: LintFinding, *, expected: bool) -> ReportedFinding:
    return ReportedFinding(
        file,
        *expression.place(finding.offset),
        object=expression.subject,
        field=expression.field,
        code=finding.code.value,
        severity=finding.severity.value,
        message=finding.message,
        suggestion=finding.suggestion,
        expected=expected,
    )


def _texts(files: Sequence[Path]) -> tuple[list[tuple[str, str]], list[str]]:
    """Names and texts of what can be read, and sentences about what cannot."""
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


def _counts(found: Iterable[ReportedFinding]) -> tuple[int, int]:
    unexpected = [each.severity for each in found if not each.expected]
    return unexpected.count(Severity.ERROR), unexpected.count(Severity.WARNING)


def _text(found: ReportedFinding) -> str:
    severity = f"expected {found.severity}" if found.expected else found.severity
    lines = [f"{found.file}:{found.line}:{found.column}: {severity}: {found.message} [{found.code}]"]
    lines.append(f"    in {found.object}{f', {found.field}' if found.field else ''}")
    if found.suggestion:
        lines.append(f"    write {found.suggestion}")
    return "\n".join(lines)


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
