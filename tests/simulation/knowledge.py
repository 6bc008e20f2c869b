"""What the watches have told a replica, and what it may not do against that."""

from collections.abc import Callable, Iterator
from math import inf
from typing import Any, Final

import msgspec
from dra_extender.model.api_json import ModelError
from dra_extender.model.resource_claim import claim_from
from dra_extender.scheduling.claims.readiness import Readiness, evaluate_conditions
from dra_extender.simulator.apiserver.objects import KIND_OF, Json, Key, StoredKind, group_name, key_of, part
from dra_extender.simulator.apiserver.store import Change, Store, WatchEventType
from dra_extender.simulator.controllers.claims import claims_of

from tests.simulation.actors import whole_devices
from tests.simulation.api_requests import ApiRequest
from tests.simulation.api_server import Write
from tests.simulation.loop import Process
from tests.simulation.network import SimulatedTransport

_EVENT: Final = b'{"type":"'
_CLAIMS: Final = "/apis/resource.k8s.io/v1/namespaces/"
_STATUS: Final = f"PUT {_CLAIMS}".encode()
_CALM_SECONDS: Final = 1.0
_SECONDS: Final = 12.0
"""So long before a replica sends a Binding it must have been told for the Binding to be wrong: longer than a request may take,
whose last check comes before a connection is made.  Where nothing makes requests slow, much less is enough.
"""


_MOST: Final = 1_000


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Object(msgspec.Struct):
    kind: str = ""
    metadata: _Meta = _Meta()


class _Event(msgspec.Struct):
    type: str
    object: _Object


_DECODER: Final = msgspec.json.Decoder(_Event)


