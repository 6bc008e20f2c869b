import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

import aiohttp
import msgspec

from tests.controlplane.apierror import ApiError

GONE = 410
# What a server says while it starts, stops or has too much to do; the request is worth repeating.
BUSY = (429, 500, 502, 503, 504)
RETRY_SECONDS = 0.2
# The server ends a watch after this time and it is resumed: a connection that died silently is noticed then at the latest.
WATCH_SECONDS = 300


class Watch:
    """One collection, followed over any number of connections; see ApiClient.watch."""

    def __init__(
        self, session: aiohttp.ClientSession, path: str, parameters: Mapping[str, str], resource_version: str | None
    ) -> None:
        self._session = session
        self._path = path
        self._parameters = dict(parameters)
        self._version = resource_version
        self._known: dict[tuple[str, str], dict[str, Any]] = {}
        self._generator: AsyncGenerator[dict[str, Any]] | None = None

    def events(self) -> AsyncIterator[dict[str, Any]]:
        """The events, once: a second call continues the same stream."""
        if self._generator is None:
            self._generator = self._follow()
        return self._generator

    async def close(self) -> None:
        """Closes the connection."""
        if self._generator is not None:
            await self._generator.aclose()

    async def _follow(self) -> AsyncGenerator[dict[str, Any]]:
        while True:
            try:
                if self._version is None:
                    for event in await self._relist():
                        yield event
                async with aclosing(self._connection()) as stream:
                    async for event in stream:
                        yield event
            except (aiohttp.ClientError, TimeoutError):
                # The server restarts or closed a watcher that fell behind: resume from the last version seen.
                await asyncio.sleep(RETRY_SECONDS)

    async def _relist(self) -> list[dict[str, Any]]:
        async with self._session.get(self._path, params=self._parameters) as answer:
            if answer.status in BUSY:
                answer.raise_for_status()
            body = await answer.json(content_type=None)
            if not answer.ok:
                raise ApiError("GET", self._path, answer.status, body)
        present = {_key(item): item for item in body.get("items") or []}
        vanished = [{"type": "DELETED", "object": item} for key, item in self._known.items() if key not in present]
        found = [
            {"type": "MODIFIED" if key in self._known else "ADDED", "object": item} for key, item in present.items()
        ]
        self._known = present
        self._version = body["metadata"]["resourceVersion"]
        return vanished + found

    async def _connection(self) -> AsyncGenerator[dict[str, Any]]:
        parameters = {
            **self._parameters,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version or "",
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        unbounded = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=WATCH_SECONDS + 30)
        async with self._session.get(self._path, params=parameters, timeout=unbounded) as answer:
            if answer.status == GONE:
                self._version = None
                return
            if answer.status in BUSY:
                answer.raise_for_status()
            if not answer.ok:
                raise ApiError("WATCH", self._path, answer.status, await answer.text())
            async for line in _lines(answer.content):
                event = msgspec.json.decode(line)
                if event["type"] == "ERROR":
                    self._refused(event["object"])
                    return
                self._remember(event)
                if event["type"] != "BOOKMARK":
                    yield event

    def _refused(self, status: dict[str, Any]) -> None:
        if status.get("code") != GONE:
            raise ApiError("WATCH", self._path, int(status.get("code") or 0), status)
        self._version = None

    def _remember(self, event: dict[str, Any]) -> None:
        item = event["object"]
        self._version = item["metadata"]["resourceVersion"]
        if event["type"] == "DELETED":
            self._known.pop(_key(item), None)
        elif event["type"] != "BOOKMARK":
            self._known[_key(item)] = item


def _key(item: dict[str, Any]) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


async def _lines(stream: aiohttp.StreamReader) -> AsyncGenerator[bytes]:
    # The reader's own line iteration refuses lines beyond its buffer, and a slice of many devices is one line.
    rest = b""
    async for chunk in stream.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
