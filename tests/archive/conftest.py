"""Fixtures of the archive's tests.  `make archive` runs them; they build for minutes and ask the package index."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tests.release.archive import ROOT, file_name

UV = Path(sys.executable).parent / "uv"
MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64", "AMD64": "amd64"}
HERE = f"{platform.system().lower()}-{MACHINES.get(platform.machine(), platform.machine())}"
"""This machine, as Go and Krew name it."""
DIST = ROOT / "dist"


def uv(*words: str | Path, cwd: Path = ROOT) -> str:
    """Standard output of a call of uv that has to succeed."""
    done = subprocess.run([UV, *words], cwd=cwd, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of this machine, made as the release workflow makes it, and kept in dist."""
    home = tmp_path_factory.mktemp("building")
    python = home / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    uv("venv", "--quiet", "--allow-existing", "--python", sys.executable, home)
    for lock in ("requirements.lock", "requirements-archive.lock"):
        uv("pip", "install", "--quiet", "--python", python, "--require-hashes", "--only-binary", ":all:", "-r", lock)
    uv("pip", "install", "--quiet", "--python", python, "--no-deps", "--no-build-isolation", ROOT)
    subprocess.run([python, "-m", "tests.release.archive", HERE, DIST], cwd=ROOT, timeout=1200, check=True)
    return DIST / file_name(HERE)
