import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeVar

import aiohttp
import msgspec

from tests.controlplane.apierror import ApiError
from tests.controlplane.kubeconfig import Access, read_kubeconfig
from tests.controlplane.resources import Resource
from tests.controlplane.waiting import wait_for
from tests.controlplane.watching import RETRY_SECONDS, Watch
from tests.support.turns import turns

T = TypeVar("T")
Object = dict[str, Any]
PatchKind = Literal["merge", "strategic", "json"]
PATCH_TYPES: Final[Mapping[PatchKind, str]] = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
}
REQUEST_SECONDS = 30.0
CONNECTIONS = 50


class ApiClient:
    """Raw JSON over the Kubernetes API as one user. Every request is bounded; a refusal raises ApiError.

    What the server is too busy to read is asked for again.

    Use as an async context manager, or call `close`.
    """

    def __init__(self, access: Access) -> None:
        self.access = access
        trust = ssl.create_default_context(cadata=access.authority)
        self._session = aiohttp.ClientSession(
            base_url=access.server,
            headers={"Authorization": f"Bearer {access.token}", "Accept": "application/json"},
            connector=aiohttp.TCPConnector(ssl=trust, limit=CONNECTIONS),
            timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS),
        )

    @classmethod
    def from_kubeconfig(cls, path: Path) -> Self:
        """Client for the user of a kubeconfig that the control plane wrote."""
        return cls(read_kubeconfig(path))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; return when their transports have ended, too, which needs the event loop."""
        await self._session.close()
        await turns()

    async def get(
        self, resource: Resource, name: str, namespace: str | None = None, subresource: str | None = None
    ) -> Object:
        return await self._object("GET", resource.path(namespace, name, subresource))

    async def list(self, resource: Resource, namespace: str | None = None, **parameters: str) -> list[Object]:
        """All objects of a collection; parameters are the API's own, such as labelSelector and fieldSelector."""
        answer = await self._object("GET", resource.path(namespace), parameters=parameters)
        return list(answer.get("items") or [])

    async def create(
        self,
        resource: Resource,
        body: Object,
        *,
        name: str | None = None,
        subresource: str | None = None,
        **parameters: str,
    ) -> Object:
        """Creates an object in the namespace of its metadata (or, with a subresource, a part such as a pod's binding).

        Parameters are the API's own, such as dryRun and fieldValidation.
        """
        namespace = body.get("metadata", {}).get("namespace")
        return await self._object("POST", resource.path(namespace, name, subresource), body, parameters=parameters)

    async def replace(
        self, resource: Resource, body: Object, subresource: str | None = None, *, manager: str | None = None
    ) -> Object:
        """PUT of an object (or of its status, with that subresource), found by its own metadata.

        `manager` is the field manager; without one the API server takes the name of the program.
        """
        metadata = body["metadata"]
        path = resource.path(metadata.get("namespace"), metadata["name"], subresource)
        return await self._object("PUT", path, body, parameters={} if manager is None else {"fieldManager": manager})

    async def patch(
        self,
        resource: Resource,
        name: str,
        change: Object | Sequence[Object],
        namespace: str | None = None,
        *,
        kind: PatchKind = "merge",
        subresource: str | None = None,
    ) -> Object:
        """Changes an object; `change` is a document for merge and strategic patches, a list of operations for JSON patches."""
        path = resource.path(namespace, name, subresource)
        return await self._object("PATCH", path, change, content_type=PATCH_TYPES[kind])

    async def delete(
        self, resource: Resource, name: str, namespace: str | None = None, *, grace_seconds: int | None = None
    ) -> Object:
        """Deletes an object; pods need `grace_seconds=0` to go, since no kubelet confirms their end."""
        options = {} if grace_seconds is None else {"gracePeriodSeconds": str(grace_seconds)}
        return await self._object("DELETE", resource.path(namespace, name), parameters=options)

    async def delete_collection(
        self, resource: Resource, namespace: str | None = None, *, grace_seconds: int | None = None, **parameters: str
    ) -> None:
        """Deletes all objects of a collection that the parameters select."""
        options = {} if grace_seconds is None else {"gracePeriodSeconds": str(grace_seconds)}
        await self._object("DELETE", resource.path(namespace), parameters={**options, **parameters})

    @asynccontextmanager
    async def watch(
        self, resource: Resource, namespace: str | None = None, resource_version: str | None = None, **parameters: str
    ) -> AsyncIterator[AsyncIterator[Object]]:
        """Events {"type", "object"} of a collection: `async with api.watch(PODS, "x") as events: async for event in events`.

        Without a resource version, what exists comes first as ADDED. The stream resumes where it was when the server ends it,
        and lists again when that version is gone (what vanished meanwhile is then told as DELETED). It never ends by itself.
        """
        watch = Watch(self._session, resource.path(namespace), parameters, resource_version)
        try:
            yield watch.events()
        finally:
            await watch.close()

    async def wait_for(
        self,
        predicate: Callable[[], Awaitable[T]],
        timeout: float,  # noqa: ASYNC109 - as in waiting.wait_for
        what: str,
    ) -> T:
        """The first truthy answer of `predicate`; TimeoutError with `what` after `timeout` seconds (see waiting.wait_for)."""
        return await wait_for(predicate, timeout, what)

    async def text(self, path: str) -> str:
        """A page of the server that is not JSON, such as /metrics."""
        async with self._session.get(path) as answer:
            body = await answer.text()
            if not answer.ok:
                raise ApiError("GET", path, answer.status, body)
            return body

    async def raw(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> bytes:
        """Bytes that no encoder has touched, both ways: what an object looks like in the spelling that is stored."""
        headers = {"Accept": accept} | ({} if body is None else {"Content-Type": content_type})
        async with self._session.request(method, path, data=body, headers=headers) as answer:
            found = await answer.read()
            if not answer.ok:
                raise ApiError(method, path, answer.status, decode(found))
            return found

    async def _object(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        parameters: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        data = None if body is None else msgspec.json.encode(body)
        headers = {} if data is None else {"Content-Type": content_type}
        end = time.monotonic() + REQUEST_SECONDS
        while True:
            async with self._session.request(method, path, data=data, params=parameters, headers=headers) as answer:
                decoded = decode(await answer.read())
                if answer.ok:
                    return decoded if isinstance(decoded, dict) else {}
                # An API server that has just started refuses lists of kinds that it has not read yet.
                if method != "GET" or answer.status != HTTPStatus.TOO_MANY_REQUESTS or time.monotonic() > end:
                    raise ApiError(method, path, answer.status, decoded)
            await asyncio.sleep(RETRY_SECONDS)


def decode(body: bytes) -> Any:
    """JSON of an answer, or its text where a proxy or an early failure answered without JSON."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        pass
    # It takes halves of surrogate pairs, which API servers store.
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")
