"""The claim for a pod's extended resources, from its creation to its end (KEP-5004).

A bind creates it, writes its allocation as for any other claim, and publishes it in the pod's status before the Binding: kubelet
reads it there.  Its name follows from the pod's UID, so that a create that is repeated after a crash finds what is there.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import msgspec
import structlog

from dra_extender.allocator.state.reasons import Rejection
from dra_extender.ledger.claim_record import ClaimRecord
from dra_extender.ledger.guard_index import is_guard_reservation
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.api_json import ModelError
from dra_extender.model.managed_fields import writers_of
from dra_extender.model.node import Node
from dra_extender.model.pod import Pod
from dra_extender.model.resource_claim import EXTENDED_ANNOTATION, read_claim
from dra_extender.model.templated_claim import suffix_of
from dra_extender.scheduling.claims.extended_need import EXTENDED_LABEL, ExtendedClaimNeed, extended_need
from dra_extender.scheduling.claims.lookup import FoundClaim, consumer_of
from dra_extender.scheduling.claims.pod_claims import why_unusable_on
from dra_extender.scheduling.claims.writer import ClaimWriter
from dra_extender.scheduling.ports.cluster import Cluster, ClusterError, ConflictError, NotFoundError
from dra_extender.scheduling.ports.errors import ClaimReleasedError, RetryableError

_LONGEST_BASE: Final = 58
_LOG = structlog.get_logger(__name__)


class ExtendedResourceClaim(NamedTuple):
    """A claim that exists for a pod's extended resources, and what it is for."""

    claim: FoundClaim
    claim_need: ExtendedClaimNeed


