import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from starlette.types import Receive, Scope

_MOST_DIGITS: Final = 18
"""Of a length that is read as a number."""


class BodyTooLargeError(Exception):
    """The body exceeds the limit; the message is a sentence for the caller.

    `endless`: the request had no Content-Length, so the connection must be closed.
    """

    def __init__(self, message: str, *, endless: bool) -> None:
        super().__init__(message)
        self.endless = endless


class ClientDisconnectedError(Exception):
    """The caller's connection is gone."""


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The whole body, at most `limit` bytes; a body whose Content-Length is larger is not read.

    Raises:
        BodyTooLargeError: it is longer.
        ClientDisconnectedError: the caller disconnected while sending.
    """
    _check_length(scope, limit)
    first, whole = b"", bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnectedError
        part = message.get("body", b"")
        if len(first) + len(whole) + len(part) > limit:
            raise BodyTooLargeError(f"the body has more than {limit} bytes", endless=True)
        more = message.get("more_body", False)
        if not whole and not first:
            first = part
        else:
            # Pieces of one byte each, kept by themselves, would take forty times their size.
            whole = whole or bytearray(first)
            whole += part
        if not more:
            return bytes(whole) if whole else first


def _check_length(scope: Scope, limit: int) -> None:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and (len(value) > _MOST_DIGITS or int(value) > limit):
            announced = value[:_MOST_DIGITS].decode()
            raise BodyTooLargeError(f"the body has {announced} bytes, at most {limit} are accepted", endless=False)


@asynccontextmanager
async def disconnection(receive: Receive) -> AsyncIterator[asyncio.Event]:
    """An event that is set when the caller's connection is gone.  The body must have been read."""
    disconnected = asyncio.Event()
    watcher = asyncio.create_task(_watch(receive, disconnected))
    try:
        yield disconnected
    finally:
        watcher.cancel()


async def _watch(receive: Receive, disconnected: asyncio.Event) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    disconnected.set()
