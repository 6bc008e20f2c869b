"""The findings of lint over files, each with its place."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from dra_extender.allocator.demand.build import too_many_devices
from dra_extender.allocator.demand.demand import ALL
from dra_extender.cel.lint.findings import LintCode, LintFinding, Severity, error, warning
from dra_extender.cel.lint.lint import claim_limit_findings, lint, units_of
from dra_extender.lint.codes import ManifestCode
from dra_extender.lint.policy import PolicyText, is_policy, policy_findings, slices_in
from dra_extender.lint.pools import PlacedSlice, pool_findings
from dra_extender.lint.read import (
    CLAIM_SPECS,
    KINDS,
    LINT,
    WITH_PODS,
    LintedObject,
    LintFile,
    PlacedFinding,
    as_v1,
    is_checked,
    list_at,
    object_label,
    placed,
    read_subjects,
    value_at,
)
from dra_extender.manifests.documents import FieldPath, Position, YamlError
from dra_extender.manifests.problems import path_text
from dra_extender.model.resource_slice import ResourceSlice

_START: Final = Position(1, 1)
_NOTHING: Final = (
    f"the file holds nothing that lint knows: expected {', '.join(KINDS)} (resource.k8s.io), {', '.join(WITH_PODS)},"
    " or a policy with rules"
)


_NO_TEXT: Final = "an expression must be a text; put it in quotes"


class LintReport(NamedTuple):
    """The findings in so many objects, policies and expressions; `unreadable` has a sentence for each file that is not YAML."""

    objects: int
    policies: int
    expressions: int
    findings: Sequence[PlacedFinding]
    unreadable: Sequence[str]

    def count(self, severity: Severity) -> int:
        """Count the findings of this severity that no manifest announces."""
        return sum(finding.severity == severity for finding in self.findings if not finding.expected)

    @property
    def expected(self) -> int:
        """Findings that a manifest announces."""
        return sum(finding.expected for finding in self.findings)


def lint_files(
    files: Iterable[LintFile],
    *,
    beside_counters: bool = False,
    of_cluster: Iterable[ResourceSlice] = (),
    further: Iterable[PlacedFinding] = (),
) -> LintReport:
    """Lint these files together: classes and slices of one apply to claims and policies of all.

    `beside_counters`: slices may have devices beside shared counters, as in Kubernetes 1.34.  `of_cluster`: slices of a cluster,
    for which policies are beside those of the files.  `further`: findings of other checks about the objects of these files.
    """
    subjects: list[tuple[str, LintedObject]] = []
    policies: list[PolicyText] = []
    slices: list[PlacedSlice] = []
    unreadable: list[str] = []
    others: list[PlacedFinding] = []
    order: dict[str, int] = {}
    for file in files:
        order.setdefault(file.name, len(order))
        if file.problem:
            unreadable.append(file.problem)
            continue
        policy = next((document for document in file.documents if is_policy(document.value)), None)
        if policy is not None:
            policies.append(PolicyText(file.name, file.text, policy))
            continue
        try:
            subjects_of_file = read_subjects(file, beside_counters=beside_counters)
        except YamlError as problem:
            unreadable.append(problem.located(file.name))
            continue
        if not subjects_of_file:
            where = file.documents[0].position_of() if file.documents else _START
            others.append(placed(file.name, where, "file", warning(ManifestCode.NOTHING_KNOWN, 0, _NOTHING)))
        subjects.extend((file.name, subject) for subject in subjects_of_file)
        slices.extend(slices_in(file))
        others.extend(_device_count_findings(file))
    others += (*pool_findings(slices), *policy_findings(policies, slices, of_cluster), *further)
    findings = sorted(
        _all_findings(subjects, others),
        key=lambda finding: (order[finding.file], finding.line, finding.column),
    )
    expressions = sum(len(subject.expressions) for _, subject in subjects)
    return LintReport(len(subjects), len(policies), expressions, findings, unreadable)


def _all_findings(
    subjects: Sequence[tuple[str, LintedObject]], others: Iterable[PlacedFinding]
) -> Iterator[PlacedFinding]:
    """Yield the findings of objects in order, with `others` about the same objects, then those about no object.

    The selectors of a class apply before those of a request for the class.
    """
    lines = defaultdict[tuple[str, str], list[int]](list)
    for file, subject in subjects:
        lines[file, subject.name].append(subject.line)
    placed_findings = defaultdict[tuple[str, str, int], list[PlacedFinding]](list)
    for finding in others:
        # A file may hold several objects of one name.
        line = max((line for line in lines[finding.file, finding.object] if line <= finding.line), default=0)
        placed_findings[finding.file, finding.object, line].append(finding)
    classes = {
        subject.class_name: tuple(
            expression.value for expression in subject.expressions if expression.value is not None
        )
        for _, subject in subjects
        if subject.class_name is not None
    }
    for file, subject in subjects:
        own = placed_findings.pop((file, subject.name, subject.line), ())
        yield from _mark_expected(file, subject, (*_subject_findings(file, subject, classes), *own))
    for findings in placed_findings.values():
        yield from findings


def _mark_expected(file: str, subject: LintedObject, findings: Iterable[PlacedFinding]) -> Iterator[PlacedFinding]:
    """Yield the findings of an object with what it expects marked, and an error if it expects a finding that there is not."""
    expectation, met = subject.expectation, False
    for finding in findings:
        expected = expectation is not None and (not expectation.codes or finding.code in expectation.codes)
        met = met or expected
        yield msgspec.structs.replace(finding, expected=expected)
    if expectation is not None and expectation.required and not met:
        codes = ", ".join(sorted(expectation.codes)) or "a finding"
        message = f"annotation {LINT} expects {codes}, but there is none"
        yield PlacedFinding(file, subject.line, 1, subject.name, "", "expectation", Severity.ERROR, message, "")


def _subject_findings(
    file: str, subject: LintedObject, classes: Mapping[str, tuple[str, ...]]
) -> Iterator[PlacedFinding]:
    """Yield the findings of one object, whether it expects them or not."""
    yield from subject.fields
    if subject.class_name is None:
        # All expressions of a claim together have a limit.
        texts = {
            (expression.value, expression.condition)
            for expression in subject.expressions
            if expression.value is not None
        }
        units = sum(units_of(text, condition=condition) for text, condition in texts)
        for finding in claim_limit_findings(units):
            yield placed(file, (subject.line, 1), subject.name, finding)
    for expression in subject.expressions:
        before: Sequence[str] | None = expression.earlier
        if expression.class_name is not None:
            class_selectors = classes.get(expression.class_name)
            before = None if class_selectors is None else (*class_selectors, *expression.earlier)
        findings: Iterable[LintFinding] = [error(LintCode.DOES_NOT_COMPILE, 0, _NO_TEXT)]
        if expression.value is not None:
            findings = lint(expression.value, before=before, condition=expression.condition)
        for finding in findings:
            yield placed(file, expression.place(finding.offset), expression.subject, finding, expression.field)


def _device_count_findings(file: LintFile) -> Iterator[PlacedFinding]:
    """Yield a warning for each claim of the file that is never allocated, and for each alternative that is never taken."""
    for document in file.objects:
        item = as_v1(document.value)
        base = CLAIM_SPECS.get(str(item.get("kind"))) if is_checked(item) else None
        if base is None:
            continue
        devices = (*base, "devices")
        for path, sentence in _excessive_requests(value_at(item, devices)):
            field = (*devices, *path)
            finding = warning(ManifestCode.NEVER_FITS, 0, sentence)
            yield placed(file.name, document.position_of(field), object_label(item), finding, path_text(field))


def _excessive_requests(devices: Any) -> Iterator[tuple[FieldPath, str]]:
    """Yield (path, sentence) of what no node can serve in `spec.devices` of a claim, whose fields need not have been checked.

    The path is that of all requests if the claim is never allocated, and otherwise that of an alternative that is never taken.
    """
    requests = [_device_counts(request) for request in list_at(devices, ("requests",))]
    too_many = too_many_devices(requests)
    if too_many:
        yield ("requests",), f"no node can serve the claim: it {too_many}"
        return
    for index, counts in enumerate(requests):
        for number, count in enumerate(counts if len(counts) > 1 else ()):
            too_many = too_many_devices([*requests[:index], [count], *requests[index + 1 :]])
            if too_many:
                sentence = f"this alternative is never taken: with it, the claim {too_many}"
                yield ("requests", index, "firstAvailable", number), sentence


def _device_counts(request: Any) -> Sequence[int]:
    """Return the number of devices of each alternative, of which a request with `exactly` has one."""
    bodies = list_at(request, ("firstAvailable",)) or [value_at(request, ("exactly",))]
    return [_device_count(body) for body in bodies]


def _device_count(body: Any) -> int:
    count = value_at(body, ("count",))
    if value_at(body, ("allocationMode",)) == "All":
        return ALL
    return (count or 1) if isinstance(count, int) or count is None else 0
