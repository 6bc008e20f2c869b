"""The base of a local build: Debian trixie with its Python 3.13, laid out as the Dockerfile expects it of the official image.

The program of Python is called `python` and lies on the path, pip is installed and may be removed, and the standard library is
writable for root.  A release is built on the official image instead.
"""

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tests.controlplane.build import cache_folder

SUITE: Final = "trixie"
PYTHON: Final = "python3.13"
PACKAGES: Final = ("ca-certificates", PYTHON, f"{PYTHON}-venv")
# pip is installed from the wheel that Debian ships for virtual environments; no index is asked.
PREPARE: Final = f"""\
set -eu
ln -s /usr/bin/{PYTHON} /usr/local/bin/python
rm -f /usr/lib/{PYTHON}/EXTERNALLY-MANAGED
wheel=$(ls /usr/share/python-wheels/pip-*.whl)
python "$wheel/pip" install --quiet --root-user-action ignore --no-index --no-cache-dir "$wheel"
find /usr/lib/{PYTHON} /usr/local/lib -name __pycache__ -prune -exec rm -rf {{}} +
rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/log/* /tmp/*
"""
SECONDS: Final = 1200.0


def archive() -> Path:
    """The files of the base as a tar archive; made once and kept in the cache of the test programs.

    Raises:
        CalledProcessError: debootstrap, which tells why on standard error, or a step after it failed.
    """
    recipe = hashlib.sha256(repr((SUITE, PACKAGES, PREPARE)).encode()).hexdigest()
    kept = cache_folder() / "image" / f"base-{SUITE}-{recipe[:16]}.tar"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as work:
            made = _make(Path(work))
            made.rename(kept)
    return kept


def _make(work: Path) -> Path:
    root, made = work / "root", work / "base.tar"
    included = f"--include={','.join(PACKAGES)}"
    _run("debootstrap", "--variant=minbase", included, SUITE, str(root))
    _run("chroot", str(root), "/bin/sh", "-c", PREPARE)
    _run("tar", "--create", "--numeric-owner", "--sort=name", "--file", str(made), "--directory", str(root), ".")
    shutil.rmtree(root)
    return made


def _run(*command: str) -> None:
    # debootstrap prints a line for each package; what matters of it is said on standard error.
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=SECONDS, check=True)


if __name__ == "__main__":
    archive()
