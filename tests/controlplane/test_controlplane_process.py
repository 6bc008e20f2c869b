import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.controlplane.extender import ExtenderProcess
from tests.controlplane.ports import free_ports, is_open
from tests.controlplane.process import WARD, Component, ComponentError, whole_lines

SERVER = """
import http.server, os, signal, sys
print("arguments", sys.argv[1:], "token", os.environ.get("TOKEN"), flush=True)
port = int(sys.argv[sys.argv.index("--port") + 1])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/readyz" else 404)
        self.end_headers()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
)


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1] if sys.platform == "linux" else ""
        except (ProcessLookupError, FileNotFoundError):
            return
        if state == "Z":  # it has ended; whoever inherited it has not asked yet
            return
        time.sleep(0.02)
    pytest.fail(f"process {pid} still runs")


def wait_for_line(path: Path, pattern: str) -> str:
    """The first whole line that looks like this."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if path.exists() and (found := re.search(rf"(?m)^{pattern}\n", path.read_text())):
            return found.group().rstrip()
        time.sleep(0.02)
    pytest.fail(f"{path} never held {pattern!r}")


def test_free_ports_are_different_and_free() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert not any(is_open(port) for port in ports)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere ports are not reserved")
def test_a_port_that_is_reserved_is_not_given_again() -> None:
    (port,) = free_ports(1)
    below = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    assert port < below
    assert free_ports(1, iter([port, port, *range(port + 1, below), *range(20_000, port)])) != [port]


async def test_a_process_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    component = Component("stubborn", [sys.executable, "-c", STUBBORN], tmp_path / "log")
    component.start()
    wait_for_line(component.log, "deaf")
    assert await component.stop(0.2) == -signal.SIGKILL
    assert not component.running


async def test_a_process_that_ends_early_is_named_with_its_last_words(tmp_path: Path) -> None:
    component = Component("broken", [sys.executable, "-c", "raise SystemExit('no such flag')"], tmp_path / "log")
    component.start()
    (port,) = free_ports(1)
    with pytest.raises(ComponentError, match=r"(?s)^broken ended with exit code 1 before .*\nno such flag$"):
        await component.serving(f"http://127.0.0.1:{port}/")
    assert await component.stop() == 1


async def test_a_process_that_never_serves_is_named_after_the_bound(tmp_path: Path) -> None:
    component = Component("silent", [sys.executable, "-c", STUBBORN], tmp_path / "log")
    component.start()
    (port,) = free_ports(1)
    try:
        with pytest.raises(ComponentError, match=r"^silent did not answer 200 on .* within 0 s"):
            await component.serving(f"http://127.0.0.1:{port}/", seconds=0.3)
    finally:
        component.kill()


async def test_children_of_a_process_go_with_it(tmp_path: Path) -> None:
    parent = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {STUBBORN!r}]).pid, flush=True)"
    component = Component("parent", [sys.executable, "-c", f"{parent}; import time; time.sleep(60)"], tmp_path / "log")
    component.start()
    wait_for_line(component.log, "deaf")
    child = int(wait_for_line(component.log, "[0-9]+"))
    await component.stop()
    wait_until_gone(child)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent died")
def test_a_process_ends_with_a_starter_that_was_killed(tmp_path: Path) -> None:
    log = tmp_path / "pid"
    code = (
        "import os, subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, {str(WARD)!r}, str(os.getpid()), sys.executable, '-c', {STUBBORN!r}],"
        f" stdout=open({str(log)!r}, 'w'), start_new_session=True)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        wait_for_line(log, "deaf")
        starter.kill()
    wait_until_gone(pid)


async def test_an_extender_can_crash_come_back_and_stop(tmp_path: Path) -> None:
    """The product's process keeps its port, gets its arguments and environment, and tells how it ended."""
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    command = [sys.executable, str(script)]
    extra = ["--log-level", "debug"]
    extender = ExtenderProcess(tmp_path, Path("admin.json"), extra=extra, environment={"TOKEN": "abc"}, command=command)
    async with extender:
        assert is_open(extender.port)
        assert extender.kill() == -signal.SIGKILL
        assert not is_open(extender.port)
        await extender.restart()
        assert extender.url == f"http://127.0.0.1:{extender.port}"
        assert await extender.terminate() == 0
        await extender.start()
    assert not is_open(extender.port)
    arguments = [
        "--kubeconfig",
        "admin.json",
        "--host",
        "127.0.0.1",
        "--port",
        str(extender.port),
        "--log-level",
        "debug",
    ]
    assert extender.log.read_text().count(f"arguments {arguments} token abc\n") == 3


async def test_an_extender_that_does_not_start_leaves_its_reason(tmp_path: Path) -> None:
    extender = ExtenderProcess(
        tmp_path, Path("admin.json"), command=[sys.executable, "-c", "raise SystemExit('no cluster')"]
    )
    with pytest.raises(ComponentError, match=r"(?s)^dra-extender ended with exit code 1 .*no cluster"):
        async with extender:
            pass
    assert extender.pid is None


def test_line_that_is_still_being_written_is_left_out(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b'{"a": 1}\n{"b": "\xc3\xa4"}\n{"c')
    assert whole_lines(log) == ['{"a": 1}', '{"b": "\u00e4"}']
    assert whole_lines(log, begin=9) == ['{"b": "\u00e4"}']
    assert whole_lines(log, begin=21) == []
