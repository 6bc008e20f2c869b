"""The first process of a node, in mount, PID and (for containerd) network namespaces of its own: everything ends with it.

Run as `python -S -m tests.controlplane.node.init` under unshare.  It takes commands as lines of JSON, and answers each with a line
that has its number.  It ends, and with it the node, when nobody can give commands any more: whoever started the node has ended,
however that happened.
Needs nothing beside the standard library.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tests.controlplane.node import cgroups

POLL_SECONDS: Final = 0.05
CGROUP_SECONDS: Final = 10.0
READ_BYTES: Final = 1 << 16
Message = dict[str, Any]


class Init:
    """Starts and ends programs by name, and buries every process that ends."""

    def __init__(self) -> None:
        self._running: dict[str, int] = {}
        self._codes: dict[int, int] = {}
        self.cgroup = ""

    def prepare(self, message: Message) -> Message:
        """Mount what the node has for itself."""
        self.cgroup = message["cgroup"]
        mount_own(message)
        cgroups.create(self.cgroup)
        return {}

    def start(self, message: Message) -> Message:
        """Start a program; its output is added to the end of a log."""
        name, command = message["name"], message["command"]
        if name in self._running:
            return {"error": f"{name} runs already"}
        program = shutil.which(command[0])
        if program is None:
            return {"error": f"{command[0]} is not on the PATH"}
        output = (os.POSIX_SPAWN_OPEN, 1, message["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        nothing = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
        pid = os.posix_spawn(
            program,
            command,
            os.environ,
            file_actions=[nothing, output, (os.POSIX_SPAWN_DUP2, 1, 2)],
            setpgroup=0,
            setsigmask=(),
        )
        # The number may have been that of a program before it.
        self._codes.pop(pid, None)
        self._running[name] = pid
        return {}

    def end(self, message: Message) -> Message:
        """Send a program a signal and wait for its end: SIGKILL after a while.  The exit code is None if it does not run."""
        name = message["name"]
        pid = self._running.get(name)
        if pid is None:
            return {"code": None}
        os.kill(pid, message["signal"])
        if not self._wait(lambda: pid in self._codes, message["seconds"]):
            os.kill(pid, signal.SIGKILL)
            self._wait(lambda: pid in self._codes, message["seconds"])
        return {"code": self._codes.get(pid)}

    def send(self, message: Message) -> Message:
        """Send a program a signal."""
        pid = self._running.get(message["name"])
        if pid is None:
            return {"error": f"{message['name']} does not run"}
        os.kill(pid, message["signal"])
        return {}

    def run(self, message: Message) -> Message:
        """Run a command to its end."""
        answer = self.start({**message, "name": "command"})
        if "error" in answer:
            return answer
        pid = self._running["command"]
        if not self._wait(lambda: pid in self._codes, message["seconds"]):
            self.end({"name": "command", "signal": signal.SIGKILL, "seconds": 1.0})
        return {"code": self._codes.get(pid)}

    def running(self, _: Message) -> Message:
        """Names of the programs that run."""
        self.bury()
        return {"running": sorted(self._running)}

    def bury(self) -> None:
        """Take note of every process that has ended; those whose parents have ended before are ours too."""
        with suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0] != 0:
                pid, status = found
                for name in [name for name, each in self._running.items() if each == pid]:
                    del self._running[name]
                    self._codes[pid] = os.waitstatus_to_exitcode(status)

    def end_all(self) -> None:
        """End every process of the node, and remove its cgroups."""
        with suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        with suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)
        if self.cgroup:
            self._wait(lambda: not cgroups.remove(self.cgroup), CGROUP_SECONDS)

    def _wait(self, holds: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not holds() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
            self.bury()
        return holds()

    def answer(self, message: Message) -> Message:
        """Do what is asked."""
        commands: Mapping[str, Callable[[Message], Message]] = {
            "prepare": self.prepare,
            "start": self.start,
            "end": self.end,
            "send": self.send,
            "run": self.run,
            "running": self.running,
        }
        try:
            return commands[message["do"]](message)
        except (OSError, subprocess.CalledProcessError) as error:
            said = getattr(error, "stderr", None)
            return {"error": f"{message['do']}: {error} {said or ''}".strip()}


def mount_own(message: Message) -> None:
    """Mount over what a node writes wherever it is told to write, and over what it would change for the whole machine.

    `folders` are bound to their names below /run; `tunables` are files of /proc/sys with what is to be found there.
    """
    # The namespace is cut off from the machine; what kubelets and runtimes mount has to be seen by each other.
    _mount("--make-rshared", "/")
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    for name, folder in message["folders"].items():
        Path(name).mkdir(parents=True)
        _mount("--bind", folder, name)
    # /var/lib/kubelet/device-plugins, /var/log/containers and /var/lib/cni cannot be told otherwise.
    upper, work = Path("/run/var/upper"), Path("/run/var/work")
    for each in (upper, work):
        each.mkdir(parents=True)
    _mount("-t", "overlay", "-o", f"lowerdir=/var,upperdir={upper},workdir={work}", "overlay", "/var")
    for name, value in message["tunables"].items():
        file = Path("/run/tunables") / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n")
        _mount("--bind", str(file), f"/proc/sys/{name}")


def _mount(*arguments: str) -> None:
    subprocess.run([shutil.which("mount") or "mount", *arguments], check=True, capture_output=True, text=True)


def serve(init: Init) -> None:
    """Answer the commands of standard input until there can be none."""
    commands, text = sys.stdin.fileno(), b""
    while True:
        ready, _, _ = select.select([commands], (), (), POLL_SECONDS)
        init.bury()
        if not ready:
            continue
        read = os.read(commands, READ_BYTES)
        if not read:
            return
        *whole, text = (text + read).split(b"\n")
        for line in whole:
            message = json.loads(line)
            sys.stdout.write(json.dumps({**init.answer(message), "number": message["number"]}) + "\n")
            sys.stdout.flush()


def main() -> int:
    """The exit status: 1 for any but the first process of a PID namespace, which would end every process of the machine."""
    if os.getpid() != 1:
        sys.stderr.write("This is the first process of a test node: tests.controlplane.node.namespaces starts it.\n")
        return 1
    init = Init()
    try:
        serve(init)
    finally:
        init.end_all()
    return 0


if __name__ == "__main__":
    sys.exit(main())
