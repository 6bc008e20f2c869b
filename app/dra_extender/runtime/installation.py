"""What is installed differs by platform: which event loop runs, and what does not work without a package that has no build there.

uvloop is made only for Unix; google-re2 has no build for some platforms.  The service runs where both are; the commands that
answer questions run without them.
"""

import asyncio
import sys
from collections.abc import Coroutine, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, Final, TypeVar

T = TypeVar("T")

_OPTIONAL: Final[Mapping[str, str]] = MappingProxyType(
    {
        "uvloop": "uvloop is not installed: asyncio's own event loop runs, which is slower",
        "cryptography": "cryptography is not installed: certificates can be neither made nor served here",
        "re2": "google-re2 is not installed: selectors with a regular expression fail here, and not in the cluster",
    }
)
"""Modules that a platform may lack, and what follows."""


@cache
def build_version() -> str:
    """Return the version of the installed package, or `unknown` when it runs from a bare source tree."""
    try:
        return version("dra-extender")
    except PackageNotFoundError:
        return "unknown"


def lacking() -> tuple[str, ...]:
    """Return a sentence for each optional package that is not installed: what happens without it.

    Empty where the service runs: its image and its lock have all of them.
    """
    return tuple(text for name, text in _OPTIONAL.items() if not is_installed(name))


def is_installed(module: str) -> bool:
    """Return whether a module can be imported; it is not imported for that.

    A module that is marked as None in `sys.modules` counts as absent, as for an import statement.
    """
    if module in sys.modules:
        return sys.modules[module] is not None
    return find_spec(module) is not None


LIMITS: Final[Any] = import_module("resource") if is_installed("resource") else None
"""The module that knows what a process may use, such as open files; None on Windows, which has none."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of uvloop where that is installed, else asyncio's."""
    if not is_installed("uvloop"):
        return asyncio.new_event_loop()
    import uvloop  # noqa: PLC0415 - it is not there on every platform

    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def run_in_new_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine to its end in an event loop of its own, and return its result."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)
