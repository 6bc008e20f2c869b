"""Claims made from templates for pods and PodGroups, named and owned as kube-controller-manager does it."""

from dra_extender.model.templated_claim import ENTRY_ANNOTATION, generated_base
from dra_extender.simulator.apiserver.objects import KIND_OF, Json, Key, StoredKind, controller_uid, part
from dra_extender.simulator.apiserver.store import Store


def from_template(store: Store, owner: Json, entry: str, name: str) -> Json:
    """Create the claim for this entry of a pod or PodGroup.  Raises NotFound: there is no such template."""
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
        mine = controller_uid(claim) == owner["metadata"]["uid"] and "deletionTimestamp" not in metadata
        if mine and part(metadata, "annotations").get(ENTRY_ANNOTATION) == entry:
            return claim
    return None
