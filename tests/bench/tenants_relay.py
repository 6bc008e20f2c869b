"""Stands between kube-scheduler and an extender and measures the filter calls of one namespace."""

import argparse
import asyncio
import time
from typing import Final

import aiohttp
import msgspec
import uvloop
from aiohttp import web

from tests.bench.noop_extender import FILTER

_LARGEST: Final = 64 * 2**20


class MeasuringRelay:
    """Forwards every POST unchanged; GET /figures answers the seconds of the namespace's filter calls as a JSON list."""

    def __init__(self, target: str, namespace: str) -> None:
        self._target = target
        self._namespace = namespace
        self._seconds: list[float] = []
        self._session: aiohttp.ClientSession | None = None

    async def serve(self, port: int) -> None:
        """Serve on a loopback port for ever."""
        application = web.Application(client_max_size=_LARGEST)
        application.router.add_get("/figures", self._figures)
        application.router.add_post("/{verb}", self._forward)
        runner = web.AppRunner(application, access_log=None, keepalive_timeout=600.0)
        await runner.setup()
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as self._session:
            await web.TCPSite(runner, "127.0.0.1", port).start()
            await asyncio.Event().wait()

    async def _figures(self, _: web.Request) -> web.Response:
        return web.Response(body=msgspec.json.encode(self._seconds), content_type="application/json")

    async def _forward(self, request: web.Request) -> web.Response:
        assert self._session is not None
        verb, body = request.match_info["verb"], await request.read()
        began = time.perf_counter()
        headers = {"Content-Type": "application/json"}
        try:
            async with self._session.post(f"{self._target}/{verb}", data=body, headers=headers) as answer:
                found = await answer.read()
        finally:
            seconds = time.perf_counter() - began
            if verb == "filter" and FILTER.decode(body).Pod.metadata.namespace == self._namespace:
                self._seconds.append(seconds)
        return web.Response(body=found, status=answer.status, content_type="application/json")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.tenants_relay", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--namespace", required=True)
    arguments = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(MeasuringRelay(arguments.target, arguments.namespace).serve(arguments.port))


if __name__ == "__main__":
    main()
