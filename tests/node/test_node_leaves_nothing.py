"""A node leaves nothing behind on the machine but its logs, however it ends."""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.controlplane.extender import REPOSITORY
from tests.controlplane.node import cgroups
from tests.controlplane.node.configuration import TUNABLES, containerd
from tests.controlplane.node.layout import NodeError, NodeLayout
from tests.controlplane.node.namespaces import Namespaces
from tests.controlplane.node.node import Node
from tests.controlplane.node.options import NodeOptions
from tests.controlplane.plugin import ControlPlaneFactory
from tests.controlplane.waiting import wait_for
from tests.support.node.nodes import NodesSetup, RealNodes
from tests.support.node.pod_scene import PodScene

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

FOLDERS: Final = ("/etc", "/opt", "/run", "/usr/libexec", "/var/lib", "/var/log", "/var/run")
"""Where kubelets, container runtimes and CNI plugins write on a machine of their own."""
SYSCTLS: Final = (*TUNABLES, "net/ipv4/ip_forward", "net/ipv4/conf/all/forwarding", "net/ipv4/conf/default/rp_filter")
SECONDS: Final = 60.0
STARTER: Final = """
import asyncio, json, sys
from pathlib import Path
from tests.node.test_node_leaves_nothing import start_and_wait
asyncio.run(start_and_wait(Path(sys.argv[1])))
"""


async def test_nothing_of_a_node_is_left_when_it_ends(
    able: None, control_plane: ControlPlaneFactory, tmp_path: Path
) -> None:
    setup = NodesSetup()
    cluster = await control_plane(setup.options)
    before = machine()
    async with RealNodes.start(cluster, tmp_path, setup) as nodes:
        (node,) = nodes
        scene = PodScene(nodes.world, "leaves-nothing", nodes=nodes)
        await scene.open()
        await scene.template("one")
        await scene.pod("stays", template="one")
        await scene.expect_devices("stays")
        during = node.processes()
        assert len(during) >= len({"init", "containerd", "kubelet", "driver", "shim", "sandbox", "container"})
        assert cgroups.left(node.layout.cgroup)
        assert machine() == before
    assert not set(running(during))
    assert node.processes() == frozenset()
    assert cgroups.left(node.layout.cgroup) == []
    assert machine() == before
    assert [each.name for each in children(node.layout.home)] == ["logs"]


async def test_a_node_that_cannot_start_leaves_nothing(
    able: None, control_plane: ControlPlaneFactory, tmp_path: Path
) -> None:
    cluster = await control_plane(NodesSetup().options)
    options = NodeOptions(gates={"NoSuchGate": True})
    before = machine()
    with pytest.raises(NodeError, match="the kubelet has ended"):
        async with Node.start(cluster, tmp_path, "127.0.0.2", options):
            pytest.fail("it started")
    assert machine() == before
    home, *rest = children(tmp_path)
    assert rest == []
    assert [each.name for each in children(home)] == ["logs"]
    assert cgroups.left(f"dra-{home.name}") == []


async def test_a_node_ends_with_the_session_that_is_killed(able: None, tmp_path: Path) -> None:
    before = machine()
    starter = await asyncio.create_subprocess_exec(
        sys.executable, "-c", STARTER, tmp_path, cwd=REPOSITORY, stdout=asyncio.subprocess.PIPE
    )
    assert starter.stdout is not None
    try:
        told = json.loads(await asyncio.wait_for(starter.stdout.readline(), SECONDS))
        assert set(running(told["processes"])) == set(told["processes"])
        assert cgroups.left(told["cgroup"])
    finally:
        starter.kill()
        await starter.wait()

    async def gone() -> bool:
        return not cgroups.left(told["cgroup"]) and not set(running(told["processes"]))

    await wait_for(gone, SECONDS, f"processes and cgroups of {told} are gone")
    assert machine() == before


async def start_and_wait(folder: Path) -> None:
    """Start a node's first process and containerd, tell of them, and wait to be killed."""
    layout = NodeLayout.create(folder, "127.0.0.2")
    layout.install()
    layout.containerd_configuration.write_text(containerd(layout))
    namespaces = Namespaces(layout)
    await namespaces.start({"/run/cdi": layout.cdi}, TUNABLES)
    await namespaces.launch("containerd", ["containerd", f"--config={layout.containerd_configuration}"])
    told = {"processes": sorted(namespaces.processes()), "cgroup": layout.cgroup}
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


def machine() -> dict[str, list[str]]:
    """What a node could change of the machine; what other programs do meanwhile does not show in it."""
    return {
        "files": sorted(entries()),
        "mounts": sorted(" ".join(line.split()[3:]) for line in Path("/proc/self/mountinfo").read_text().splitlines()),
        "interfaces": sorted(each.name for each in Path("/sys/class/net").iterdir()),
        "sysctls": [f"{name}: {Path('/proc/sys', name).read_text().strip()}" for name in SYSCTLS],
    }


def children(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def entries() -> Iterator[str]:
    """What lies in the folders, and one level below."""
    for folder in map(Path, FOLDERS):
        for each in folder.iterdir() if folder.is_dir() else ():
            yield str(each)
            if each.is_dir() and os.access(each, os.R_OK) and not each.is_symlink():
                yield from map(str, each.iterdir())


def running(pids: list[int] | frozenset[int]) -> Iterator[int]:
    """Those of the processes that have not ended."""
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state != "Z":
            yield pid
