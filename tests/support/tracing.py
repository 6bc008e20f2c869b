"""Which modules of the program a piece of code runs through."""

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

    Only paths that begin with `below` count; the simulator never does.
    """
    crossed: dict[str, None] = {}

    def called(frame: FrameType, event: str, argument: Any) -> None:
        path = frame.f_code.co_filename
        if path.startswith(_ROOT):
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
