from pathlib import Path

import pytest

from tests.controlplane.node import cgroups


def test_with_version_1_a_node_has_a_folder_in_every_hierarchy(tmp_path: Path) -> None:
    for name in ("cpuset", "memory", "unified"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup.procs").touch()
    (tmp_path / "cpu").symlink_to("memory")
    (tmp_path / "cpuset" / "cpuset.cpus").write_text("0-1\n")
    cgroups.create("dra-x", tmp_path)
    folders = [tmp_path / name / "dra-x" for name in ("cpuset", "memory", "unified")]
    assert cgroups.left("dra-x", tmp_path) == folders
    assert (folders[0] / "cpuset.cpus").read_text() == "0-1\n"


def test_with_version_2_a_node_gets_the_controllers_that_there_are(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    (tmp_path / "dra-x").mkdir()
    (tmp_path / "dra-x" / "cgroup.controllers").write_text("memory\n")
    cgroups.create("dra-x", tmp_path)
    assert cgroups.left("dra-x", tmp_path) == [tmp_path / "dra-x"]
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory"
    assert (tmp_path / "dra-x" / "cgroup.subtree_control").read_text() == "+memory"


def test_what_is_removed_is_the_node_s_alone_and_what_is_in_use_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "cgroup.procs").touch()
    (tmp_path / "memory" / "dra-x" / "pods" / "one").mkdir(parents=True)
    (tmp_path / "memory" / "dra-xy").mkdir()
    used = tmp_path / "memory" / "dra-x" / "in-use"
    used.write_text("a process")
    assert cgroups.remove("dra-x", tmp_path) == [tmp_path / "memory" / "dra-x"]
    used.unlink()
    assert cgroups.remove("dra-x", tmp_path) == []
    assert (tmp_path / "memory" / "dra-xy").is_dir()
