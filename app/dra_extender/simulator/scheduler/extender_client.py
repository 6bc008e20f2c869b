"""The scheduler's side of the extender protocol: what kube-scheduler sends, and what it makes of an answer."""

from typing import Any, Final, Protocol

import msgspec

from dra_extender.simulator.apiserver.objects import Json

HTTP_OK: Final = 200


class ExtenderTransport(Protocol):
    """Carries one call to the extender."""

    async def post(self, verb: str, body: bytes) -> tuple[int, bytes]:
        """POST the JSON body to this verb; returns status and body.  Raises OSError when there is no answer."""
        ...


class ExtenderFailure(Exception):  # noqa: N818 - it is the extender's failure, as the scheduler sees it
    """A call did not give a usable answer: the attempt ends with an error and the pod backs off."""


class FilterReply(msgspec.Struct, frozen=True, rename="pascal"):
    """Answer to filter: nodes that fit, and why each other one does not."""

    node_names: tuple[str, ...] | None = None
    failed_nodes: dict[str, str] | None = None
    failed_and_unresolvable_nodes: dict[str, str] | None = None
    error: str = ""

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.node_names or ()

    @property
    def reasons(self) -> dict[str, str]:
        """Return why nodes do not fit; unresolvable reasons win."""
        return {**(self.failed_nodes or {}), **(self.failed_and_unresolvable_nodes or {})}


class _Priority(msgspec.Struct, frozen=True, rename="pascal"):
    host: str
    score: int


class _BindReply(msgspec.Struct, frozen=True, rename="pascal"):
    error: str = ""


class ExtenderClient:
    """One extender with `nodeCacheCapable: true`, reached over a transport."""

    def __init__(self, transport: ExtenderTransport) -> None:
        self._transport = transport

    async def filter(self, pod: Json, nodes: list[str]) -> FilterReply:
        """Ask which of these nodes fit.

        Raises:
            ExtenderFailure: no answer, an `Error`, or a node that was not asked about.
        """
        body = {"Pod": pod, "Nodes": None, "NodeNames": nodes}
        reply: FilterReply = await self._call("filter", body, FilterReply)
        if reply.error:
            raise ExtenderFailure(reply.error)
        for name in reply.nodes:
            if name not in nodes:
                raise ExtenderFailure(
                    f'extender claims a filtered node "{name}" which is not found in the input node list'
                )
        return reply

    async def prioritize(self, pod: Json, nodes: list[str]) -> dict[str, int]:
        """Return scores of the nodes, 0 for those not mentioned; an error counts as no opinion, as kube-scheduler takes it."""
        scores = dict.fromkeys(nodes, 0)
        try:
            body = {"Pod": pod, "Nodes": None, "NodeNames": nodes}
            reply = await self._call("prioritize", body, list[_Priority])
        except ExtenderFailure:
            return scores
        scores.update({priority.host: priority.score for priority in reply if priority.host in scores})
        return scores

    async def bind(self, pod: Json, node: str) -> None:
        """Have the pod bound to the node.

        Raises:
            ExtenderFailure: no answer, or an `Error`.
        """
        metadata = pod["metadata"]
        body = {
            "PodName": metadata["name"],
            "PodNamespace": metadata["namespace"],
            "PodUID": metadata["uid"],
            "Node": node,
        }
        reply = await self._call("bind", body, _BindReply)
        if reply.error:
            raise ExtenderFailure(reply.error)

    async def _call(self, verb: str, body: Json, answer: Any) -> Any:
        try:
            status, data = await self._transport.post(verb, msgspec.json.encode(body))
        except OSError as problem:
            raise ExtenderFailure(f"{verb}: no answer from the extender: {problem}") from problem
        if status != HTTP_OK:
            raise ExtenderFailure(f"{verb}: the extender answered with HTTP status {status}")
        try:
            return msgspec.json.decode(data, type=answer)
        except msgspec.DecodeError as problem:
            raise ExtenderFailure(f"{verb}: the extender's answer cannot be read: {problem}") from problem
