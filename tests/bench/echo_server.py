"""The least that any extender in Python can be: it reads the body and answers with the same NodeNames."""

import argparse
import asyncio

import msgspec
import uvloop

from tests.bench.asgi import serve


class NodeNames(msgspec.Struct, gc=False):
    """The part of a filter request that is answered, and the answer; everything else is skipped unread."""

    NodeNames: list[str]


_DECODER = msgspec.json.Decoder(NodeNames)
_ENCODER = msgspec.json.Encoder()


async def answer(_: str, body: bytes) -> bytes:
    return _ENCODER.encode(_DECODER.decode(body)) if body else b"{}"


def main() -> None:
    """Serve on a loopback port."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(answer, "127.0.0.1", parser.parse_args().port))


if __name__ == "__main__":
    main()
