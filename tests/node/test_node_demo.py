"""`make demo-node`, as somebody runs it."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.controlplane.extender import REPOSITORY
from tests.support.node.demo import ENDED_BY_SOMEBODY, comparable
from tests.support.shown_runs import REAL_NODES

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("able", "binaries")]


@asynccontextmanager
async def demo(folder: Path) -> AsyncIterator[Process]:
    """A demo that keeps its files in a folder."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.node.demo"),
        stdout=PIPE,
        env={**os.environ, "TMPDIR": str(folder)},
        cwd=REPOSITORY,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def left(folder: Path) -> list[str]:
    """Files in the folder, mounts below it, and processes that name it."""
    mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(folder) in line]
    processes = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in words:
            processes.append(words)
    return [*map(str, folder.iterdir()), *mounts, *processes]


async def test_the_demo_shows_what_the_documents_show_and_leaves_nothing(tmp_path: Path) -> None:
    """`make demo-node CAPTURE=1` writes what the documents show."""
    async with demo(tmp_path) as process:
        printed, _ = await process.communicate()
    assert process.returncode == 0
    assert comparable(printed.decode().splitlines()) == comparable(REAL_NODES.read_text().splitlines())
    assert left(tmp_path) == []


async def test_a_demo_that_somebody_ends_leaves_nothing(tmp_path: Path) -> None:
    async with demo(tmp_path) as process:
        assert process.stdout is not None
        while b"mig-1 created" not in await process.stdout.readline():
            assert process.returncode is None
        process.send_signal(signal.SIGTERM)
        await process.communicate()
    assert process.returncode == ENDED_BY_SOMEBODY
    assert left(tmp_path) == []