class Knowledge:
    """Which version of each object the watches of each process have brought, and when."""

    def __init__(self, store: Store, now: Callable[[], float]) -> None:
        """`now`: the time of the loop, in seconds."""
        self._now = now
        self._slow_until = 0.0
        self._store = store
        self._rests: dict[int, bytes] = {}
        self._told: dict[tuple[int, Key], tuple[str, float]] = {}
        self._gone: dict[Key, str] = {}
        self._members: dict[tuple[str, str], set[str]] = {}
        self._served: dict[str, None] = {}
        # The number of the process: a process that is kept here would not be freed when it has ended.
        self._sent: dict[tuple[str, str], tuple[int, float]] = {}
        store.subscribe(self._wrote)

    def slow(self, seconds: float) -> None:
        """For so long a fault makes requests slow."""
        self._slow_until = max(self._slow_until, self._now() + seconds + _SECONDS)

    def hear(self, transport: SimulatedTransport, data: bytes) -> None:
        """These bytes reach a process: an event of a watch is a line, which may come in pieces."""
        *lines, rest = (self._rests.pop(transport.number, b"") + data).split(b"\n")
        for line in lines:
            if line.startswith(_EVENT):
                self._take(transport.process, line)
        if rest and _EVENT.startswith(rest[: len(_EVENT)]):
            self._rests[transport.number] = rest

    def _take(self, process: Process, line: bytes) -> None:
        try:
            event = _DECODER.decode(line)
        except msgspec.DecodeError:
            # It is a part of another answer on the same connection.
            return
        kind = KIND_OF.get(event.object.kind)
        if kind is not None and event.type != "BOOKMARK":
            meta = event.object.metadata
            _trim(self._told, self._rests, self._sent)
            self._told[process.number, Key(kind, meta.namespace, meta.name)] = (meta.resource_version, process.awake())

    def sent(self, process: Process, data: bytes) -> None:
        """A process hands these bytes to a connection."""
        if (data.startswith(b"POST ") and b"/binding" in data[:200]) or data.startswith(_STATUS):
            path = data.split(b" ", 2)[1].partition(b"?")[0].decode()
            self._sent[process.name, path] = (process.number, process.awake())

    def wrong_about(self, request: ApiRequest) -> Iterator[str]:
        """Why this Binding, which has just arrived, is against what its sender had been told, if nothing has changed since."""
        yield from self._short_gang(request)
        sender = self._sent.get((request.user, request.http.raw_path))
        if sender is None:
            return
        binding = msgspec.json.decode(request.http.body)
        pod_key = Key(StoredKind.POD, request.namespace, request.name)
        pod = self._store.find(pod_key)
        if self._knew(sender, pod_key) and (pod is None or "deletionTimestamp" in pod["metadata"]):
            yield f"pod {request.name} is gone"
        node = Key(StoredKind.NODE, "", binding["target"]["name"])
        if self._knew(sender, node) and self._store.find(node) is None:
            yield f"node {node.name} is gone"
        for key in claims_of(pod) if pod is not None else ():
            if self._knew(sender, key):
                why = _useless(self._store.find(key), pod or {}, self._group(pod or {}))
                if why:
                    yield f"claim {key.name} {why}"

    def wrong_allocation(self, write: Write) -> Iterator[str]:
        """Why the allocation that this write adds is against what the writer had been told, if nothing has changed since."""
        change = write.change
        _, namespace, name = change.key
        sender = self._sent.get((write.user, f"{_CLAIMS}{namespace}/resourceclaims/{name}/status"))
        devices = _whole(msgspec.json.decode(change.data))
        if sender is None or not devices or (change.before and _whole(msgspec.json.decode(change.before))):
            return
        if self._now() < self._slow_until:
            # It may have been decided long before.
            return
        for other in self._store.peek_all(StoredKind.CLAIM):
            key = key_of(StoredKind.CLAIM, other)
            if key != change.key and devices & _whole(other) and self._knew(sender, key):
                yield f"allocated what {key.name} has: {name}"
        stored = self._store.peek_all(StoredKind.SLICE)
        for driver, pool, device in devices:
            slices = [each for each in stored if each["spec"]["pool"]["name"] == pool]
            published = {each["name"] for thing in slices for each in thing["spec"].get("devices") or ()}
            known = all(self._knew(sender, key_of(StoredKind.SLICE, each)) for each in slices)
            if slices and known and device not in published:
                yield f"allocated a device that is not published: {name}: {driver}/{pool}/{device}"

    def _knew(self, sender: tuple[int, float], key: Key) -> bool:
        """Whether the sender had been told of the object as it is now."""
        number, when = sender
        version, since = self._told.get((number, key), ("", inf))
        thing = self._store.find(key)
        current = self._gone.get(key) if thing is None else thing["metadata"]["resourceVersion"]
        return version == current and when - since >= (_CALM_SECONDS if self._now() >= self._slow_until else _SECONDS)

    def _short_gang(self, request: ApiRequest) -> Iterator[str]:
        """That too few members of the pod's gang have ever had devices; members that share claims of the gang do not count."""
        pod = self._store.find(Key(StoredKind.POD, request.namespace, request.name)) or {}
        group = self._group_of(pod)
        wanted = part(group, "spec", "schedulingPolicy", "gang").get("minCount") or 0
        if wanted and not part(group, "spec").get("resourceClaims"):
            members = self._members.get((request.namespace, group_name(pod) or ""), set()) & self._served.keys()
            if len(members) < wanted:
                yield f"{len(members)} of {wanted} members of gang {group_name(pod)} have had devices"

    def _group_of(self, pod: Json) -> Json:
        name = group_name(pod)
        key = Key(StoredKind.POD_GROUP, part(pod, "metadata").get("namespace", ""), name or "")
        return (self._store.find(key) if name else None) or {}

    def _group(self, pod: Json) -> str:
        return str(part(self._group_of(pod), "metadata").get("uid") or "")

    def _wrote(self, change: Change) -> None:
        _trim(self._gone, self._members, self._served)
        if change.verb is WatchEventType.DELETED:
            self._gone[change.key] = str(change.version)
        elif change.key.kind is StoredKind.POD and change.verb is WatchEventType.ADDED:
            pod = msgspec.json.decode(change.data)
            if group_name(pod):
                self._members.setdefault((change.key.namespace, str(group_name(pod))), set()).add(change.uid)
        elif change.key.kind is StoredKind.CLAIM:
            status = part(msgspec.json.decode(change.data), "status")
            self._served.update(dict.fromkeys(each["uid"] for each in status.get("reservedFor") or ()))


def _trim(*kept: dict[Any, Any]) -> None:
    """Forget what is oldest, so that a world may live for long; worlds with gangs are too short for that."""
    for each in kept:
        if len(each) > _MOST:
            del each[next(iter(each))]


def _whole(claim: Json) -> set[tuple[str, str, str]]:
    return set(whole_devices(claim))


def _useless(claim: Json | None, pod: Json, group: str) -> str:
    """Why the claim does not let the pod run; empty if it does."""
    if claim is None:
        return "is gone"
    status = part(claim, "status")
    if not status.get("allocation"):
        return "has no allocation"
    users = {each["uid"] for each in status.get("reservedFor") or ()}
    if not users & {pod["metadata"]["uid"], group}:
        return "is not reserved for it"
    try:
        verdict = evaluate_conditions(claim_from(claim), now=0.0, waiting_since=0.0, timeout=inf)
    except ModelError:
        return ""
    return "has a device that has failed" if verdict.readiness is Readiness.FAILED else ""
