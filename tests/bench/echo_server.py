"""The least that any extender in Python can be: a bare ASGI application that reads the body and answers with the same NodeNames."""

import argparse
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec
import uvicorn

Message = MutableMapping[str, Any]


class Arguments(msgspec.Struct, gc=False):
    """The part of a filter request that is answered; everything else is skipped unread."""

    NodeNames: list[str]


class Answer(msgspec.Struct, gc=False):
    """A filter answer in which all nodes fit."""

    NodeNames: list[str]


_DECODER = msgspec.json.Decoder(Arguments)
_ENCODER = msgspec.json.Encoder()


async def application(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    if scope["type"] != "http":
        return
    parts = []
    more = True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    answer = b"{}"
    if scope["method"] == "POST":
        answer = _ENCODER.encode(Answer(_DECODER.decode(b"".join(parts)).NodeNames))
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


def main() -> None:
    """Serve on a loopback port."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    uvicorn.run(
        application,
        host="127.0.0.1",
        port=arguments.port,
        loop="uvloop",
        http="httptools",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=120,
    )


if __name__ == "__main__":
    main()
