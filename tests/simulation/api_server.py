"""A kube-apiserver over the simulator's store: what the service, kube-scheduler, controllers and drivers rely on.

It runs on any event loop that has `create_server`, without tasks, threads or time of its own, and does the same every time.
Faults are asked for each request; every write is reported with its writer.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from dra_extender.kube.client.protobuf import MEDIA_TYPE
from dra_extender.scheduling.ports.cluster import Clock, ConflictError, NotFoundError, RequestRejectedError
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind, key_of
from dra_extender.simulator.apiserver.store import Change, Store
from dra_extender.simulator.apiserver.validation import InvalidError

from tests.simulation import api_patches, api_rules
from tests.simulation.api_access import Access, User
from tests.simulation.api_discovery import Release, page
from tests.simulation.api_protobuf import decode_claim, encode_claim
from tests.simulation.api_requests import (
    REVIEWS,
    ApiRequest,
    StatusError,
    decode_object,
    drop_unknown_fields,
    forbidden,
    invalid,
    not_found,
    parse,
)
from tests.simulation.api_watch import History, Watch
from tests.simulation.http_server import HttpConnection, HttpRequest

ADMIN: Final = {"admin": User("admin")}
SYSTEM_NAMESPACES: Final = ("default", "kube-system")
_POD_GRACE_SECONDS: Final = 30
_PATCHES: Final[dict[str, Callable[[Json, Json], Any]]] = {
    "application/merge-patch+json": api_patches.merge,
    "application/strategic-merge-patch+json": api_patches.strategic_merge,
}
_APPLY: Final = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with a request.

    `refuse` is the HTTP code with which it is refused unread, `message` what the refusal says, `retry_after` the seconds of its
    Retry-After.  `answer` is the code and the body with which it is answered unread, as by a proxy or a server that is broken.
    `delay` seconds pass before it is carried out, and `late` between that and the answer.  With `lose_answer` it is carried out
    and the connection is reset; with `lose_request` the connection is reset at once.
    """

    refuse: int = 0
    message: str = ""
    retry_after: int | None = None
    answer: tuple[int, bytes] | None = None
    delay: float = 0.0
    late: float = 0.0
    lose_answer: bool = False
    lose_request: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    """A stored change and who wrote it: user, User-Agent, verb and subresource; all empty for a write beside HTTP."""

    change: Change
    user: str = ""
    agent: str = ""
    verb: str = ""
    subresource: str = ""


Admission = Callable[[ApiRequest, Json | None, Json | None], None]
"""Given the request, the stored object and the new one: raises StatusError to deny the write."""
_NO_FAULT: Final = Fault()
_REASONS: Final = {
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}