class ExtendedClaims:
    """Makes, adopts and deletes the claims for extended resources."""

    def __init__(self, ledger: Ledger, writing: ClaimWriter, cluster: Cluster, field_manager: str) -> None:
        """`field_manager`: the name under which this service writes; an allocation by others is not adopted."""
        self._ledger = ledger
        self._writing = writing
        self._cluster = cluster
        self._field_manager = field_manager

    @asynccontextmanager
    async def claim_for(self, pod: Pod, node: str) -> AsyncIterator[ExtendedResourceClaim | None]:
        """Make the claim that the pod needs on this node, and enter with it, allocated or not; with None if the pod needs none.

        A claim of an earlier attempt is adopted if it suits, otherwise deleted.  If the block fails, the claim is deleted; an
        allocated claim stays for a later bind.
        """
        claimed = await self._make_or_adopt(pod, node)
        try:
            yield claimed
        except RetryableError as failed:
            if claimed is not None:
                await self._clean_up(claimed.claim.record, pod, released=isinstance(failed, ClaimReleasedError))
            raise

    def current(self, claimed: ExtendedResourceClaim) -> FoundClaim:
        """Return the claim; raise RetryableError if it was deleted meanwhile."""
        claim, metadata = claimed.claim, claimed.claim.record.claim.metadata
        if self._ledger.claims.by_uid(metadata.uid) is not claim.record:
            raise RetryableError(f"claim {'/'.join(metadata.key)} was deleted meanwhile")
        return claim

    async def publish(self, pod: Pod, claimed: ExtendedResourceClaim) -> None:
        record = claimed.claim.record
        name = record.claim.metadata.name
        try:
            stored = await self._cluster.pods.record_extended_claim(
                pod.namespace, pod.name, pod.uid, name, claimed.claim_need.mappings
            )
        except ClusterError as problem:
            raise RetryableError(f"pod {pod.key}: {problem}") from problem
        if not stored:
            self._ledger.serves_extended_resources = False
            await self._writing.discard(record)
            raise RetryableError(
                f"pod {pod.key}: the API server does not keep status.extendedResourceClaimStatus "
                "(DRAExtendedResource is off there?)"
            )

    async def _make_or_adopt(self, pod: Pod, node_name: str) -> ExtendedResourceClaim | None:
        existing = self._ledger.claims.for_extended_resources(pod.namespace, pod.uid)
        need = extended_need(pod, self._ledger)
        if need is None and not existing:
            return None
        node = self._ledger.nodes.get(node_name)
        if node is None:
            raise RetryableError(f"node {node_name} is not known yet")
        claim_need = None if need is None else need.on(node)
        if isinstance(claim_need, Rejection):
            raise RetryableError(claim_need.text)
        adopted = None
        for record in existing:
            if adopted is None and claim_need is not None and await self._suits(record, claim_need, pod, node):
                adopted = record
        for record in existing:
            if record is not adopted:
                await self._discard(record, pod)
        if claim_need is None:
            return None
        record = adopted or await self._create(pod, claim_need, node)
        return ExtendedResourceClaim(FoundClaim(EXTENDED_LABEL, record, consumer_of(pod)), claim_need)

    async def _suits(self, record: ClaimRecord, claim_need: ExtendedClaimNeed, pod: Pod, node: Node) -> bool:
        """Return whether the pod needs this claim on the node, and its allocation, if there is one, is ours and usable there."""
        claim = record.claim
        if claim.metadata.deletion_timestamp is not None or not (record.has_status and claim_need.is_asked_by(record)):
            return False
        allocation = claim.status.allocation
        if allocation is None:
            return True
        raw = record.raw
        try:
            if not raw:
                # The ledger keeps a part of the claim only.
                raw = await self._cluster.claims.read(*claim.metadata.key)
                if read_claim(raw).metadata.uid != claim.metadata.uid:
                    raise RetryableError(
                        f"claim {'/'.join(claim.metadata.key)} was replaced by another of the same name"
                    )
            ours = self._field_manager in writers_of(raw).allocation
        except ModelError:
            return False
        except ClusterError as problem:
            raise RetryableError(f"claim {'/'.join(claim.metadata.key)}: {problem}") from problem
        usable = why_unusable_on(node, FoundClaim(EXTENDED_LABEL, record, consumer_of(pod)), self._ledger) is None
        return (
            ours
            and usable
            and all(consumer.uid == pod.uid or is_guard_reservation(consumer) for consumer in claim.status.reserved_for)
        )

    async def _create(self, pod: Pod, claim_need: ExtendedClaimNeed, node: Node) -> ClaimRecord:
        """Create the claim, or adopt the claim of its name, which the watch may not have delivered yet."""
        name = f"{pod.namespace}/{name_for(pod)}"
        try:
            owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "controller": True}
            claim = {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {
                    "name": name_for(pod),
                    "generateName": _generate_name(pod),
                    "namespace": pod.namespace,
                    "annotations": {EXTENDED_ANNOTATION: "true"},
                    "ownerReferences": [owner],
                },
                "spec": claim_need.claim.record.spec,
            }
            return await self._writing.create(pod.namespace, msgspec.json.encode(claim), ("", "Pod"))
        except ConflictError:
            pass
        except (ClusterError, ModelError) as problem:
            raise RetryableError(f"pod {pod.key}: {problem}") from problem
        try:
            raw = await self._cluster.claims.read(pod.namespace, name_for(pod))
            if read_claim(raw).extended_for != pod.uid:
                raise RetryableError(f"claim {name} is not of pod {pod.key}, whose claim would have that name")
            record = self._ledger.assume_written(raw)
        except (ClusterError, ModelError) as problem:
            raise RetryableError(f"claim {name}: {problem}") from problem
        if not await self._suits(record, claim_need, pod, node):
            await self._discard(record, pod)
            raise RetryableError(f"claim {name} was left by an earlier attempt; the next bind makes another")
        return record

    async def _discard(self, record: ClaimRecord, pod: Pod) -> None:
        """Delete a claim of the pod, unless the live pod is bound: then it may run with this claim."""
        try:
            live = await self._cluster.pods.read(pod.namespace, pod.name)
        except NotFoundError as gone:
            raise RetryableError(f"pod {pod.key} does not exist any more") from gone
        except (ClusterError, ModelError) as problem:
            raise RetryableError(f"pod {pod.key}: {problem}") from problem
        if live.uid == pod.uid and live.node_name:
            raise RetryableError(f"pod {pod.key} is bound to node {live.node_name} already")
        await self._writing.discard(record)

    async def _clean_up(self, record: ClaimRecord, pod: Pod, *, released: bool) -> None:
        current = self._ledger.claims.by_uid(record.claim.metadata.uid)
        if (
            current is None
            or current.pending is not None
            or (current.claim.status.allocation is not None and not released)
        ):
            return
        try:
            await self._discard(current, pod)
        except RetryableError as problem:
            claim = current.claim.metadata.full_name
            _LOG.warning("a claim for extended resources was left behind", claim=claim, problem=str(problem))


def name_for(pod: Pod) -> str:
    """Return the name of the pod's claim, as if made of the generateName; the suffix follows from the pod's UID."""
    return _generate_name(pod)[:_LONGEST_BASE] + suffix_of(pod.uid)


def _generate_name(pod: Pod) -> str:
    return f"{pod.name}-extended-resources-"
