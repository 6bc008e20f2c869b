"""What becomes of claims when a pod ends: as kube-controller-manager and the garbage collector leave them."""

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from dra_extender.inspection.what_if.report import ClaimFate, Fate
from dra_extender.inspection.what_if.working_copy import Json, WorkingCopy
from dra_extender.model.snapshot import SNAPSHOT_ANNOTATION

_PODS: Final = "pods"
_CLAIMS: Final = "resourceclaims"


def end_pod(copy: WorkingCopy, pod: Json) -> tuple[ClaimFate, ...]:
    """Take the pod away, and release what only it holds; returns what became of its claims, by name.

    Claims that the pod owns are deleted.  Other claims lose the pod's reservation, and with the last one their allocation.  An
    allocation that is reserved for a PodGroup stays.
    """
    metadata = pod["metadata"]
    copy.remove(_PODS, metadata["namespace"], metadata["name"])
    return tuple(_released(copy, metadata["uid"]))


def _released(copy: WorkingCopy, uid: str) -> Iterator[ClaimFate]:
    for namespace, name in copy.claims_of(uid):
        claim = copy.find(_CLAIMS, namespace, name)
        if claim is None:
            continue
        status = claim.get("status") or {}
        left = [each for each in status.get("reservedFor") or () if each.get("uid") != uid]
        if _owned_by(claim, uid) and not left:
            copy.remove(_CLAIMS, namespace, name)
            yield ClaimFate(claim=name, fate=Fate.DELETED)
        elif left:
            copy.put(_CLAIMS, {**claim, "status": {**status, "reservedFor": left}})
            users = tuple(f"{namespace}/{each.get('name', '')}" for each in left)
            yield ClaimFate(claim=name, fate=Fate.KEPT, users=users)
        else:
            copy.put(_CLAIMS, without_allocation(claim))
            yield ClaimFate(claim=name, fate=Fate.RELEASED)


def without_allocation(claim: Json) -> Json:
    """The claim as it is when nothing is allocated to it."""
    metadata = claim["metadata"]
    annotations = {
        name: text for name, text in (metadata.get("annotations") or {}).items() if name != SNAPSHOT_ANNOTATION
    }
    return {**claim, "metadata": {**metadata, "annotations": annotations}, "status": {}}


def evict_pod(copy: WorkingCopy, pod: Json, created: str) -> tuple[ClaimFate, ...]:
    """End the pod, and add one of the same name and spec that waits since `created` (RFC 3339); what became of its claims.

    Its controller would give it another name.
    """
    fates = tuple(
        replace(each, fate=Fate.GENERATED) if each.fate is Fate.DELETED else each for each in end_pod(copy, pod)
    )
    metadata = {name: value for name, value in pod["metadata"].items() if name != "deletionTimestamp"}
    metadata.update(uid=f"{metadata['uid']}-evicted", creationTimestamp=created)
    spec = {name: value for name, value in pod["spec"].items() if name != "nodeName"}
    copy.put(_PODS, {**pod, "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})
    return fates


def stays_on_its_node(pod: Json) -> bool:
    """Whether a drain leaves the pod where it is: it has ended, or belongs to a DaemonSet or to the node (a static pod)."""
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return True
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(each.get("kind") in ("DaemonSet", "Node") for each in owners)


def _owned_by(claim: Json, uid: str) -> bool:
    return any(each.get("uid") == uid for each in claim["metadata"].get("ownerReferences") or ())
