"""Claims that a pod names and the ledger lacks: there are none, or the watch is about to deliver them.

A claim is often created a moment before its pod, and pods come by another watch.  In-tree a pod waits before the queue until the
informer has its claims (PreEnqueue of DynamicResources); an extender gets the pod at once.
"""

import asyncio
from typing import Final

from dra_extender.ledger.ledger import Ledger
from dra_extender.model.pod import Pod
from dra_extender.runtime.token_bucket import TokenBuckets
from dra_extender.scheduling.claims.lookup import claim_names
from dra_extender.scheduling.ports.cluster import Claims, ClusterError, NotFoundError
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options
from dra_extender.scheduling.time_slices import CallBudget, TimeSlices

QUESTIONS_RATE: Final = 10.0
"""Questions per second that the pods of a namespace may cause; beyond that, the watch alone decides what exists."""
QUESTIONS_BURST: Final = 100.0
_NAMESPACES: Final = 1024
_LOOK_AGAIN_SECONDS: Final = 0.01


class UndeliveredClaims:
    """Asks the API server about a claim that the ledger lacks, and waits for the watch if there is one."""

    def __init__(self, ledger: Ledger, claims: Claims, slices: TimeSlices, options: Options) -> None:
        self._ledger = ledger
        self._claims = claims
        self._clock = slices.clock
        self._slices = slices
        self._seconds = options.new_claim_wait_seconds
        self._questions = TokenBuckets(QUESTIONS_RATE, QUESTIONS_BURST, _NAMESPACES)

    async def come(self, pod: Pod, budget: CallBudget) -> bool:
        """Return whether the ledger has got claims that the pod names and that it lacked; False if one does not exist.

        kube-scheduler waits meanwhile, so the wait is charged as a search is.  For a namespace that has taken more than its share
        of time there is none: the watch alone decides what exists.

        Raises:
            RetryableError: a claim exists and was not delivered in time, or the API server did not answer.  Never a reason to call
                the pod unschedulable.
        """
        if budget.overdrawn or not self._seconds:
            return False
        missing = self._missing(pod)
        if missing is None:
            return False
        began = self._clock.monotonic()
        try:
            return await self._delivered(pod, missing)
        finally:
            self._slices.charge(pod, self._clock.monotonic() - began)

    async def _delivered(self, pod: Pod, name: str) -> bool:
        missing: str | None = name
        try:
            async with asyncio.timeout(self._seconds):
                while missing is not None and await self._exists(pod.namespace, missing):
                    while self._lacks(pod.namespace, missing):  # noqa: ASYNC110 - the watch writes into the ledger
                        await asyncio.sleep(_LOOK_AGAIN_SECONDS)
                    missing = self._missing(pod)
                return missing is None
        except TimeoutError as late:
            raise RetryableError(
                f"claim {pod.namespace}/{missing} is not known yet: the watch has not brought it within {self._seconds:g} s"
            ) from late

    def _missing(self, pod: Pod) -> str | None:
        """Return the name of the first claim that the ledger lacks."""
        names = claim_names(self._ledger.pods.newest(pod), self._ledger)
        return next((name for name in names if self._lacks(pod.namespace, name)), None)

    def _lacks(self, namespace: str, name: str) -> bool:
        return self._ledger.claims.by_key(namespace, name) is None

    async def _exists(self, namespace: str, name: str) -> bool:
        if not self._questions.take(namespace, self._clock.monotonic()):
            return False
        try:
            await self._claims.read(namespace, name)
        except NotFoundError:
            return False
        except ClusterError as problem:
            raise RetryableError(f"claim {namespace}/{name} is not known yet: {problem}") from problem
        return True
