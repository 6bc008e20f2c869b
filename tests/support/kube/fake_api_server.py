import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from aiohttp import web

Object = dict[str, Any]
Answer = Callable[[web.Request], web.StreamResponse | Awaitable[web.StreamResponse]]
TOKEN = "first-token"  # noqa: S105 - opens nothing but this server


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as it arrived."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True)
class _Intervention:
    method: str
    path: str
    watch: bool | None
    times: int
    answer: Answer


@dataclass(slots=True)
class FakeApiServer:
    """As much of an API server as lists, watches and raw writes need; everything it was asked is in `seen`.

    Collections are URL paths. `objects` has what they serve, by namespace and name, with a resourceVersion that counts up.
    """

    version: int = 100
    oldest: int = 0
    gone_as_event: bool = False
    refuse_watches: bool = False
    tokens: set[str] = field(default_factory=lambda: {TOKEN})
    seen: list[Seen] = field(default_factory=list)
    pages: dict[str, Object] = field(default_factory=dict)
    url: str = ""
    objects: dict[str, dict[tuple[str, str], Object]] = field(default_factory=dict)
    _history: list[tuple[int, str, bytes]] = field(default_factory=list)
    _interventions: list[_Intervention] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _cut: int = 0

    @classmethod
    @asynccontextmanager
    async def start(cls) -> AsyncIterator[Self]:
        """A server on a free loopback port."""
        server = cls()
        application = web.Application(client_max_size=2**26)
        application.router.add_route("*", "/{path:.*}", server.handle)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield server
        finally:
            server.cut_watches()
            await runner.cleanup()

    def kubeconfig(self, path: Path, **user: Any) -> Path:
        """A kubeconfig of this server, by default with the first token."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "fake", "cluster": {"server": self.url}}],
            "users": [{"name": "user", "user": user or {"token": TOKEN}}],
            "contexts": [{"name": "one", "context": {"cluster": "fake", "user": "user"}}],
            "current-context": "one",
        }
        path.write_text(json.dumps(config))
        return path

    def put(self, collection: str, name: str, namespace: str = "", **more: Any) -> Object:
        """Create or change an object."""
        known = self.objects.setdefault(collection, {})
        kind = "MODIFIED" if (namespace, name) in known else "ADDED"
        self.version += 1
        uid = more.pop("uid", f"uid-{name}")
        metadata = {"name": name, "uid": uid, "resourceVersion": str(self.version)}
        if namespace:
            metadata["namespace"] = namespace
        known[namespace, name] = {"metadata": metadata, **more}
        self.announce(collection, kind, known[namespace, name])
        return known[namespace, name]

    def delete(self, collection: str, name: str, namespace: str = "") -> None:
        """Delete an object."""
        gone = self.objects[collection].pop((namespace, name))
        self.version += 1
        last = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self.version)}}
        self.announce(collection, "DELETED", last)

    def bookmark(self, collection: str) -> None:
        """Tell watchers how far the server is."""
        self.version += 1
        self.announce(collection, "BOOKMARK", {"metadata": {"resourceVersion": str(self.version)}})

    def line(self, collection: str, data: bytes) -> None:
        """Send these bytes, as a line, to watchers."""
        self._history.append((self.version, collection, data))
        self._wake()

    def forget(self) -> None:
        """Compact: versions before the present one are gone."""
        self.oldest = self.version

    def cut_watches(self) -> None:
        """End all watches that are open now."""
        self._cut += 1
        self._wake()

    def intervene(self, method: str, path: str, answer: Answer, *, times: int = 1, watch: bool | None = None) -> None:
        """Answer the next requests (any kind, or only watches, or none that is a watch) to exactly this path otherwise."""
        self._interventions.append(_Intervention(method, path, watch, times, answer))

    def clear_interventions(self) -> None:
        """Answer all requests as usual again."""
        self._interventions.clear()

    def requests(self, method: str, path: str, *, watch: bool = False) -> list[Seen]:
        """What was asked at exactly this path: watches, or what is no watch."""
        return [
            each
            for each in self.seen
            if (each.method, each.path) == (method, path) and ("watch" in each.query) is watch
        ]

    def announce(self, collection: str, kind: str, found: Object) -> None:
        """Send an event about this object to watchers."""
        data = json.dumps({"type": kind, "object": found}).encode()
        self._history.append((self.version, collection, data))
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Record the request and answer it."""
        body = await request.read()
        self.seen.append(Seen(request.method, request.path, dict(request.query), dict(request.headers), body))
        if request.headers.get("Authorization", "").removeprefix("Bearer ").removeprefix("bearer ") not in self.tokens:
            return status_answer(401, "Unauthorized", "Unauthorized")
        watching = "watch" in request.query
        if watching and self.refuse_watches:
            return status_answer(503, "ServiceUnavailable", "later")
        for each in self._interventions:
            wanted = each.watch is None or each.watch is watching
            if wanted and each.times and (each.method, each.path) == (request.method, request.path):
                each.times -= 1
                answer = each.answer(request)
                return await answer if isinstance(answer, Awaitable) else answer
        if request.path in self.pages:
            return web.json_response(self.pages[request.path])
        if request.method != "GET" or request.path not in self.objects:
            return status_answer(404, "NotFound", f"{request.path} not found")
        return await self._watch(request) if watching else self.list_answer(request)

    def list_answer(self, request: web.Request) -> web.Response:
        """The page that a list request asks for."""
        items = list(self.objects[request.path].values())
        limit = int(request.query.get("limit") or len(items) or 1)
        version, _, start = request.query.get("continue", f"{self.version}/0").partition("/")
        if int(version) < self.oldest:
            return status_answer(410, "Expired", "The provided continue parameter is too old")
        end = int(start) + limit
        metadata = {"resourceVersion": version}
        if end < len(items):
            metadata["continue"] = f"{version}/{end}"
        return web.json_response({"metadata": metadata, "items": items[int(start) : end]})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        position = int(request.query["resourceVersion"])
        if position < self.oldest:
            status = status_body(410, "Expired", "too old resource version")
            if not self.gone_as_event:
                return web.json_response(status, status=410)
        response = web.StreamResponse()
        await response.prepare(request)
        with suppress(ConnectionError):
            if position < self.oldest:
                await response.write(json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
                return response
            await self._follow(request.path, position, response)
        return response

    async def _follow(self, collection: str, position: int, response: web.StreamResponse) -> None:
        cut = self._cut
        sent = next((i for i, each in enumerate(self._history) if each[0] > position), len(self._history))
        while self._cut == cut:
            changed = self._changed
            while sent < len(self._history):
                _, where, data = self._history[sent]
                sent += 1
                if where == collection:
                    await response.write(data + b"\n")
            await changed.wait()


def status_body(code: int, reason: str, message: str, **details: Any) -> Object:
    """A Status object."""
    body: Object = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return {**body, "details": details} if details else body


def status_answer(code: int, reason: str, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """A refusal."""
    return web.json_response(status_body(code, reason, message), status=code, headers=headers)
