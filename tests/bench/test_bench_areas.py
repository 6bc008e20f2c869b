"""Every area of the bench makes rows, in its quick form: a file that has moved or a program that has changed is found here."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench.__main__ import AREAS, ON_REQUEST
from tests.bench.scale import QUICK, Scale
from tests.controlplane.cluster import BASIC, DEFAULT_OPTIONS, ControlPlane
from tests.controlplane.plugin import ControlPlaneFactory
from tests.controlplane.sweeping import sweep

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]
ALL = {**AREAS, **ON_REQUEST}


@pytest.fixture(scope="module")
def scale(control_plane: ControlPlaneFactory) -> Scale:
    """The quick form, in which all runs share a control plane: nothing that is measured here counts."""

    @asynccontextmanager
    async def shared(_: Path) -> AsyncIterator[ControlPlane]:
        cluster = await control_plane(DEFAULT_OPTIONS)
        yield cluster
        for name in cluster.pids.keys() - set(BASIC):
            await cluster.stop_scheduler(name)
        await sweep(cluster.api)

    return replace(QUICK, plane=shared)


@pytest.mark.parametrize("area", sorted(ALL))
async def test_the_area_makes_rows_of_its_own(area: str, scale: Scale, tmp_path: Path) -> None:
    """`compare` refuses rows that tests/bench/cases.py does not declare."""
    rows = await ALL[area](scale, tmp_path)
    assert rows
    assert {row.area for row in rows} == {area}
