"""What kube-controller-manager does for claims: it makes them from templates, and frees and removes them when pods are done."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from dra_extender.model.api_json import ModelError, decode_object
from dra_extender.model.pod_group import PROTECTION_FINALIZER
from dra_extender.model.resource_claim import FINALIZER
from dra_extender.model.templated_claim import ENTRY_ANNOTATION, Owner, claim_from, generated_base, read_template
from dra_extender.scheduling.ports.cluster import ClusterError, RequestRejectedError
from dra_extender.simulator.apiserver.objects import (
    KIND_OF,
    Json,
    Key,
    StoredKind,
    controller_uid,
    group_name,
    key_of,
    named_claims,
    part,
    with_claims,
)
from dra_extender.simulator.apiserver.store import Store


def lacking_entries(store: Store, owner: Json) -> Iterator[Json]:
    """Yield the entries of a pod or PodGroup that name no claim and have none on record that exists.

    An entry that is recorded without a claim needs none.
    """
    unnamed = [entry for entry in part(owner, "spec").get("resourceClaims") or () if not entry.get("resourceClaimName")]
    if not unnamed:
        return
    namespace = owner["metadata"].get("namespace", "")
    recorded_entries = {
        status.get("name")
        for status in part(owner, "status").get("resourceClaimStatuses") or ()
        if not (name := status.get("resourceClaimName"))
        or store.peek(Key(StoredKind.CLAIM, namespace, name)) is not None
    }
    yield from (entry for entry in unnamed if entry.get("name", "") not in recorded_entries)


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
    return next((status.get("resourceClaimName") for status in recorded if status.get("name") == entry), None)


def drafted_group_claim(group: Json | None, entry_name: str) -> str | None:
    """Return the name of the group's claim to which a pod refers in the way of the KEP's drafts, which record it for pods."""
    entries = () if group is None else part(group, "spec").get("resourceClaims") or ()
    group_entry = next((entry for entry in entries if entry["name"] == entry_name), None)
    if group is None or group_entry is None:
        return None
    return group_entry.get("resourceClaimName") or group_claim(group, entry_name)


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
        remaining = [finalizer for finalizer in finalizers if finalizer != PROTECTION_FINALIZER]
        store.update(StoredKind.POD_GROUP, {**group, "metadata": {**metadata, "finalizers": remaining}})


def is_finished(pod: Json) -> bool:
    return part(pod, "status").get("phase") in ("Succeeded", "Failed")


def reserved_groups(reserved: list[Json]) -> frozenset[str]:
    """Return the names of the PodGroups among the consumers; pods know no UID of theirs."""
    group = str(StoredKind.POD_GROUP)
    named = (consumer.get("name") for consumer in reserved if consumer.get("resource") == group)
    return frozenset(name for name in named if isinstance(name, str))


_ROUNDS = 10


class ClaimController:
    """Brings claims into line with the pods that use them, as the resourceclaim controller and the garbage collector do.

    `problems` says what could not be done in the last call, e.g. because a template does not exist, naming pod or claim.
    """

    def __init__(self, store: Store, *, for_groups: bool = True) -> None:
        """`for_groups`: the gate DRAWorkloadResourceClaims; without it claims and reservations of PodGroups are ignored."""
        self._store = store
        self._for_groups = for_groups
        self._settled: int | None = None
        self.problems: list[str] = []

    def reconcile(self) -> None:
        """Reconcile all claims until nothing changes any more."""
        for _ in range(_ROUNDS):
            before = self._store.version
            if before == self._settled:
                return
            self._reconcile_once()
            if self._store.version == before:
                self._settled = before

    def _reconcile_once(self) -> None:
        self.problems = []
        pods = {pod["metadata"]["uid"]: pod for pod in self._store.peek_all(StoredKind.POD)}
        groups = {group["metadata"]["uid"]: group for group in self._store.peek_all(StoredKind.POD_GROUP)}
        for group in groups.values():
            self._guarded(partial(unprotect_group, self._store), group, pods)
        for group in groups.values() if self._for_groups else ():
            self._guarded(self._generate_for_group, group)
        for pod in pods.values():
            self._guarded(self._generate_for_pod, pod)
        owners = {**pods, **groups}
        for claim in self._store.peek_all(StoredKind.CLAIM):
            self._guarded(self._collect, claim, owners)
        running: dict[Key, list[Json]] = {}
        for pod in pods.values():
            if pod["spec"].get("nodeName") and not is_finished(pod):
                for key in claims_of(pod):
                    running.setdefault(key, []).append(pod)
        for claim in self._store.peek_all(StoredKind.CLAIM):
            self._guarded(self._reserve_and_release, claim, pods, groups, running)

    def _guarded(self, step: Callable[..., None], item: Json, *arguments: object) -> None:
        try:
            step(item, *arguments)
        except (ClusterError, ModelError) as problem:
            kind = KIND_OF[item["kind"]]
            self.problems.append(f"{key_of(kind, item)}: {problem}")

    def _generate_for_group(self, group: Json) -> None:
        if "deletionTimestamp" in group["metadata"]:
            return
        claims = {
            entry["name"]: claim_for_entry(self._store, StoredKind.POD_GROUP, group, entry)
            for entry in lacking_entries(self._store, group)
            if entry.get("resourceClaimTemplateName")
        }
        if claims:
            self._store.update_status(StoredKind.POD_GROUP, with_claims(group, claims))

    def _generate_for_pod(self, pod: Json) -> None:
        """Make the claims of template entries and record their names in the pod's status.

        Raises:
            NotFoundError: a template does not exist, or the PodGroup: until then nobody knows which claims are the group's.
            RequestRejectedError: a claim is the group's, and the gate for that is off; no claim of the pod is recorded then.
        """
        if is_finished(pod) or "deletionTimestamp" in pod["metadata"]:
            return
        lacking = list(lacking_entries(self._store, pod))
        if not lacking:
            return
        if name := group_name(pod):
            self._store.read(Key(StoredKind.POD_GROUP, pod["metadata"]["namespace"], name))
        group, claims = group_of(self._store, pod), {}
        for entry in lacking:
            claim = self._claim_name(pod, entry, group)
            if claim is not None:
                claims[entry["name"]] = claim
        if claims:
            self._store.update_status(StoredKind.POD, with_claims(pod, claims))

    def _claim_name(self, pod: Json, entry: Json, group: Json | None) -> str | None:
        drafted = entry.get("podGroupResourceClaim")
        if not entry.get("resourceClaimTemplateName"):
            return drafted_group_claim(group, drafted) if drafted else None
        if group is None or not is_group_entry(group, entry):
            return claim_for_entry(self._store, StoredKind.POD, pod, entry)
        if not self._for_groups:
            raise RequestRejectedError(
                f"claim {entry['name']} is a PodGroup claim but the DRAWorkloadResourceClaims feature is disabled"
            )
        return group_claim(group, entry["name"])

    def _collect(self, claim: Json, owners: dict[str, Json]) -> None:
        """Delete a claim whose owner is gone, or is a pod that is over and does not use it any more."""
        owner = controller_uid(claim)
        if owner is None or "deletionTimestamp" in claim["metadata"]:
            return
        owner_json = owners.get(owner)
        if owner_json is None or (is_finished(owner_json) and not part(claim, "status").get("reservedFor")):
            self._store.delete(key_of(StoredKind.CLAIM, claim), claim["metadata"]["uid"])

    def _reserve_and_release(
        self, claim: Json, pods: dict[str, Json], groups: dict[str, Json], running: Mapping[Key, Sequence[Json]]
    ) -> None:
        """Drop reservations of gone pods, deallocate after the last one, and remove the finalizer of a deleted claim.

        `running`: the pods that run with each claim.
        """
        reserved = part(claim, "status").get("reservedFor") or []
        known_groups = groups if self._for_groups else None
        valid = [consumer for consumer in reserved if _still_uses(consumer, pods, known_groups)]
        guarded = FINALIZER in (claim["metadata"].get("finalizers") or [])
        deleting = "deletionTimestamp" in claim["metadata"]
        if len(valid) == len(reserved) and not (deleting and guarded and not valid):
            self._reserve_late(claim, running.get(key_of(StoredKind.CLAIM, claim), ()))
            return
        dropped = ("reservedFor", "allocation") if guarded else ("reservedFor",)
        status = part(claim, "status")
        if valid:
            status = {**status, "reservedFor": valid}
        else:
            status = {field: value for field, value in status.items() if field not in dropped}
        claim = self._store.update_status(StoredKind.CLAIM, {**claim, "status": status})
        if not valid and guarded:
            claim["metadata"]["finalizers"].remove(FINALIZER)
            self._store.update(StoredKind.CLAIM, claim)

    def _reserve_late(self, claim: Json, running: Sequence[Json]) -> None:
        """Reserve an allocated claim for the pods that run with it and have no reservation."""
        status = part(claim, "status")
        if not status.get("allocation") or "deletionTimestamp" in claim["metadata"]:
            return
        reserved = list(status.get("reservedFor") or [])
        reserved_uids, groups = {consumer["uid"] for consumer in reserved}, reserved_groups(reserved)
        for pod in running:
            uid = pod["metadata"]["uid"]
            if uid not in reserved_uids and group_name(pod) not in groups:
                reserved.append({"resource": "pods", "name": pod["metadata"]["name"], "uid": uid})
        if len(reserved) > len(reserved_uids):
            self._store.update_status(StoredKind.CLAIM, {**claim, "status": {**status, "reservedFor": reserved}})


def claims_of(pod: Json) -> Iterator[Key]:
    """Return the keys of the claims that the pod uses, as far as they are named already."""
    return (Key(StoredKind.CLAIM, pod["metadata"]["namespace"], name) for _, name in named_claims(pod) if name)


def _still_uses(consumer: Json, pods: dict[str, Json], groups: dict[str, Json] | None) -> bool:
    """Return whether a consumer still uses a claim; kinds other than pods and PodGroups do, without `groups` PodGroups too."""
    if (consumer.get("apiGroup"), consumer.get("resource")) == ("scheduling.k8s.io", str(StoredKind.POD_GROUP)):
        return groups is None or consumer["uid"] in groups
    if consumer.get("resource") != "pods" or consumer.get("apiGroup"):
        return True
    pod = pods.get(consumer["uid"])
    return pod is not None and not is_finished(pod)
