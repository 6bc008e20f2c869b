"""Says what `make node` lacks; ends with status 1 if anything is missing.  Runs with any Python."""

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

PROGRAMS: Final = {
    "unshare": "which gives a node namespaces of its own: install util-linux",
    "mount": "which gives a node files of its own: install mount or util-linux",
    "cc": "which builds runc: install gcc",
}
CONTROLLERS: Final = ("cpu", "memory", "pids")


def missing() -> list[str]:
    """A sentence for each thing that is missing."""
    if sys.platform != "linux":
        return [f"nodes run only on Linux; this system is {sys.platform}"]
    if os.geteuid() != 0:
        return ["only root may mount, make cgroups and start containers; run it as root"]
    said = [f"{name} is not installed, {why}" for name, why in PROGRAMS.items() if shutil.which(name) is None]
    if not said and (refusal := try_namespaces()):
        said.append(refusal)
    return said


def try_namespaces() -> str:
    """Why a node's mounts and cgroups cannot be made here; empty if they can.  Leaves nothing behind."""
    command = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "mount", "-t", "tmpfs", "tmpfs", "/run"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return f"a process cannot have mounts of its own ({done.stderr.strip()}); a container needs --privileged for it"
    return cgroups_refused(Path("/sys/fs/cgroup"))


def cgroups_refused(root: Path) -> str:
    """Why a node's cgroups cannot be made below this folder; empty if they can."""
    unified = (root / "cgroup.controllers").exists()
    if unified and (kept := controllers_kept(root)):
        names = ", ".join(kept)
        return (
            f"cgroup version 2 gives no group below {root} the controllers {names}, which a kubelet wants when it starts again; "
            "a service needs Delegate=yes, a container --cgroupns=private and its processes in a group of their own"
        )
    found = [root] if unified else [each for each in root.glob("*") if (each / "cgroup.procs").exists()]
    if not found:
        return f"{root} has no cgroups; mount them, as any Linux distribution does"
    for hierarchy in found:
        folder = hierarchy / f"dra-node-needs-{os.getpid()}"
        try:
            folder.mkdir()
            folder.rmdir()
        except OSError as error:
            return f"no cgroup can be made ({error}); a container needs --privileged and --cgroupns=private for it"
    return ""


def controllers_kept(root: Path) -> list[str]:
    """The controllers that a kubelet wants and that the groups below this one of version 2 cannot have."""
    control = root / "cgroup.subtree_control"
    given: set[str] = set()
    with suppress(OSError):
        given = set(control.read_text().split())
        control.write_text(" ".join(f"+{each}" for each in CONTROLLERS if each not in given))
        given = {each.lstrip("+") for each in control.read_text().split()} | given
    return [each for each in CONTROLLERS if each not in given]


def main() -> int:
    """The exit status."""
    said = missing()
    for each in said:
        sys.stderr.write(f"node: {each}\n")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
