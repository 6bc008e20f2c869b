"""Fixtures of the image's tests.  `make image` runs them as root; they need programs that `make test` does not."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.build import cache_folder
from tests.image import base
from tests.image.builder import ROOT, Builder, Image

KEPT = ROOT / "dist" / "dra-extender-image.tar"
EPOCH = 1767225600
"""Any time does, if it is the same for both builds."""
HOUR = 3600


@pytest.fixture(scope="session")
def builder() -> Iterator[Builder]:
    """Storage for images, gone afterwards."""
    parent = cache_folder() / "image"
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="storage-", dir=parent))
    try:
        yield Builder(folder)
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def base_name(builder: Builder) -> str:
    """What PYTHON_IMAGE names, else a base made on this machine."""
    return os.environ.get("PYTHON_IMAGE") or builder.base_of(base.archive())


@pytest.fixture(scope="session")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this checkout at another place, with files of another time and mode."""
    copy = tmp_path_factory.mktemp("elsewhere") / "checkout"
    for name in ("app", "deploy/examples"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("Dockerfile", ".dockerignore", "pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copyfile(ROOT / file, copy / file)
    for lock in ROOT.glob("requirements*.lock"):
        shutil.copyfile(lock, copy / lock.name)
    for path in copy.rglob("*"):
        os.utime(path, (HOUR, HOUR))
        path.chmod(0o700 if path.is_dir() else 0o600)
    return copy


@pytest.fixture(scope="session")
def image(builder: Builder, base_name: str, elsewhere: Path) -> Image:
    """The image of this checkout, which is also kept as a file, with the digest of its manifest beside it."""
    built = builder.build(ROOT, base_name, "first", epoch=EPOCH)
    builder.keep(built, KEPT)
    KEPT.with_suffix(".digest").write_text(f"{built.digest}\n")
    return built


@pytest.fixture(scope="session")
def image_again(builder: Builder, base_name: str, elsewhere: Path, image: Image) -> Image:
    """The same from the copy, later."""
    return builder.build(elsewhere, base_name, "second", epoch=EPOCH)


@pytest.fixture(scope="session")
def image_with_traces(builder: Builder, base_name: str) -> Image:
    """The image with the packages that send traces."""
    return builder.build(ROOT, base_name, "tracing", epoch=EPOCH, arguments=["TRACING=1"])
