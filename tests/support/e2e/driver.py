"""A small driver that makes allocated devices ready, as far as API objects tell."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp

from tests.controlplane.apierror import ApiError
from tests.controlplane.objects import Object
from tests.controlplane.resources import RESOURCE_CLAIMS
from tests.support.e2e.fabric import ATTACHED, FAILED
from tests.support.e2e.namespace_fixture import NamespaceFixture

LOOK_SECONDS = 0.1


class Driver:
    """Reports every allocated device of a scene that has binding conditions as attached, a moment after its allocation.

    `idle` claims (by name) are left waiting.
    """

    def __init__(self, scene: NamespaceFixture, delay: float, fails: Callable[[], bool]) -> None:
        """`delay`: seconds after the allocation; `fails`: whether the device that is to be reported fails instead."""
        self.idle: set[str] = set()
        self._fails = fails
        self._scene = scene
        self._delay = delay
        self._seen: dict[tuple[str, str], float] = {}

    async def run(self) -> None:
        """Until cancelled; an API server that is away is asked again."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                for claim in await self._scene.api.list(RESOURCE_CLAIMS, self._scene.name):
                    results = waiting_results(claim)
                    key = (claim["metadata"]["uid"], str(claim.get("status", {}).get("allocation")))
                    since = self._seen.setdefault(key, loop.time()) if results else 0.0
                    if results and claim["metadata"]["name"] not in self.idle and loop.time() >= since + self._delay:
                        await self._report(claim, results)
            except (ApiError, aiohttp.ClientError, TimeoutError, OSError):
                pass
            await asyncio.sleep(LOOK_SECONDS)

    async def _report(self, claim: Object, results: list[Object]) -> None:
        told = {"type": FAILED if self._fails() else ATTACHED, "status": "True", "reason": "Test", "message": ""}
        time = {"lastTransitionTime": claim["status"]["allocation"].get("allocationTimestamp", "2026-01-01T00:00:00Z")}
        devices = [
            {key: result[key] for key in ("driver", "pool", "device", "shareID") if key in result}
            | {"conditions": [told | time]}
            for result in results
        ]
        change = {"metadata": {"resourceVersion": claim["metadata"]["resourceVersion"]}, "status": {"devices": devices}}
        name = claim["metadata"]["name"]
        await self._scene.api.patch(RESOURCE_CLAIMS, name, change, self._scene.name, subresource="status")


def waiting_results(claim: Object) -> list[Object]:
    """The allocated devices with binding conditions, if nothing was reported about them yet."""
    status = claim.get("status", {})
    results = (status.get("allocation") or {}).get("devices", {}).get("results", ())
    found = [each for each in results if each.get("bindingConditions")]
    return [] if status.get("devices") else found


@asynccontextmanager
async def driving(
    scene: NamespaceFixture, delay: float = 0.3, fails: Callable[[], bool] = lambda: False
) -> AsyncIterator[Driver]:
    """A driver that works inside the block."""
    driver = Driver(scene, delay, fails)
    task = asyncio.create_task(driver.run())
    try:
        yield driver
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
