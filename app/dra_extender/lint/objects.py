"""Objects of resource.k8s.io, pods, and what makes pods, that an API server would refuse, each problem at its place in the file."""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from dra_extender.cel.lint.findings import LintCode, LintFinding, error
from dra_extender.manifests.check import SchemaProblem, schema_problems
from dra_extender.manifests.documents import Position, YamlDocument
from dra_extender.manifests.problems import path_text, shown

GROUP: Final = "resource.k8s.io/"
SLICE: Final = "ResourceSlice"
KINDS: Final = ("DeviceClass", "ResourceClaim", "ResourceClaimTemplate", SLICE, "DeviceTaintRule")
"""The kinds of resource.k8s.io whose fields are checked."""
_SCHEDULING: Final = ("scheduling.k8s.io/v1beta1", "scheduling.k8s.io/v1alpha3", "scheduling.k8s.io/v1alpha2")
_APPS: Final = ("apps/v1",)
WITH_PODS: Final[Mapping[str, tuple[str, ...]]] = {
    "Pod": ("v1",),
    "PodGroup": _SCHEDULING,
    "Workload": _SCHEDULING,
    "Deployment": _APPS,
    "ReplicaSet": _APPS,
    "StatefulSet": _APPS,
    "Job": ("batch/v1",),
}
"""The kinds whose pods may have claims, with the versions whose fields are checked."""
_OTHERS: Final = ("ResourcePoolStatusRequest", "ResourceClaimList", "ResourceSliceList", "DeviceClassList")
_SAME_FIELDS: Final = ("resource.k8s.io/v1", "resource.k8s.io/v1beta2")
_RULE_VERSIONS: Final = (*_SAME_FIELDS, "resource.k8s.io/v1alpha3")
_EXPRESSION: Final = ("expression",)
_EITHER: Final = ("sharedCounters", "devices")
_ONE_KIND: Final = "only one of `sharedCounters` or `devices` is allowed since Kubernetes 1.35"


class FieldFinding(NamedTuple):
    """A finding about a field of an object."""

    field: str
    position: Position
    finding: LintFinding


def is_checked(value: Any) -> bool:
    """Return whether this is an object of resource.k8s.io, or one whose pods may have claims."""
    if not isinstance(value, dict):
        return False
    version = value.get("apiVersion")
    return str(version).startswith(GROUP) or version in WITH_PODS.get(str(value.get("kind")), ())


def field_findings(document: YamlDocument, *, beside_counters: bool) -> Iterator[FieldFinding]:
    """Yield what is wrong with the fields of an object that is checked.

    Expressions are left to the lint of expressions, but for those in slices.  `beside_counters`: slices may have devices beside
    shared counters, as in Kubernetes 1.34.
    """
    value = document.value
    kind = value.get("kind")
    if isinstance(kind, str) and kind in WITH_PODS and not str(value.get("apiVersion")).startswith(GROUP):
        yield from (_finding(document, problem) for problem in schema_problems(kind, value))
        return
    if kind not in KINDS:
        if kind not in _OTHERS:
            close = difflib.get_close_matches(str(kind), KINDS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"expected one of {', '.join(KINDS)}"
            yield _finding(document, SchemaProblem(("kind",), f"unknown kind {shown(kind)}; {hint}"))
        return
    versions = _RULE_VERSIONS if kind == "DeviceTaintRule" else _SAME_FIELDS
    if value.get("apiVersion") not in versions:
        # v1beta1 has other fields, and what it is converted to is checked by the API server.
        return
    for problem in schema_problems(kind, value):
        if kind == SLICE or problem.path[-1:] != _EXPRESSION:
            yield _finding(document, problem)
    spec = value.get("spec")
    if kind == SLICE and isinstance(spec, dict) and not (beside_counters or None in map(spec.get, _EITHER)):
        yield _finding(document, SchemaProblem(("spec",), _ONE_KIND))


def _finding(document: YamlDocument, problem: SchemaProblem) -> FieldFinding:
    code = LintCode.DOES_NOT_COMPILE if problem.is_expression else LintCode.INVALID_FIELD
    return FieldFinding(path_text(problem.path), document.position_of(problem.path), error(code, 0, problem.sentence))
