"""What kube-controller-manager does for claims: it makes them from templates, and frees and removes them when pods are done."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from dra_extender.model.resource_claim import FINALIZER
from dra_extender.scheduling.ports.cluster import ClusterError, RequestRejectedError
from dra_extender.simulator.apiserver.objects import KIND_OF, Json, Key, StoredKind, controller_uid, key_of, part
from dra_extender.simulator.apiserver.store import Store
from dra_extender.simulator.controllers.generated_claims import (
    SimulatedGroupClaims,
    from_template,
    in_reserved_group,
    is_finished,
    orphan,
)

_ROUNDS = 10


class ClaimController:
    """Brings claims into line with the pods that use them, as the resourceclaim controller and the garbage collector do.

    `problems` says what could not be done in the last call, e.g. because a template does not exist, naming pod or claim.
    """

    def __init__(self, store: Store, *, for_groups: bool = True) -> None:
        """`for_groups`: the gate DRAWorkloadResourceClaims; without it claims and reservations of PodGroups are ignored."""
        self._store = store
        self._for_groups = for_groups
        self._groups = SimulatedGroupClaims(store)
        self.problems: list[str] = []

    def reconcile(self) -> None:
        """Reconcile all claims until nothing changes any more."""
        for _ in range(_ROUNDS):
            before = self._store.version
            self._reconcile_once()
            if self._store.version == before:
                return

    def _reconcile_once(self) -> None:
        self.problems = []
        pods = {pod["metadata"]["uid"]: pod for pod in self._store.all(StoredKind.POD)}
        groups = {group["metadata"]["uid"]: group for group in self._store.all(StoredKind.POD_GROUP)}
        for group in groups.values():
            self._guarded(self._groups.unprotect, group, pods)
        for group in groups.values() if self._for_groups else ():
            self._guarded(self._groups.generate, group)
        for pod in pods.values():
            self._guarded(self._generate, pod)
        for claim in self._store.all(StoredKind.CLAIM):
            self._guarded(self._collect, claim, {**pods, **groups})
        running: dict[Key, list[Json]] = {}
        for pod in pods.values():
            if pod["spec"].get("nodeName") and not is_finished(pod):
                for key in claims_of(pod):
                    running.setdefault(key, []).append(pod)
        for claim in self._store.all(StoredKind.CLAIM):
            self._guarded(self._reserve_and_release, claim, pods, groups, running)

    def _guarded(self, step: Callable[..., None], thing: Json, *rest: object) -> None:
        try:
            step(thing, *rest)
        except ClusterError as problem:
            kind = KIND_OF[thing["kind"]]
            self.problems.append(f"{key_of(kind, thing)}: {problem}")

    def _generate(self, pod: Json) -> None:
        """Make the claims of template entries and record their names in the pod's status."""
        if is_finished(pod) or "deletionTimestamp" in pod["metadata"]:
            return
        self._groups.check(pod)
        statuses = list(part(pod, "status").get("resourceClaimStatuses") or [])
        recorded = {each["name"]: each.get("resourceClaimName") for each in statuses}
        made = {}
        for entry in pod["spec"].get("resourceClaims") or []:
            known = recorded.get(entry["name"])
            if known and self._claim(pod, known) is not None:
                continue
            name = self._generated_name(pod, entry)
            if name is not None:
                made[entry["name"]] = name
        kept = [each for each in statuses if each["name"] not in made]
        new = [*kept, *({"name": entry, "resourceClaimName": name} for entry, name in made.items())]
        if new != statuses:
            pod.setdefault("status", {})["resourceClaimStatuses"] = new
            self._store.update_status(StoredKind.POD, pod)

    def _generated_name(self, pod: Json, entry: Json) -> str | None:
        """The name of the claim that exists, or is made now, for an entry that names no claim itself."""
        if entry.get("resourceClaimTemplateName"):
            return self._claim_for(pod, entry, entry["resourceClaimTemplateName"])
        drafted = entry.get("podGroupResourceClaim")
        return self._groups.drafted_name(pod, drafted) if drafted else None

    def _claim_for(self, pod: Json, entry: Json, template: str) -> str | None:
        """The name of the claim of a template entry, which is made now unless the pod's group has it.

        Raises:
            RequestRejectedError: it is the group's, and the gate for that is off; no other claim of the pod is recorded then,
                either.
        """
        if self._groups.has(pod, entry):
            if not self._for_groups:
                raise RequestRejectedError(
                    f"claim {entry['name']} is a PodGroup claim but the DRAWorkloadResourceClaims feature is disabled"
                )
            return self._groups.claim_name(pod, entry)
        store, name = self._store, entry["name"]
        claim = orphan(store, pod, name) or from_template(store, pod, name, template)
        return str(claim["metadata"]["name"])

    def _claim(self, pod: Json, name: str) -> Json | None:
        return self._store.find(Key(StoredKind.CLAIM, pod["metadata"]["namespace"], name))

    def _collect(self, claim: Json, owners: dict[str, Json]) -> None:
        """Delete a claim whose owner is gone, or is a pod that is over and does not use it any more."""
        owner = controller_uid(claim)
        if owner is None or "deletionTimestamp" in claim["metadata"]:
            return
        found = owners.get(owner)
        if found is None or (is_finished(found) and not part(claim, "status").get("reservedFor")):
            self._store.delete(key_of(StoredKind.CLAIM, claim), claim["metadata"]["uid"])

    def _reserve_and_release(
        self, claim: Json, pods: dict[str, Json], groups: dict[str, Json], running: Mapping[Key, Sequence[Json]]
    ) -> None:
        """Drop reservations of gone pods, deallocate after the last one, and remove the finalizer of a deleted claim.

        `running`: the pods that run with each claim.
        """
        key = key_of(StoredKind.CLAIM, claim)
        claim = self._store.get(key)
        status = claim.setdefault("status", {})
        reserved = status.get("reservedFor") or []
        known = groups if self._for_groups else None
        valid = [each for each in reserved if _still_uses(each, pods, known)]
        guarded = FINALIZER in (claim["metadata"].get("finalizers") or [])
        deleting = "deletionTimestamp" in claim["metadata"]
        if len(valid) == len(reserved) and not (deleting and guarded and not valid):
            self._reserve_late(claim, running.get(key, ()))
            return
        _set(status, "reservedFor", valid)
        if not valid and guarded:
            status.pop("allocation", None)
        claim = self._store.update_status(StoredKind.CLAIM, claim)
        if not valid and guarded:
            claim["metadata"]["finalizers"].remove(FINALIZER)
            self._store.update(StoredKind.CLAIM, claim)

    def _reserve_late(self, claim: Json, running: Sequence[Json]) -> None:
        """Reserve an allocated claim for the pods that run with it and have no reservation."""
        status = claim["status"]
        if not status.get("allocation") or "deletionTimestamp" in claim["metadata"]:
            return
        reserved = list(status.get("reservedFor") or [])
        known = {each["uid"] for each in reserved}
        for pod in running:
            uid = pod["metadata"]["uid"]
            if uid not in known and not in_reserved_group(pod, reserved):
                reserved.append({"resource": "pods", "name": pod["metadata"]["name"], "uid": uid})
        if len(reserved) > len(known):
            status["reservedFor"] = reserved
            self._store.update_status(StoredKind.CLAIM, claim)


def claims_of(pod: Json) -> Iterator[Key]:
    """Keys of the claims that the pod uses, as far as they are named already."""
    namespace = pod["metadata"]["namespace"]
    statuses = part(pod, "status").get("resourceClaimStatuses") or []
    recorded = {each["name"]: each.get("resourceClaimName") for each in statuses}
    for entry in pod["spec"].get("resourceClaims") or []:
        name = entry.get("resourceClaimName") or recorded.get(entry["name"])
        if name:
            yield Key(StoredKind.CLAIM, namespace, name)


def _still_uses(consumer: Json, pods: dict[str, Json], groups: dict[str, Json] | None) -> bool:
    """A reservation of another kind of consumer than pods and PodGroups stays; without `groups`, that of PodGroups too."""
    if (consumer.get("apiGroup"), consumer.get("resource")) == ("scheduling.k8s.io", str(StoredKind.POD_GROUP)):
        return groups is None or consumer["uid"] in groups
    if consumer.get("resource") != "pods" or consumer.get("apiGroup"):
        return True
    pod = pods.get(consumer["uid"])
    return pod is not None and not is_finished(pod)


def _set(status: Json, field: str, value: list[Json]) -> None:
    status.pop(field, None)
    if value:
        status[field] = value
