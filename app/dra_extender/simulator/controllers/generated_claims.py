"""Claims made from templates for pods and PodGroups (KEP-5729), owned and recorded as kube-controller-manager does it."""

from collections.abc import Callable, Iterator, Mapping

from dra_extender.model.api_json import decode_object
from dra_extender.model.pod_group import PROTECTION_FINALIZER
from dra_extender.model.templated_claim import ENTRY_ANNOTATION, Owner, claim_from, generated_base, read_template
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind, controller_uid, group_name, part
from dra_extender.simulator.apiserver.store import Store


def lacking_entries(store: Store, owner: Json) -> Iterator[Json]:
    """Yield the entries of a pod or PodGroup that name no claim and have none on record that exists.

    An entry that is recorded without a claim needs none.
    """
    unnamed = [each for each in part(owner, "spec").get("resourceClaims") or () if not each.get("resourceClaimName")]
    if not unnamed:
        return
    namespace = owner["metadata"].get("namespace", "")
    done = {
        each.get("name")
        for each in part(owner, "status").get("resourceClaimStatuses") or ()
        if not (name := each.get("resourceClaimName")) or store.peek(Key(StoredKind.CLAIM, namespace, name)) is not None
    }
    yield from (entry for entry in unnamed if entry.get("name", "") not in done)


CreateClaim = Callable[[Json], Json]
"""Stores a claim whose name follows from its owner, and returns it as it is stored."""


def claim_for_entry(store: Store, kind: StoredKind, owner: Json, entry: Json, create: CreateClaim | None = None) -> str:
    """Return the name of the claim that exists for a template entry of a pod or PodGroup, or is created now; see `create_claim`."""
    uid = owner["metadata"]["uid"]
    for key in store.claims_of(uid):
        claim = store.get(key)
        is_own = controller_uid(claim) == uid and "deletionTimestamp" not in claim["metadata"]
        if is_own and part(claim["metadata"], "annotations").get(ENTRY_ANNOTATION) == entry.get("name", ""):
            return key.name
    return create_claim(store, kind, owner, entry, create)


def create_claim(store: Store, kind: StoredKind, owner: Json, entry: Json, create: CreateClaim | None = None) -> str:
    """Create the claim for a template entry of a pod or PodGroup, and return its name; without `create`, a generated one.

    Raises:
        NotFoundError: there is no such template.
        ModelError: the template cannot be read.
    """
    metadata, name = owner["metadata"], entry.get("name", "")
    template = Key(StoredKind.TEMPLATE, metadata["namespace"], entry["resourceClaimTemplateName"])
    of_owner = Owner(kind.api_version, kind.singular, metadata["namespace"], metadata["name"], metadata["uid"])
    claim = decode_object(StoredKind.CLAIM.singular, claim_from(read_template(store.read(template)), of_owner, name))
    if create is None:
        del claim["metadata"]["name"]
        claim["metadata"]["generateName"] = generated_base(metadata["name"], name)
        claim = store.create(StoredKind.CLAIM, claim)
    else:
        claim = create(claim)
    return str(claim["metadata"]["name"])


def group_of(store: Store, pod: Json) -> Json | None:
    """Return the PodGroup that the pod names, None if it names none or none exists; nobody may change it."""
    name = group_name(pod)
    return store.peek(Key(StoredKind.POD_GROUP, pod["metadata"]["namespace"], name)) if name else None


def is_group_entry(group: Json | None, entry: Json) -> bool:
    """Return whether an entry of a pod stands for a claim of its group: one that the group has in all its fields."""
    return group is not None and entry in (part(group, "spec").get("resourceClaims") or ())


def group_claim(group: Json, entry: str) -> str | None:
    recorded = part(group, "status").get("resourceClaimStatuses") or ()
    return next((each.get("resourceClaimName") for each in recorded if each.get("name") == entry), None)


def drafted_group_claim(group: Json | None, wanted: str) -> str | None:
    """Return the name of the group's claim to which a pod refers in the way of the KEP's drafts, which record it for pods."""
    entries = () if group is None else part(group, "spec").get("resourceClaims") or ()
    found = next((entry for entry in entries if entry["name"] == wanted), None)
    if group is None or found is None:
        return None
    return found.get("resourceClaimName") or group_claim(group, wanted)


def unprotect_group(store: Store, group: Json, pods: Mapping[str, Json]) -> None:
    """Let a PodGroup go that is being deleted and has no active pods, as the PodGroup protection controller does."""
    metadata = group["metadata"]
    finalizers = metadata.get("finalizers") or []
    if "deletionTimestamp" not in metadata or PROTECTION_FINALIZER not in finalizers:
        return
    own = (metadata["namespace"], metadata["name"])
    if not any(
        (pod["metadata"]["namespace"], group_name(pod)) == own and not is_finished(pod) for pod in pods.values()
    ):
        kept = [finalizer for finalizer in finalizers if finalizer != PROTECTION_FINALIZER]
        store.update(StoredKind.POD_GROUP, {**group, "metadata": {**metadata, "finalizers": kept}})


def is_finished(pod: Json) -> bool:
    """Return whether the pod has ended for good."""
    return part(pod, "status").get("phase") in ("Succeeded", "Failed")


def reserved_groups(reserved: list[Json]) -> frozenset[str]:
    """Return the names of the PodGroups among the consumers; pods know no UID of theirs."""
    group = str(StoredKind.POD_GROUP)
    named = (consumer.get("name") for consumer in reserved if consumer.get("resource") == group)
    return frozenset(name for name in named if isinstance(name, str))
