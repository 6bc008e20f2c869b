"""The command line in a process of its own."""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

SECONDS: Final = 180.0
"""Enough to start an interpreter several times over on a busy machine."""


async def run(*arguments: str) -> tuple[int, str, str]:
    """Exit status and output of `dra-extender ARGUMENTS`."""
    return await _ended(sys.executable, "-m", "dra_extender", *arguments)


async def kubectl_dra(*arguments: str, environment: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    """Exit status and output of `kubectl-dra ARGUMENTS`, in this environment or in that of the tests."""
    return await _ended(str(Path(sys.executable).parent / "kubectl-dra"), *arguments, environment=environment)


async def _ended(*command: str, environment: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=pipe, stderr=pipe)
    async with asyncio.timeout(SECONDS):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()
