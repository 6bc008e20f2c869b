"""How many more copies of a pod fit, and why no further one does."""

from collections import Counter
from typing import Any, Final, NamedTuple

import msgspec

from dra_extender.inspection.what_if.changes import ChangeError
from dra_extender.inspection.what_if.generated_claims import generate_for_pod
from dra_extender.inspection.what_if.outcomes import counted
from dra_extender.inspection.what_if.report import Fill, NodeFill, OutcomeKind
from dra_extender.inspection.what_if.stranded import stranded
from dra_extender.inspection.what_if.trial import Trial
from dra_extender.inspection.what_if.working_copy import Json, Key
from dra_extender.model.api_json import ModelError, decode_object
from dra_extender.model.metadata import time_text
from dra_extender.model.pod import Pod, read_pod

MOST_COPIES: Final = 1_000
"""Copies that are tried; the answer says when the count ends there."""
MOST_SECONDS: Final = 120.0
"""Time after which no further copy is tried."""
_PODS: Final = "pods"
_TEMPLATES: Final = "resourceclaimtemplates"
_OF_GROUPS: Final = ("schedulingGroup", "workloadRef")
_LEFT_OUT: Final = ("nodeName", "schedulingGates", *_OF_GROUPS)


class FillSubject(NamedTuple):
    """The pod that is copied (API JSON), what the answer calls it, and what is different about the copies."""

    pod: Json
    name: str
    notes: tuple[str, ...] = ()


def find_subject(trial: Trial, key: Key) -> FillSubject:
    """The pod of this name; else a pod with one claim from the ResourceClaimTemplate of this name.

    Raises:
        ChangeError: there is neither.
    """
    namespace, name = key
    pod = trial.copy.find(_PODS, namespace, name)
    if pod is not None:
        try:
            read_pod(msgspec.json.encode(pod))
        except ModelError as problem:
            raise ChangeError(f"--fill: pod {namespace}/{name} cannot be read: {problem}") from problem
        grouped = any((pod.get("spec") or {}).get(each) for each in _OF_GROUPS)
        notes = [f"copies of {namespace}/{name} are no members of its PodGroup"] if grouped else []
        entries = (pod.get("spec") or {}).get("resourceClaims") or ()
        shared = ", ".join(sorted(each["resourceClaimName"] for each in entries if each.get("resourceClaimName")))
        if shared:
            notes.append(f"all copies of {namespace}/{name} share what it has by name: {shared}")
        return FillSubject(pod, f"pod {namespace}/{name}", tuple(notes))
    if not trial.copy.has(_TEMPLATES, namespace, name):
        source = trial.copy.origin.source
        raise ChangeError(f"--fill: expected a pod or a ResourceClaimTemplate {namespace}/{name}; {source} has neither")
    entry = {"name": "claim", "resourceClaimTemplateName": name}
    container: dict[str, Any] = {"name": "main", "resources": {"claims": [{"name": "claim"}]}}
    made = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [container], "resourceClaims": [entry]},
    }
    return FillSubject(made, f"a pod with a claim from template {namespace}/{name}")


async def fill(trial: Trial, subject: FillSubject, most: int = MOST_COPIES) -> Fill:
    """Place copies, each with its own claims from templates, until one does not fit, `most` have a node, or the time is up.

    Claims that the pod has by name are shared by all copies.
    """
    nodes: Counter[str] = Counter()
    unjudged: tuple[str, ...] = ()
    monotonic = trial.monotonic
    end = monotonic() + MOST_SECONDS
    for number in range(1, most + 1):
        pod = _copy(trial, subject, number)
        outcome = await trial.place(pod)
        if outcome.kind is not OutcomeKind.LANDS:
            left = stranded(trial, pod)
            return Fill(
                subject=subject.name,
                copies=number - 1,
                nodes=_by_node(nodes),
                reasons=counted(trial.refusals(pod).texts.values()) or outcome.reasons,
                stranded=left.parts,
                stranded_in_part=not left.complete,
                unjudged=unjudged,
            )
        nodes[outcome.node] += 1
        unjudged = outcome.unjudged
        if monotonic() > end:
            break
    return Fill(subject=subject.name, copies=nodes.total(), bounded=True, nodes=_by_node(nodes), unjudged=unjudged)


def _copy(trial: Trial, subject: FillSubject, number: int) -> Pod:
    """The copy of this number, which the ledger knows with its claims."""
    given = subject.pod["metadata"]
    name = f"{given['name']}-fill-{number}"
    while trial.copy.has(_PODS, given["namespace"], name):
        name += "-copy"
    metadata = {
        "name": name,
        "namespace": given["namespace"],
        "labels": given.get("labels") or {},
        "uid": f"what-if-fill-{number}",
        "creationTimestamp": time_text(trial.copy.origin.taken_at),
    }
    spec = {field: value for field, value in subject.pod["spec"].items() if field not in _LEFT_OUT}
    pod: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}
    pod = generate_for_pod(trial.copy, decode_object("Pod", trial.copy.put(_PODS, pod)))
    trial.put_claims(trial.copy.claims_of(metadata["uid"]))
    return trial.put_pod(trial.copy.data(_PODS, given["namespace"], name) or b"{}")


def _by_node(nodes: Counter[str]) -> tuple[NodeFill, ...]:
    return tuple(NodeFill(node=node, copies=copies) for node, copies in sorted(nodes.items()))
