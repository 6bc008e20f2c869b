"""The writes of the controller of PodGroup claims."""

from collections.abc import Sequence

import structlog

from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.state.claim_record import ClaimRecord
from dra_extender.model.api_json import ModelError
from dra_extender.model.pod import PodClaimStatus
from dra_extender.model.pod_group import GROUP, POD_GROUP_KIND, PROTECTION_FINALIZER, PodGroup
from dra_extender.model.resource_claim import ClaimHead, read_claim
from dra_extender.model.templated_claim import claim_from, generated_for, generated_name, read_template
from dra_extender.scheduling.claims.writer import ClaimWriter
from dra_extender.scheduling.podgroup_claims.plan import CreateClaim, PublishClaims, is_active, is_kept_by_protection
from dra_extender.scheduling.ports.cluster import Cluster, ConflictError, NotFoundError, RequestRejectedError

_LOG = structlog.get_logger(__name__)


class PodGroupClaimWriter:
    """Creates, records and publishes claims of PodGroups; each write is idempotent and resumable from stored objects alone.

    Each write reads the live object first or is guarded by its resourceVersion, and raises ClusterError: a ConflictError means that
    an object changed (plan again), the text of a RequestRejectedError is for users.
    """

    def __init__(self, ledger: Ledger, cluster: Cluster, claim_writer: ClaimWriter) -> None:
        self._ledger = ledger
        self._cluster = cluster
        self._claim_writer = claim_writer

    async def create(self, wanted: CreateClaim) -> ClaimRecord:
        """Create the claim, or adopt the claim of its name that an earlier attempt created."""
        owner = wanted.owner
        where = f"{owner.namespace}/{generated_name(owner, wanted.entry)}"
        await self._check_owner(wanted)
        try:
            template = read_template(await self._cluster.claim_templates.read(owner.namespace, wanted.template))
            body = claim_from(template, owner, wanted.entry)
        except NotFoundError as gone:
            raise RequestRejectedError(
                f"entry {wanted.entry} of {owner.kind} {owner.namespace}/{owner.name}: there is no ResourceClaimTemplate "
                f"{wanted.template}"
            ) from gone
        except ModelError as problem:
            raise RequestRejectedError(
                f"ResourceClaimTemplate {owner.namespace}/{wanted.template}: {problem}"
            ) from problem
        try:
            kind = (GROUP if owner.kind == POD_GROUP_KIND else "", owner.kind)
            created = await self._claim_writer.create(owner.namespace, body, kind)
        except ConflictError:
            return await self._adopt(wanted)
        except ModelError as problem:
            raise RequestRejectedError(f"claim {where}: {problem}") from problem
        _LOG.info(
            "created a claim from a template", claim=where, owner=f"{owner.kind} {owner.name}", entry=wanted.entry
        )
        return created

    async def _check_owner(self, wanted: CreateClaim) -> None:
        """Raise ConflictError if the owner is deleted or being deleted, or has a claim that the watch has not delivered yet."""
        owner = wanted.owner
        if owner.kind == POD_GROUP_KIND:
            group = await self._cluster.pod_groups.read(owner.namespace, owner.name)
            uid, deleting = group.metadata.uid, group.metadata.deletion_timestamp is not None
            statuses: Sequence[PodClaimStatus] = group.status.resource_claim_statuses
        else:
            pod = await self._cluster.pods.read(owner.namespace, owner.name)
            uid, deleting, statuses = pod.uid, pod.deleting or pod.finished, pod.claim_statuses
        if uid != owner.uid or deleting:
            raise ConflictError(f"{owner.kind} {owner.namespace}/{owner.name} is gone or being deleted")
        for status in statuses:
            if status.name == wanted.entry and await self._exists(
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
            claim = read_claim(await self._cluster.claims.read(namespace, name))
        except (NotFoundError, ModelError):
            return False
        controller = claim.metadata.controller
        return controller is not None and controller.uid == owner_uid

    async def _adopt(self, wanted: CreateClaim) -> ClaimRecord:
        """Return the existing claim of our name, which the watch may not have delivered yet."""
        owner = wanted.owner
        name = generated_name(owner, wanted.entry)
        raw = await self._cluster.claims.read(owner.namespace, name)
        try:
            claim = read_claim(raw)
            if generated_for(claim) != (owner.uid, wanted.entry):
                raise RequestRejectedError(
                    f"claim {owner.namespace}/{name} was not made for entry {wanted.entry} of {owner.kind} {owner.name}, whose "
                    "claim would have that name: delete it"
                )
            if claim.metadata.deletion_timestamp is not None:
                raise ConflictError(f"claim {owner.namespace}/{name} is being deleted")
            return self._ledger.assume_written(raw)
        except ModelError as problem:
            raise RequestRejectedError(f"claim {owner.namespace}/{name}: {problem}") from problem

    async def publish(self, wanted: PublishClaims) -> None:
        """Record the claims in the pod's status, if its resourceVersion is still that of the plan."""
        pod = wanted.pod
        await self._cluster.pods.record_claims(pod.namespace, pod.name, pod.uid, pod.resource_version, wanted.claims)

    async def withdraw(self, claim: ClaimHead) -> None:
        """Delete a claim that no status records and that is not allocated; raises ConflictError for any other one."""
        meta = claim.metadata
        where, owner = "/".join(meta.key), meta.controller
        live = read_claim(await self._cluster.claims.read(*meta.key))
        group = await self._cluster.pod_groups.read(meta.namespace, owner.name if owner is not None else "")
        recorded = {status.resource_claim_name for status in group.status.resource_claim_statuses}
        if live.metadata.uid != meta.uid or live.status.allocation is not None or meta.name in recorded:
            raise ConflictError(f"claim {where} is in use")
        await self._cluster.claims.delete(*meta.key, meta.uid, live.metadata.resource_version)
        _LOG.info("withdrew a claim: another controller created one for the same entry", claim=where)

    async def unprotect(self, group: PodGroup) -> None:
        """Remove the finalizer of a PodGroup that is being deleted and has no active pods (upstream: podgroup-protection)."""
        live = await self._cluster.pod_groups.read(*group.metadata.key)
        if live.metadata.uid != group.metadata.uid or not is_kept_by_protection(live):
            raise ConflictError(f"PodGroup {'/'.join(group.metadata.key)} has changed")
        for pod in self._ledger.pods.members(*group.metadata.key):
            if is_active(pod):
                raise ConflictError(f"pod {pod.key} is active")
        await self._cluster.pod_groups.unprotect(live, PROTECTION_FINALIZER)
        _LOG.info("removed the finalizer of a PodGroup without active pods", pod_group="/".join(group.metadata.key))
