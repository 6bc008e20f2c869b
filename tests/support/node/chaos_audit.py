"""What is never so on real nodes, whatever fails: looked for all the time."""

import asyncio
from collections.abc import Iterator, Mapping
from random import Random
from typing import Final

from tests.chaos.patience import patiently
from tests.support.e2e.checker import forbidden_findings
from tests.support.node.chaos_load import SHARED
from tests.support.node.nodes import RealNodes
from tests.support.node.prepared import find_wrongly_prepared

_AGAIN_SECONDS: Final = 0.1


class NodeAudit:
    """Looks at API objects and at the CDI files of the kubelets; `looks` counts, `violations` says what was wrong."""

    def __init__(self, nodes: RealNodes, random: Random) -> None:
        self.looks = 0
        self.violations: list[str] = []
        self._nodes = nodes
        self._random = random

    async def run(self) -> None:
        """Look at random moments until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(self._random.uniform(0.1, 1.5))

    async def look(self) -> None:
        """Look once.  Files and objects are read one after the other, so that only what is found twice counts.

        A kubelet unprepares devices before it reports that a pod has ended, so that a device is never prepared for two claims.
        """
        self.looks += 1
        self.violations += map(str, await patiently(lambda: forbidden_findings(self._nodes.api)))
        before = await self._doubtful()
        if before:
            await asyncio.sleep(_AGAIN_SECONDS)
            self.violations += sorted(before & await self._doubtful())

    async def _doubtful(self) -> set[str]:
        twice = {
            f"{node.name} has prepared {device} for claims {first} and {second}"
            for node in self._nodes
            for device, first, second in prepared_twice(node.prepared())
        }
        return twice | {*await patiently(lambda: find_wrongly_prepared(self._nodes))}


def prepared_twice(prepared: Mapping[str, frozenset[str]]) -> Iterator[tuple[str, str, str]]:
    """Devices that two claims have, with the UIDs of both; the one whose capacity is shared may be in many."""
    owners: dict[str, str] = {}
    for uid, devices in sorted(prepared.items()):
        for device in devices:
            if device.rpartition("/")[2] != SHARED and owners.setdefault(device, uid) != uid:
                yield device, owners[device], uid
