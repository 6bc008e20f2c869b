"""`make image` says in a sentence what it lacks, and fails."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.image import needs

NEEDS = Path(needs.__file__)


def there(*names: str) -> dict[str, str]:
    return {name: f"/usr/bin/{name}" for name in names}


@pytest.mark.parametrize(
    ("base", "system", "user", "installed", "said"),
    [
        ("", "linux", 0, there("buildah", "unshare", "debootstrap"), []),
        ("python:3.13", "linux", 0, there("buildah", "unshare"), []),
        (
            "",
            "linux",
            0,
            there("buildah", "unshare"),
            ["debootstrap is not installed, .* make image-setup .*PYTHON_IMAGE"],
        ),
        ("", "linux", 0, there("unshare", "debootstrap"), ["buildah is not installed, .* make image-setup"]),
        ("x", "linux", 1000, there("buildah", "unshare"), ["only root may"]),
        ("x", "darwin", 0, there("buildah"), ["on Linux alone; this system is darwin", "unshare is not installed"]),
    ],
)
def test_each_thing_that_is_missing_has_a_sentence(
    base: str, system: str, user: int, installed: dict[str, str], said: list[str]
) -> None:
    found = needs.missing(base, system=system, user=user, which=installed.get, mounts=lambda: True)
    assert len(found) == len(said)
    for sentence, expected in zip(found, said, strict=True):
        assert re.search(expected, sentence)


def test_a_root_who_may_not_mount_is_told_so() -> None:
    found = needs.missing("x", user=0, system="linux", which=str, mounts=lambda: False)
    assert found == ["root may not mount file systems or make devices here, as in a container without privileges"]


def test_target_fails_before_anything_is_built(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, NEEDS], env={"PATH": str(tmp_path)}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "image: buildah is not installed" in done.stderr
    makefile = (NEEDS.parents[2] / "Makefile").read_text()
    assert "image: image-needs " in makefile
