"""The claims that kube-controller-manager makes from templates for pods and PodGroups, in a copy of the objects."""

from typing import Any, Final

from dra_extender.inspection.what_if.working_copy import Json, WorkingCopy
from dra_extender.manifests.api_defaults import fill_in
from dra_extender.model.api_json import ModelError, decode_object
from dra_extender.model.pod_group import POD_GROUP_KIND
from dra_extender.model.resource_claim import read_claim
from dra_extender.model.templated_claim import ClaimTemplate, Owner, claim_from, read_template

_TEMPLATES: Final = "resourceclaimtemplates"
_CLAIMS: Final = "resourceclaims"
_GROUPS: Final = "podgroups"
_PODS: Final = "pods"


def generate_claims(copy: WorkingCopy) -> None:
    """Make the claims that waiting pods, and PodGroups, lack.  One whose template is not there or unreadable is left out."""
    for group in copy.all(_GROUPS):
        generate_for_group(copy, group)
    for namespace, name in copy.keys(_PODS):
        data = copy.data(_PODS, namespace, name) or b""
        if b'"resourceClaims"' in data:
            pod = decode_object("Pod", data)
            if not (pod["spec"].get("nodeName") or "deletionTimestamp" in pod["metadata"]):
                generate_for_pod(copy, pod)


def generate_for_group(copy: WorkingCopy, group: Json) -> None:
    """Make the claims of the PodGroup's template entries, and record them in its status."""
    owner = _owner(group, group.get("apiVersion") or "scheduling.k8s.io/v1beta1", POD_GROUP_KIND)
    made = _make(copy, owner, group, {})
    if made:
        copy.put(_GROUPS, _recorded(group, made))


def generate_for_pod(copy: WorkingCopy, pod: Json) -> Json:
    """Make the claims of the pod's template entries, and record them in its status; returns the pod as it is then.

    An entry that its PodGroup has too stands for the claim of the group.
    """
    made = _make(copy, _owner(pod, "v1", "Pod"), pod, _of_group(copy, pod))
    if not made:
        return pod
    return decode_object("Pod", copy.put(_PODS, _recorded(pod, made)))


def _make(copy: WorkingCopy, owner: Owner, item: Json, of_group: dict[str, str]) -> dict[str, str]:
    """The names of the claims by the entries that had none on record."""
    recorded = {
        each.get("name")
        for each in (item.get("status") or {}).get("resourceClaimStatuses") or ()
        if not each.get("resourceClaimName") or copy.has(_CLAIMS, owner.namespace, each["resourceClaimName"])
    }
    made = {}
    for entry in (item.get("spec") or {}).get("resourceClaims") or ():
        name = entry.get("name", "")
        template = entry.get("resourceClaimTemplateName")
        if not template or name in recorded:
            continue
        claim = of_group.get(name) or _generated(copy, owner, name, template)
        if claim:
            made[name] = claim
    return made


def _generated(copy: WorkingCopy, owner: Owner, entry: str, template: str) -> str:
    """The name of the claim that is made for this entry, empty if that is impossible."""
    data = copy.data(_TEMPLATES, owner.namespace, template)
    found = None if data is None else _readable(data)
    if found is None:
        return ""
    try:
        data = claim_from(found, owner, entry)
        read_claim(data)
    except ModelError:
        return ""
    claim = decode_object("ResourceClaim", data)
    fill_in(_CLAIMS, claim)
    metadata, base, number = claim["metadata"], claim["metadata"]["name"], 0
    while (there := copy.find(_CLAIMS, owner.namespace, metadata["name"])) is not None:
        if any(each.get("uid") == owner.uid for each in there["metadata"].get("ownerReferences") or ()):
            return str(metadata["name"])
        number += 1
        metadata["name"] = f"{base}-{number}"
    copy.put(_CLAIMS, claim)
    return str(metadata["name"])


def _readable(data: bytes) -> ClaimTemplate | None:
    try:
        return read_template(data)
    except ModelError:
        return None


def _of_group(copy: WorkingCopy, pod: Json) -> dict[str, str]:
    """By entry of the pod: the claim of its PodGroup for which it stands (KEP-5729: the group has an equal entry)."""
    named = pod["spec"].get("schedulingGroup") or pod["spec"].get("workloadRef") or {}
    name = named.get("podGroupName") or named.get("podGroup")
    group = copy.find(_GROUPS, pod["metadata"]["namespace"], name) if name else None
    if group is None:
        return {}
    recorded: dict[str, Any] = {
        each.get("name"): each.get("resourceClaimName")
        for each in (group.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    shared = (group.get("spec") or {}).get("resourceClaims") or ()
    return {
        entry["name"]: recorded[entry["name"]]
        for entry in pod["spec"].get("resourceClaims") or ()
        if entry in shared and recorded.get(entry.get("name"))
    }


def _owner(item: Json, api_version: str, kind: str) -> Owner:
    metadata = item["metadata"]
    return Owner(api_version, kind, metadata.get("namespace", ""), metadata["name"], metadata["uid"])


def _recorded(item: Json, made: dict[str, str]) -> Json:
    status = item.get("status") or {}
    kept = [each for each in status.get("resourceClaimStatuses") or () if each.get("name") not in made]
    entries = [{"name": entry, "resourceClaimName": claim} for entry, claim in made.items()]
    return {**item, "status": {**status, "resourceClaimStatuses": [*kept, *entries]}}
