"""No request takes long to read or to refuse, whatever is in it."""

import asyncio
import json
from collections.abc import Callable, Sequence
from random import Random
from time import process_time
from typing import Final

import pytest
from dra_extender.api.calls import read_body
from dra_extender.api.decoding import CANDIDATES, MEMBERS, NODES, VICTIMS, WHOLE_NODES, MalformedRequestError
from dra_extender.api.verbs import verb_handlers
from dra_extender.config.service_settings import ServerSettings
from dra_extender.model.pod import RequestPod
from dra_extender.scheduling.ports.filter_response import FilterResponse
from starlette.types import Message

from tests.support.api.sites import ScriptedVerbs

LIMIT: Final = ServerSettings().body_limit_bytes
SECONDS: Final = 1.0
"""Four times what is meant, for machines that do something else meanwhile."""


class Unread(ScriptedVerbs):
    """Nothing is read of the pod, as nothing is of one that the watch has brought."""

    async def filter(self, pod: RequestPod, nodes: Sequence[str]) -> FilterResponse:
        return FilterResponse((), dict.fromkeys(nodes, "no"))

    async def prioritize(self, pod: RequestPod, nodes: object) -> list[tuple[str, int]]:
        return [(node, 0) for node in nodes]  # type: ignore[attr-defined]


