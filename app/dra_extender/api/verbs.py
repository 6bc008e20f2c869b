"""The verbs of the extender protocol: what each reads of a request, asks the extender, and answers."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec
from starlette.types import Receive

from dra_extender.api.calls import VerbHandler, disconnection
from dra_extender.api.decoding import (
    CANDIDATES,
    UNREADABLE,
    VICTIMS,
    WHOLE_NODES,
    MalformedRequestError,
    Name,
    RequestReader,
    check_items,
    check_length,
    check_members,
    check_names,
    explain,
)
from dra_extender.api.protocol import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    FeasibleNodes,
    MetaPod,
    NamedNode,
    NodeList,
    Victims,
    WireFilterResult,
    WireHostPriority,
    WireMetaVictims,
    encode,
    encode_texts,
)
from dra_extender.model.api_json import ModelError
from dra_extender.model.lazy_node_names import NodeNames
from dra_extender.model.pod import RequestPod
from dra_extender.scheduling.ports.filter_response import FilterResponse


class Verbs(Protocol):
    """The verbs of an extender for kube-scheduler.

    Every method may raise RetryableError, whose text becomes the protocol's `Error`.
    """

    async def filter(self, pod: RequestPod, nodes: Sequence[str]) -> FilterResponse:
        """Find which of these nodes fit; the fitting ones are among `nodes`."""
        ...

    async def prioritize(self, pod: RequestPod, nodes: Sequence[str]) -> Sequence[tuple[str, int]]:
        """Return pairs of a node and its score from 0 to 10."""
        ...

    async def bind(self, namespace: str, name: str, uid: str, node: str, disconnected: asyncio.Event, /) -> None:
        """Bind the pod to the node; `disconnected` is set when the caller's connection is gone."""
        ...

    async def preempt(self, pod: RequestPod, victims: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[str]]:
        """Return by node the UIDs of the pods to evict there, of the proposal in `victims`; nodes may be dropped."""
        ...


T = TypeVar("T")

_LISTS: Final = ("NodeNames", "Nodes")
_MAPS: Final = ("NodeNameToMetaVictims", "NodeNameToVictims")
_FILTER: Final = RequestReader("filter", ExtenderArgs, needed=_LISTS)
_PRIORITIZE: Final = RequestReader("prioritize", ExtenderArgs, needed=_LISTS)
_BIND: Final = RequestReader("bind", ExtenderBindingArgs, needed=())
_PREEMPT: Final = RequestReader("preempt", ExtenderPreemptionArgs, needed=_MAPS)
_FAST_PATH: Final = msgspec.json.Decoder(ExtenderArgs)
_NODE: Final = msgspec.json.Decoder(NamedNode)
_NODES: Final = msgspec.json.Decoder(NodeList | None)
_NAMES: Final = msgspec.json.Decoder(list[Name] | None)
_META_VICTIMS: Final = msgspec.json.Decoder(dict[Name, WireMetaVictims] | None)
_VICTIMS: Final = msgspec.json.Decoder(dict[Name, Victims] | None)


def verb_handlers(verbs: Verbs) -> Mapping[str, VerbHandler]:
    async def filter_nodes(body: bytes, _: Receive) -> bytes:
        pod, nodes = _fast_path_args(body) or _filter_args(body)
        try:
            answer = await verbs.filter(pod, nodes.names)
            fitting = list(answer.fitting)
        except ModelError as problem:
            # The fast path decodes names lazily; if one of them is wrong, the error names it.
            _filter_args(body)
            raise MalformedRequestError(_explained("filter", problem)) from problem
        if nodes.items is None:
            # The names that are decoded lazily need no escapes in JSON.
            reasons = encode_texts(answer.unresolvable, plain=isinstance(nodes.names, NodeNames))
            return encode(WireFilterResult(node_names=fitting, failed_and_unresolvable_nodes=reasons))
        feasible_nodes = set(fitting)
        items = [item for name, item in zip(nodes.names, nodes.items, strict=True) if name in feasible_nodes]
        reasons = encode_texts(answer.unresolvable, plain=False)
        return encode(WireFilterResult(nodes=FeasibleNodes(items), failed_and_unresolvable_nodes=reasons))

    async def prioritize(body: bytes, _: Receive) -> bytes:
        args = _PRIORITIZE.read(body)
        pod, names = _pod("prioritize", args.pod), _nodes("prioritize", args).names
        with _of_the_pod("prioritize"):
            scores = await verbs.prioritize(pod, names)
        return encode([WireHostPriority(host, score) for host, score in scores])

    async def bind(body: bytes, receive: Receive) -> bytes:
        args = _BIND.read(body)
        for field, value in zip(
            ("PodName", "PodNamespace", "PodUID", "Node"), msgspec.structs.astuple(args), strict=True
        ):
            if not value:
                raise MalformedRequestError(f"bind: {field}: expected a name, got an empty string")
        async with disconnection(receive) as disconnected:
            await verbs.bind(args.pod_namespace, args.pod_name, args.pod_uid, args.node, disconnected)
        return b'{"Error":""}'

    async def preempt(body: bytes, _: Receive) -> bytes:
        args = _PREEMPT.read(body)
        pod, proposed = _pod("preempt", args.pod), _proposed(args)
        # A long proposal is handled in steps, so that other calls and probes are served in between.
        await asyncio.sleep(0)
        victims = {node: [victim.uid for victim in on_node.pods or ()] for node, on_node in proposed.items()}
        with _of_the_pod("preempt"):
            accepted = await verbs.preempt(pod, victims)
        await asyncio.sleep(0)
        # A node without victims would fail the whole preemption.
        answer = {node: _merged(proposed.get(node, WireMetaVictims()), uids) for node, uids in accepted.items() if uids}
        return encode(ExtenderPreemptionResult(answer))

    return {"filter": filter_nodes, "prioritize": prioritize, "bind": bind, "preempt": preempt}


