"""The objects in manifests that lint checks: their expressions, and what an API server would refuse of their fields."""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from dra_extender.allocator.demand.alignment import DOMAIN, PreferencesError, read_preferences
from dra_extender.cel.lint.findings import LintCode, LintFinding, error, warning
from dra_extender.lint.alternatives import Alternative
from dra_extender.lint.codes import ManifestCode
from dra_extender.manifests.check import V1BETA1_KINDS, schema_problems, wrong_fields
from dra_extender.manifests.documents import (
    FieldPath,
    ScalarPosition,
    YamlDocument,
    YamlError,
    node_at,
    read_documents,
    written,
)
from dra_extender.manifests.problems import Problem, path_text, shown

GROUP: Final = "resource.k8s.io/"
SLICE: Final = "ResourceSlice"
_TAINT_RULE: Final = "DeviceTaintRule"
KINDS: Final = ("DeviceClass", "ResourceClaim", "ResourceClaimTemplate", SLICE, _TAINT_RULE)
"""The kinds of resource.k8s.io whose fields are checked."""
_SCHEDULING: Final = ("scheduling.k8s.io/v1beta1", "scheduling.k8s.io/v1alpha3", "scheduling.k8s.io/v1alpha2")
_APPS: Final = ("apps/v1",)
_BATCH: Final = ("batch/v1",)
WITH_PODS: Final[Mapping[str, tuple[str, ...]]] = {
    "Pod": ("v1",),
    "PodGroup": _SCHEDULING,
    "Workload": _SCHEDULING,
    "Deployment": _APPS,
    "ReplicaSet": _APPS,
    "StatefulSet": _APPS,
    "DaemonSet": _APPS,
    "Job": _BATCH,
    "CronJob": _BATCH,
}
"""The kinds whose pods may have claims, with the versions whose fields are checked."""
_UNCHECKED_KINDS: Final = ("ResourcePoolStatusRequest", "ResourceClaimList", "ResourceSliceList", "DeviceClassList")
_V1: Final = "resource.k8s.io/v1"
_V1BETA2: Final = "resource.k8s.io/v1beta2"
_V1BETA1: Final = "resource.k8s.io/v1beta1"
_SAME_FIELDS: Final = (_V1, _V1BETA2)
_RULE_VERSIONS: Final = (*_SAME_FIELDS, "resource.k8s.io/v1alpha3")
_EITHER: Final = ("sharedCounters", "devices")
_ONE_KIND: Final = "only one of `sharedCounters` or `devices` is allowed since Kubernetes 1.35"
LINT: Final = "dra-extender.io/lint"
DEMO: Final = "dra-extender.io/demo"
_UNCHECKED: Final = "unchecked"
_EXPECT: Final = "expect"
DELETE: Final = "delete"
ANNOTATIONS: Final = ("metadata", "annotations")
_CLASS: Final = "DeviceClass"
CLAIM_SPECS: Final[Mapping[str, FieldPath]] = {"ResourceClaim": ("spec",), "ResourceClaimTemplate": ("spec", "spec")}
_EXPRESSION: Final = ("cel", "expression")
_SELECTOR: Final = ("spec", "deviceSelector")


class PlacedFinding(msgspec.Struct, frozen=True):
    """A finding at its place in a file, about an object as a whole, or about a field of an object or a policy.

    `expected` says that the manifest announces it.
    """

    file: str
    line: int
    column: int
    object: str
    field: str
    code: str
    severity: str
    message: str
    suggestion: str
    expected: bool = False


def placed(file: str, place: tuple[int, int], about: str, finding: LintFinding, field: str = "") -> PlacedFinding:
    """Return a finding at this line and column, about an object or its field."""
    code, severity = finding.code.value, finding.severity.value
    return PlacedFinding(file, *place, about, field, code, severity, finding.message, finding.suggestion)


class ExpectedFindings(msgspec.Struct, frozen=True):
    """That an object is wrong on purpose: by these findings, or by any if there are none; `required` says that some must be."""

    codes: frozenset[str]
    required: bool


