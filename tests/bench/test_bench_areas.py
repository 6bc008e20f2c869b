"""Every area of the bench makes rows, in its quick form: a file that has moved or a program that has changed is found here."""

from pathlib import Path

import pytest

from tests.bench.__main__ import AREAS, ON_REQUEST
from tests.bench.scale import QUICK

pytestmark = pytest.mark.e2e
ALL = {**AREAS, **ON_REQUEST}


@pytest.mark.parametrize("area", sorted(ALL))
async def test_the_area_makes_rows_of_its_own(area: str, tmp_path: Path) -> None:
    """`compare` refuses rows that tests/bench/cases.py does not declare."""
    rows = await ALL[area](QUICK, tmp_path)
    assert rows
    assert {row.area for row in rows} == {area}
