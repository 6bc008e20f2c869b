"""As little of a server as ASGI allows: the body of a request comes in, that of its answer goes out."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn

Message = MutableMapping[str, Any]


async def serve(answer: Callable[[str, bytes], Awaitable[bytes]], host: str, port: int) -> None:
    """Answer requests, of which `answer` is given path and body, until asked to stop."""

    async def application(
        scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        parts = []
        more = True
        while more:
            message = await receive()
            parts.append(message.get("body", b""))
            more = message.get("more_body", False)
        body = await answer(scope["path"], b"".join(parts))
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    config = uvicorn.Config(
        application,
        host=host,
        port=port,
        http="httptools",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=120,
    )
    await uvicorn.Server(config).serve()
