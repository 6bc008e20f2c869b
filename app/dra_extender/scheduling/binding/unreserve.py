"""The release of the claims of a pod that is not bound, as kube-scheduler's Unreserve does it."""

from collections.abc import Iterator
from contextlib import contextmanager

from dra_extender.ledger.claim_record import ClaimRecord
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import is_group
from dra_extender.scheduling.claims.lookup import FoundClaim
from dra_extender.scheduling.claims.writer import ClaimReleasedError, ClaimWriter


class Unreserve:
    """Releases what a pod that is not bound yet has of a claim: its reservation, and the allocation if no other consumer uses it.

    What is reserved for the pod's PodGroup stays while another member is bound or is being bound.
    """

    def __init__(self, ledger: Ledger, writer: ClaimWriter) -> None:
        self._ledger = ledger
        self._writer = writer
        self._releasing: set[tuple[str, str]] = set()

    async def release(self, claim: FoundClaim, pod: Pod, guards: frozenset[str] = frozenset()) -> None:
        """Release the pod's part of the claim; do nothing while another member of its gang releases the same claim.

        `guards`: guard claims (UIDs) whose reservations go, too; one that stays keeps the allocation.

        Raises:
            RetryableError: the server could not be written to.
        """
        key = (claim.uid, claim.consumer.uid)
        if key in self._releasing or (claim.consumer.uid != pod.uid and self._group_runs(pod, claim.consumer.name)):
            return
        self._releasing.add(key)
        try:
            await self._writer.release(claim.record, guards | {claim.consumer.uid})
        finally:
            self._releasing.discard(key)

    def current(self, claim: FoundClaim, pod: Pod) -> ClaimRecord:
        """Return the claim as it is known now.

        Raises:
            ClaimReleasedError: it is not allocated for the pod or its PodGroup any more, or is just being released.
        """
        uid, consumer = claim.uid, claim.consumer.uid
        record = self._ledger.claims.by_uid(uid)
        if (
            record is None
            or record.claim.status.allocation is None
            or not record.claim.reserved_by(consumer)
            or (uid, consumer) in self._releasing
        ):
            raise ClaimReleasedError(f"claim {claim.name} was deallocated while pod {pod.key} waited for it")
        return record

    @contextmanager
    def counted_as_bound(self, pod: Pod) -> Iterator[None]:
        """Count the pod as bound inside; after an end without an error, until the watch shows it bound or gone."""
        pods = self._ledger.pods
        pods.begin_binding(pod)
        try:
            yield
        except BaseException:
            pods.binding_failed(pod.uid)
            raise

    def runs_elsewhere(self, claim: FoundClaim, pod: Pod) -> bool:
        """Return whether another pod that uses this claim is bound: then its allocation cannot be released."""
        for consumer in claim.record.claim.status.reserved_for:
            if is_group(consumer):
                if self._group_runs(pod, consumer.name):
                    return True
            elif consumer.uid != pod.uid:
                consumer_pod = self._ledger.pods.by_uid(consumer.uid)
                if consumer_pod is not None and consumer_pod.node_name:
                    return True
        return False

    def _group_runs(self, pod: Pod, group: str) -> bool:
        """Return whether a member other than the pod is bound or is being bound."""
        return self._ledger.pods.has_running_member(pod.namespace, group, besides=pod.uid) or any(
            (member.namespace, member.pod_group) == (pod.namespace, group)
            for member in self._ledger.pods.being_bound()
            if member.uid != pod.uid
        )
