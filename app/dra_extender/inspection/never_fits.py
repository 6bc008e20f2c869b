"""What claims in files ask for and no node of a cluster could give, even if nobody held a device."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any, Final, NamedTuple

from dra_extender.allocator.state.rejection import Code
from dra_extender.cel.lint.findings import LintCode, warning
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.objects import ClusterObjects, Origin, require
from dra_extender.inspection.what_if.changes import ChangeError, WrittenObject, read_object
from dra_extender.inspection.what_if.copied_cluster import CopiedCluster, generate_claims
from dra_extender.inspection.why.reasons import Reasons
from dra_extender.inspection.why.report import Branch
from dra_extender.lint.manifests import objects_in, value_at
from dra_extender.lint.pools import PlacedFinding
from dra_extender.manifests.documents import FieldPath, YamlDocument, YamlError, read_documents
from dra_extender.manifests.problems import path_text
from dra_extender.simulator.apiserver.objects import NAMESPACE, Json, Key, StoredKind

_DEVICES: Final = frozenset({"nodes", "deviceclasses", "devicetaintrules", "resourceslices"})
"""The kinds of a cluster that count here: without pods and claims, nobody holds a device."""
_REQUESTS: Final[dict[str, FieldPath]] = {
    StoredKind.CLAIM: ("spec", "devices", "requests"),
    StoredKind.TEMPLATE: ("spec", "spec", "devices", "requests"),
}
_ALTERNATIVES: Final = "firstAvailable"
_PASSING: Final = frozenset({Code.TAINTED, Code.POOL_INCOMPLETE, Code.SEARCH_LIMIT, Code.TOO_MUCH})
"""Reasons that may be gone soon."""
_OF_PODS: Final = frozenset({Code.CLAIM_NOT_CREATED, Code.CLAIM_UNREADABLE, Code.CLAIM_MISSING})
_NO_CLUSTER: Final = ClusterObjects(Origin(source="these files", taken_at=0.0), {})
_ENTRY: Final = "devices"
_MOST_QUESTIONS: Final = 500
"""Claims, and alternatives of requests, that are looked at."""


class _Question(NamedTuple):
    """What a claim or a template asks for: as a whole, or with one alternative alone in the place of a request."""

    file: str
    document: YamlDocument
    written: WrittenObject
    field: FieldPath = ()

    @property
    def item(self) -> Json:
        """The claim or template with nothing but the alternative in its request."""
        item = deepcopy(self.written.item)
        if self.field:
            *request, _, number = self.field
            alternatives: list[Json] = value_at(item, (*request, _ALTERNATIVES))
            alternatives[:] = [alternatives[int(number)]]
        return item


def never_fits(objects: ClusterObjects | None, texts: Iterable[tuple[str, str]]) -> Iterator[PlacedFinding]:
    """Yield a warning for each claim and claim template that fits no node, and for each alternative that does so by itself.

    Args:
        objects: The cluster; None: the devices of the ResourceSlices in the files, where there are any.
        texts: Names and texts of the files.  Objects that cannot be read are left out.

    Raises:
        UnreadKindsError: nodes, classes, slices or taint rules of the cluster could not be read.
    """
    files = [list(_read(name, text)) for name, text in texts]
    if objects is not None:
        require(objects.origin, _DEVICES)
        everything = [written for file in files for written in file]
        yield from _never_fits(objects, everything, everything)
        return
    # A folder may hold several clusters: a file with slices is one.
    with_slices = [file for file in files if any(each.written.kind == StoredKind.SLICE for each in file)]
    for file in with_slices:
        yield from _never_fits(_NO_CLUSTER, file, file)
    if with_slices:
        everything = [written for file in files for written in file]
        others = [written for file in files if file not in with_slices for written in file]
        yield from _never_fits(_NO_CLUSTER, everything, others)


def _never_fits(
    objects: ClusterObjects, written: Sequence[_Question], asking: Sequence[_Question]
) -> Iterator[PlacedFinding]:
    """Yield the findings about the claims among `asking`, with the devices of the cluster and of all objects that are `written`."""
    kept = {kind: found for kind, found in objects.by_kind.items() if kind in _DEVICES}
    copy = CopiedCluster(objects._replace(by_kind=kept, holds=None))
    for each in written:
        if each.written.kind in _DEVICES:
            copy.put(StoredKind(each.written.kind), each.written.item)
    for each in written:
        if each.written.kind == StoredKind.SLICE:
            _add_node(copy, each.written.item["spec"].get("nodeName"))
    questions = [question for each in asking for question in _questions(each)][:_MOST_QUESTIONS]
    for number, question in enumerate(questions):
        _ask(copy, f"lint-{number}", question)
    generate_claims(copy)
    view = ClusterView(copy.objects(), cluster=copy.cluster)
    hopeless: set[tuple[str, str]] = set()
    for number, question in enumerate(questions):
        place = (question.file, question.written.place)
        finding = None if place in hopeless else _finding(view, f"lint-{number}", question)
        if finding is not None:
            yield finding
            if not question.field:
                hopeless.add(place)


def _read(file: str, text: str) -> Iterator[_Question]:
    with suppress(YamlError):
        for document in read_documents(text):
            for path in objects_in(document.value):
                item = document.inside(path) if path else document
                with suppress(ChangeError):
                    yield _Question(file, item, read_object(file, item, NAMESPACE))


def _questions(whole: _Question) -> Iterator[_Question]:
    """Yield the claim as a whole, then each alternative of a request that has several."""
    if whole.written.kind not in _REQUESTS:
        return
    yield whole
    requests = _REQUESTS[whole.written.kind]
    for index, request in enumerate(value_at(whole.written.item, requests) or ()):
        alternatives = request.get(_ALTERNATIVES) or ()
        for number in range(len(alternatives)) if len(alternatives) > 1 else ():
            yield whole._replace(field=(*requests, index, _ALTERNATIVES, number))


def _add_node(copy: CopiedCluster, name: str | None) -> None:
    """Add the node that a slice in a file names, if it is not there: such files leave nodes out."""
    if name and copy.store.peek(Key(StoredKind.NODE, "", name)) is None:
        copy.put(StoredKind.NODE, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {}})


def _ask(copy: CopiedCluster, name: str, question: _Question) -> None:
    """Add a pod that uses the claim, or a claim from the template."""
    kind, item = StoredKind(question.written.kind), question.item
    item["metadata"] = {"name": name, "namespace": NAMESPACE}
    item.pop("status", None)
    copy.put(kind, item)
    field = "resourceClaimName" if kind is StoredKind.CLAIM else "resourceClaimTemplateName"
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"containers": [], "resourceClaims": [{"name": _ENTRY, field: name}]},
        "status": {"phase": "Pending"},
    }
    copy.put(StoredKind.POD, pod)


def _finding(view: ClusterView, pod_name: str, question: _Question) -> PlacedFinding | None:
    """Return the finding if no node can ever give what is asked for."""
    pod = view.pod(NAMESPACE, pod_name)
    result = None if pod is None else view.evaluate(pod)
    if pod is None or result is None or result.fits or result.codes & (_PASSING | _OF_PODS):
        return None
    if Code.CLASS_MISSING in result.codes and view.origin == _NO_CLUSTER.origin:
        # The class may be in the cluster for which the files are.
        return None
    reasons = Reasons(view, pod, result)
    branch = next(iter(reasons.branches()), None)
    if branch is None:
        # There are no nodes.
        return None
    steps = reasons.steps()
    what = "this alternative fits" if question.field else "fits"
    message = f"{what} no node of {view.origin.source}, even if nobody held a device: {_told(branch)}"
    position = question.document.position_of(question.field)
    advice = steps[0].text if steps else ""
    finding = warning(LintCode.NEVER_FITS, 0, message, advice)
    label = f"{StoredKind(question.written.kind).singular} {question.written.key[1]}"
    return PlacedFinding(question.file, position, label, finding, path_text(question.field))


def _told(branch: Branch) -> str:
    """Return the closest reason with its details."""
    closest = branch.reasons[0]
    details = [closest.text]
    if closest.nearest is not None and closest.nearest.detail:
        details.append(closest.nearest.detail)
    if closest.count is not None:
        details.append(f"at most {closest.count.available} of {closest.count.wanted} devices, on {closest.count.node}")
    of_request = f"request {branch.request}: " if branch.request else ""
    return of_request + "; ".join(details)
