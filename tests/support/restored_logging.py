import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog


@contextmanager
def restored_logging() -> Iterator[None]:
    """Undo what the block configures: where the lines of the process go, and how they are written."""
    root, configured = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers, root.level
    try:
        yield
    finally:
        root.handlers = handlers
        root.setLevel(level)
        structlog.configure(**configured)