class _Nodes(NamedTuple):
    """The names of the nodes in the request, and the whole nodes if the request had those."""

    names: Sequence[str]
    items: Sequence[msgspec.Raw] | None = None


def _fast_path_args(body: bytes) -> tuple[RequestPod, _Nodes] | None:
    """Read the request as kube-scheduler spells it, with names that are decoded lazily; None if anything is unusual."""
    try:
        args = _FAST_PATH.decode(body)
        raw = bytes(args.node_names)
        check_names("filter", raw)
        names = NodeNames.read(raw)
        return None if names is None else (RequestPod(bytes(args.pod)), _Nodes(names))
    except (*UNREADABLE, ModelError):
        return None


def _filter_args(body: bytes) -> tuple[RequestPod, _Nodes]:
    """Read the request completely, except for the pod beyond its identity.  Raises MalformedRequestError."""
    args = _FILTER.read(body)
    return _pod("filter", args.pod), _nodes("filter", args)


def _nodes(verb: str, args: ExtenderArgs) -> _Nodes:
    check_names(verb, bytes(args.node_names))
    names = _decoded(verb, "NodeNames", _NAMES, args.node_names)
    if names is not None:
        return _Nodes(names)
    check_items(verb, "Nodes", bytes(args.nodes))
    items = (_decoded(verb, "Nodes", _NODES, args.nodes) or NodeList()).items or ()
    check_length(verb, "Nodes.items", items, WHOLE_NODES, "nodes")
    return _Nodes(
        [_decoded(verb, f"Nodes.items[{index}]", _NODE, item).metadata.name for index, item in enumerate(items)], items
    )


def _proposed(args: ExtenderPreemptionArgs) -> dict[str, WireMetaVictims]:
    verb, meta, full = "preempt", *_MAPS
    check_members(verb, meta, bytes(args.node_name_to_meta_victims))
    proposed: dict[str, WireMetaVictims] | None = _decoded(verb, meta, _META_VICTIMS, args.node_name_to_meta_victims)
    if proposed is not None:
        _check_proposal(meta, proposed)
        return proposed
    check_members(verb, full, bytes(args.node_name_to_victims))
    victims: dict[str, Victims] = _decoded(verb, full, _VICTIMS, args.node_name_to_victims) or {}
    _check_proposal(full, victims)
    return {
        node: WireMetaVictims(
            tuple(MetaPod(pod.metadata.uid) for pod in node_victims.pods or ()), node_victims.num_pdb_violations
        )
        for node, node_victims in victims.items()
    }


def _check_proposal(field: str, proposed: Mapping[str, WireMetaVictims] | Mapping[str, Victims]) -> None:
    check_length("preempt", field, proposed, CANDIDATES, "nodes")
    for victims in proposed.values():
        check_length("preempt", f"{field}[...].Pods", victims.pods or (), VICTIMS, "victims")


def _decoded(verb: str, field: str, decoder: "msgspec.json.Decoder[T]", raw: msgspec.Raw) -> T:
    try:
        return decoder.decode(raw)
    except UNREADABLE as problem:
        raise MalformedRequestError(explain(verb, problem, field)) from problem


def _pod(verb: str, raw: msgspec.Raw) -> RequestPod:
    with _of_the_pod(verb):
        return RequestPod(bytes(raw))


def _explained(verb: str, problem: ModelError) -> str:
    cause = problem.__cause__
    return explain(verb, cause if isinstance(cause, Exception) else problem, "Pod")


@contextmanager
def _of_the_pod(verb: str) -> Iterator[None]:
    """Have errors of reading inside name the field `Pod`."""
    try:
        yield
    except ModelError as problem:
        raise MalformedRequestError(_explained(verb, problem)) from problem


def _merged(proposed: WireMetaVictims, uids: Sequence[str]) -> WireMetaVictims:
    """Return these victims in the order of the proposal (kube-scheduler ranks nodes by the first one), added ones last."""
    victim_uids = set(uids)
    ordered = dict.fromkeys(pod.uid for pod in proposed.pods or () if pod.uid in victim_uids)
    return WireMetaVictims(tuple(MetaPod(uid) for uid in ordered | dict.fromkeys(uids)), proposed.num_pdb_violations)
