"""Says what `make image` lacks, with how to get it; ends with status 1 if anything is missing.  Runs with any Python."""

import os
import shutil
import subprocess
import sys
from typing import Final

NEEDED: Final = {
    "buildah": "which builds without a daemon: make image-setup (Debian: apt-get install buildah)",
    "unshare": "which starts the built image apart from this machine: install util-linux",
}
FOR_A_BASE: Final = {
    "debootstrap": "which makes the base: make image-setup (Debian: apt-get install debootstrap), or PYTHON_IMAGE=name of a base",
}

MOUNTS: Final = (
    "mount -t tmpfs tmpfs /tmp && cd /tmp && mkdir lower upper work root && mknod null c 1 3"
    " && mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work root"
)


def missing(base: str) -> list[str]:
    """A sentence for each thing that is missing; `base` is the image to build on, empty for one made here."""
    said = []
    if sys.platform != "linux":
        said.append(f"the image is built only on Linux; this system is {sys.platform}")
    elif os.geteuid() != 0:
        said.append("only root may mount the layers and change to another user; run it as root")
    needed = NEEDED if base else {**NEEDED, **FOR_A_BASE}
    said += [f"{name} is not installed, {why}" for name, why in needed.items() if shutil.which(name) is None]
    if not said and not may_mount():
        said.append("root may not mount file systems or make devices here, as in a container without privileges")
    return said


def may_mount() -> bool:
    """Whether this process may do, apart from the rest of the machine, what building and starting an image takes."""
    apart = ("unshare", "--mount", "--pid", "--fork", "--propagation", "private", "sh", "-c", MOUNTS)
    return subprocess.run(apart, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0


def main() -> int:
    """The exit status."""
    said = missing(os.environ.get("PYTHON_IMAGE", ""))
    for each in said:
        sys.stderr.write(f"image: {each}\n")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
