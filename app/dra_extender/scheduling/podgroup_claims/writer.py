from collections.abc import Mapping, Sequence

import structlog

from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.state.claim_record import ClaimRecord
from dra_extender.model.api_json import ModelError
from dra_extender.model.pod import PodClaimStatus
from dra_extender.model.pod_group import POD_GROUP_KIND, PROTECTION_FINALIZER, PodGroup
from dra_extender.model.resource_claim import ClaimHead, read_claim
from dra_extender.model.templated_claim import claim_from, generated_for, generated_name, read_template
from dra_extender.scheduling.claims.writer import ClaimWriting
from dra_extender.scheduling.podgroup_claims.plan import CreateClaim, PublishClaims, is_active, is_kept_by_protection
from dra_extender.scheduling.ports.cluster import Cluster, ConflictError, NotFoundError, RequestRejectedError

_LOG = structlog.get_logger(__name__)


class GroupClaimWriting:
    """The writes by which claims of PodGroups are made and made known, each idempotent and resumable from stored objects alone.

    Each looks at the live object first or is guarded by its version, and raises ClusterError: Conflict means that something has
    changed (look again), Refused carries a sentence for people.
    """

    def __init__(self, ledger: Ledger, cluster: Cluster, writing: ClaimWriting) -> None:
        self._ledger = ledger
        self._cluster = cluster
        self._writing = writing

    async def make(self, making: CreateClaim) -> ClaimRecord:
        """Make the claim, or take over the one that an earlier attempt has made: its name tells."""
        owner = making.owner
        where = f"{owner.namespace}/{generated_name(owner, making.entry)}"
        await self._check_owner(making)
        try:
            template = read_template(await self._cluster.claim_templates.read(owner.namespace, making.template))
            body = claim_from(template, owner, making.entry)
        except NotFoundError as gone:
            raise RequestRejectedError(
                f"entry {making.entry} of {owner.kind} {owner.namespace}/{owner.name}: there is no ResourceClaimTemplate "
                f"{making.template}"
            ) from gone
        except ModelError as problem:
            raise RequestRejectedError(
                f"ResourceClaimTemplate {owner.namespace}/{making.template}: {problem}"
            ) from problem
        try:
            made = await self._writing.create(owner.namespace, body)
        except ConflictError:
            return await self._existing(making)
        except ModelError as problem:
            raise RequestRejectedError(f"claim {where}: {problem}") from problem
        _LOG.info("made a claim from a template", claim=where, owner=f"{owner.kind} {owner.name}", entry=making.entry)
        return made

    async def _check_owner(self, making: CreateClaim) -> None:
        """Nothing is made for an owner that is gone or going, or that has a claim of which we have not heard yet."""
        owner = making.owner
        if owner.kind == POD_GROUP_KIND:
            group = await self._cluster.pod_groups.read(owner.namespace, owner.name)
            uid, deleting = group.metadata.uid, group.metadata.deletion_timestamp is not None
            statuses: Sequence[PodClaimStatus] = group.status.resource_claim_statuses
        else:
            pod = await self._cluster.pods.read(owner.namespace, owner.name)
            uid, deleting, statuses = pod.uid, pod.deleting or pod.finished, pod.claim_statuses
        if uid != owner.uid or deleting:
            raise ConflictError(f"{owner.kind} {owner.namespace}/{owner.name} is gone or being deleted")
        for each in statuses:
            if each.name == making.entry and await self._is_there(owner.namespace, each.resource_claim_name, owner.uid):
                raise ConflictError(f"{owner.kind} {owner.namespace}/{owner.name} has claim {each.resource_claim_name}")

    async def _is_there(self, namespace: str, name: str | None, owner_uid: str) -> bool:
        """Whether the recorded claim exists and is the owner's; no name means that none is needed."""
        if not name:
            return True
        try:
            claim = read_claim(await self._cluster.claims.read(namespace, name))
        except (NotFoundError, ModelError):
            return False
        controller = claim.metadata.controller
        return controller is not None and controller.uid == owner_uid

    async def _existing(self, making: CreateClaim) -> ClaimRecord:
        """The claim of our name; the watch may not have brought it yet."""
        owner = making.owner
        name = generated_name(owner, making.entry)
        raw = await self._cluster.claims.read(owner.namespace, name)
        try:
            claim = read_claim(raw)
            if generated_for(claim) != (owner.uid, making.entry):
                raise RequestRejectedError(
                    f"claim {owner.namespace}/{name} was not made for entry {making.entry} of {owner.kind} {owner.name}, whose "
                    "claim would have that name: delete it"
                )
            if claim.metadata.deletion_timestamp is not None:
                raise ConflictError(f"claim {owner.namespace}/{name} is being deleted")
            return self._ledger.assume_written(raw)
        except ModelError as problem:
            raise RequestRejectedError(f"claim {owner.namespace}/{name}: {problem}") from problem

    async def record(self, group: PodGroup, claims: Mapping[str, str]) -> None:
        """Enter the claims in the group's status, if it is as known."""
        await self._cluster.pod_groups.record_claims(group, claims)

    async def tell(self, telling: PublishClaims) -> None:
        """Enter the claims in the pod's status, if it is as known."""
        pod = telling.pod
        await self._cluster.pods.record_claims(pod.namespace, pod.name, pod.uid, pod.resource_version, telling.claims)

    async def withdraw(self, claim: ClaimHead) -> None:
        """Delete a claim that nobody has been told of and nobody has to do with; Conflict if that is not so any more."""
        meta = claim.metadata
        where, owner = "/".join(meta.key), meta.controller
        live = read_claim(await self._cluster.claims.read(*meta.key))
        group = await self._cluster.pod_groups.read(meta.namespace, owner.name if owner is not None else "")
        recorded = {each.resource_claim_name for each in group.status.resource_claim_statuses}
        if live.metadata.uid != meta.uid or live.status.allocation is not None or meta.name in recorded:
            raise ConflictError(f"claim {where} is in use")
        await self._cluster.claims.delete(*meta.key, meta.uid, live.metadata.resource_version)
        _LOG.info("withdrew a claim, for another one was made beside it", claim=where)

    async def unprotect(self, group: PodGroup) -> None:
        """Let a PodGroup go that is being deleted and has no active pods (upstream's podgroup-protection controller)."""
        live = await self._cluster.pod_groups.read(*group.metadata.key)
        if live.metadata.uid != group.metadata.uid or not is_kept_by_protection(live):
            raise ConflictError(f"PodGroup {'/'.join(group.metadata.key)} has changed")
        for pod in self._ledger.pods.members(*group.metadata.key):
            if is_active(pod):
                raise ConflictError(f"pod {pod.key} is active")
        await self._cluster.pod_groups.unprotect(live, PROTECTION_FINALIZER)
        _LOG.info("let a PodGroup go that has no active pods", pod_group="/".join(group.metadata.key))