class ApiServer:
    """One API server.  `users` are known by their tokens; `fault` is asked about every request, `admission` about every write.

    `store` may be written beside HTTP, as by a part of the cluster whose requests are of no interest.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        release: Release | None = None,
        users: Mapping[str, User] = ADMIN,
        store: Store | None = None,
    ) -> None:
        self.release = release or Release()
        self.store = store or Store(clock, self.release.served)
        self.access = Access(users)
        self.history = History(self.store)
        self.fault: Callable[[ApiRequest], Fault | None] = lambda _: None
        self.admission: list[Admission] = []
        self.writes: list[Callable[[Write], None]] = []
        self.requests: list[Callable[[ApiRequest], None]] = []
        self.address = ("", 0)
        self._served = self.release.kinds
        self._connections: dict[HttpConnection, None] = {}
        self._watches: dict[Watch, HttpConnection] = {}
        self._applied: dict[tuple[object, ...], Json] = {}
        self._writer: ApiRequest | None = None
        self._server: asyncio.AbstractServer | None = None
        for name in SYSTEM_NAMESPACES:
            self.store.create(StoredKind.NAMESPACE, {"metadata": {"name": name}})
        self.store.subscribe(self._changed)

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Listen; return the URL.  What happened before is forgotten, as by a process that has just started."""
        loop = asyncio.get_running_loop()
        if self.address != ("", 0):
            (host, port) = self.address
            self.history.compact()
        self._server = await loop.create_server(self.connect, host, port)
        self.address = (host, port or self._server.sockets[0].getsockname()[1])
        return self.url

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{self.address[0]}:{self.address[1]}"

    def kubeconfig(self, path: Path, **user: Any) -> Path:
        """Write a kubeconfig (as JSON, which is YAML), by default with the token of the first user."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "simulated", "cluster": {"server": self.url}}],
            "users": [{"name": "user", "user": user or {"token": next(iter(self.access.users))}}],
            "contexts": [{"name": "simulated", "context": {"cluster": "simulated", "user": "user"}}],
            "current-context": "simulated",
        }
        path.write_bytes(msgspec.json.encode(config))
        return path

    def connect(self) -> HttpConnection:
        """The protocol of a new connection."""
        return HttpConnection(self._receive, self._connections)

    def stop(self) -> None:
        """Stop listening and reset every connection; the store stays, and `start` listens again at the same address."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for watch in list(self._watches):
            watch.forget()
        for connection in list(self._connections):
            connection.abort()
        # A process that ends at once learns no more that its connections are lost.
        self._connections.clear()

    def cut_watches(self) -> None:
        """Reset the connections of the watches that are open now."""
        for connection in list(self._watches.values()):
            connection.abort()

    def put(self, kind: StoredKind, thing: Json) -> None:
        """Create or change an object beside HTTP; its status, times and UID are stored as they are."""
        key = key_of(kind, thing)
        if self.store.find(key) is None:
            self.store.create(kind, thing)
        self.store.edit_unchecked(key, lambda stored: stored.update(thing))

    def end_watches(self, kind: StoredKind) -> None:
        """End the watches of a kind that are open now, as when their time is over."""
        for watch in list(self._watches):
            if watch.kind is kind:
                watch.end()

    def send(self, kind: StoredKind, data: bytes) -> None:
        """Send these bytes to the watches of a kind that are open now, whatever they are."""
        for watch, connection in self._watches.items():
            if watch.kind is kind:
                connection.send_piece(data)

    def pause_watches(self, seconds: float, kind: StoredKind | None = None) -> None:
        """Send the events of the watches that are open now later, as a server does that has too much to do."""
        for watch in list(self._watches):
            if kind in (None, watch.kind):
                watch.hold()
                asyncio.get_running_loop().call_later(seconds, watch.release)

    def compact(self) -> None:
        """Forget what was written before now: older versions are answered with 410."""
        self.history.compact()

    def _changed(self, change: Change) -> None:
        for watch in [each for each in self._watches if each.kind is change.key.kind]:
            watch.tell(change)
        by = self._writer
        write = Write(change) if by is None else Write(change, by.user, by.agent, by.verb, by.subresource)
        for listener in self.writes:
            listener(write)

    def _receive(self, http: HttpRequest, connection: HttpConnection) -> None:
        try:
            user = self.access.user(http.headers)
            request = parse(http, user.name, self._served)
        except StatusError as refused:
            _refuse(connection, refused)
            return
        for listener in self.requests:
            listener(request)
        fault = self.fault(request) or _NO_FAULT
        if fault.lose_request:
            connection.abort()
        elif fault.answer is not None:
            connection.respond(*fault.answer)
        elif fault.refuse:
            reason = _REASONS.get(fault.refuse, "")
            message = fault.message or f"refused: {reason}"
            _refuse(connection, StatusError(fault.refuse, reason, message, retry_after=fault.retry_after))
        elif fault.delay:
            asyncio.get_running_loop().call_later(fault.delay, self._carry_out, request, user, connection, fault)
        else:
            self._carry_out(request, user, connection, fault)

    def _carry_out(self, request: ApiRequest, user: User, connection: HttpConnection, fault: Fault) -> None:
        if connection.closed:
            return
        try:
            self.access.check(request, user)
            if request.verb == "watch":
                self._watch(request, connection)
                return
            code, body, media = self._answer(request, user)
        except StatusError as refused:
            _refuse(connection, refused)
            return
        if fault.lose_answer:
            connection.abort()
        elif fault.late:
            asyncio.get_running_loop().call_later(fault.late, connection.respond, code, body, media)
        else:
            connection.respond(code, body, media)

    def _watch(self, request: ApiRequest, connection: HttpConnection) -> None:
        watch = Watch(request, connection, self.store, self.history, asyncio.get_running_loop())
        watch.on_end = lambda: self._watches.pop(watch, None)
        connection.on_close = watch.forget
        if watch.begin():
            self._watches[watch] = connection

    def _answer(self, request: ApiRequest, user: User) -> tuple[int, bytes, str]:
        """Code, body and media type."""
        if not request.plural:
            found = page(self.release, request.http.path) if request.verb == "get" else None
            if found is None:
                raise StatusError(404, "NotFound", "the server could not find the requested resource")
            return 200, *found
        if request.verb == "list":
            return 200, self.history.page(request), "application/json"
        if request.verb == "get":
            try:
                data = self.store.read(request.key)
            except NotFoundError:
                raise not_found(request) from None
            if request.http.headers.get("accept") != MEDIA_TYPE:
                return 200, data, "application/json"
            if request.kind is not StoredKind.CLAIM:
                raise StatusError(406, "NotAcceptable", "only the JSON form of this kind is served here")
            return 200, encode_claim(data), MEDIA_TYPE
        self._writer = request
        try:
            code, thing = self._write(request, user)
        except NotFoundError:
            raise not_found(request) from None
        except ConflictError as problem:
            reason = "AlreadyExists" if request.verb == "create" and not request.subresource else "Conflict"
            raise StatusError(
                409, reason, str(problem), name=request.name, group=request.group, kind=request.plural
            ) from None
        except InvalidError as problem:
            raise invalid(request, problem.problems) from None
        except RequestRejectedError as problem:
            raise forbidden(request, str(problem)) from None
        finally:
            self._writer = None
        return code, msgspec.json.encode(thing), "application/json"

    def _write(self, request: ApiRequest, user: User) -> tuple[int, Json]:
        if (request.group_version, request.plural) in REVIEWS:
            review = decode_object(request, request.http.body)
            kind = REVIEWS[request.group_version, request.plural]
            return 201, {**review, "status": self.access.review(kind, review.get("spec") or {})}
        match request.verb:
            case "create" if request.subresource == "binding" and request.kind is StoredKind.POD:
                return self._bind(request)
            case "create":
                return self._create(request)
            case "update":
                body = request.http.body
                if request.http.headers.get("content-type") == MEDIA_TYPE:
                    body = decode_claim(body)
                return self._update(request, user, decode_object(request, body))
            case "patch":
                return self._patch(request, user)
            case "delete":
                return self._delete(request)
        raise StatusError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")

    def _create(self, request: ApiRequest, thing: Json | None = None) -> tuple[int, Json]:
        thing = thing or decode_object(request, request.http.body)
        kind = request.key.kind
        metadata = thing["metadata"]
        if metadata.pop("resourceVersion", None):
            raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
        metadata.pop("uid", None)
        if kind.namespaced and self.store.find(Key(StoredKind.NAMESPACE, "", request.namespace)) is None:
            raise StatusError(
                404,
                "NotFound",
                f'namespaces "{request.namespace}" not found',
                name=request.namespace,
                kind="namespaces",
            )
        self._admit(request, None, thing)
        return 201, self.store.create(kind, thing, request.manager)

    def _bind(self, request: ApiRequest) -> tuple[int, Json]:
        binding = decode_object(request, request.http.body)
        self._admit(request, self.store.find(request.key), binding)
        uid = binding["metadata"].get("uid") or ""
        self.store.bind(request.key, uid, (binding.get("target") or {}).get("name") or "")
        return 201, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}

    def _update(self, request: ApiRequest, user: User, thing: Json) -> tuple[int, Json]:
        """Replace an object, or the status of one that has a status."""
        kind = request.key.kind
        if kind in api_rules.CONDITIONAL and not thing["metadata"].get("resourceVersion"):
            problem = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
            raise invalid(request, [problem])
        if kind is StoredKind.LEASE and self.store.find(request.key) is None:
            # A Lease that is gone is made anew, unless the writer meant that one.
            if thing["metadata"].get("uid"):
                raise ConflictError(
                    f"Precondition failed: UID in precondition: {thing['metadata']['uid']}, in object: none"
                )
            del thing["metadata"]["resourceVersion"]
            return self._create(request, thing)
        before = self.store.get(request.key)
        if request.subresource:
            if request.subresource != "status" or not kind.has_status:
                raise StatusError(404, "NotFound", "the server could not find the requested resource")
            lacking = self.access.claim_status_problems(request, user, before, thing)
            if kind is StoredKind.CLAIM and lacking:
                raise invalid(request, lacking)
        self._admit(request, before, thing)
        write = self.store.update_status if request.subresource else self.store.update
        return 200, write(kind, thing, request.manager)

    def _patch(self, request: ApiRequest, user: User) -> tuple[int, Json]:
        media = request.http.headers.get("content-type", "").partition(";")[0]
        patch = decode_object(request, request.http.body)
        if media != _APPLY and media not in _PATCHES:
            raise StatusError(
                415,
                "UnsupportedMediaType",
                f"the body of the request was in an unknown format - accepted media types "
                f"include: {', '.join([*_PATCHES, _APPLY])}",
            )
        before = self.store.find(request.key)
        if before is None and media == _APPLY and not request.subresource:
            answer = self._create(request, patch)
            self._applied[request.key, request.manager, ""] = patch
            return answer
        if before is None:
            raise not_found(request)
        if media == _APPLY:
            mine = (request.key, request.manager, request.subresource)
            thing = api_patches.apply(before, patch, self._applied.get(mine, {}))
        else:
            thing = _PATCHES[media](before, patch)
        # The version that a patch names is compared first.
        if thing["metadata"].get("resourceVersion") == before["metadata"]["resourceVersion"]:
            uid = thing["metadata"].get("uid")
            if uid != before["metadata"]["uid"]:
                raise invalid(request, [f'metadata.uid: Invalid value: "{uid}": field is immutable'])
        answer = self._update(request, user, thing)
        if media == _APPLY:
            self._applied[mine] = patch
        return answer

    def _delete(self, request: ApiRequest) -> tuple[int, Json]:
        options = msgspec.json.decode(request.http.body) if request.http.body else {}
        before = self.store.get(request.key)
        self._admit(request, before, None)
        grace = options.get("gracePeriodSeconds", request.http.query.get("gracePeriodSeconds"))
        wanted = options.get("preconditions") or {}
        seconds = _grace(before, None if grace is None else int(grace)) if request.kind is StoredKind.POD else 0
        self.store.delete(request.key, wanted.get("uid"), wanted.get("resourceVersion"), seconds)
        left = self.store.find(request.key)
        if left is not None:
            return 200, left
        details = {
            "name": request.name,
            "group": request.group,
            "kind": request.plural,
            "uid": before["metadata"]["uid"],
        }
        return 200, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}

    def _admit(self, request: ApiRequest, before: Json | None, thing: Json | None) -> None:
        if thing is not None and request.subresource != "binding":
            # All but the status is as it is stored, where that alone is written.
            written = {"status": thing.get("status")} if request.subresource else thing
            drop_unknown_fields(request.key.kind.singular, written)
        for admission in self.admission:
            admission(request, before, thing)
        if thing is None or request.subresource:
            return
        found = api_rules.problems(request.key.kind, before, thing)
        if found:
            raise invalid(request, found)


def policy_denial(request: ApiRequest, policy: str, binding: str, message: str, reason: str = "Invalid") -> StatusError:
    """The refusal of a write by a ValidatingAdmissionPolicy, for the reason that its validation names."""
    why = f"ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {message}"
    code = {"Invalid": 422, "Forbidden": 403}[reason]
    return StatusError(code, reason, str(forbidden(request, why)))


def _grace(pod: Json, asked: int | None) -> int:
    """Seconds that a pod that is deleted has: none if no kubelet has it, or it has ended."""
    if not pod["spec"].get("nodeName") or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    if asked is None:
        return int(pod["spec"].get("terminationGracePeriodSeconds", _POD_GRACE_SECONDS))
    return asked


def _refuse(connection: HttpConnection, refused: StatusError) -> None:
    headers = {} if refused.retry_after is None else {"Retry-After": str(refused.retry_after)}
    connection.respond(refused.code, msgspec.json.encode(refused.body), headers=headers)
