from app.ledger.ledger import Ledger
from app.model.pod import Pod
from app.scheduling.answers import TryAgain
from app.scheduling.claim_lookup import FoundClaim
from app.scheduling.claim_writing import ClaimWriting


class GivenBack(TryAgain):
    """The pod's devices, or some of them, were given back: it is not going to that node any more."""


class GivingBack:
    """Gives back what a pod that is not bound yet has of a claim: its reservation, and the allocation if nobody else uses it."""

    def __init__(self, ledger: Ledger, writing: ClaimWriting) -> None:
        self._ledger = ledger
        self._writing = writing

    async def __call__(self, found: FoundClaim, pod: Pod) -> None:
        """A claim that is reserved for the pod's PodGroup stays as it is while another member runs on it.

        Raises:
            TryAgain: the server could not be written to.
        """
        if found.consumer.uid == pod.uid or not self._group_runs(pod):
            await self._writing.release(found.record, (found.consumer.uid,))

    def runs_somewhere(self, found: FoundClaim, pod: Pod) -> bool:
        """Whether another pod that uses this claim is bound: then its allocation cannot be taken back."""
        if found.consumer.uid != pod.uid and self._group_runs(pod):
            return True
        consumers = (self._ledger.pods.by_uid(each.uid) for each in found.record.claim.status.reserved_for)
        return any(each is not None and each.node_name and each.uid != pod.uid for each in consumers)

    def _group_runs(self, pod: Pod) -> bool:
        return any(
            each.node_name and not each.finished
            for each in self._ledger.pods.all()
            if each.uid != pod.uid and (each.namespace, each.pod_group) == (pod.namespace, pod.pod_group)
        )
