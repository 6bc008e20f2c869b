"""A program under a user that nobody has heard of, as OpenShift gives them to containers: a random number, group 0, no home."""

import os
import random
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

USER: Final = random.randint(1_000_000_000, 2_000_000_000)
GROUP: Final = 0
READ_ANYTHING: Final = "-all,+dac_read_search"
"""Capabilities: the interpreter of the tests may lie in a folder of root's.  `make image` tests modes of files in the image."""


def command_as_anonymous(command: Sequence[str]) -> list[str]:
    """What runs a command as this user, without other groups or a way to further rights.

    Where the tests do not run as root, the user is so inside a namespace of its own.
    """
    if os.geteuid() != 0:
        start = [_path("unshare"), "--user", f"--map-user={USER}", f"--map-group={GROUP}"]
    else:
        capabilities = [f"--{name}={READ_ANYTHING}" for name in ("inh-caps", "ambient-caps", "bounding-set")]
        start = [
            _path("setpriv"),
            f"--reuid={USER}",
            f"--regid={GROUP}",
            "--clear-groups",
            "--no-new-privs",
            *capabilities,
        ]
    return [_path("env"), "-u", "HOME", *start, *command]


def is_possible() -> bool:
    """Whether this machine lets the tests do so."""
    try:
        done = subprocess.run(command_as_anonymous([_path("true")]), capture_output=True, timeout=30, check=False)
    except FileNotFoundError:
        return False
    return done.returncode == 0


def user_and_group_of(process: int) -> tuple[int, int]:
    """As whom a process runs (its effective numbers, or what its namespace makes of them)."""
    told = Path(f"/proc/{process}")
    if os.geteuid() != 0:
        user, group = ((told / name).read_text().split()[0] for name in ("uid_map", "gid_map"))
        return int(user), int(group)
    lines = {name: numbers.split() for name, _, numbers in (each.partition(":") for each in _lines(told / "status"))}
    return int(lines["Uid"][1]), int(lines["Gid"][1])


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


def _path(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise FileNotFoundError(f"{program} is not on the PATH; it starts a process under another user")
    return found
