"""Workloads as the pods and PodGroups that their controllers make of them.

The pods of a Deployment, ReplicaSet, StatefulSet or Job called NAME are NAME-0, NAME-1 and so on; annotations of the story belong
into the pod template.  A Workload becomes a PodGroup for each of its templates, called as the template, unless a PodGroup in the
files refers to that template: then the author has made the groups.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from dra_extender.manifests.documents import FieldPath
from dra_extender.simulator.apiserver.objects import Json, StoredKind, part

TEMPLATE: Final[FieldPath] = ("spec", "template")
WORKLOAD: Final = "Workload"
POD_KINDS: Final[Mapping[str, str]] = {
    "Deployment": "apps/v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "Job": "batch/v1",
}
"""Kinds that are expanded into pods, with their API versions."""
KINDS: Final = (*POD_KINDS, WORKLOAD)
_OLD_GANG: Final = "policy"
"""Where drafts and 1.35 have what is `schedulingPolicy` since 1.36."""


def pods_of(item: Json) -> tuple[Json, int]:
    """Return a pod and the number of pods of a Deployment, ReplicaSet, StatefulSet or Job whose fields have been checked."""
    template: Json = part(item, *map(str, TEMPLATE))
    template_metadata = part(template, "metadata")
    metadata = {
        "name": item["metadata"]["name"],
        **({"namespace": item["metadata"]["namespace"]} if item["metadata"].get("namespace") else {}),
        **{field: template_metadata[field] for field in ("labels", "annotations") if template_metadata.get(field)},
    }
    pod = {
        "apiVersion": StoredKind.POD.api_version,
        "kind": StoredKind.POD.singular,
        "metadata": metadata,
        "spec": part(template, "spec"),
    }
    return pod, _replicas(item)


def no_pods_of(item: Json) -> Json:
    """Return a pod with the name of a workload of which only the metadata have been checked."""
    metadata = {field: item["metadata"][field] for field in ("name", "namespace") if item["metadata"].get(field)}
    return {"apiVersion": StoredKind.POD.api_version, "kind": StoredKind.POD.singular, "metadata": metadata, "spec": {}}


def _replicas(item: Json) -> int:
    spec = part(item, "spec")
    if item["kind"] != "Job":
        return 1 if spec.get("replicas") is None else int(spec["replicas"])
    if spec.get("suspend"):
        return 0
    parallelism = spec.get("parallelism")
    at_once = 1 if parallelism is None else int(parallelism)
    completions = spec.get("completions")
    return at_once if completions is None else min(at_once, int(completions))


def pod_groups_of(item: Json, existing: Collection[tuple[str, str]]) -> Iterator[Json]:
    """Yield the PodGroups of a Workload in the form of 1.37; `existing` are workload and template of the PodGroups that exist."""
    for template in _templates(item):
        name = template["name"]
        if (item["metadata"]["name"], name) in existing:
            continue
        policy = template.get("schedulingPolicy") or template.get(_OLD_GANG) or {"basic": {}}
        spec: dict[str, Any] = {"schedulingPolicy": policy}
        if template.get("resourceClaims"):
            spec["resourceClaims"] = template["resourceClaims"]
        metadata = {key: value for key, value in item["metadata"].items() if key in ("namespace", "annotations")}
        yield {
            "apiVersion": StoredKind.POD_GROUP.api_version,
            "kind": StoredKind.POD_GROUP.singular,
            "metadata": {**metadata, "name": name},
            "spec": spec,
        }


def _templates(item: Json) -> list[Json]:
    spec = part(item, "spec")
    return [template for field in ("podGroupTemplates", "podGroups") for template in spec.get(field) or []]


def template_of(group: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return workload and template that a PodGroup was made from, in the form of each release and of the drafts of KEP-5729.

    The fields need not have been checked.
    """
    spec = _mapping(group.get("spec"))
    drafted, released = _mapping(spec.get("podGroupTemplateRef")), _mapping(spec.get("workloadRef"))
    reference = _mapping(drafted.get("workload")) or drafted or released
    name = reference.get("podGroupTemplateName") or reference.get("templateName") or drafted.get("name")
    owner = reference.get("workloadName") or released.get("name")
    return (owner, name) if isinstance(name, str) and isinstance(owner, str) else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
