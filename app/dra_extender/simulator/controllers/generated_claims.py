"""Claims made from templates for pods and PodGroups (KEP-5729), named and owned as kube-controller-manager does it."""

from dra_extender.model.pod_group import PROTECTION_FINALIZER
from dra_extender.model.templated_claim import ENTRY_ANNOTATION, generated_base
from dra_extender.simulator.apiserver.objects import KIND_OF, Json, Key, StoredKind, controller_uid, group_name, part
from dra_extender.simulator.apiserver.store import Store


def from_template(store: Store, owner: Json, entry: str, name: str) -> Json:
    """Create the claim for this entry of a pod or PodGroup.  Raises NotFoundError: there is no such template."""
    metadata = owner["metadata"]
    template = store.get(Key(StoredKind.TEMPLATE, metadata["namespace"], name))["spec"]
    given = part(template, "metadata")
    reference = {
        "apiVersion": KIND_OF[owner["kind"]].api_version,
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    claim = {
        "metadata": {
            "generateName": generated_base(metadata["name"], entry),
            "namespace": metadata["namespace"],
            "labels": dict(part(given, "labels")),
            "annotations": {**part(given, "annotations"), ENTRY_ANNOTATION: entry},
            "ownerReferences": [reference],
        },
        "spec": template["spec"],
    }
    return store.create(StoredKind.CLAIM, claim)


def orphan(store: Store, owner: Json, entry: str) -> Json | None:
    """A claim made earlier for this entry whose name was not recorded."""
    for claim in store.all(StoredKind.CLAIM):
        metadata = claim["metadata"]
        is_own = controller_uid(claim) == owner["metadata"]["uid"] and "deletionTimestamp" not in metadata
        if is_own and part(metadata, "annotations").get(ENTRY_ANNOTATION) == entry:
            return claim
    return None


def is_finished(pod: Json) -> bool:
    """Whether the pod has ended for good."""
    return part(pod, "status").get("phase") in ("Succeeded", "Failed")


class SimulatedGroupClaims:
    """Makes the claims of PodGroups from templates, tells which of them an entry of a pod stands for, and ends PodGroups."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def check(self, pod: Json) -> None:
        """No claim of a pod is made before its PodGroup exists: until then nobody knows which of them are the group's.

        Raises:
            NotFoundError: the pod names a PodGroup that does not exist.
        """
        name = group_name(pod)
        if name and pod["spec"].get("resourceClaims"):
            self._store.read(Key(StoredKind.POD_GROUP, pod["metadata"]["namespace"], name))

    def unprotect(self, group: Json, pods: dict[str, Json]) -> None:
        """Let a PodGroup go that is being deleted and has no active pods, as the PodGroup protection controller does."""
        metadata = group["metadata"]
        finalizers = metadata.get("finalizers") or []
        if "deletionTimestamp" not in metadata or PROTECTION_FINALIZER not in finalizers:
            return
        own = (metadata["namespace"], metadata["name"])
        if not any(
            (each["metadata"]["namespace"], group_name(each)) == own and not is_finished(each) for each in pods.values()
        ):
            metadata["finalizers"] = [each for each in finalizers if each != PROTECTION_FINALIZER]
            self._store.update(StoredKind.POD_GROUP, group)

    def generate(self, group: Json) -> None:
        """Make the claims of template entries and record their names in the group's status.

        Raises:
            NotFoundError: no such template.
        """
        if "deletionTimestamp" in group["metadata"]:
            return
        statuses = list(part(group, "status").get("resourceClaimStatuses") or [])
        recorded = {each["name"] for each in statuses}
        for entry in part(group, "spec").get("resourceClaims") or []:
            name, template = entry["name"], entry.get("resourceClaimTemplateName")
            if template and name not in recorded:
                claim = orphan(self._store, group, name) or from_template(self._store, group, name, template)
                statuses.append({"name": name, "resourceClaimName": claim["metadata"]["name"]})
        if len(statuses) > len(recorded):
            group.setdefault("status", {})["resourceClaimStatuses"] = statuses
            self._store.update_status(StoredKind.POD_GROUP, group)

    def has(self, pod: Json, entry: Json) -> bool:
        """Whether this entry of a pod stands for a claim of its group: one that the group has in all its fields."""
        group = self._group_of(pod)
        return group is not None and entry in (part(group, "spec").get("resourceClaims") or [])

    def claim_name(self, pod: Json, entry: Json) -> str | None:
        """The recorded name of that claim."""
        group = self._group_of(pod)
        if group is None:
            return None
        recorded = {each["name"]: each for each in part(group, "status").get("resourceClaimStatuses") or []}
        found = recorded.get(entry["name"])
        return None if found is None else found.get("resourceClaimName")

    def drafted_name(self, pod: Json, wanted: str) -> str | None:
        """The name of the group's claim to which a pod refers in the way of the KEP's drafts, which record it for pods."""
        group = self._group_of(pod)
        group_claims = part(group, "spec").get("resourceClaims") or [] if group is not None else []
        found = next((each for each in group_claims if each["name"] == wanted), None)
        return None if found is None else found.get("resourceClaimName") or self.claim_name(pod, found)

    def _group_of(self, pod: Json) -> Json | None:
        name = group_name(pod)
        return self._store.find(Key(StoredKind.POD_GROUP, pod["metadata"]["namespace"], name)) if name else None


def in_reserved_group(pod: Json, reserved: list[Json]) -> bool:
    """Whether the pod's group is among the consumers; the name decides, for pods know no UID of it."""
    group = group_name(pod)
    return group is not None and any(
        (each.get("resource"), each.get("name")) == (str(StoredKind.POD_GROUP), group) for each in reserved
    )
