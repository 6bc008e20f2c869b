import tomllib
from pathlib import Path

import pytest

from tests.controlplane.node import configuration
from tests.controlplane.node.layout import HIDDEN, NodeError, NodeLayout


def test_a_node_is_called_by_a_loopback_address(tmp_path: Path) -> None:
    with pytest.raises(NodeError, match=r"loopback address, such as 127\.0\.0\.2, not 'worker-1'"):
        NodeLayout.create(tmp_path, "worker-1")


def test_a_node_s_files_do_not_lie_where_it_hides_the_machine_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.controlplane.node.layout.HIDDEN", (*HIDDEN, tmp_path))
    with pytest.raises(NodeError, match="set TMPDIR to another folder"):
        NodeLayout.create(tmp_path, "127.0.0.2")
    assert list(tmp_path.iterdir()) == []


def test_two_nodes_of_one_name_share_nothing_on_the_machine(tmp_path: Path) -> None:
    one, other = (NodeLayout.create(tmp_path, "127.0.0.2") for _ in range(2))
    assert one.cgroup != other.cgroup
    assert one.kubelet_port != other.kubelet_port
    assert not one.home.is_relative_to(other.home)


def test_a_kubelet_changes_nothing_of_the_machine(tmp_path: Path) -> None:
    layout = NodeLayout.create(tmp_path, "127.0.0.3")
    told = configuration.kubelet(layout, {"GenericWorkload": False})
    assert told["featureGates"] == {"GenericWorkload": False}
    assert (told["address"], told["cgroupRoot"]) == ("127.0.0.3", f"/{layout.cgroup}")
    assert told["protectKernelDefaults"] is True
    assert told["makeIPTablesUtilChains"] is False
    assert told["enforceNodeAllocatable"] == []


def test_containerd_keeps_to_the_node_s_folders(tmp_path: Path) -> None:
    layout = NodeLayout.create(tmp_path, "127.0.0.2")
    told = tomllib.loads(configuration.containerd(layout))
    paths = [told["root"], told["state"], told["plugins"]["io.containerd.internal.v1.opt"]["path"]]
    assert all(Path(each).is_relative_to("/run") or Path(each).is_relative_to(layout.data) for each in paths)
    assert told["plugins"]["io.containerd.cri.v1.images"]["pinned_images"]["sandbox"] == configuration.IMAGE
    runc = told["plugins"]["io.containerd.cri.v1.runtime"]["containerd"]["runtimes"]["runc"]
    assert runc["options"]["BinaryName"] == str(layout.bin / "runc")


@pytest.mark.parametrize(
    ("folder", "expected"),
    [("/data/x", "overlayfs"), ("/data/merged/x", "native"), ("/datax", "native"), ("/home/x", "native")],
)
def test_layers_are_copied_where_an_overlay_cannot_lie_on_another(folder: str, expected: str) -> None:
    mounts = """\
21 1 0:20 / / rw,relatime shared:1 - overlay overlay rw,lowerdir=/l,upperdir=/u
22 21 8:1 / /data rw,relatime - ext4 /dev/vda rw
23 22 0:30 / /data/merged rw,relatime - overlay overlay rw
"""
    assert configuration.snapshotter(Path(folder), mounts) == expected
