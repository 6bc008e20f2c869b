import gc
from collections.abc import Iterator

import pytest

from tests.support.restored_logging import restored_logging


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    """A command that a test calls configures the log, as in a process of its own."""
    with restored_logging():
        yield


@pytest.fixture(autouse=True)
def _collections() -> Iterator[None]:
    """Undo that a program makes collections of garbage rare in the process that it runs in."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
