"""The cluster of a replay: whatever it is asked it answers as recorded, when it was answered."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import PodGroup
from dra_extender.recording.plain import KIND_OF_PORT, argument_of
from dra_extender.recording.records import Asked, FactsLearned, Given
from dra_extender.recording.tape import RecordedTime
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
_MOST_SHOWN: Final = 300

_Key = tuple[str, str, tuple[str, ...]]


class _Request(NamedTuple):
    arguments: list[Any]
    answer: "asyncio.Future[Any]"


class WriteDifference(NamedTuple):
    """A request to the cluster that only one of recording and replay has, or that has other contents."""

    at: float
    method: str
    of: str
    recorded: str
    replayed: str


class ReplayedCluster:
    """Implements Cluster.  `take` learns what was recorded; `differences` are the requests that were others."""

    def __init__(self, clock: RecordedTime) -> None:
        self.clock = clock
        self.claims, self.pods, self.claim_templates, self.pod_groups = (
            _ReplayedPort(name, self) for name in ("claims", "pods", "claim_templates", "pod_groups")
        )
        self.waker = _NoWaker()
        self.events = _NoEvents()
        self.keeps_extended_claims = True
        self.has_devices_beside_counters = False
        self.differences: list[WriteDifference] = []
        self.requests = 0
        self._asked: dict[int, Asked] = {}
        self._waiting: dict[_Key, deque[_Request]] = defaultdict(deque)
        self._early: dict[_Key, deque[tuple[Asked, Given]]] = defaultdict(deque)

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

    def take(self, record: Asked | Given) -> None:
        """A request was made, or answered, at this point of the recording."""
        if isinstance(record, Asked):
            self._asked[record.number] = record
            return
        asked = self._asked.pop(record.number, None)
        if asked is None:
            return
        key = _key(asked.port, asked.method, asked.arguments)
        if self._waiting[key]:
            self._answer(asked, record, self._waiting[key].popleft())
        else:
            self._early[key].append((asked, record))

    def request(self, port: str, method: str, arguments: list[Any]) -> "asyncio.Future[Any]":
        """Ask for something now."""
        self.requests += 1
        key = _key(port, method, arguments)
        request = _Request(arguments, asyncio.get_running_loop().create_future())
        if self._early[key]:
            self._answer(*self._early[key].popleft(), request)
        else:
            self._waiting[key].append(request)
        return request.answer

    def close(self, at: float) -> None:
        """The recording is over: what one side alone has asked is a difference, unless it was being answered."""
        for found in self._early.values():
            for asked, _ in found:
                self._differ(
                    asked.at, asked.method, _key(asked.port, asked.method, asked.arguments), asked.arguments, None
                )
        open_keys = [_key(each.port, each.method, each.arguments) for each in self._asked.values()]
        for key, waiting in self._waiting.items():
            for request in list(waiting)[open_keys.count(key) :]:
                self._differ(at, key[1], key, None, request.arguments)

    def _answer(self, asked: Asked, given: Given, request: _Request) -> None:
        if msgspec.json.encode(asked.arguments) != msgspec.json.encode(request.arguments):
            key = _key(asked.port, asked.method, asked.arguments)
            self._differ(asked.at, asked.method, key, asked.arguments, request.arguments)
        if request.answer.done():
            return
        if given.error is not None:
            name, message = given.error
            request.answer.set_exception(_ERRORS.get(name, ports.ClusterError)(message))
        else:
            request.answer.set_result(_value(asked, given.value))

    def _differ(self, at: float, method: str, key: _Key, recorded: Any, replayed: Any) -> None:
        shown = [msgspec.json.encode(each).decode() for each in (recorded, replayed)]
        self.differences.append(WriteDifference(at, f"{key[0]}.{method}", "/".join(key[2][:2]), *_apart(*shown)))


class _ReplayedPort:
    """Any port of the cluster."""

    keeps_groups = False
    api_version = ""

    def __init__(self, name: str, cluster: ReplayedCluster) -> None:
        self._name = name
        self._cluster = cluster

    def __getattr__(self, method: str) -> Any:
        async def call(*arguments: Any) -> Any:
            plain = [argument_of(KIND_OF_PORT[self._name], each) for each in arguments]
            return await self._cluster.request(self._name, method, plain)

        return call


class _NoWaker:
    """Wakes nobody: when kube-scheduler tries a pod again is recorded."""

    async def wake(self) -> None:
        """See SchedulerWaker."""


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


def _value(asked: Asked, value: Any) -> Any:
    """What the method returns, from what is recorded of it."""
    kind = _TYPES.get((asked.port, asked.method))
    if kind is not None:
        return msgspec.convert(value, kind)
    return msgspec.json.encode(value) if isinstance(value, dict) else value


def _apart(one: str, other: str) -> tuple[str, str]:
    """The two texts from shortly before where they differ."""
    same = next(
        (index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    start = max(0, same - _MOST_SHOWN // 3)
    return one[start : start + _MOST_SHOWN], other[start : start + _MOST_SHOWN]
