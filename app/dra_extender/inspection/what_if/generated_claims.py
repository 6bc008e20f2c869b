"""The claims that kube-controller-manager makes from templates for pods and PodGroups, in a copy of the objects."""

from contextlib import suppress

import msgspec

from dra_extender.inspection.what_if.copied_cluster import CopiedCluster
from dra_extender.manifests.api_defaults import fill_in
from dra_extender.model.api_json import ModelError
from dra_extender.model.resource_claim import read_claim
from dra_extender.scheduling.ports.cluster import NotFoundError
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind
from dra_extender.simulator.controllers.generated_claims import (
    claim_for_entry,
    group_claim,
    group_of,
    is_group_entry,
    lacking_entries,
    with_claims,
)


def generate_claims(copy: CopiedCluster) -> None:
    """Make the claims that waiting pods, and PodGroups, lack.  One whose template is not there or unreadable is left out."""
    for group in copy.all(StoredKind.POD_GROUP):
        generate_for(copy, StoredKind.POD_GROUP, group)
    for key, data in sorted(copy.store.keyed(StoredKind.POD).items()):
        if b'"resourceClaims"' in data:
            pod = copy.store.get(key)
            if not (pod["spec"].get("nodeName") or "deletionTimestamp" in pod["metadata"]):
                generate_for(copy, StoredKind.POD, pod)


def generate_for(copy: CopiedCluster, kind: StoredKind, owner: Json) -> Json:
    """Make the claims of the owner's template entries, and record them in its status; return it as it is then.

    An entry of a pod that its PodGroup has too stands for the claim of the group.
    """

    def create(claim: Json) -> Json:
        read_claim(msgspec.json.encode(claim))
        fill_in(StoredKind.CLAIM, claim)
        metadata, base, number = claim["metadata"], claim["metadata"]["name"], 0
        while copy.store.find(Key(StoredKind.CLAIM, metadata["namespace"], metadata["name"])) is not None:
            number += 1
            metadata["name"] = f"{base}-{number}"
        return copy.put(StoredKind.CLAIM, claim)

    group, made = group_of(copy.store, owner) if kind is StoredKind.POD else None, dict[str, str]()
    for entry in lacking_entries(copy.store, owner):
        name, claim = entry.get("name", ""), None
        if not entry.get("resourceClaimTemplateName"):
            continue
        if group is not None and is_group_entry(group, entry):
            claim = group_claim(group, name)
        if not claim:
            with suppress(ModelError, NotFoundError):
                claim = claim_for_entry(copy.store, kind, owner, entry, create)
        if claim:
            made[name] = claim
    return copy.put(kind, with_claims(owner, made)) if made else owner
