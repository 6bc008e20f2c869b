from collections.abc import Mapping, Sequence

import msgspec
from starlette.types import Receive

from app.api.decoding import UNREADABLE, Malformed, RequestReader, explain
from app.api.hang_up import watched
from app.api.protocol import (
    AnsweredNodes,
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    HostPriority,
    MetaPod,
    MetaVictims,
    NamedNode,
    NodeList,
    UsualExtenderArgs,
    encode,
)
from app.api.verbs import Verbs
from app.model.base import ModelError
from app.model.node_names import NodeNames
from app.scheduling.answers import FilterAnswer

_LISTS = ("NodeNames", "Nodes")
_MAPS = ("NodeNameToMetaVictims", "NodeNameToVictims")
_USUAL = msgspec.json.Decoder(UsualExtenderArgs)
_NODE = msgspec.json.Decoder(NamedNode)


class FilterHandler:
    """POST /filter."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs
        self._reader = RequestReader("filter", ExtenderArgs, needed=_LISTS)

    async def __call__(self, body: bytes, receive: Receive) -> bytes:  # noqa: ARG002 - the shape of a Verb
        """See Verb."""
        done = await self._usual(body)
        if done is not None:
            return done
        args = self._reader.read(body)
        names = _names("filter", args)
        answer = await self._verbs.filter(args.pod.compact(), names)
        if args.nodes is None or args.node_names is not None:
            return _answered(answer, None, list(answer.fitting))
        fitting = set(answer.fitting)
        items = [item for name, item in zip(names, args.nodes.items or (), strict=True) if name in fitting]
        return _answered(answer, AnsweredNodes(items), None)

    async def _usual(self, body: bytes) -> bytes | None:
        """The answer to what kube-scheduler sends, of which only those names are read that matter; None if anything is unusual."""
        try:
            args = _USUAL.decode(body)
            names = NodeNames.read(bytes(args.node_names)) if args.nodes is None else None
            if names is None:
                return None
            answer = await self._verbs.filter(args.pod.compact(), names)
            return _answered(answer, None, list(answer.fitting))
        except (*UNREADABLE, ModelError):
            return None


class PrioritizeHandler:
    """POST /prioritize."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs
        self._reader = RequestReader("prioritize", ExtenderArgs, needed=_LISTS)

    async def __call__(self, body: bytes, receive: Receive) -> bytes:  # noqa: ARG002 - the shape of a Verb
        """See Verb."""
        args = self._reader.read(body)
        scores = await self._verbs.prioritize(args.pod.compact(), _names("prioritize", args))
        return encode([HostPriority(host, score) for host, score in scores])


class BindHandler:
    """POST /bind."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs
        self._reader = RequestReader("bind", ExtenderBindingArgs, needed=())

    async def __call__(self, body: bytes, receive: Receive) -> bytes:
        """See Verb."""
        args = self._reader.read(body)
        for field, value in zip(
            ("PodName", "PodNamespace", "PodUID", "Node"), msgspec.structs.astuple(args), strict=True
        ):
            if not value:
                raise Malformed(f"bind: {field}: expected a name, got an empty string")
        async with watched(receive) as hung_up:
            await self._verbs.bind(args.pod_namespace, args.pod_name, args.pod_uid, args.node, hung_up)
        return b'{"Error":""}'


class PreemptHandler:
    """POST /preempt."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs
        self._reader = RequestReader("preempt", ExtenderPreemptionArgs, needed=_MAPS)

    async def __call__(self, body: bytes, receive: Receive) -> bytes:  # noqa: ARG002 - the shape of a Verb
        """See Verb."""
        args = self._reader.read(body)
        proposed = _proposed(args)
        victims = {node: [pod.uid for pod in each.pods or ()] for node, each in proposed.items()}
        kept = await self._verbs.preempt(args.pod.compact(), victims)
        # A node without victims would fail the whole preemption.
        answer = {node: _merged(proposed.get(node, MetaVictims()), uids) for node, uids in kept.items() if uids}
        return encode(ExtenderPreemptionResult(answer))


def _answered(answer: FilterAnswer, nodes: AnsweredNodes | None, names: list[str] | None) -> bytes:
    return encode(ExtenderFilterResult(nodes, names, _reasons(answer.failed), _reasons(answer.unresolvable)))


def _reasons(given: Mapping[str, str]) -> dict[str, str] | None:
    return (given if isinstance(given, dict) else dict(given)) or None


def _names(verb: str, args: ExtenderArgs) -> Sequence[str]:
    if args.node_names is not None:
        return args.node_names
    nodes = args.nodes or NodeList()
    return [_name(verb, index, item) for index, item in enumerate(nodes.items or ())]


def _name(verb: str, index: int, node: msgspec.Raw) -> str:
    try:
        return _NODE.decode(node).metadata.name
    except UNREADABLE as problem:
        raise Malformed(explain(verb, problem, f"Nodes.items[{index}]")) from problem


def _proposed(args: ExtenderPreemptionArgs) -> dict[str, MetaVictims]:
    if args.node_name_to_meta_victims is not None:
        return args.node_name_to_meta_victims
    return {
        node: MetaVictims(tuple(MetaPod(pod.metadata.uid) for pod in each.pods or ()), each.num_pdb_violations)
        for node, each in (args.node_name_to_victims or {}).items()
    }


def _merged(proposed: MetaVictims, uids: Sequence[str]) -> MetaVictims:
    """These victims in the order of the proposal (the scheduler takes the first for the most important), added ones last."""
    wanted = set(uids)
    known = dict.fromkeys(pod.uid for pod in proposed.pods or () if pod.uid in wanted)
    return MetaVictims(tuple(MetaPod(uid) for uid in known | dict.fromkeys(uids)), proposed.num_pdb_violations)
