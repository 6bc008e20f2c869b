"""The writes of the controller of PodGroups' claims, each idempotent and resumable only from stored objects."""

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from dra_extender.ledger.claim_record import ClaimRecord
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.api_json import ModelError
from dra_extender.model.pod import PodClaimStatus
from dra_extender.model.pod_group import GROUP, POD_GROUP_KIND, PROTECTION_FINALIZER, PodGroup
from dra_extender.model.resource_claim import ClaimHead, read_claim
from dra_extender.model.templated_claim import claim_from, generated_for, generated_name, read_template
from dra_extender.scheduling.claims.writer import ClaimWriter
from dra_extender.scheduling.podgroup_claims.plan import CreateClaim, is_kept_by_protection
from dra_extender.scheduling.ports.cluster import Cluster, ConflictError, NotFoundError, RequestRejectedError

_LOG = structlog.get_logger(__name__)


@dataclass(eq=False)
class PodGroupClaimWriter:
    """Creates and withdraws claims of PodGroups, and removes the finalizer of PodGroups.

    Each write reads the live object first or is guarded by its resourceVersion, and raises ClusterError: a ConflictError means that
    an object changed (plan again), the text of a RequestRejectedError is for users.
    """

    ledger: Ledger
    cluster: Cluster
    claim_writer: ClaimWriter

    async def create(self, creation: CreateClaim) -> ClaimRecord:
        """Create the claim, or adopt the claim of its name that an earlier attempt created."""
        owner = creation.owner
        where = f"{owner.namespace}/{generated_name(owner, creation.entry)}"
        await self._check_owner(creation)
        try:
            template = read_template(await self.cluster.claim_templates.read(owner.namespace, creation.template))
            body = claim_from(template, owner, creation.entry)
        except NotFoundError as gone:
            raise RequestRejectedError(
                f"entry {creation.entry} of {owner.kind} {owner.namespace}/{owner.name}: there is no ResourceClaimTemplate "
                f"{creation.template}"
            ) from gone
        except ModelError as problem:
            raise RequestRejectedError(
                f"ResourceClaimTemplate {owner.namespace}/{creation.template}: {problem}"
            ) from problem
        try:
            kind = (GROUP if owner.kind == POD_GROUP_KIND else "", owner.kind)
            created = await self.claim_writer.create(owner.namespace, body, kind)
        except ConflictError:
            return await self._adopt(creation)
        except ModelError as problem:
            raise RequestRejectedError(f"claim {where}: {problem}") from problem
        _LOG.info(
            "created a claim from a template", claim=where, owner=f"{owner.kind} {owner.name}", entry=creation.entry
        )
        return created

    async def _check_owner(self, creation: CreateClaim) -> None:
        """Raise ConflictError if the owner is deleted or being deleted, or has a claim that the watch has not delivered yet."""
        owner = creation.owner
        if owner.kind == POD_GROUP_KIND:
            group = await self.cluster.pod_groups.read(owner.namespace, owner.name)
            uid, deleting = group.metadata.uid, group.metadata.deletion_timestamp is not None
            statuses: Sequence[PodClaimStatus] = group.status.resource_claim_statuses
        else:
            pod = await self.cluster.pods.read(owner.namespace, owner.name)
            uid, deleting, statuses = pod.uid, pod.ending, pod.claim_statuses
        if uid != owner.uid or deleting:
            raise ConflictError(f"{owner.kind} {owner.namespace}/{owner.name} is gone or being deleted")
        for status in statuses:
            if status.name == creation.entry and await self._exists(
                owner.namespace, status.resource_claim_name, owner.uid
            ):
                raise ConflictError(
                    f"{owner.kind} {owner.namespace}/{owner.name} has claim {status.resource_claim_name}"
                )

    async def _exists(self, namespace: str, name: str | None, owner_uid: str) -> bool:
        """Return whether the recorded claim exists and is the owner's; True without a name: the entry needs no claim."""
        if not name:
            return True
        try:
            claim = read_claim(await self.cluster.claims.read(namespace, name))
        except (NotFoundError, ModelError):
            return False
        controller = claim.metadata.controller
        return controller is not None and controller.uid == owner_uid

    async def _adopt(self, creation: CreateClaim) -> ClaimRecord:
        """Return the existing claim of our name, which the watch may not have delivered yet."""
        owner = creation.owner
        name = generated_name(owner, creation.entry)
        raw = await self.cluster.claims.read(owner.namespace, name)
        try:
            claim = read_claim(raw)
            if generated_for(claim) != (owner.uid, creation.entry):
                raise RequestRejectedError(
                    f"claim {owner.namespace}/{name} was not made for entry {creation.entry} of {owner.kind} {owner.name}, whose "
                    "claim would have that name: delete it"
                )
            if claim.metadata.deletion_timestamp is not None:
                raise ConflictError(f"claim {owner.namespace}/{name} is being deleted")
            return self.ledger.assume_written(raw)
        except ModelError as problem:
            raise RequestRejectedError(f"claim {owner.namespace}/{name}: {problem}") from problem

    async def withdraw(self, claim: ClaimHead) -> None:
        """Delete a claim that no status records and that is not allocated; raises ConflictError for any other one."""
        meta = claim.metadata
        where, owner = meta.full_name, meta.controller
        live = read_claim(await self.cluster.claims.read(*meta.key))
        group = await self.cluster.pod_groups.read(meta.namespace, owner.name if owner is not None else "")
        recorded = {status.resource_claim_name for status in group.status.resource_claim_statuses}
        if live.metadata.uid != meta.uid or live.status.allocation is not None or meta.name in recorded:
            raise ConflictError(f"claim {where} is in use")
        await self.cluster.claims.delete(*meta.key, meta.uid, live.metadata.resource_version)
        _LOG.info("withdrew a claim: another controller created one for the same entry", claim=where)

    async def unprotect(self, group: PodGroup) -> None:
        """Remove the finalizer of a PodGroup that is being deleted and has no active pods (upstream: podgroup-protection)."""
        live = await self.cluster.pod_groups.read(*group.metadata.key)
        if live.metadata.uid != group.metadata.uid or not is_kept_by_protection(live):
            raise ConflictError(f"PodGroup {'/'.join(group.metadata.key)} has changed")
        for pod in self.ledger.pods.members(*group.metadata.key):
            if not pod.finished:
                raise ConflictError(f"pod {pod.key} is active")
        await self.cluster.pod_groups.unprotect(live, PROTECTION_FINALIZER)
        _LOG.info("removed the finalizer of a PodGroup without active pods", pod_group=group.metadata.full_name)
