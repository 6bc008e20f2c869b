"""The command line, in a process of its own or in this one."""

import asyncio
import sys
from pathlib import Path
from threading import Lock
from typing import Final

from dra_extender.cli.app import app
from typer.testing import CliRunner

SECONDS: Final = 180.0
"""Enough to start an interpreter several times over on a busy machine."""
_ALONE: Final = Lock()
"""In this process, the command line replaces the standard output."""


async def run_here(*arguments: str) -> tuple[int, str, str]:
    """Exit status and output of `dra-extender ARGUMENTS`, in this process: a process for each question would mostly be starting."""
    async with asyncio.timeout(SECONDS):
        return await asyncio.to_thread(_invoked, arguments)


def _invoked(arguments: tuple[str, ...]) -> tuple[int, str, str]:
    with _ALONE:
        done = CliRunner().invoke(app, arguments)
    return done.exit_code, done.stdout, done.stderr


async def kubectl_dra(*arguments: str) -> tuple[int, str, str]:
    """Exit status and output of `kubectl-dra ARGUMENTS`, in a process of its own."""
    pipe = asyncio.subprocess.PIPE
    program = Path(sys.executable).parent / "kubectl-dra"
    process = await asyncio.create_subprocess_exec(program, *arguments, stdout=pipe, stderr=pipe)
    async with asyncio.timeout(SECONDS):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()
