"""The two requests that follow a kind: its list, in pages, and its watch."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Final, TypeVar

import msgspec
import structlog

from dra_extender.kube.client.errors import ApiCallError, RequestIntent, ResponseTooLongError
from dra_extender.kube.client.objects import ResourceKind
from dra_extender.kube.client.transport import ApiCall, ApiTransport
from dra_extender.model.api_json import decode_any

T = TypeVar("T")

FIRST_PAGE: Final = 16
PAGE_BYTES: Final = 4 * 2**20
"""The target size of a page.  Servers limit pages by objects only, so the number follows from the sizes of earlier objects."""
MOST_BYTES: Final = 8 * PAGE_BYTES
"""The limit for a page of several objects; a longer page is requested again with fewer objects."""
LONGEST_LINE: Final = 64 * 2**20
"""Bytes of one event of a watch."""
_GROWTH: Final = 4
_SHRINKING: Final = 16
_AT_ONCE: Final = 2**18
_GRACE_SECONDS: Final = 30.0
"""The server closes a watch after the requested time; we close it this much later."""

_LOG = structlog.get_logger(__name__)


async def in_turns(decoder: "msgspec.json.Decoder[T]", data: bytes) -> T:
    """Decode as `decode_any` does; long data in a thread, so that the event loop goes on."""
    if len(data) <= _AT_ONCE:
        return decode_any(decoder, data)
    return await asyncio.to_thread(decode_any, decoder, data)


class _ListMeta(msgspec.Struct, frozen=True, gc=False):
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    next_page: str | None = msgspec.field(default=None, name="continue")


class Page(msgspec.Struct, frozen=True, gc=False):
    """A page of a list: raw objects, in the server's order, and the version of the whole list."""

    metadata: _ListMeta = _ListMeta()
    items: list[msgspec.Raw] | None = None


_PAGE = msgspec.json.Decoder(Page)


async def list_pages(
    transport: ApiTransport, kind: ResourceKind, path: str, limit: int, seconds: float
) -> AsyncGenerator[Page, None]:
    """Yield the pages of a consistent list of everything at `path`, of `limit` objects at most.

    When the continue token expires (410 on a later page), the list begins again, unpaged.

    Raises:
        ApiCallError: the server did not answer with a page.
    """
    token, size = "", min(limit, FIRST_PAGE)
    selected = {"fieldSelector": kind.selector} if kind.selector else {}
    while True:
        query = {**selected, "limit": str(size), **({"continue": token} if token else {})}
        try:
            page, read = await _page(transport, kind, path, query, seconds, MOST_BYTES if size > 1 else 0)
        except ResponseTooLongError:
            # Objects before these were small, which says nothing of these.
            size = max(1, size // _SHRINKING)
            continue
        except ApiCallError as failed:
            if not (token and failed.gone):
                raise
            _LOG.info("continue token of a list expired, listing in one page", kind=kind.plural)
            page, _ = await _page(transport, kind, path, selected, seconds, 0)
            yield page
            return
        yield page
        token = page.metadata.next_page or ""
        if not token:
            return
        size = next_size(size, len(page.items or ()), read, limit)


def next_size(size: int, objects: int, read: int, limit: int) -> int:
    """Return the objects to ask for after a page of at most `size` objects that had so many objects in so many bytes."""
    fitting = PAGE_BYTES * objects // max(read, 1)
    return max(1, min(limit, _GROWTH * size, fitting))


async def _page(
    transport: ApiTransport, kind: ResourceKind, path: str, query: dict[str, str], seconds: float, max_bytes: int
) -> tuple[Page, int]:
    """Return a page and its length; raises ResponseTooLongError if it has more than `max_bytes` (0 for any number)."""
    intent = RequestIntent("list", kind.plural)
    body = await transport.send(ApiCall(intent, "GET", path, seconds, query=query, max_bytes=max_bytes))
    try:
        # The authors of the objects decide what decoding costs: a long page must not block the event loop.
        return await in_turns(_PAGE, body), len(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise ApiCallError(intent, None, f"the answer is not a list: {problem}") from problem


class WatchEvent(msgspec.Struct, frozen=True, gc=False):
    """One event: ADDED, MODIFIED, DELETED, BOOKMARK, or ERROR with a Status; and the object as it was sent."""

    type: str
    object: msgspec.Raw


_EVENT = msgspec.json.Decoder(WatchEvent)


async def watch_events(
    transport: ApiTransport,
    kind: ResourceKind,
    path: str,
    version: str,
    *,
    seconds: int,
    silence: float,
    opened: Callable[[], None],
) -> AsyncGenerator[WatchEvent | bytes, None]:
    """Yield the events at `path` after `version`, until the server ends the watch after `seconds`.

    `opened` is called when the server has accepted the watch.  A line that is no event is handed out as bytes, for the caller to
    count.

    Raises:
        StreamSilentError: nothing came for `silence` seconds.
        ApiCallError: the server refuses or does not answer, or the connection breaks.
    """
    query = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": version,
        "timeoutSeconds": str(seconds),
    }
    call = ApiCall(RequestIntent("watch", kind.plural), "GET", path, seconds + _GRACE_SECONDS, query=query)
    async with transport.stream(call, silence) as pieces:
        opened()
        async for line in lines(pieces):
            try:
                event = await in_turns(_EVENT, line)
            except Exception:  # noqa: BLE001 - whatever a line does to the decoder must not end the watch
                yield line
                continue
            yield event


async def lines(pieces: AsyncIterator[bytes], longest: int = LONGEST_LINE) -> AsyncIterator[bytes]:
    """Yield the complete lines in a stream; what follows the last line break is part of a line that was cut off, and is dropped.

    aiohttp's own line reader stops at lines longer than its buffer, and a slice with many devices is one line.

    Raises:
        ApiCallError: a line is longer than `longest` bytes.
    """
    pieces_of_line: list[bytes] = []
    size = 0
    async for piece in pieces:
        *ends, incomplete = piece.split(b"\n")
        for end in ends:
            pieces_of_line.append(end)
            line = b"".join(pieces_of_line)
            pieces_of_line.clear()
            size = 0
            if line and not line.isspace():
                yield line
        if incomplete:
            pieces_of_line.append(incomplete)
            size += len(incomplete)
            if size > longest:
                raise ApiCallError(
                    RequestIntent("watch", "a stream"), None, f"one event is longer than {longest} bytes"
                )
