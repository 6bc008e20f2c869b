import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.controlplane.extender import REPOSITORY
from tests.controlplane.ports import free_ports
from tests.controlplane.process import Component


@dataclass(frozen=True, slots=True)
class Helper:
    """A server of the bench in a process of its own."""

    port: int
    pid: int


@asynccontextmanager
async def helper(
    module: str, arguments: Sequence[str], workdir: Path, *, ready: str, seconds: float = 120.0
) -> AsyncIterator[Helper]:
    """`python -m tests.bench.MODULE --port PORT ARGUMENTS`, answering GET `ready` on entry and gone on exit.

    Raises ComponentError with the end of its log if it ends early or does not answer in time.
    """
    (port,) = free_ports(1)
    command = [sys.executable, "-m", f"tests.bench.{module}", "--port", str(port), *arguments]
    component = Component(module, command, workdir / f"{module}-{port}.log", directory=REPOSITORY)
    component.start()
    try:
        await component.serving(f"http://127.0.0.1:{port}{ready}", seconds=seconds)
        yield Helper(port, component.pid or 0)
    finally:
        await component.stop()
