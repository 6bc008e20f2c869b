"""A node's namespaces from outside: started, given commands, ended."""

import asyncio
import itertools
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals
from typing import Any, Final

from tests.controlplane.extender import REPOSITORY
from tests.controlplane.node import cgroups
from tests.controlplane.node.layout import NodeError, NodeLayout

COMMAND_SECONDS: Final = 60.0
END_SECONDS: Final = 15.0
POLL_SECONDS: Final = 0.05
NAMESPACES: Final = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
INIT: Final = (sys.executable, "-S", "-m", "tests.controlplane.node.init")


class Namespaces:
    """The mount and PID namespaces of a node with its first process, which does what it is told (see init)."""

    def __init__(self, layout: NodeLayout) -> None:
        self._layout = layout
        self._process: asyncio.subprocess.Process | None = None
        self._first: int | None = None
        self._numbers = itertools.count()
        self._turn = asyncio.Lock()

    @property
    def running(self) -> bool:
        """Whether the first process has been started and has not ended."""
        return self._process is not None and self._process.returncode is None

    async def start(self, folders: Mapping[str, Path], tunables: Mapping[str, str]) -> None:
        """Start the first process and let it mount what the node has for itself: folders by the names they get below /run.

        Raises:
            NodeError: it cannot; with what it said.
        """
        if self.running:
            raise NodeError(f"Node {self._layout.name} runs already.")
        environment = {**os.environ, "PATH": f"{self._layout.bin}:{os.environ['PATH']}"}
        with self._layout.log("init").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *NAMESPACES,
                *INIT,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=environment,
                cwd=REPOSITORY,
                start_new_session=True,
            )
        await self._ask("running")
        self._first = _only_child(self._process.pid)
        bound = {name: str(folder) for name, folder in folders.items()}
        await self._ask("prepare", cgroup=self._layout.cgroup, folders=bound, tunables=dict(tunables))

    async def launch(self, name: str, command: Sequence[str | Path]) -> None:
        """Start a program under a name, which is also that of its log."""
        words = [str(each) for each in command]
        await self._ask("start", name=name, command=words, log=str(self._layout.log(name)))

    async def run(self, name: str, command: Sequence[str | Path], seconds: float = COMMAND_SECONDS) -> int | None:
        """The exit code of a command; None if it did not end in time and was killed."""
        words = [str(each) for each in command]
        found: int | None = (await self._ask("run", command=words, log=str(self._layout.log(name)), seconds=seconds))[
            "code"
        ]
        return found

    async def end(self, name: str, *, kill: bool = False) -> int | None:
        """End a program by SIGTERM, or SIGKILL; the exit code, None if it did not run."""
        number = SIGKILL if kill else SIGTERM
        found: int | None = (await self._ask("end", name=name, signal=int(number), seconds=END_SECONDS))["code"]
        return found

    async def send(self, name: str, number: Signals) -> None:
        await self._ask("send", name=name, signal=int(number))

    async def programs(self) -> frozenset[str]:
        """Names of the programs that run."""
        return frozenset((await self._ask("running"))["running"]) if self.running else frozenset()

    def processes(self) -> frozenset[int]:
        """Every process in the PID namespace and in those of its containers, by the machine's numbers."""
        parents = _parents()
        found = {self._first} & parents.keys()
        while more := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= more
        return frozenset(pid for pid in found if pid is not None)

    async def kill(self) -> None:
        """SIGKILL to every process in the namespaces; returns when they, their mounts and their cgroups are gone.

        Raises:
            NodeError: cgroups stay.
        """
        if (process := self._process) is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            self._process = None
        deadline = asyncio.get_running_loop().time() + END_SECONDS
        while found := [*self._processes(), *cgroups.remove(self._layout.cgroup)]:
            if asyncio.get_running_loop().time() > deadline:
                raise NodeError(f"Node {self._layout.name} does not end; there are still {found}.")
            await asyncio.sleep(POLL_SECONDS)
        self._first = None

    def _processes(self) -> list[Path]:
        """The first process, which the kernel lets end after all the others."""
        path = Path(f"/proc/{self._first}")
        with suppress(OSError):
            if self._first is not None and path.joinpath("stat").read_text().rpartition(") ")[2][:1] != "Z":
                return [path]
        return []

    async def _ask(self, do: str, **fields: Any) -> dict[str, Any]:
        async with self._turn:
            process = self._process
            if process is None or process.stdin is None or process.stdout is None:
                raise NodeError(f"Node {self._layout.name} does not run, so that it cannot {do}.")
            number = next(self._numbers)
            process.stdin.write(json.dumps({"do": do, "number": number, **fields}).encode() + b"\n")
            async with asyncio.timeout(COMMAND_SECONDS + END_SECONDS):
                answer = await _answer(process.stdout, number)
        if "error" in answer:
            raise NodeError(f"Node {self._layout.name}: {answer['error']}. See {self._layout.logs}.")
        return answer


async def _answer(lines: asyncio.StreamReader, number: int) -> dict[str, Any]:
    """The answer with this number; whoever asked before it may have been cancelled, so that nobody has read theirs."""
    while line := await lines.readline():
        answer: dict[str, Any] = json.loads(line)
        if answer["number"] == number:
            return answer
    return {"error": "its first process has ended"}


def _parents() -> dict[int | None, int]:
    """The parent of each process: within a PID namespace all descend from the first, who adopts."""
    found: dict[int | None, int] = {}
    for each in Path("/proc").iterdir():
        with suppress(OSError):
            if each.name.isdecimal():
                found[int(each.name)] = int((each / "stat").read_text().rpartition(") ")[2].split()[1])
    return found


def _only_child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())
