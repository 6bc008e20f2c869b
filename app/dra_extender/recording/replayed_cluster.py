"""The cluster of a replay: whatever it is asked it answers as recorded, when it was answered."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import PodGroup
from dra_extender.recording.plain import KIND_OF_PORT, argument_of
from dra_extender.recording.records import CANCELLED, CURRENT_CALL, NO_CALL, Asked, FactsLearned, Given, working_for
from dra_extender.scheduling.ports import cluster as ports

_ERRORS: Final = {
    each.__name__: each
    for each in (
        ports.ClusterError,
        ports.NotFoundError,
        ports.ConflictError,
        ports.RequestRejectedError,
        ports.ServerUnavailableError,
    )
}
_TYPES: Final[Mapping[tuple[str, str], type]] = {("pods", "read"): Pod, ("pod_groups", "read"): PodGroup}
_RAW: Final = frozenset({"claims", "claim_templates"})
"""Ports whose methods return objects as JSON."""
_MOST_SHOWN: Final = 300

_Key = tuple[str, str, tuple[str, ...]]


class WriteDifference(NamedTuple):
    """A request to the cluster that only one of recording and replay has, or that has other contents."""

    at: float
    method: str
    of: str
    recorded: str
    replayed: str


class _Request:
    """A request of the replay; `asked` and `given` are what the recording has of it, None as long as that is not known."""

    def __init__(self, arguments: list[Any]) -> None:
        self.arguments = arguments
        self.asked: Asked | None = None
        self.given: Given | None = None
        self.waiter: asyncio.Future[None] | None = None


class ReplayedCluster:
    """Implements Cluster.

    `expect` tells it what was asked for in the steps that follow, `give` what came of it.  A request is the first expected one of
    the same method and objects, of the same call if there is one.  `differences` are requests that were others.
    """

    def __init__(self, clock: ports.Clock, departs: Callable[[str], None]) -> None:
        """`departs` reports a request that the recording does not have where it is made."""
        self.clock = clock
        self.claims, self.pods, self.claim_templates, self.pod_groups, self.waker = (
            ReplayedPort(name, self) for name in ("claims", "pods", "claim_templates", "pod_groups", "waker")
        )
        self.events = _NoEvents()
        self.keeps_extended_claims = True
        self.has_devices_beside_counters = False
        self.differences: list[WriteDifference] = []
        self.requests = 0
        self.gives_up = False
        self._departs = departs
        self._expected: dict[_Key, deque[Asked]] = defaultdict(deque)
        self._waiting: dict[_Key, deque[_Request]] = defaultdict(deque)
        self._early: dict[int, Given] = {}
        self._open: dict[int, _Request] = {}

    def health(self) -> Mapping[str, str | None]:
        """See Cluster."""
        return {}

    def notes(self) -> Mapping[str, str]:
        """See Cluster."""
        return {}

    def learn(self, facts: FactsLearned) -> None:
        """What the API server serves from now on."""
        self.claims.keeps_groups = facts.keeps_groups
        self.pod_groups.api_version = facts.group_version
        self.keeps_extended_claims = facts.keeps_extended_claims
        self.has_devices_beside_counters = facts.has_devices_beside_counters

    def expect(self, asked: Asked) -> None:
        """This was asked for in the steps that follow."""
        key = _key(asked.port, asked.method, asked.arguments)
        waiting = self._waiting.get(key)
        if waiting:
            self._bind(asked, waiting.popleft())
        else:
            self._expected[key].append(asked)

    def give(self, given: Given) -> None:
        """A request was answered; what waits for it goes on."""
        request = self._open.pop(given.number, None)
        if request is None:
            self._early[given.number] = given
            return
        request.given = given
        if request.waiter is not None and not request.waiter.done():
            request.waiter.set_result(None)

    async def ask(self, port: str, method: str, arguments: list[Any]) -> Any:
        """Ask for something, and wait until it was answered.  Raises what was raised."""
        request, call = _Request(arguments), CURRENT_CALL.get()
        self._find(port, method, request, call)
        with working_for(NO_CALL):
            await self._given(request)
        return _outcome(request)

    def close(self, at: float) -> None:
        """The recording is over: what one side alone has asked before the last stretch is a difference."""
        for key, expected in self._expected.items():
            for asked in expected:
                self._differ(asked.at, key, asked.arguments, None)
        for key, waiting in self._waiting.items():
            for request in waiting:
                self._differ(at, key, None, request.arguments)

    def _find(self, port: str, method: str, request: _Request, call: int) -> None:
        key = _key(port, method, request.arguments)
        expected = self._expected.get(key)
        if not expected:
            self._departs(f"{port}.{method} of {'/'.join(key[2][:2])} is asked for")
            self._waiting[key].append(request)
            return
        asked = next((each for each in expected if each.call == call), expected[0])
        expected.remove(asked)
        if not expected:
            del self._expected[key]
        self._bind(asked, request)

    def _bind(self, asked: Asked, request: _Request) -> None:
        request.asked = asked
        request.given = self._early.pop(asked.number, None)
        if request.given is None:
            self._open[asked.number] = request
        if msgspec.json.encode(asked.arguments) != msgspec.json.encode(request.arguments):
            key = _key(asked.port, asked.method, asked.arguments)
            self._departs(f"{asked.port}.{asked.method} of {'/'.join(key[2][:2])} is another one")
            self._differ(asked.at, key, asked.arguments, request.arguments)

    async def _given(self, request: _Request) -> None:
        """Wait for the answer, also after a cancellation: how the request took that is recorded."""
        while request.given is None:
            request.waiter = asyncio.get_running_loop().create_future()
            try:
                await request.waiter
            except asyncio.CancelledError:
                if self.gives_up:
                    raise

    def _differ(self, at: float, key: _Key, recorded: Any, replayed: Any) -> None:
        if key[0] in KIND_OF_PORT:
            shown = [msgspec.json.encode(each).decode() for each in (recorded, replayed)]
            self.differences.append(WriteDifference(at, f"{key[0]}.{key[1]}", "/".join(key[2][:2]), *_apart(*shown)))


class ReplayedPort:
    """Any port of the cluster."""

    keeps_groups = False
    api_version = ""

    def __init__(self, name: str, cluster: ReplayedCluster) -> None:
        self._name = name
        self._cluster = cluster

    def __getattr__(self, method: str) -> Any:
        async def call(*arguments: Any) -> Any:
            if self._name in KIND_OF_PORT:
                self._cluster.requests += 1
            plain = [argument_of(KIND_OF_PORT.get(self._name, ""), each) for each in arguments]
            return await self._cluster.ask(self._name, method, plain)

        return call


class _NoEvents:
    """Events go nowhere."""

    def about_pod(self, pod: Pod, *, warning: bool, reason: str, message: str) -> None:
        """See Events."""


def _key(port: str, method: str, arguments: list[Any]) -> _Key:
    return port, method, tuple(_names(arguments))


def _names(arguments: list[Any]) -> Iterator[str]:
    """What tells requests of one method apart: texts, and the names of objects."""
    for each in arguments:
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            meta = each.get("metadata", each)
            name = meta.get("name") if isinstance(meta, dict) else None
            if isinstance(name, str):
                yield name


def _outcome(request: _Request) -> Any:
    """What the method returns, from what is recorded of it; raises what it raised."""
    given, asked = request.given, request.asked
    if given is None or asked is None:
        raise asyncio.CancelledError
    if given.error is not None:
        name, message = given.error
        raise asyncio.CancelledError if name == CANCELLED else _ERRORS.get(name, ports.ClusterError)(message)
    kind = _TYPES.get((asked.port, asked.method))
    if kind is not None:
        try:
            return msgspec.convert(given.value, kind)
        except msgspec.ValidationError as problem:
            raise ports.ClusterError(
                f"{asked.port}.{asked.method}: the recorded answer is none: {problem}"
            ) from problem
    if asked.port in _RAW and asked.method != "delete":
        if not isinstance(given.value, dict):
            raise ports.ClusterError(f"{asked.port}.{asked.method}: the recorded answer is no object")
        return msgspec.json.encode(given.value)
    return given.value


def _apart(one: str, other: str) -> tuple[str, str]:
    """The two texts from shortly before where they differ."""
    same = next(
        (index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    start = max(0, same - _MOST_SHOWN // 3)
    return one[start : start + _MOST_SHOWN], other[start : start + _MOST_SHOWN]
