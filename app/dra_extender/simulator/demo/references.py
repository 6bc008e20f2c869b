"""What looks doubtful in the documents of a story: names that no document has, and pods that nobody schedules."""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from dra_extender.manifests.api_defaults import DEFAULT_SCHEDULER, bodies
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind, group_name, part
from dra_extender.simulator.demo.document import Action, Document, ManifestProblem
from dra_extender.simulator.scheduler.loop import foreign_scheduler

_CLAIM_FIELDS: Final = {
    "resourceClaimName": StoredKind.CLAIM,
    "resourceClaimTemplateName": StoredKind.TEMPLATE,
}


def doubts(documents: Sequence[Document], scheduler_names: Sequence[str]) -> Iterator[ManifestProblem]:
    """Yield a warning for each name that no document has, and for each pod whose scheduler is none of these."""
    known = {key for document in documents for key in document.keys}
    nodes = {key.name for key in known if key.kind is StoredKind.NODE}
    for document in documents:
        if document.action is not Action.DELETE:
            yield from _unknown_names(document, known, nodes)
            if document.key.kind is StoredKind.POD and not document.runs_already:
                yield from _foreign(document, scheduler_names)


def _unknown_names(document: Document, known: AbstractSet[Key], nodes: AbstractSet[str]) -> Iterator[ManifestProblem]:
    for field, key in _references(document.key, document.thing):
        if key not in known:
            yield _doubt(document, field, f"no {key.kind.singular} {key.name!r} is in these files")
    for each in (document.expect, document.expect_at_end):
        if each is not None and each.node is not None and each.node not in nodes:
            yield _doubt(document, "", f"no Node {each.node!r} is in these files, and the pod is expected there")


def _foreign(document: Document, scheduler_names: Sequence[str]) -> Iterator[ManifestProblem]:
    name = part(document.thing, "spec").get("schedulerName") or DEFAULT_SCHEDULER
    if name not in scheduler_names:
        yield _doubt(document, "spec.schedulerName", foreign_scheduler(name, scheduler_names))


def _doubt(document: Document, field: str, text: str) -> ManifestProblem:
    return ManifestProblem(document.file, document.position, document.subject, field, text, warning=True)


def _references(key: Key, thing: Json) -> Iterator[tuple[str, Key]]:
    match key.kind:
        case StoredKind.CLAIM:
            yield from _classes_of(part(thing, "spec"))
        case StoredKind.TEMPLATE:
            yield from _classes_of(part(thing, "spec", "spec"))
        case StoredKind.POD:
            group = group_name(thing)
            if group:
                field = "schedulingGroup" if "schedulingGroup" in thing["spec"] else "workloadRef"
                yield f"spec.{field}.podGroupName", Key(StoredKind.POD_GROUP, key.namespace, group)
            yield from _claims_of(key.namespace, part(thing, "spec"))
        case StoredKind.POD_GROUP:
            yield from _claims_of(key.namespace, part(thing, "spec"))
        case _:
            pass


def _classes_of(claim_spec: Json) -> Iterator[tuple[str, Key]]:
    for name in sorted({body["deviceClassName"] for body in bodies(claim_spec)}):
        yield "deviceClassName", Key(StoredKind.CLASS, "", name)


def _claims_of(namespace: str, spec: Json) -> Iterator[tuple[str, Key]]:
    for entry in spec.get("resourceClaims") or []:
        for field, kind in _CLAIM_FIELDS.items():
            if entry.get(field):
                yield f"spec.resourceClaims.{field}", Key(kind, namespace, entry[field])
