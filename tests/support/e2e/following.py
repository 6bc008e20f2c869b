"""The states that objects go through, as a watch tells them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from tests.controlplane.objects import Object
from tests.controlplane.resources import Resource
from tests.support.e2e.namespace_fixture import NamespaceFixture


@asynccontextmanager
async def following(scene: NamespaceFixture, resource: Resource) -> AsyncIterator[list[Object]]:
    """Every state of the objects of a kind that there is inside the block."""
    seen: list[Object] = []
    async with scene.api.watch(resource, scene.name) as events:

        async def follow() -> None:
            async for event in events:
                seen.append(event["object"])  # noqa: PERF401 - the stream does not end

        task = asyncio.create_task(follow())
        try:
            yield seen
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def first_version(states: Sequence[Object], name: str, part: str, field: str) -> int:
    """Return the resource version with which an object got this field of its spec or status."""
    return min(
        int(state["metadata"]["resourceVersion"])
        for state in states
        if state["metadata"]["name"] == name and state.get(part, {}).get(field)
    )
