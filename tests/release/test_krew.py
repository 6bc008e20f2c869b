"""The manifest for Krew is as Krew wants it, and the release workflow makes what it names."""

import hashlib
import re
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.release.archive import NAME, PLATFORMS, file_name, pack, program
from tests.release.krew import manifest, text

ROOT = Path(__file__).parents[2]
VERSION = "v1.2.3"
HOME = "https://github.com/example/dra-extender"


@pytest.fixture
def archives(tmp_path: Path) -> Path:
    """An archive for each platform with a program of that name."""
    built = tmp_path / "built" / NAME
    built.mkdir(parents=True)
    for name in ("LICENSE", NAME, f"{NAME}.exe"):
        (built / name).write_text(name)
    folder = tmp_path / "dist"
    folder.mkdir()
    for platform in PLATFORMS:
        pack(built, folder / file_name(platform))
    return folder


def names_in(file: Path) -> set[str]:
    if file.suffix == ".zip":
        with zipfile.ZipFile(file) as archive:
            return set(archive.namelist())
    with tarfile.open(file) as packed:
        return set(packed.getnames())


def test_manifest_keeps_the_rules_of_krew(archives: Path) -> None:
    """Its documentation: plugin manifest, naming guide and best practices."""
    made = yaml.safe_load(text(archives, VERSION, HOME))
    assert made == manifest(archives, VERSION, HOME)
    assert made["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert (made["kind"], made["metadata"]) == ("Plugin", {"name": "dra"})
    spec = made["spec"]
    assert set(spec) == {"version", "homepage", "shortDescription", "description", "platforms"}
    assert re.fullmatch(r"v\d+\.\d+\.\d+", spec["version"])
    assert 0 < len(spec["shortDescription"]) <= 50
    assert not spec["shortDescription"].endswith(".")
    assert all(len(line) <= 80 for line in spec["description"].splitlines())
    for platform in spec["platforms"]:
        assert set(platform) == {"selector", "uri", "sha256", "bin"}
        assert set(platform["selector"]["matchLabels"]) == {"os", "arch"}
        assert re.fullmatch(r"[0-9a-f]{64}", platform["sha256"])
        assert re.fullmatch(rf"{re.escape(HOME)}/releases/download/v1\.2\.3/\S+\.(tar\.gz|zip)", platform["uri"])
        assert ".." not in platform["bin"]


def test_each_archive_is_named_with_its_digest_and_has_program_and_license(archives: Path) -> None:
    platforms: list[dict[str, Any]] = manifest(archives, VERSION, HOME)["spec"]["platforms"]
    assert len(platforms) == len(PLATFORMS)
    for platform in platforms:
        file = archives / platform["uri"].rpartition("/")[2]
        assert platform["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
        assert {platform["bin"], f"{NAME}/LICENSE"} <= names_in(file)
        assert platform["bin"].endswith(".exe") == (platform["selector"]["matchLabels"]["os"] == "windows")


def test_missing_archive_is_an_error_and_no_manifest(archives: Path) -> None:
    (archives / file_name("linux-arm64")).unlink()
    with pytest.raises(FileNotFoundError, match="linux-arm64"):
        manifest(archives, VERSION, HOME)


def test_release_workflow_builds_each_archive_and_publishes_the_manifest() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yaml").read_text())
    built = workflow["jobs"]["archives"]["strategy"]["matrix"]["include"]
    assert {each["platform"] for each in built} == set(PLATFORMS)
    assert len({each["runner"] for each in built}) == len(PLATFORMS)
    assert set(workflow["jobs"]["publish"]["needs"]) == {"test", "archives"}
    steps = "\n".join(str(step.get("run", "")) for job in workflow["jobs"].values() for step in job["steps"])
    assert "python -m tests.release.archive" in steps
    assert "python -m tests.release.krew" in steps
    assert [program(each) for each in ("linux-amd64", "windows-amd64")] == [
        "kubectl-dra/kubectl-dra",
        "kubectl-dra/kubectl-dra.exe",
    ]
