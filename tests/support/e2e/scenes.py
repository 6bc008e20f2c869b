"""The rows of a table at the same time, each with a namespace, a driver and nodes of its own."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from tests.support.e2e.namespace_fixture import NamespaceFixture

Row = Callable[[NamespaceFixture], Awaitable[None]]


async def carry_out_apart(scene: NamespaceFixture, rows: Mapping[str, Row]) -> None:
    """Carry out all rows at once, and fail with every row that failed, by its name."""
    scenes = {name: NamespaceFixture(scene.world, f"{scene.name}-{name}", apart=True) for name in rows}
    await asyncio.gather(*(row.open() for row in scenes.values()))
    try:
        outcomes = await asyncio.gather(*(rows[name](scenes[name]) for name in rows), return_exceptions=True)
        problems = []
        for name, outcome in zip(rows, outcomes, strict=True):
            if isinstance(outcome, Exception):
                outcome.add_note(f"This is the row {name!r}.")
                problems.append(outcome)
        if problems:
            raise ExceptionGroup("rows failed", problems)
    finally:
        await asyncio.gather(*(row.clear() for row in scenes.values()))
