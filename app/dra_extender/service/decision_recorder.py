"""Records each decision about a pod that needs devices, for /debug/decisions."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from dra_extender.api.verbs import Verbs
from dra_extender.model.pod import RequestPod
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.filter_response import FilterResponse, OneText
from dra_extender.scheduling.recent_decisions import Outcome, RecentDecisions

_MOST_NODES: Final = 200
"""Nodes of a rejection among whose reasons different ones are looked for."""
_MOST_REASONS: Final = 3


@dataclass(frozen=True)
class DecisionRecorder:
    """Implements Verbs over others, and records what they decide; responses stay the same.

    `needs_devices` tells whether the pod with this UID needs devices, as far as that is known.
    """

    verbs: Verbs
    decisions: RecentDecisions
    needs_devices: Callable[[str], bool]

    async def filter(self, pod: RequestPod, nodes: Sequence[str]) -> FilterResponse:
        try:
            answer = await self.verbs.filter(pod, nodes)
        except RetryableError as problem:
            self._note_retry("filter", (pod.namespace, pod.name), pod.uid, problem)
            raise
        fitting = answer.fitting
        # The answer about a pod without devices is the list of nodes itself, which is not decoded.
        if fitting is nodes:
            return answer
        note, namespace, name = self.decisions.note, pod.namespace, pod.name
        if fitting:
            note("filter", namespace, name, Outcome.FITS, node=fitting[0], nodes=len(fitting))
        else:
            against = answer.unresolvable
            note("filter", namespace, name, Outcome.REJECTED, nodes=len(against), reason=_reasons(against))
        return answer

    async def prioritize(self, pod: RequestPod, nodes: Sequence[str]) -> Sequence[tuple[str, int]]:
        """See Verbs; the order of nodes is no decision about the pod."""
        return await self.verbs.prioritize(pod, nodes)

    async def bind(self, namespace: str, name: str, uid: str, node: str, disconnected: asyncio.Event, /) -> None:
        needs_devices = self.needs_devices(uid)
        try:
            await self.verbs.bind(namespace, name, uid, node, disconnected)
        except RetryableError as problem:
            self._note_retry("bind", (namespace, name), uid, problem, node)
            raise
        if needs_devices:
            self.decisions.note("bind", namespace, name, Outcome.BOUND, node=node)

    async def preempt(self, pod: RequestPod, victims: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[str]]:
        try:
            feasible_nodes = await self.verbs.preempt(pod, victims)
        except RetryableError as problem:
            self._note_retry("preempt", (pod.namespace, pod.name), pod.uid, problem)
            raise
        if self.needs_devices(pod.uid):
            outcome = Outcome.FITS if feasible_nodes else Outcome.REJECTED
            reason = (
                ""
                if feasible_nodes
                else "evicting the victims that kube-scheduler proposes frees no devices for the pod"
            )
            node, nodes = next(iter(feasible_nodes), ""), len(feasible_nodes or victims)
            self.decisions.note("preempt", pod.namespace, pod.name, outcome, node=node, nodes=nodes, reason=reason)
        return feasible_nodes

    def _note_retry(self, verb: str, key: tuple[str, str], uid: str, problem: RetryableError, node: str = "") -> None:
        """Note why there is no decision, if the pod needs devices."""
        if self.needs_devices(uid):
            self.decisions.note(verb, *key, Outcome.RETRY, node=node, reason=str(problem))


def _reasons(against: Mapping[str, str]) -> str:
    """Return the first different reasons, without the words that kube-scheduler needs to count nodes."""
    texts = (against.text,) if isinstance(against, OneText) else islice(against.values(), _MOST_NODES)
    return "; ".join(text.removeprefix("node(s): ") for text in islice(dict.fromkeys(texts), _MOST_REASONS))
