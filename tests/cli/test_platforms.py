"""On which platforms the programs can be installed from built packages alone, and what is left out where."""

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from packaging.markers import Marker

ROOT: Final = Path(__file__).parents[2]
UV: Final = Path(sys.executable).parent / "uv"
UNREACHABLE: Final = re.compile(
    r"error sending request|dns error|failed to fetch|connection refused|timed out", re.IGNORECASE
)
PLATFORMS: Final = {
    "x86_64-unknown-linux-gnu": ("linux", "x86_64"),
    "aarch64-unknown-linux-gnu": ("linux", "aarch64"),
    "x86_64-apple-darwin": ("darwin", "x86_64"),
    "aarch64-apple-darwin": ("darwin", "arm64"),
    "x86_64-pc-windows-msvc": ("win32", "AMD64"),
}
UNIX: Final = [name for name, (system, _) in PLATFORMS.items() if system != "win32"]


@cache
def locked() -> dict[str, Marker | None]:
    """The packages of the lock with the condition under which each is installed."""
    lines = re.findall(r"^([a-z][\w.-]*)==\S+(?: ; (.+?))? \\$", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    return {name: Marker(condition) if condition else None for name, condition in lines}


def installed(system: str, machine: str, python: str = "3.12") -> set[str]:
    """What the lock installs there."""
    there = {
        "sys_platform": system,
        "platform_machine": machine,
        "platform_system": {"win32": "Windows", "darwin": "Darwin"}.get(system, "Linux"),
        "os_name": "nt" if system == "win32" else "posix",
        "python_version": python,
        "python_full_version": f"{python}.0",
    }
    return {name for name, condition in locked().items() if condition is None or condition.evaluate(there)}


@pytest.mark.parametrize("name", PLATFORMS)
def test_lock_leaves_out_what_has_no_build_for_the_platform(name: str) -> None:
    found = installed(*PLATFORMS[name])
    assert {"msgspec", "kubernetes", "typer", "google-re2"} <= found
    assert ("uvloop" in found) == (name in UNIX)


def test_lock_leaves_out_cryptography_where_macos_runs_on_intel() -> None:
    missing = installed("darwin", "arm64") - installed("darwin", "x86_64")
    assert missing == {"cryptography", "cffi", "pycparser"}


def test_lock_leaves_out_re2_where_windows_runs_on_arm() -> None:
    assert installed("win32", "AMD64") - installed("win32", "ARM64") == {"google-re2"}


@pytest.mark.verify
def test_resolution_for_each_platform_needs_no_compiler() -> None:
    """As `uvx --from dra-extender kubectl-dra` resolves it; without a registry the markers above are all that can be checked."""
    with ThreadPoolExecutor(len(PLATFORMS)) as beside:
        resolved = dict(zip(PLATFORMS, beside.map(resolution, PLATFORMS), strict=True))
    assert resolved == {name: installed(*where) for name, where in PLATFORMS.items()}


def resolution(name: str) -> set[str]:
    """The packages that are resolved for a platform; most of the time is spent waiting for the registry."""
    command = ("pip", "compile", "--quiet", "--no-header", "--no-annotate", "--only-binary", ":all:")
    # Without these uv looks for a Python 3.12 of its own, though wheels alone need none.
    here = ("--no-python-downloads", "--python", sys.executable)
    where = ("--python-platform", name, "--python-version", "3.12", "--constraints", "requirements.lock")
    done = subprocess.run(
        [UV, *command, *here, *where, "pyproject.toml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and UNREACHABLE.search(done.stderr):
        pytest.skip("no package registry answers")
    assert (done.returncode, done.stderr) == (0, ""), name
    return {line.partition("==")[0] for line in done.stdout.split() if "==" in line}
