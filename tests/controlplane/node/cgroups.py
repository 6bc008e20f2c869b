"""The cgroups of a node: one folder of its own in every hierarchy, with version 1, version 2 or both."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")
_INHERITED: Final = ("cpuset.cpus", "cpuset.mems")
"""A new folder of version 1 has none of these, and takes no process before."""


def create(name: str) -> None:
    """Make the node's folders, with all the controllers that the machine gives on."""
    if is_unified():
        _delegate(ROOT)
        (ROOT / name).mkdir(exist_ok=True)
        _delegate(ROOT / name)
        return
    for hierarchy in hierarchies():
        folder = hierarchy / name
        folder.mkdir(exist_ok=True)
        for file in _INHERITED:
            if (hierarchy / file).exists():
                (folder / file).write_text((hierarchy / file).read_text())


def remove(name: str) -> list[Path]:
    """Remove the node's folders as far as they are empty; returns those that stay, because a process has not ended yet."""
    for folder in left(name):
        for path, _, _ in os.walk(folder, topdown=False):
            with suppress(OSError):
                Path(path).rmdir()
    return left(name)


def left(name: str) -> list[Path]:
    """The node's folders that exist."""
    return [folder for hierarchy in (ROOT, *hierarchies()) if (folder := hierarchy / name).is_dir()]


def is_unified() -> bool:
    """Whether the machine has version 2 alone."""
    return (ROOT / "cgroup.controllers").exists()


def hierarchies() -> Iterator[Path]:
    """The hierarchies of version 1, with that of version 2 beside them."""
    if not is_unified() and ROOT.is_dir():
        yield from (
            each for each in sorted(ROOT.iterdir()) if not each.is_symlink() and (each / "cgroup.procs").exists()
        )


def _delegate(folder: Path) -> None:
    """Give the folder's controllers on to the folders in it, one by one: a machine may keep some of them."""
    for controller in (folder / "cgroup.controllers").read_text().split():
        with suppress(OSError):
            (folder / "cgroup.subtree_control").write_text(f"+{controller}")
