import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import aiohttp

WARD = Path(__file__).with_name("ward.py")
POLL_SECONDS = 0.02
START_SECONDS = 60.0
STOP_SECONDS = 15.0
KILL_SECONDS = 10.0


class ComponentError(Exception):
    """A component of the control plane did not do what was asked; the message names it and ends with the tail of its log."""


class Component:
    """One server as a real process: its own process group, everything it prints in one log file, which grows over restarts.

    `command` counts for the next start. `start` must be called in a thread that outlives the process, because on Linux the
    process ends with that thread.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> None:
        self.name = name
        self.command = [str(part) for part in command]
        self.log = log
        self.exit_code: int | None = None
        self.environment = {**os.environ, **(environment or {})}
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Process id while it runs, also the id of its process group."""
        return self._process.pid if self.running and self._process is not None else None

    @property
    def running(self) -> bool:
        """Whether the process was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Starts the process; ComponentError if it runs already or the program cannot be executed."""
        if self.running:
            raise ComponentError(f"{self.name} runs already, as process {self.pid}.")
        self._forget()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        ward = [sys.executable, "-I", "-S", str(WARD), str(os.getpid())]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*ward, *self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment,
                cwd=self._directory,
                start_new_session=True,
            )
        self.exit_code = None

    async def stop(self, seconds: float = STOP_SECONDS) -> int | None:
        """SIGTERM, then SIGKILL if it is still there after `seconds`; returns the exit code (None if it was not running).

        The process is gone when this returns, and also when this is cancelled.
        """
        if self._process is None:
            return None
        try:
            self._signal(signal.SIGTERM)
            deadline = time.monotonic() + seconds
            while self._process.poll() is None and time.monotonic() < deadline:  # noqa: ASYNC110 - a process sets no event
                await asyncio.sleep(POLL_SECONDS)
        finally:
            self.kill()
        return self.exit_code

    def kill(self) -> int | None:
        """SIGKILL to the process and all it started; returns the exit code (None if it was not running)."""
        if self._process is None:
            return None
        self._signal(signal.SIGKILL)
        self._process.wait(KILL_SECONDS)
        self._forget()
        return self.exit_code

    async def serving(
        self, url: str, *, seconds: float = START_SECONDS, headers: Mapping[str, str] | None = None
    ) -> None:
        """Returns once GET `url` answers 200; ComponentError if the process ends before, or `seconds` pass.

        The certificate is not checked: who answers is told by the port, which the process alone was given.
        """
        deadline = time.monotonic() + seconds
        last = "no answer yet"
        async with aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=2.0)) as session:
            while time.monotonic() < deadline:
                if not self.running:
                    raise ComponentError(
                        self.report(f"ended with exit code {self._returncode()} before {url} answered")
                    )
                try:
                    async with session.get(url, ssl=False) as answer:
                        if answer.status == 200:
                            return
                        last = f"status {answer.status}: {(await answer.text())[-300:]}"
                except (aiohttp.ClientError, TimeoutError) as error:
                    last = f"{type(error).__name__}: {error}"
                await asyncio.sleep(POLL_SECONDS)
        raise ComponentError(self.report(f"did not answer 200 on {url} within {seconds:.0f} s (last: {last})"))

    def report(self, what: str, lines: int = 20) -> str:
        """A sentence about this component, followed by where its log is and how it ends."""
        return f"{self.name} {what}. The end of {self.log}:\n{self.tail(lines)}"

    def tail(self, lines: int = 20) -> str:
        """Last lines of the log."""
        with suppress(FileNotFoundError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        return "(nothing was logged)"

    def _returncode(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            # The group outlives its leader while a child of it runs; then there is no leader to signal, but a group to end.
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _forget(self) -> None:
        if self._process is not None:
            self.exit_code = self._process.wait(KILL_SECONDS)
            self._process = None


def whole_lines(log: Path) -> list[str]:
    """The lines of a file, without a last one that is still being written."""
    written = log.read_bytes()
    return [line.decode(errors="replace") for line in written[: written.rfind(b"\n") + 1].splitlines()]
