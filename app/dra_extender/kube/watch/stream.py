from collections.abc import AsyncGenerator, AsyncIterator, Callable

import msgspec

from dra_extender.kube.client.errors import ApiCallError, RequestIntent, read_status
from dra_extender.kube.client.resources import ResourceKind
from dra_extender.kube.client.transport import ApiCall, ApiTransport
from dra_extender.kube.watch.listing import in_turns

LONGEST_LINE = 64 * 2**20
# The server closes the watch after the requested time; we close it this much later.
_GRACE_SECONDS = 30.0


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


def failure(kind: ResourceKind, event: WatchEvent) -> ApiCallError:
    """Return the error that an ERROR event describes."""
    status = read_status(0, bytes(event.object))
    pause = status.details.retry_after_seconds if status.details else None
    return ApiCallError(RequestIntent("watch", kind.plural), status, retry_after=pause or 0.0)


async def lines(pieces: AsyncIterator[bytes], longest: int = LONGEST_LINE) -> AsyncIterator[bytes]:
    """Yield the complete lines in a stream; what follows the last line break is part of a line that was cut off, and is dropped.

    aiohttp's own line reader stops at lines longer than its buffer, and a slice with many devices is one line.

    Raises:
        ApiCallError: a line is longer than `longest` bytes.
    """
    begun: list[bytes] = []
    size = 0
    async for piece in pieces:
        *ends, rest = piece.split(b"\n")
        for end in ends:
            begun.append(end)
            line = b"".join(begun)
            begun.clear()
            size = 0
            if line and not line.isspace():
                yield line
        if rest:
            begun.append(rest)
            size += len(rest)
            if size > longest:
                raise ApiCallError(
                    RequestIntent("watch", "a stream"), None, f"one event is longer than {longest} bytes"
                )
