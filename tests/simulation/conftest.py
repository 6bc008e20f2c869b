from collections.abc import Iterator

import pytest

from tests.simulation.environment import collected


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """Free what a test's processes leave before the next test begins."""
    with collected():
        yield
