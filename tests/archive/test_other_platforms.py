"""What the archives of other platforms are made of: each package has a build for the platform, of the content that the lock names.

Whether PyInstaller makes a program of it is seen on the platform itself, by the release workflow.
"""

import struct
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.archive.conftest import uv
from tests.release.archive import PLATFORMS, ROOT

pytestmark = pytest.mark.timeout(900)

PYTHON: Final = "3.13"
"""That of the release workflow."""
ELF, MACH_O, MACH_O_FAT, PE = b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"MZ"


class Target(NamedTuple):
    """A platform as uv names it, the machine as files name it, how names of compiled modules end, and PyInstaller's own program."""

    name: str
    machines: frozenset[tuple[str, int]]
    suffix: str
    loader: str


TARGETS: Final = {
    "linux-amd64": Target(
        "x86_64-manylinux_2_28", frozenset({("elf", 62)}), "-x86_64-linux-gnu.so", "Linux-64bit-intel/run"
    ),
    "linux-arm64": Target(
        "aarch64-manylinux_2_28", frozenset({("elf", 183)}), "-aarch64-linux-gnu.so", "Linux-64bit-arm/run"
    ),
    "darwin-amd64": Target("x86_64-apple-darwin", frozenset({("mach-o", 0x1000007)}), "-darwin.so", "Darwin-64bit/run"),
    "darwin-arm64": Target(
        "aarch64-apple-darwin", frozenset({("mach-o", 0x100000C)}), "-darwin.so", "Darwin-64bit/run"
    ),
    "windows-amd64": Target(
        "x86_64-pc-windows-msvc", frozenset({("pe", 0x8664)}), "-win_amd64.pyd", "Windows-64bit-intel/run.exe"
    ),
}


def machines(file: Path) -> frozenset[tuple[str, int]]:
    """The format of a compiled file, and the processors that it runs on."""
    data = file.read_bytes()
    if data[:4] == ELF:
        return frozenset({("elf", struct.unpack_from("<H", data, 18)[0])})
    if data[:4] == MACH_O:
        return frozenset({("mach-o", struct.unpack_from("<I", data, 4)[0])})
    if data[:4] == MACH_O_FAT:
        (count,) = struct.unpack_from(">I", data, 4)
        return frozenset(("mach-o", struct.unpack_from(">I", data, 8 + 20 * each)[0]) for each in range(count))
    if data[:2] == PE:
        (header,) = struct.unpack_from("<I", data, 60)
        return frozenset({("pe", struct.unpack_from("<H", data, header + 4)[0])})
    return frozenset()


def test_each_platform_of_the_release_is_looked_at() -> None:
    assert set(TARGETS) == set(PLATFORMS)
    workflow = (ROOT / ".github" / "workflows" / "release.yaml").read_text()
    assert f'python-version: "{PYTHON}"' in workflow


@pytest.mark.parametrize("platform", TARGETS)
def test_all_that_the_archive_needs_is_built_for_the_platform(platform: str, tmp_path: Path) -> None:
    target = TARGETS[platform]
    where = ("--python-platform", target.name, "--python-version", PYTHON)
    for lock in ("requirements.lock", "requirements-archive.lock"):
        options = ("--quiet", "--require-hashes", "--only-binary", ":all:", "--target", tmp_path / lock)
        uv("pip", "install", *options, *where, "-r", lock)
    runs = tmp_path / "requirements.lock"
    compiled = [each for each in runs.rglob("*") if each.name.endswith((".so", ".pyd", ".dylib"))]
    modules = {each.relative_to(runs).parts[0].partition(".")[0] for each in compiled}
    assert modules >= {"aiohttp", "msgspec", "pydantic_core", "re2"}, modules
    assert ("uvloop" in modules) == (not platform.startswith("windows"))
    assert [each.name for each in compiled if not target.machines <= machines(each)] == []
    assert any(each.name.endswith(target.suffix) for each in compiled)
    loader = tmp_path / "requirements-archive.lock" / "PyInstaller" / "bootloader" / target.loader
    assert target.machines <= machines(loader)
