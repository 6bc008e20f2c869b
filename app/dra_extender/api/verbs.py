import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from dra_extender.model.pod import RequestPod
from dra_extender.scheduling.ports.errors import FilterResponse


class Verbs(Protocol):
    """What the extender can do for kube-scheduler.  Every method may raise TryAgain, whose text becomes the protocol's `Error`."""

    async def filter(self, pod: RequestPod, nodes: Sequence[str]) -> FilterResponse:
        """Which of these nodes fit; the fitting ones are among `nodes`."""
        ...

    async def prioritize(self, pod: RequestPod, nodes: Sequence[str]) -> Sequence[tuple[str, int]]:
        """(node, score from 0 to 10)."""
        ...

    async def bind(self, namespace: str, name: str, uid: str, node: str, hung_up: asyncio.Event) -> None:
        """Bind the pod to the node; `hung_up` is set when the caller's connection is gone."""
        ...

    async def preempt(self, pod: RequestPod, victims: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[str]]:
        """Node -> UIDs of the pods to evict there, of the proposal in `victims`; nodes may be dropped."""
        ...
