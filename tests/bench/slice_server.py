"""As much of an API server as a cold start needs: discovery, paged lists of prepared objects, watches in which nothing happens."""

import argparse
import asyncio
import logging
import time
from contextlib import suppress
from typing import Final

from aiohttp import web

from tests.bench import workload
from tests.bench.heavy_slices import node_objects, placed_objects, stored
from tests.controlplane import objects

_RESOURCE: Final = "/apis/resource.k8s.io/v1"
_SLICES: Final = f"{_RESOURCE}/resourceslices"
_NODES: Final = "/api/v1/nodes"
_PODS: Final = "/api/v1/pods"
_CLAIMS: Final = f"{_RESOURCE}/resourceclaims"
_CLASSES: Final = f"{_RESOURCE}/deviceclasses"
_VERSION: Final = "1000000"
_PAGES: Final = {
    "/version": {"major": "1", "minor": "37", "gitVersion": "v1.37.0"},
    "/apis/resource.k8s.io": {"versions": [{"version": "v1"}]},
    _RESOURCE: {"resources": [{"name": "resourceslices"}]},
}


class SliceServer:
    """Serves `count` nodes, each with a slice of devices, a slice of counters, and `placed` pods with a claim for one device."""

    def __init__(self, count: int, placed: int) -> None:
        nodes = [stored(workload.node(index), index + 1) for index in range(count)]
        slices = [stored(each, index + 1) for index in range(count) for each in node_objects(index)]
        pairs = [placed_objects(index, number) for index in range(count) for number in range(placed)]
        self._objects = {
            _NODES: nodes,
            _SLICES: slices,
            _PODS: [stored(pod, place) for place, (pod, _) in enumerate(pairs, 1)],
            _CLAIMS: [stored(claim, place) for place, (_, claim) in enumerate(pairs, 1)],
            _CLASSES: [stored(objects.device_class(workload.CLASS), 1)],
        }
        self._first_list: float | None = None
        self._bytes = sum(map(len, slices))

    def application(self) -> web.Application:
        """The aiohttp application; GET /bench tells and forgets when the first list was asked for (monotonic seconds)."""
        application = web.Application()
        application.router.add_get("/bench", self._told)
        application.router.add_get("/{path:.*}", self._get)
        return application

    async def _told(self, _: web.Request) -> web.Response:
        first, self._first_list = self._first_list, None
        return web.json_response({"first list": first, "slice bytes": self._bytes})

    async def _get(self, request: web.Request) -> web.StreamResponse:
        if request.path in _PAGES:
            return web.json_response(_PAGES[request.path])
        if request.path == "/metrics":
            return web.Response(text="")
        if request.path.startswith("/apis/scheduling.k8s.io"):
            status = {"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "not served"}
            return web.json_response(status, status=404)
        if "watch" in request.query:
            return await self._silence(request)
        return self._page(request)

    def _page(self, request: web.Request) -> web.Response:
        if self._first_list is None:
            self._first_list = time.monotonic()
        items = self._objects.get(request.path, [])
        start = int(request.query.get("continue", "0"))
        end = start + int(request.query.get("limit") or len(items) or 1)
        token = f',"continue":"{end}"' if end < len(items) else ""
        head = f'{{"kind":"List","metadata":{{"resourceVersion":"{_VERSION}"{token}}},"items":['
        return web.Response(body=head.encode() + b",".join(items[start:end]) + b"]}", content_type="application/json")

    async def _silence(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        with suppress(ConnectionError, asyncio.CancelledError):
            await asyncio.sleep(float(request.query.get("timeoutSeconds", "300")))
        return response


def main() -> None:
    """Serve on a loopback port."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--placed", type=int, default=0)
    arguments = parser.parse_args()
    logging.disable()
    application = SliceServer(arguments.count, arguments.placed).application()
    web.run_app(application, host="127.0.0.1", port=arguments.port, print=None, access_log=None, shutdown_timeout=0.1)


if __name__ == "__main__":
    main()
