"""The plugin as an archive that needs no Python: `python -m tests.release.archive OS-ARCH FOLDER` builds that of this machine.

PyInstaller puts program, interpreter and the packages of the environment into one folder.  It is tried out before it is packed: it
has to answer about the example snapshot where nothing else is installed.  The licenses of all that is in it lie beside it.
"""

import gzip
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tests.release import licenses

ROOT: Final = Path(__file__).parents[2]
NAME: Final = "kubectl-dra"
THIRD_PARTY: Final = "THIRD-PARTY-LICENSES.txt"
TIME: Final = 315532800
"""When all files of an archive were made, as it says: the first moment that both forms can tell (1980)."""
PLATFORMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "linux-amd64": "tar.gz",
        "linux-arm64": "tar.gz",
        "darwin-amd64": "tar.gz",
        "darwin-arm64": "tar.gz",
        "windows-amd64": "zip",
    }
)
"""The platforms that have an archive (as Go and Krew name them), and its form."""
SNAPSHOT: Final = ROOT / "deploy" / "examples" / "snapshots" / "fragmented.tar.gz"
COMPLETION: Final = "kubectl_complete-dra"
"""What kubectl asks for completions where it is on the PATH; Windows has none."""
_ASK_THE_PROGRAM: Final = f'#!/bin/sh\nexec {NAME} __complete "$@"\n'
_ENTRY: Final = "from dra_extender.cli.app import plugin_main\n\nplugin_main()\n"


def file_name(platform: str) -> str:
    return f"{NAME}-{platform}.{PLATFORMS[platform]}"


def program(platform: str) -> str:
    """The path of the program inside the archive."""
    return f"{NAME}/{NAME}{'.exe' if platform.startswith('windows') else ''}"


def build(platform: str, folder: Path) -> Path:
    """Build, try out and pack the archive of this machine's platform; returns the file."""
    with tempfile.TemporaryDirectory() as work:
        made = _frozen(Path(work))
        shutil.copy(ROOT / "LICENSE", made / "LICENSE")
        (made / THIRD_PARTY).write_text(licenses.text(), encoding="utf-8")
        if not platform.startswith("windows"):
            (made / COMPLETION).write_text(_ASK_THE_PROGRAM)
            (made / COMPLETION).chmod(0o755)
        _try_out(made.parent / program(platform))
        folder.mkdir(parents=True, exist_ok=True)
        return pack(made, folder / file_name(platform))


def pack(folder: Path, file: Path) -> Path:
    """An archive of the folder, under the folder's own name; equal folders make equal archives."""
    members = [folder, *sorted(folder.rglob("*"))]
    if file.suffix == ".zip":
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
            for each in members:
                os.utime(each, (TIME, TIME))
                archive.write(each, each.relative_to(folder.parent))
    else:
        with (
            file.open("wb") as raw,
            gzip.GzipFile("", "wb", 9, raw, TIME) as packed,
            tarfile.open(fileobj=packed, mode="w") as tar,
        ):
            for each in members:
                tar.add(each, each.relative_to(folder.parent).as_posix(), recursive=False, filter=_anonymous)
    return file


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = TIME
    return member


def _frozen(work: Path) -> Path:
    entry = work / "entry.py"
    entry.write_text(_ENTRY)
    commands = "dra_extender.cli.commands"
    options = ["--noconfirm", "--onedir", "--console", "--log-level", "WARN", "--name", NAME]
    options += ["--distpath", str(work / "dist"), "--workpath", str(work / "build"), "--specpath", str(work)]
    # Commands are found by the files of their modules, and help reads the first sentence of each from there.
    options += ["--collect-submodules", commands, "--collect-data", "dra_extender", "--copy-metadata", "dra-extender"]
    # What builds is in the environment too; packages that would use it where it is there would bring it along.
    options += [f"--exclude-module={each}" for each in ("setuptools", "pkg_resources", "_distutils_hack", "pip")]
    sources = ROOT / "app" / "dra_extender" / "cli" / "commands"
    separator = ";" if sys.platform == "win32" else ":"
    options += ["--add-data", f"{sources}{separator}dra_extender/cli/commands"]
    options += ["--add-data", f"{ROOT / 'deploy' / 'examples'}{separator}dra_extender/_examples"]
    subprocess.run([sys.executable, "-m", "PyInstaller", *options, str(entry)], cwd=work, check=True)
    return work / "dist" / NAME


def _try_out(path: Path) -> None:
    """Raises CalledProcessError or AssertionError if the program does not answer; it says itself on standard error why."""
    with tempfile.TemporaryDirectory() as elsewhere:
        shutil.copy(SNAPSHOT, elsewhere)
        help_text = asked(path, "-h", folder=Path(elsewhere))
        answer = asked(path, "why", "infer-1", "-n", "ml", "--snapshot", SNAPSHOT.name, folder=Path(elsewhere))
    if "Say why a pod waits" not in help_text or not answer.startswith("ml/infer-1  Pending"):
        raise AssertionError(f"the program of the archive does not answer:\n{help_text}\n{answer}")


def asked(path: Path, *words: str, folder: Path) -> str:
    """What the program answers in a folder, with no variable that leads it to another Python."""
    kept = {name: os.environ[name] for name in ("SYSTEMROOT", "TEMP", "TMPDIR", "USERPROFILE") if name in os.environ}
    done = subprocess.run([path, *words], cwd=folder, env=kept, stdout=subprocess.PIPE, timeout=120, check=True)
    return done.stdout.decode()


def main() -> None:
    """See the docstring of the module."""
    platform, folder = sys.argv[1:]
    sys.stdout.write(f"{build(platform, Path(folder))}\n")


if __name__ == "__main__":
    main()
