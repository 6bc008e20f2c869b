"""A process of the program under test that runs what may take too long or too much; it is ended when it does."""

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final, Self

from tests.hostile.verdicts import BROKEN, NATIVE, STALL, Job, Measured

HERE: Final = Path(__file__).resolve().parents[2]
_START_SECONDS: Final = 120.0
_LOOK_SECONDS: Final = 0.05
_PROFILED_CPU_SECONDS: Final = 4.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class WorkerLostError(Exception):
    """The process ended by itself."""


class Worker:
    """A probe process whose `dra_extender` is the target's; asked one job at a time."""

    def __init__(self, target: Path, module: str, *, cpu_seconds: float = 0.6, wall_seconds: float = 120.0) -> None:
        """Start nothing yet; a job for this module of probes that uses more CPU or time than this ends the process."""
        self._target = target
        self._module = module
        self._cpu_seconds = cpu_seconds
        self._wall_seconds = wall_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def ask(self, job: Job, *, cpu_seconds: float | None = None) -> dict[str, Any]:
        """The probe's answer as it is.

        Raises:
            WorkerLostError: The process ended, or was ended; the message says which.
        """
        process = self._process if self._process is not None else self._start()
        assert process.stdin is not None
        before = _cpu(process.pid)
        try:
            process.stdin.write(json.dumps(job).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass
        return dict(json.loads(self._line(before, cpu_seconds or self._cpu_seconds)))

    def measure(self, job: Job) -> Measured:
        """What the probe measured; a process that had to be ended counts as a stall as long as it was allowed.

        Only what held the event loop for longer than one native call may can contain one that is too long: it is run once
        more with every call observed.
        """
        measured = self._measured(job)
        if job.get("observe") and NATIVE.most < measured.of(STALL) <= STALL.most:
            observed = self._measured({**job, "profile": True}, cpu_seconds=_PROFILED_CPU_SECONDS)
            if NATIVE.name in observed.values:
                values = {**measured.values, NATIVE.name: min(observed.of(NATIVE), measured.of(STALL))}
                return Measured(values, f"{measured.note}, {observed.note}")
        return measured

    def _measured(self, job: Job, *, cpu_seconds: float | None = None) -> Measured:
        try:
            answer = self.ask(job, cpu_seconds=cpu_seconds)
        except WorkerLostError as lost:
            self.stop()
            used = lost.args[1]
            name = STALL.name if used is not None else BROKEN.name
            return Measured({name: used if used is not None else 1.0}, str(lost.args[0]))
        return Measured(answer["values"], answer.get("note", ""))

    def stop(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            self._process = None
            self._rest = b""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _start(self) -> subprocess.Popen[bytes]:
        path = os.pathsep.join([str(self._target / "app"), str(HERE)])
        # Whoever kills the process cleans up after it.
        self._folder = tempfile.TemporaryDirectory(prefix="dra-extender-hostile-")
        own = {"PYTHONPATH": path, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": self._folder.name}
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(HERE / "tests" / "hostile" / "probe.py"), self._module],
            cwd=self._target,
            env={**os.environ, **own},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        ready = self._line(None)
        if json.loads(ready) != "ready":
            raise WorkerLostError(f"the probe began with {ready!r}", None)
        return self._process

    def _line(self, cpu_before: float | None, cpu_seconds: float = 0.0) -> bytes:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        end = time.monotonic() + (_START_SECONDS if cpu_before is None else self._wall_seconds)
        while b"\n" not in self._rest:
            if not select.select([process.stdout], [], [], _LOOK_SECONDS)[0]:
                used = 0.0 if cpu_before is None else _cpu(process.pid) - cpu_before
                if cpu_before is not None and used > cpu_seconds:
                    raise WorkerLostError(f"ended after {used:.2g} s of CPU", used)
                if time.monotonic() > end:
                    raise WorkerLostError("no answer in time, without using CPU", None)
                continue
            part = os.read(process.stdout.fileno(), 1 << 20)
            if not part:
                raise WorkerLostError(f"the process died, exit code {process.wait()}", None)
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        return line


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
