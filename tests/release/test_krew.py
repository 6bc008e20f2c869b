"""The manifest for Krew is as Krew wants it, and Krew installs by it."""

import hashlib
import os
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.build import KREW, ensure
from tests.release.archive import NAME, PLATFORMS, file_name, pack, program
from tests.release.krew import manifest, text

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


@pytest.mark.verify
def test_krew_itself_finds_the_manifest_valid(archives: Path, tmp_path: Path, krew: Path) -> None:
    """With the program that the index of plugins runs on each manifest that is offered to it."""
    manifest_file = write_manifest(archives, tmp_path)
    done = call(krew / "validate-krew-manifest", "-skip-install", "-manifest", manifest_file)
    assert (done.returncode, done.stderr.count(" OK\n")) == (0, 1), done.stderr
    broken = tmp_path / "broken" / manifest_file.name
    broken.parent.mkdir()
    broken.write_text(manifest_file.read_text().replace("version: v1.2.3", "version: 1.2.3"))
    assert call(krew / "validate-krew-manifest", "-skip-install", "-manifest", broken).returncode != 0


@pytest.mark.verify
@pytest.mark.parametrize("platform", PLATFORMS)
def test_krew_installs_the_archive_of_the_platform(platform: str, archives: Path, tmp_path: Path, krew: Path) -> None:
    system, _, machine = platform.partition("-")
    home = tmp_path / "krew-home"
    given = {"KREW_ROOT": str(home), "KREW_OS": system, "KREW_ARCH": machine, "HOME": str(tmp_path)}
    options = ("--manifest", write_manifest(archives, tmp_path), "--archive", archives / file_name(platform))
    done = call(krew / "kubectl-krew", "install", *options, environment=given)
    assert done.returncode == 0, done.stderr
    installed = home / "store" / "dra" / VERSION / program(platform)
    (link,) = (home / "bin").glob("kubectl-dra*")
    assert link.resolve() == installed.resolve()
    assert installed.read_text() == installed.name


@pytest.fixture(scope="module")
def krew() -> Path:
    """Where Krew's programs are."""
    return ensure(KREW)


def write_manifest(archives: Path, folder: Path) -> Path:
    """The manifest under the name that Krew expects."""
    file = folder / "dra.yaml"
    file.write_text(text(archives, VERSION, HOME))
    return file


def call(*command: str | Path, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env={"PATH": os.defpath} | (environment or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
