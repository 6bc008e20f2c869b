"""What the first process of a node answers to those who start and end its programs."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from tests.controlplane.node.layout import NodeError, NodeLayout
from tests.controlplane.node.namespaces import Namespaces

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

DEAF: Final = ("sh", "-c", "trap '' TERM; while :; do sleep 0.1; done")


@pytest_asyncio.fixture(loop_scope="module")
async def namespaces(able: None, tmp_path: Path) -> AsyncIterator[Namespaces]:
    """Namespaces in which nothing runs but the first process."""
    namespaces = Namespaces(NodeLayout.create(tmp_path, "127.0.0.2"))
    try:
        await namespaces.start({}, {})
        yield namespaces
    finally:
        await namespaces.kill()


async def test_an_answer_that_nobody_waited_for_is_not_taken_for_the_next(namespaces: Namespaces) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await namespaces.run("long", ["sleep", "1"])
    assert await namespaces.run("short", ["sh", "-c", "exit 3"]) == 3


async def test_a_program_runs_until_it_is_ended_and_starts_again(namespaces: Namespaces) -> None:
    for kill, code in ((False, -15), (True, -9)):
        await namespaces.launch("program", ["sleep", "600"])
        assert await namespaces.programs() == {"program"}
        assert await namespaces.end("program", kill=kill) == code
        assert await namespaces.programs() == frozenset()
    assert await namespaces.end("program") is None


async def test_a_command_that_takes_too_long_is_killed(namespaces: Namespaces) -> None:
    assert await namespaces.run("deaf", DEAF, seconds=0.2) == -9
    assert await namespaces.programs() == frozenset()


async def test_what_cannot_be_started_is_told(namespaces: Namespaces) -> None:
    with pytest.raises(NodeError, match="no-such-program is not on the PATH"):
        await namespaces.launch("none", ["no-such-program"])
    await namespaces.launch("twice", ["sleep", "600"])
    with pytest.raises(NodeError, match="twice runs already"):
        await namespaces.launch("twice", ["sleep", "600"])


async def test_the_machine_s_processes_are_not_the_node_s(namespaces: Namespaces) -> None:
    assert await namespaces.run("seen", ["sh", "-c", "test $(ls -d /proc/[0-9]* | wc -l) -lt 10"]) == 0
    assert await namespaces.run("mounted", ["sh", "-c", 'test -z "$(ls /run/lock /run/user 2>/dev/null)"']) == 0


async def test_a_node_that_has_ended_says_so(namespaces: Namespaces) -> None:
    await namespaces.kill()
    with pytest.raises(NodeError, match=r"127\.0\.0\.2 does not run, so that it cannot start"):
        await namespaces.launch("late", ["sleep", "1"])
    assert await namespaces.programs() == frozenset()
