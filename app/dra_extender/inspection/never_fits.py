"""What claims in files ask for, and classes mean, and no node of a cluster could give, even if nobody held a device."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any, Final, NamedTuple

import msgspec

from dra_extender.allocator.state.reasons import Code
from dra_extender.cel.lint.findings import warning
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.objects import ClusterObjects, Origin, require
from dra_extender.inspection.unknown_names import CLAIM_SOURCES
from dra_extender.inspection.what_if.changes import ChangeError, WrittenObject, read_object
from dra_extender.inspection.what_if.copied_cluster import CopiedCluster, generate_claims
from dra_extender.inspection.why.reasons import Reasons
from dra_extender.lint.codes import ManifestCode
from dra_extender.lint.read import LintFile, PlacedFinding, as_v1, placed, value_at
from dra_extender.manifests.api_defaults import bodies, fill_in
from dra_extender.manifests.documents import FieldPath, YamlDocument
from dra_extender.manifests.problems import path_text
from dra_extender.model.metadata import Moment
from dra_extender.simulator.apiserver.objects import NAMESPACE, Json, Key, StoredKind

_DEVICES: Final = frozenset({"nodes", "deviceclasses", "devicetaintrules", "resourceslices"})
"""The kinds of a cluster that count here: without pods and claims, nobody holds a device."""
_REQUESTS: Final[dict[str, FieldPath]] = {
    StoredKind.CLAIM: ("spec", "devices", "requests"),
    StoredKind.TEMPLATE: ("spec", "spec", "devices", "requests"),
}
_FIRST_AVAILABLE: Final = "firstAvailable"
_ENTRIES: Final[FieldPath] = ("spec", "resourceClaims")
_WHOLE, _OF_CLASS, _ALTERNATIVE, _TOGETHER = (
    "fits",
    "a claim for one device of this class fits",
    "this alternative fits",
    "each claim of this pod fits by itself, but together they fit",
)
_PASSING: Final = frozenset({Code.TAINTED, Code.POOL_INCOMPLETE, Code.SEARCH_LIMIT, Code.TOO_MUCH})
"""Reasons that may be gone soon."""
_OF_PODS: Final = frozenset({Code.CLAIM_NOT_CREATED, Code.CLAIM_UNREADABLE, Code.CLAIM_MISSING})
_OF_NO_CLUSTER: Final = frozenset({Code.TOO_MANY_DEVICES})
"""Reasons that lint gives without a cluster."""
_NO_CLUSTER: Final = ClusterObjects(Origin(source="these files", taken_at=Moment(0)), {})
_MOST_QUESTIONS: Final = 500
"""Claims, alternatives of requests, and pods that are asked."""


class _Written(NamedTuple):
    file: str
    document: YamlDocument
    written: WrittenObject

    @property
    def place(self) -> tuple[str, str]:
        return self.file, self.written.place


class _Question(NamedTuple):
    """Claims and templates that one pod asks for, and the field of the object that they come from.

    A question is about a claim as a whole, about a claim with one alternative in the place of a request, about all claims of a
    pod together, or about a claim for one device of a class.
    """

    subject: _Written
    what: str
    field: FieldPath
    claims: Sequence[tuple[StoredKind, Json]]
    places: Sequence[tuple[str, str]]
    """Where the claims stand: nothing is said of the question if one of the claims fits no node by itself."""


def never_fits(
    objects: ClusterObjects | None, files: Iterable[LintFile], namespace: str = NAMESPACE
) -> Iterator[PlacedFinding]:
    """Yield a warning for each claim and claim template that fits no node, and for each alternative that does so by itself.

    Also yield a warning for each pod whose claims fit each by itself, but no node together, and for each class that no claim of
    the files asks for and no device is of.

    Args:
        objects: The cluster; None: the devices of the ResourceSlices in the files, where there are any.
        files: Objects in them that cannot be read are left out.
        namespace: Where objects are whose files name none.

    Raises:
        UnreadKindsError: nodes, classes, slices or taint rules of the cluster could not be read.
    """
    by_file: list[list[_Written]] = []
    for file in files:
        by_file.append([])
        for document in file.objects:
            with suppress(ChangeError):
                in_v1 = msgspec.structs.replace(document, value=as_v1(document.value))
                by_file[-1].append(_Written(file.name, document, read_object(file.name, in_v1, namespace)))
    everything = [written for objects_of_file in by_file for written in objects_of_file]
    if objects is not None:
        require(objects.origin, _DEVICES)
        yield from _never_fits(objects, everything, everything)
        return
    # A folder may hold several clusters: a file with slices is one.
    without_slices = list[_Written]()
    for objects_of_file in by_file:
        if any(entry.written.kind is StoredKind.SLICE for entry in objects_of_file):
            yield from _never_fits(_NO_CLUSTER, objects_of_file, objects_of_file)
        else:
            without_slices += objects_of_file
    if len(without_slices) < len(everything):
        yield from _never_fits(_NO_CLUSTER, everything, without_slices)


def _never_fits(
    objects: ClusterObjects, written: Sequence[_Written], asking: Sequence[_Written]
) -> Iterator[PlacedFinding]:
    """Yield the findings about the claims among `asking`, with the devices of the cluster and of all objects that are `written`."""
    device_kinds = {kind: items for kind, items in objects.by_kind.items() if kind in _DEVICES}
    copy = CopiedCluster(objects._replace(by_kind=device_kinds, holds=None))
    for entry in written:
        if entry.written.kind in _DEVICES:
            copy.put(entry.written.kind, entry.written.item)
    for entry in written:
        if entry.written.kind == StoredKind.SLICE:
            # Such files leave nodes out.
            name = entry.written.item["spec"].get("nodeName")
            if name and copy.store.peek(Key(StoredKind.NODE, "", name)) is None:
                copy.put(StoredKind.NODE, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {}})
    claims = {(entry.written.kind, entry.written.key): entry for entry in written if entry.written.kind in _REQUESTS}
    asked_for = {name for claim in claims.values() for name in _classes_of(claim.written)}
    questions = [
        _of_class(entry)
        for entry in asking
        if entry.written.kind == StoredKind.CLASS and entry.written.key[1] not in asked_for
    ]
    questions += [question for entry in asking for question in _of_claim(entry)]
    questions += [question for entry in asking for question in _of_pod(entry, claims)]
    for number, question in enumerate(questions[:_MOST_QUESTIONS]):
        _ask(copy, f"lint-{number}", question)
    generate_claims(copy)
    view = ClusterView(copy.objects(), cluster=copy.cluster)
    hopeless: set[tuple[str, str]] = set()
    for number, question in enumerate(questions[:_MOST_QUESTIONS]):
        finding = None if hopeless.intersection(question.places) else _finding(view, f"lint-{number}", question)
        if finding is not None:
            yield finding
            hopeless.update(() if question.what == _ALTERNATIVE else question.places)
    if len(questions) > _MOST_QUESTIONS:
        message = f"not asked whether it fits a node: at most {_MOST_QUESTIONS} claims, alternatives and pods are asked"
        yield _placed(questions[_MOST_QUESTIONS], message, "fewer files at a time")


def _classes_of(claim: WrittenObject) -> Iterator[str]:
    """Yield the classes that the requests of a claim or claim template name."""
    for body in bodies(value_at(claim.item, _REQUESTS[claim.kind][:-2])):
        yield str(body.get("deviceClassName"))


def _of_class(device_class: _Written) -> _Question:
    """Return the question about a claim for one device of a class."""
    _, name = device_class.written.key
    claim: Json = {"apiVersion": "resource.k8s.io/v1", "kind": StoredKind.CLAIM.singular, "metadata": {"name": name}}
    claim["spec"] = {"devices": {"requests": [{"name": "device", "exactly": {"deviceClassName": name}}]}}
    fill_in(StoredKind.CLAIM, claim)
    return _Question(device_class, _OF_CLASS, (), ((StoredKind.CLAIM, claim),), (device_class.place,))


def _of_claim(claim: _Written) -> Iterator[_Question]:
    """Yield the claim as a whole, then each alternative of a request that has several."""
    if claim.written.kind not in _REQUESTS:
        return
    kind, item, places = claim.written.kind, claim.written.item, (claim.place,)
    requests = _REQUESTS[kind]
    yield _Question(claim, _WHOLE, (), ((kind, item),), places)
    for index, request in enumerate(value_at(item, requests) or ()):
        alternatives = request.get(_FIRST_AVAILABLE) or ()
        for number in range(len(alternatives)) if len(alternatives) > 1 else ():
            alone = deepcopy(item)
            value_at(alone, (*requests, index))[_FIRST_AVAILABLE] = [alternatives[number]]
            yield _Question(claim, _ALTERNATIVE, (*requests, index, _FIRST_AVAILABLE, number), ((kind, alone),), places)


def _of_pod(pod: _Written, claims: Mapping[tuple[StoredKind, tuple[str, str]], _Written]) -> Iterator[_Question]:
    """Yield the claims of a pod together, if there are several and all are in the files."""
    if pod.written.kind != StoredKind.POD:
        return
    namespace, _ = pod.written.key
    entries = value_at(pod.written.item, _ENTRIES) or ()
    named = {
        (kind, (namespace, entry[field]))
        for entry in entries
        for field, kind in CLAIM_SOURCES.items()
        if entry.get(field)
    }
    claims_in_files = [claims[key] for key in sorted(named) if key in claims]
    if len(claims_in_files) > 1 and len(claims_in_files) == len(entries):
        requested = [(claim.written.kind, claim.written.item) for claim in claims_in_files]
        yield _Question(pod, _TOGETHER, _ENTRIES, requested, [claim.place for claim in claims_in_files])


def _ask(copy: CopiedCluster, name: str, question: _Question) -> None:
    """Add a pod that uses the claims, or claims from the templates, and calls them by their names, by which advice has them."""
    entries = []
    labels = {item["metadata"]["name"] for _, item in question.claims}
    for index, (kind, item) in enumerate(question.claims):
        own = f"{name}-{index}"
        copy.put(kind, {**item, "metadata": {"name": own, "namespace": NAMESPACE}, "status": {}})
        field = next(field for field, source in CLAIM_SOURCES.items() if source is kind)
        label = item["metadata"]["name"] if len(labels) == len(question.claims) else f"claim-{index}"
        entries.append({"name": label, field: own})
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"containers": [], "resourceClaims": entries},
        "status": {"phase": "Pending"},
    }
    copy.put(StoredKind.POD, pod)


def _finding(view: ClusterView, pod_name: str, question: _Question) -> PlacedFinding | None:
    """Return the finding if no node can ever give what is asked for."""
    pod = view.pod(NAMESPACE, pod_name)
    result = None if pod is None else view.evaluate(pod)
    if pod is None or result is None or result.fits or result.codes & (_PASSING | _OF_PODS | _OF_NO_CLUSTER):
        return None
    if Code.CLASS_MISSING in result.codes and view.origin == _NO_CLUSTER.origin:
        # The class may be in the cluster for which the files are.
        return None
    reasons = Reasons(view, pod, result)
    branch = next(iter(reasons.branches()), None)
    if branch is None:
        # There are no nodes.
        return None
    closest, steps = branch.reasons[0], reasons.steps()
    details = [closest.text]
    if closest.nearest is not None and closest.nearest.detail:
        details.append(closest.nearest.detail)
    if closest.count is not None:
        details.append(f"at most {closest.count.available} of {closest.count.wanted} devices, on {closest.count.node}")
    names_request = branch.request and question.what != _OF_CLASS
    reason = (f"request {branch.request}: " if names_request else "") + "; ".join(details)
    message = f"{question.what} no node of {view.origin.source}, even if nobody held a device: {reason}"
    return _placed(question, message, steps[0].change.text if steps else "")


def _placed(question: _Question, message: str, advice: str) -> PlacedFinding:
    subject, finding = question.subject, warning(ManifestCode.NEVER_FITS, 0, message, advice)
    label = f"{subject.written.kind.singular} {subject.written.key[1]}"
    return placed(subject.file, subject.document.position_of(question.field), label, finding, path_text(question.field))
