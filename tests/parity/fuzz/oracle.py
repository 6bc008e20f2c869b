"""Upstream's own answers, from the program that `tests/controlplane/build.py --only oracle` builds."""

import json
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final, Self

from tests.controlplane.build import ORACLE, ensure

ANSWER_SECONDS: Final = 60.0


class OracleError(Exception):
    """Upstream did not answer; the message names the scenario."""


class Oracle:
    """A running oracle: one scenario after the other, in order. Use it as a context manager."""

    def __init__(self, *arguments: str) -> None:
        """Build the program if it is not there, and start it.

        Args:
            arguments: Names of the allocator's implementations to use; none: upstream chooses.

        Raises:
            BuildError: The program cannot be built; the message says why.
        """
        self._command: list[str | Path] = [ensure(ORACLE) / "oracle", *arguments]
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the program."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def ask(self, scenarios: Sequence[Any]) -> list[Any]:
        """The answers to some scenarios.

        Raises:
            OracleError: The program ended, or took more than a minute for one scenario.
        """
        writer = Thread(target=self._write, args=(scenarios,), daemon=True)
        writer.start()
        answers = []
        for scenario in scenarios:
            try:
                line = self._lines.get(timeout=ANSWER_SECONDS)
            except Empty:
                line = b""
            if not line:
                self.close()
                self._start()
                raise OracleError(f"upstream gives no answer to {json.dumps(scenario)}")
            answers.append(json.loads(line))
        writer.join()
        return answers

    def _start(self) -> None:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._lines: SimpleQueue[bytes] = SimpleQueue()
        self._reader = Thread(target=self._read, args=(self._process, self._lines), daemon=True)
        self._reader.start()

    @staticmethod
    def _read(process: subprocess.Popen[bytes], lines: SimpleQueue[bytes]) -> None:
        for line in process.stdout or ():
            lines.put(line)
        lines.put(b"")

    def _write(self, scenarios: Iterable[Any]) -> None:
        stdin = self._process.stdin
        try:
            for scenario in scenarios:
                if stdin is not None:
                    stdin.write(json.dumps(scenario).encode() + b"\n")
            if stdin is not None:
                stdin.flush()
        except (BrokenPipeError, ValueError):
            return
