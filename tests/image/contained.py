"""Runs a program in the files of an image as a container runtime does: `contained.py [options] COMMAND...`, under `unshare`.

`command()` puts the call together.  The root is read-only, and the process has no capability, gets none by executing a file, and
sees no other process.  Needs root and nothing beside the standard library.
"""

import argparse
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

APART: Final = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private")
MOUNT: Final = shutil.which("mount") or "mount"
DEVICES: Final = ("null", "zero", "random", "urandom")
PASSED_ON: Final = "DRA_EXTENDER_"
"""Prefix of the variables that the process gets from outside, beside those of the image."""
NOTHING: Final[Mapping[str, Path]] = MappingProxyType({})
LAST_CAPABILITY: Final = 63
PR_CAPBSET_DROP: Final = 24
PR_SET_NO_NEW_PRIVS: Final = 38


def command(
    root: Path,
    user: tuple[int, int],
    *words: str,
    variables: Sequence[str] = (),
    shown: Mapping[str, Path] = NOTHING,
) -> list[str]:
    """The call that runs `words` in the files below `root` as (user, group).

    `variables` are those of the image (NAME=value), and `shown` files of this machine by the paths under which the process may read
    them, as kubelet mounts a token.
    """
    options = ["--root", str(root), "--user", "{}:{}".format(*user)]
    options += [f"--variable={each}" for each in variables]
    options += [f"--show={inside}={outside}" for inside, outside in shown.items()]
    return [
        shutil.which(APART[0]) or APART[0],
        *APART[1:],
        sys.executable,
        "-I",
        str(Path(__file__).resolve()),
        *options,
        "--",
        *words,
    ]


def _mount(*arguments: str | Path) -> None:
    subprocess.run([MOUNT, *arguments], check=True)


def _assemble(image: Path, shown: Mapping[str, Path]) -> Path:
    """The root of the process: the image, with what a runtime adds, and nothing of it writable."""
    scratch = Path(tempfile.mkdtemp(prefix="contained-"))
    _mount("-t", "tmpfs", "tmpfs", scratch)
    upper, work, root = (scratch / name for name in ("upper", "work", "root"))
    for each in (upper, work, root):
        each.mkdir()
    _mount("-t", "overlay", "overlay", "-o", f"lowerdir={image},upperdir={upper},workdir={work}", root)
    for name in ("proc", "dev"):
        (root / name).mkdir(exist_ok=True)
    for name in DEVICES:
        (root / "dev" / name).touch()
        _mount("--bind", Path("/dev") / name, root / "dev" / name)
    for name, outside in shown.items():
        inside = root / name.lstrip("/")
        if any(each.is_symlink() for each in (inside, *inside.parents) if each.is_relative_to(root)):
            raise SystemExit(f"{name} would lead out of the image: a folder on the way is a link")
        inside.parent.mkdir(parents=True, exist_ok=True)
        inside.write_bytes(outside.read_bytes())
        inside.chmod(0o444)
    _mount("-t", "proc", "-o", "nosuid,nodev,noexec", "proc", root / "proc")
    _mount("-o", "remount,ro", root)
    return root


def _give_up_rights(user: int, group: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    for number in range(LAST_CAPABILITY + 1):
        library.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)
    if library.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "the kernel does not let a process refuse further rights")
    os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)


def main() -> None:
    """Does not return: the program takes the place of this one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--user", required=True, metavar="UID:GID")
    parser.add_argument("--variable", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--show", action="append", default=[], metavar="INSIDE=OUTSIDE")
    parser.add_argument("words", nargs="+", metavar="COMMAND")
    given = parser.parse_args()
    user, _, group = given.user.partition(":")
    passed_on = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
    variables = dict(each.split("=", 1) for each in given.variable)
    shown = dict(each.split("=", 1) for each in given.show)
    root = _assemble(given.root, {inside: Path(outside) for inside, outside in shown.items()})
    os.chroot(root)
    os.chdir("/")
    _give_up_rights(int(user), int(group))
    os.execvpe(given.words[0], given.words, {"HOME": "/"} | variables | passed_on)  # noqa: S606 - becoming it is the purpose


if __name__ == "__main__":
    main()