class Expression(msgspec.Struct, frozen=True):
    """An expression in a manifest; `value` is None if it is no text.

    `subject` names the object, `field` the path in it. `class_name` is the class that a request asks for, None in a class.
    `earlier` are the selectors of the same list before it. `condition` is false for derived attributes.
    """

    value: str | None
    subject: str
    field: str
    line: int
    written: ScalarPosition | None
    class_name: str | None
    earlier: tuple[str, ...]
    condition: bool

    def place(self, offset: int) -> tuple[int, int]:
        """Return line and column in the file, both from 1."""
        if self.written is None or self.value is None:
            return self.line, 1
        return self.written.place(self.value, offset)


class LintedObject(msgspec.Struct, frozen=True):
    """An object that lint checks, with its expressions and what is wrong with its fields."""

    name: str
    line: int
    expressions: tuple[Expression, ...]
    expectation: ExpectedFindings | None
    class_name: str | None
    """Its own name if it is a class."""
    fields: tuple[PlacedFinding, ...] = ()


class LintFile(NamedTuple):
    """A file: its name, text, documents, and its objects, each item of a List as a document of its own.

    `problem` says why it cannot be read; then it has no documents.
    """

    name: str
    text: str
    documents: Sequence[YamlDocument] = ()
    objects: Sequence[YamlDocument] = ()
    problem: str = ""


def read_files(texts: Iterable[tuple[str, str]]) -> list[LintFile]:
    files = []
    for name, text in texts:
        try:
            documents = read_documents(text)
        except YamlError as problem:
            files.append(LintFile(name, text, problem=problem.located(name)))
        else:
            objects = [item for document in documents for item in document.items()]
            files.append(LintFile(name, text, documents, objects))
    return files


def read_subjects(file: LintFile, *, beside_counters: bool = False) -> list[LintedObject]:
    """Return the objects in a file that lint checks; other objects are left out.

    `beside_counters`: slices may have devices beside shared counters, as in Kubernetes 1.34.

    Raises:
        YamlError: an expectation names no finding.
    """
    return [
        _Reader(file, document).subject(beside_counters=beside_counters)
        for document in file.objects
        if is_checked(document.value)
    ]