def listed(item: bytes, size: int) -> bytes:
    return b"[" + (item + b",") * (size // (len(item) + 1)) + item + b"]"


def members(count: int, value: str) -> bytes:
    """Random keys, so that a dictionary of them suits no cache."""
    random = Random(1)
    return ("{" + ",".join(f'"{random.getrandbits(40):x}":{value}' for _ in range(count)) + "}").encode()


def asked(names: bytes, pod: bytes = b"{}") -> bytes:
    return b'{"Pod":' + pod + b',"NodeNames":' + names + b"}"


def proposed(victims: bytes, key: bytes = b"NodeNameToMetaVictims") -> bytes:
    return b'{"Pod":{},"' + key + b'":' + victims + b"}"


def names(count: int, length: int) -> bytes:
    return json.dumps([f"{number:0{length}}" for number in range(count)], separators=(",", ":")).encode()


ONE = b'["a"]'
SIZE = LIMIT - 1000
BODIES: dict[str, Callable[[], bytes]] = {
    "short names": lambda: asked(listed(b'"a"', SIZE)),
    "as many names as may be": lambda: asked(names(NODES, 100)),
    "escaped names": lambda: asked(listed(rb'"\u0041"', SIZE)),
    "a long name": lambda: asked(b'["' + b"a" * SIZE + b'"]'),
    "whole nodes": lambda: b'{"Pod":{},"Nodes":{"items":' + listed(b'{"metadata":{"name":"a"}}', SIZE) + b"}}",
    "things that are no nodes": lambda: b'{"Pod":{},"Nodes":{"items":' + listed(b"0", SIZE) + b"}}",
    "keys in lower case": lambda: b'{"pod":{},"nodenames":["a"],' + members(SIZE // 16, "0")[1:],
    "a few keys in lower case": lambda: b'{"pod":{},"nodenames":["a"],' + members(49_000, "0")[1:],
    "deep pod": lambda: asked(ONE, b"[" * (SIZE // 2) + b"]" * (SIZE // 2)),
    "pod of numbers": lambda: asked(ONE, b'{"x":' + listed(b"1", SIZE) + b"}"),
    "pod of lists": lambda: asked(ONE, b'{"x":' + listed(b"[]", SIZE) + b"}"),
    "pod of annotations": lambda: asked(ONE, b'{"metadata":{"annotations":' + members(SIZE // 20, '""') + b"}}"),
    "pod of containers": lambda: asked(
        ONE, b'{"spec":{"containers":' + listed(b'{"resources":{"requests":{"a/b":1}}}', SIZE) + b"}}"
    ),
    "spaces": lambda: asked(ONE) + b" " * SIZE,
    "candidates": lambda: proposed(members(SIZE // 20, "{}")),
    "fewer candidates": lambda: proposed(members(MEMBERS - 10, "{}")),
    "candidates with a victim each": lambda: proposed(members(CANDIDATES, '{"Pods":[{"UID":"u"}]}')),
    "victims": lambda: proposed(b'{"n":{"Pods":' + listed(b'{"UID":"u"}', SIZE) + b"}}"),
    "victims without UID": lambda: proposed(b'{"n":{"Pods":' + listed(b"{}", SIZE) + b"}}"),
    "as many victims as may be": lambda: proposed(
        members(24, '{"Pods":[' + ",".join(f'{{"UID":"{number:036}"}}' for number in range(VICTIMS)) + "]}")
    ),
    "whole victims": lambda: proposed(
        b'{"n":{"Pods":' + listed(b'{"metadata":{"uid":""}}', SIZE) + b"}}", b"NodeNameToVictims"
    ),
    "a long name to bind": lambda: b'{"PodName":"' + b"a" * SIZE + b'"}',
}


@pytest.mark.parametrize("case", BODIES)
async def test_a_body_of_the_largest_size_is_read_or_refused_quickly(case: str) -> None:
    body = BODIES[case]()
    assert len(body) <= LIMIT
    for verb, handle in verb_handlers(Unread()).items():
        before = process_time()
        try:
            await handle(body, _never)
        except MalformedRequestError as problem:
            assert len(str(problem)) < 300  # noqa: PT017 - either way is fine
        assert process_time() - before < SECONDS, verb


async def test_merging_victims_takes_no_longer_than_reading_them() -> None:
    """A set of all that was made anew for each would take minutes."""
    uids = [f"{number:05}" for number in range(VICTIMS)]
    verbs = ScriptedVerbs(victims={f"n{number}": list(reversed(uids)) for number in range(16)})
    half = json.dumps({"Pods": [{"UID": uid} for uid in uids[: VICTIMS // 2]], "NumPDBViolations": 3})
    body = proposed(("{" + ",".join(f'"n{number}":{half}' for number in range(16)) + "}").encode())
    before = process_time()
    answer = json.loads(await verb_handlers(verbs)["preempt"](body, _never))["NodeNameToMetaVictims"]
    assert process_time() - before < SECONDS
    told = [each["UID"] for each in answer["n7"]["Pods"]]
    assert told == [*uids[: VICTIMS // 2], *reversed(uids[VICTIMS // 2 :])]
    assert answer["n7"]["NumPDBViolations"] == 3


async def _never() -> Message:
    await asyncio.Event().wait()
    return {}


@pytest.mark.parametrize(
    ("verb", "body", "said"),
    [
        ("filter", asked(listed(b'"a"', 5 * NODES)), f"filter: NodeNames: expected at most {NODES} names"),
        ("filter", asked(b'["' + b"a" * 254 + b'"]'), "filter: NodeNames[0]: expected a string of length <= 253"),
        (
            "filter",
            asked(ONE, b'{"metadata":{"name":"' + b"a" * 254 + b'"}}'),
            "filter: Pod.metadata.name: expected a string of length <= 253",
        ),
        (
            "filter",
            asked(ONE, b'{"metadata":{"namespace":"' + b"a" * 64 + b'"}}'),
            "filter: Pod.metadata.namespace: expected a string of length <= 63",
        ),
        (
            "filter",
            asked(ONE, b'{"metadata":{"uid":"' + b"a" * 129 + b'"}}'),
            "filter: Pod.metadata.uid: expected a string of length <= 128",
        ),
        (
            "filter",
            b'{"Pod":{},"Nodes":{"items":' + listed(b"{}", 3 * WHOLE_NODES) + b"}}",
            f"filter: Nodes.items: expected at most {WHOLE_NODES} nodes, got {WHOLE_NODES + 1}",
        ),
        (
            "preempt",
            proposed(members(CANDIDATES + 1, "{}")),
            f"preempt: NodeNameToMetaVictims: expected at most {CANDIDATES} nodes, got {CANDIDATES + 1}",
        ),
        (
            "preempt",
            proposed(members(MEMBERS + 1, "{}")),
            f"preempt: NodeNameToMetaVictims: expected at most {MEMBERS} members of objects",
        ),
        (
            "preempt",
            proposed(b'{"n":{"Pods":' + listed(b'{"UID":"u"}', 12 * VICTIMS) + b"}}"),
            f"preempt: NodeNameToMetaVictims[...].Pods: expected at most {VICTIMS} victims",
        ),
        (
            "preempt",
            proposed(b'{"n":{"Pods":[{"UID":"' + b"u" * 129 + b'"}]}}'),
            "preempt: NodeNameToMetaVictims[...].Pods[0].UID: expected a string of length <= 128",
        ),
        (
            "preempt",
            proposed(b'{"' + b"n" * 254 + b'":{}}'),
            "preempt: NodeNameToMetaVictims: expected a string of length <= 253",
        ),
        (
            "bind",
            b'{"PodName":"' + b"a" * 254 + b'","PodNamespace":"n","PodUID":"u","Node":"n"}',
            "bind: PodName: expected a string of length <= 253",
        ),
    ],
)
async def test_what_is_too_long_is_said(verb: str, body: bytes, said: str) -> None:
    with pytest.raises(MalformedRequestError) as raised:
        await verb_handlers(ScriptedVerbs())[verb](body, _never)
    assert str(raised.value).startswith(said)


async def test_a_body_in_pieces_takes_no_more_than_its_size() -> None:
    pieces = iter([b"ab", b"", b"c", b"d" * 10, b""])
    left = [5]

    async def receive() -> Message:
        left[0] -= 1
        return {"type": "http.request", "body": next(pieces), "more_body": left[0] > 0}

    assert await read_body({"headers": []}, receive, 100) == b"abc" + b"d" * 10
