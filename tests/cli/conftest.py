from collections.abc import Iterator

import pytest

from tests.support.restored_logging import restored_logging


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    """A command that a test calls configures the log, as in a process of its own."""
    with restored_logging():
        yield
