"""Reads the body of a call, which is limited."""

from typing import Final

from starlette.types import Receive, Scope

_LONGEST_LENGTH: Final = 18
"""Digits of a Content-Length that is read as a number."""


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
    """Read the whole body, at most `limit` bytes; a body whose Content-Length is larger is not read.

    Raises:
        BodyTooLargeError: it is longer.
        ClientDisconnectedError: the caller disconnected while sending.
    """
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and (len(value) > _LONGEST_LENGTH or int(value) > limit):
            announced = value[:_LONGEST_LENGTH].decode()
            raise BodyTooLargeError(f"the body has {announced} bytes, at most {limit} are accepted", endless=False)
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnectedError
        part: bytes = message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) + len(part) > limit:
            raise BodyTooLargeError(f"the body has more than {limit} bytes", endless=True)
        if not more:
            # Most bodies arrive in one piece.
            return bytes(body + part) if body else part
        body += part
