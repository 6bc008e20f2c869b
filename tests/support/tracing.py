"""Which modules of the program a piece of code runs through."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import dra_extender

_ROOT = f"{Path(dra_extender.__file__).parent}/"


@contextmanager
def modules_crossed(below: str = "") -> Iterator[list[str]]:
    """Collect the modules whose functions are called inside, in the order of their first call, as paths below the package.

    Only paths that begin with `below` count; the simulator never does.  Inside an event loop, calls in tasks count, and callbacks
    that run between them do not.
    """
    crossed: dict[str, None] = {}

    def called(frame: FrameType, event: str, argument: Any) -> None:
        path = frame.f_code.co_filename
        if path.startswith(_ROOT) and not _in_callback():
            module = path.removeprefix(_ROOT)
            if module.startswith(below) and not module.startswith("simulator/"):
                crossed[module] = None

    found: list[str] = []
    before = sys.gettrace()
    sys.settrace(called)
    try:
        yield found
    finally:
        sys.settrace(before)
        found.extend(crossed)


def _in_callback() -> bool:
    """Whether the event loop runs something that is no task."""
    try:
        return asyncio.current_task() is None
    except RuntimeError:
        return False
