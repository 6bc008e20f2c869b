"""`make node` says in a sentence what it lacks, and fails."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.node import needs

NEEDS = Path(needs.__file__)
ALL = ("unshare", "mount", "cc")


def there(*names: str) -> dict[str, str]:
    return {name: f"/usr/bin/{name}" for name in names}


@pytest.mark.parametrize(
    ("system", "user", "installed", "refusal", "said"),
    [
        ("linux", 0, there(*ALL), "", []),
        ("linux", 1000, there(), "", ["only root may"]),
        ("darwin", 0, there(*ALL), "", ["on Linux alone; this system is darwin"]),
        ("linux", 0, there("mount", "cc"), "", ["unshare is not installed, .* util-linux"]),
        ("linux", 0, there(*ALL), "a process cannot have mounts of its own", ["cannot have mounts"]),
    ],
)
def test_each_thing_that_is_missing_has_a_sentence(
    system: str, user: int, installed: dict[str, str], refusal: str, said: list[str]
) -> None:
    found = needs.missing(system=system, user=user, which=installed.get, tried=lambda: refusal)
    assert len(found) == len(said)
    assert all(re.search(pattern, text) for pattern, text in zip(said, found, strict=True))


def test_cgroups_that_cannot_be_made_are_told(tmp_path: Path) -> None:
    assert "has no cgroups" in needs.cgroups_refused(tmp_path)
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "cgroup.procs").touch()
    assert needs.cgroups_refused(tmp_path) == ""
    assert [each.name for each in (tmp_path / "memory").iterdir()] == ["cgroup.procs"]


def test_controllers_that_version_2_keeps_are_told(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("hugetlb\n")
    (tmp_path / "cgroup.subtree_control").mkdir()
    assert "the controllers cpu, memory, pids, which" in needs.cgroups_refused(tmp_path)
    (tmp_path / "cgroup.subtree_control").rmdir()
    (tmp_path / "cgroup.subtree_control").write_text("memory\n")
    assert needs.controllers_kept(tmp_path) == []
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu +pids"
    assert needs.cgroups_refused(tmp_path) == ""


def test_a_machine_without_the_programs_is_told_so_and_the_status_is_1() -> None:
    done = subprocess.run(
        [sys.executable, "-S", str(NEEDS)],
        env={"PATH": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert all(line.startswith("node: ") for line in done.stderr.splitlines())
    assert done.stderr
