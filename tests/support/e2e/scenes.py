"""Scenes of one test, each with a namespace, a driver and nodes of its own: for rows of a table that are carried out at once."""

import asyncio
import re
import zlib
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.controlplane.objects import SCHEDULER_NAME
from tests.support.e2e.checker import expect_sound
from tests.support.e2e.installed_extender import InstalledExtender
from tests.support.e2e.namespace_fixture import NamespaceFixture
from tests.support.side_by_side import side_by_side

Row = Callable[[NamespaceFixture], Coroutine[Any, Any, None]]
_NAME_LENGTH: Final = 24


@dataclass(slots=True)
class Scenes:
    """`test` is the id of the test, from which namespaces get names."""

    world: InstalledExtender
    test: str
    opened: list[NamespaceFixture] = field(default_factory=list)

    async def open(self, name: str, scheduler: str = SCHEDULER_NAME) -> NamespaceFixture:
        """Create a scene; `scheduler` is that of its pods."""
        words = re.sub("[^a-z0-9]+", "-", name.lower())[:_NAME_LENGTH].strip("-")
        namespace = f"{words}-{zlib.crc32(f'{self.test} {name} {scheduler}'.encode()):08x}"
        scene = NamespaceFixture(self.world, namespace, scheduler)
        self.opened.append(scene)
        await scene.open()
        return scene

    async def carry_out(self, *rows: Row) -> None:
        """Carry out rows at once, each in a scene of its own; they have the names of the functions.

        Raises:
            ExceptionGroup: rows failed.
        """

        async def carried_out(row: Row) -> None:
            await row(await self.open(row.__name__))

        await side_by_side({row.__name__: carried_out(row) for row in rows})

    async def end(self) -> None:
        """Whatever the test did, the cluster is sound, and the log of the extender clean; clear all scenes."""
        try:
            await expect_sound(self.world.api, self.world.kubelets)
            assert self.world.complaints() == []
        finally:
            await asyncio.gather(*(scene.clear() for scene in self.opened))


async def carry_out_apart(scene: NamespaceFixture, rows: Mapping[str, Row]) -> None:
    """Carry out rows at once, each in a scene beside this one, whose pods can go to its own nodes alone.

    Raises:
        ExceptionGroup: rows failed.
    """
    scenes = {name: NamespaceFixture(scene.world, f"{scene.name}-{name}", apart=True) for name in rows}
    await asyncio.gather(*(row.open() for row in scenes.values()))
    try:
        await side_by_side({name: row(scenes[name]) for name, row in rows.items()})
    finally:
        await asyncio.gather(*(row.clear() for row in scenes.values()))
