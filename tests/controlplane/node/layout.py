"""Where one node keeps its things, and what it is called where the machine knows it."""

import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from tests.controlplane import build
from tests.controlplane.ports import free_ports

ADDRESS: Final = re.compile(r"127\.0\.0\.(\d{1,3})")
HIDDEN: Final = (Path("/run"), Path("/var"))
"""A node has these for itself, so that its files cannot lie there."""


class NodeError(Exception):
    """A node did not do what was asked; the message names it, and where its logs are."""


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """Files below `home`, of which `logs` alone outlives the node."""

    name: str
    home: Path
    kubelet_port: int

    @classmethod
    def create(cls, folder: Path, name: str) -> Self:
        """A new folder for a node whose name is its loopback address.

        Raises:
            NodeError: the name is none, or the folder lies where nodes have files of their own.
        """
        if ADDRESS.fullmatch(name) is None:
            raise NodeError(f"A node is called by its loopback address, such as 127.0.0.2, not {name!r}.")
        home = Path(tempfile.mkdtemp(prefix=f"node-{name.rpartition('.')[2]}-", dir=folder)).resolve()
        if any(home.is_relative_to(each) for each in HIDDEN):
            home.rmdir()
            raise NodeError(f"{folder} lies below /run or /var, which a node hides: set TMPDIR to another folder.")
        layout = cls(name, home, *free_ports(1))
        for each in (layout.data, layout.logs, layout.bin / "cni", layout.cdi, layout.cni_folder):
            each.mkdir(parents=True)
        return layout

    @property
    def number(self) -> int:
        """The last part of the address."""
        return int(self.name.rpartition(".")[2])

    @property
    def cgroup(self) -> str:
        """The cgroup of all pods, in every hierarchy; several nodes of one name may run on one machine."""
        return f"dra-{self.home.name}"

    @property
    def data(self) -> Path:
        """Everything that is worthless once the node has stopped."""
        return self.home / "data"

    @property
    def logs(self) -> Path:
        """Logs of init, containerd, import, kubelet and driver."""
        return self.home / "logs"

    @property
    def bin(self) -> Path:
        """All programs, with the CNI plugins in a folder of their own."""
        return self.data / "bin"

    @property
    def image(self) -> Path:
        """The archive of the only image."""
        return self.data / "image.tar"

    @property
    def kubelet_root(self) -> Path:
        """The kubelet's root folder, which it knows by a shorter name."""
        return self.data / "kubelet"

    @property
    def cdi(self) -> Path:
        """CDI files, below /run for the node itself."""
        return self.data / "cdi"

    @property
    def pod_logs(self) -> Path:
        """What containers print."""
        return self.data / "pods"

    @property
    def cni_folder(self) -> Path:
        """The configuration of the pods' network."""
        return self.data / "cni"

    @property
    def containerd_root(self) -> Path:
        """Images and containers."""
        return self.data / "containerd"

    @property
    def kubelet_configuration(self) -> Path:
        return self.data / "kubelet.json"

    @property
    def containerd_configuration(self) -> Path:
        return self.data / "containerd.toml"

    @property
    def pools(self) -> Path:
        """What the driver publishes."""
        return self.data / "pools.json"

    @property
    def behaviour(self) -> Path:
        """How the driver treats calls."""
        return self.data / "behaviour.json"

    def log(self, name: str) -> Path:
        """Path of a program's log."""
        return self.logs / f"{name}.log"

    def install(self) -> None:
        """Build the programs unless they are in the cache, and gather them in `bin`."""
        for target in build.FOR_NODES:
            folder = build.ensure(target)
            for program in target.programs:
                (self.bin / program).symlink_to(folder / program)
        # It looks for the real one beside the file that it is.
        wrapper = self.bin / "runc"
        original = wrapper.resolve()
        wrapper.unlink()
        shutil.copy2(original, wrapper)