class _Reader:
    """Reads one object; fields of a wrong type are left out, because other checks report them."""

    def __init__(self, file: LintFile, document: YamlDocument) -> None:
        self._file = file
        self._document = document
        self._item: dict[str, Any] = document.value
        self._name = ""

    def subject(self, *, beside_counters: bool) -> LintedObject:
        kind = str(self._item.get("kind"))
        name = _own_name(self._item)
        self._name = object_label(self._item)
        if kind == _CLASS:
            expressions = tuple(self._selectors(("spec", "selectors"), None))
        elif kind in CLAIM_SPECS:
            expressions = tuple(self._requests(CLAIM_SPECS[kind]))
        else:
            expressions = ()
        line, fields = self._document.position_of().line, tuple(self._fields(beside_counters=beside_counters))
        return LintedObject(
            self._name, line, expressions, self._expectation(), name if kind == _CLASS else None, fields
        )

    def _fields(self, *, beside_counters: bool) -> Iterator[PlacedFinding]:
        """Yield what is wrong with the fields; a document that deletes in a story needs only a name."""
        deletes = self._annotations().get(DEMO) == DELETE
        for problem in self._problems(beside_counters=beside_counters):
            if not deletes or problem.path[:1] == ("metadata",):
                code = LintCode.DOES_NOT_COMPILE if problem.is_expression else ManifestCode.INVALID_FIELD
                yield self._finding(problem.path, error(code, 0, problem.sentence))
        base = CLAIM_SPECS.get(str(self._item.get("kind")))
        if base is not None:
            yield from self._same_alternatives((*base, "devices", "requests"))
            yield from self._preferences((*base, "devices", "config"))
        elif self._item.get("kind") == _CLASS:
            yield from self._preferences(("spec", "config"))
        elif self._item.get("kind") == _TAINT_RULE:
            yield from self._unselective_rule()

    def _problems(self, *, beside_counters: bool) -> Iterator[Problem]:
        """Yield what an API server would refuse.  Expressions are left to the lint of expressions, but for those in slices."""
        value, kind = self._item, self._item.get("kind")
        if isinstance(kind, str) and kind in WITH_PODS and not str(value.get("apiVersion")).startswith(GROUP):
            yield from schema_problems(kind, value)
            return
        if kind not in KINDS:
            if kind not in _UNCHECKED_KINDS:
                close = difflib.get_close_matches(str(kind), KINDS, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"expected one of {', '.join(KINDS)}"
                yield Problem(("kind",), f"unknown kind {shown(kind)}; {hint}")
            return
        if value.get("apiVersion") not in (_RULE_VERSIONS if kind == _TAINT_RULE else _SAME_FIELDS):
            # Rules between fields are left to the API server, which converts the object.
            if value.get("apiVersion") == _V1BETA1 and kind in V1BETA1_KINDS:
                yield from wrong_fields(kind, value, V1BETA1_KINDS)
            return
        for problem in schema_problems(kind, value):
            if kind == SLICE or problem.path[-1:] != _EXPRESSION[-1:]:
                yield problem
        spec = value.get("spec")
        if kind == SLICE and isinstance(spec, dict) and not (beside_counters or None in map(spec.get, _EITHER)):
            yield Problem(("spec",), _ONE_KIND)

    def _finding(self, path: FieldPath, finding: LintFinding) -> PlacedFinding:
        return placed(self._file.name, self._document.position_of(path), self._name, finding, path_text(path))

    def _preferences(self, config: FieldPath) -> Iterator[PlacedFinding]:
        """Yield the parameters of our domain that are no preferences: they are ignored."""
        for index, _ in enumerate(list_at(self._item, config)):
            path = (*config, index, "opaque")
            if value_at(self._item, (*path, "driver")) != DOMAIN:
                continue
            try:
                read_preferences(msgspec.json.encode(value_at(self._item, (*path, "parameters"))))
            except (PreferencesError, TypeError, ValueError) as problem:
                text = f"these preferences are ignored: {problem}"
                yield self._finding((*path, "parameters"), error(ManifestCode.INVALID_FIELD, 0, text))

    def _unselective_rule(self) -> Iterator[PlacedFinding]:
        """Yield a warning about a taint rule for every device, which API servers store, and about a rule for no device."""
        spec, selector = value_at(self._item, ("spec",)), value_at(self._item, _SELECTOR)
        if isinstance(selector, dict) and all(value is None for value in selector.values()):
            text = "deviceSelector is empty: the rule taints every device of every driver"
            yield self._finding(_SELECTOR, warning(ManifestCode.EVERY_DEVICE, 0, text, "driver, pool or device"))
        elif isinstance(spec, dict) and selector is None:
            text = "without deviceSelector, the rule taints no device; for kube-schedulers up to 1.37.0 it taints every device"
            yield self._finding(
                ("spec",), warning(ManifestCode.NO_EFFECT, 0, text, "driver, pool or device in deviceSelector")
            )

    def _same_alternatives(self, requests: FieldPath) -> Iterator[PlacedFinding]:
        """Yield the alternatives that ask for the same as an earlier alternative of their request, or for more: never taken."""
        constraints = list_at(self._item, (*requests[:-1], "constraints"))
        constrained = {
            str(name).partition("/")[0]
            for constraint in constraints
            for name in list_at(constraint, ("requests",))
            if "/" in str(name)
        }
        for index, request in enumerate(list_at(self._item, requests)):
            if str(value_at(request, ("name",))) in constrained:
                # What a constraint asks only of one alternative, another may satisfy.
                continue
            path, earlier = (*requests, index, "firstAvailable"), list[Alternative]()
            for number, body in enumerate(list_at(self._item, path)):
                alternative = Alternative.read(body)
                if alternative is None:
                    continue
                asks = next(filter(None, (alternative.asks_for_no_less_than(other) for other in earlier)), "")
                if asks:
                    text = f"this alternative asks for {asks}: it is never taken"
                    yield self._finding((*path, number), warning(ManifestCode.SAME_ALTERNATIVE, 0, text))
                earlier.append(alternative)

    def _annotations(self) -> dict[str, Any]:
        annotations = value_at(self._item, ANNOTATIONS)
        return annotations if isinstance(annotations, dict) else {}

    def _requests(self, base: FieldPath) -> Iterator[Expression]:
        requests = (*base, "devices", "requests")
        for index, request in enumerate(list_at(self._item, requests)):
            place = (*requests, index)
            if not isinstance(request, dict):
                continue
            yield from self._body((*place, "exactly") if "exactly" in request else place)
            for number, _ in enumerate(list_at(self._item, (*place, "firstAvailable"))):
                yield from self._body((*place, "firstAvailable", number))

    def _body(self, path: FieldPath) -> Iterator[Expression]:
        class_name = str(value_at(self._item, (*path, "deviceClassName")) or "")
        selectors = list(self._selectors((*path, "selectors"), class_name))
        yield from selectors
        earlier = tuple(selector.value for selector in selectors if selector.value is not None)
        derived = (*path, "derivedAttributes")
        for index, _ in enumerate(list_at(self._item, derived)):
            yield self._expression((*derived, index, "expression"), class_name, earlier, condition=False)

    def _selectors(self, path: FieldPath, class_name: str | None) -> Iterator[Expression]:
        earlier: list[str] = []
        for index, selector in enumerate(list_at(self._item, path)):
            if isinstance(selector, dict) and "cel" in selector:
                expression = self._expression((*path, index, *_EXPRESSION), class_name, tuple(earlier), condition=True)
                yield expression
                earlier.append(expression.value or "")

    def _expression(
        self, path: FieldPath, class_name: str | None, earlier: tuple[str, ...], *, condition: bool
    ) -> Expression:
        value = value_at(self._item, path)
        node = node_at(self._document.root, path)
        scalar = written(self._file.text, node) if isinstance(node, yaml.ScalarNode) else None
        return Expression(
            value=value if isinstance(value, str) else None,
            subject=self._name,
            field=path_text(path),
            line=self._document.position_of(path).line,
            written=scalar,
            class_name=class_name,
            earlier=earlier,
            condition=condition,
        )

    def _expectation(self) -> ExpectedFindings | None:
        annotations = self._annotations()
        if LINT in annotations:
            where = self._document.position_of((*ANNOTATIONS, LINT))
            value = str(annotations[LINT])
            word, _, codes_text = value.partition(":")
            codes = frozenset(code.strip() for code in codes_text.split(",") if code.strip())
            known = {*LintCode, *ManifestCode}
            unknown = sorted(codes - known)
            if word.strip() != _EXPECT or unknown:
                raise YamlError(
                    f"{self._name}: annotation {LINT}: expected `expect`, or `expect:` and findings out of "
                    f"{', '.join(sorted(known))}; found {value!r}",
                    where,
                )
            return ExpectedFindings(codes, required=True)
        return ExpectedFindings(frozenset(), required=False) if annotations.get(DEMO) == _UNCHECKED else None


def object_label(item: Mapping[str, Any]) -> str:
    """Return kind and name of an object, by which findings call it."""
    return f"{item.get('kind')} {_own_name(item)}".strip()


def _own_name(item: Mapping[str, Any]) -> str:
    metadata = item.get("metadata")
    return str(metadata.get("name", "")) if isinstance(metadata, dict) else ""


def is_checked(value: Any) -> bool:
    """Return whether this is an object of resource.k8s.io, or one whose pods may have claims."""
    if not isinstance(value, dict):
        return False
    version = value.get("apiVersion")
    return str(version).startswith(GROUP) or version in WITH_PODS.get(str(value.get("kind")), ())


def as_v1(value: Any) -> Any:
    """Return a claim, claim template or slice of v1beta1 or v1beta2 as v1 has it, and anything else as it is.

    v1beta2 has the fields of v1.  In v1beta1, a request has the fields of `exactly`, and most fields of a device are in `basic`.
    """
    if not isinstance(value, dict) or value.get("apiVersion") not in (_V1BETA1, _V1BETA2):
        return value
    converted: dict[str, Any] = {**deepcopy(value), "apiVersion": _V1}
    if value["apiVersion"] == _V1BETA1:
        spec = CLAIM_SPECS.get(str(value.get("kind")), ())
        for request in list_at(converted, (*spec, "devices", "requests")):
            if isinstance(request, dict) and not request.keys() & {"exactly", "firstAvailable"}:
                request["exactly"] = {field: request.pop(field) for field in list(request) if field != "name"}
        for device in list_at(converted, ("spec", "devices")):
            if isinstance(device, dict) and isinstance(device.get("basic"), dict):
                device.update(device.pop("basic"))
    return converted


def value_at(value: Any, path: FieldPath) -> Any:
    for step in path:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int):
            value = value[step] if step < len(value) else None
        else:
            return None
    return value


def list_at(value: Any, path: FieldPath) -> list[Any]:
    items = value_at(value, path)
    return items if isinstance(items, list) else []
