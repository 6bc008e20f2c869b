"""`uvx` runs the plugin without installing anything: from a wheel or a checkout, as it would from the package index."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.archive.conftest import UV, uv
from tests.release.archive import ROOT, SNAPSHOT

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("source", ["wheel", "checkout"])
def test_uvx_runs_the_plugin(source: str, tmp_path: Path) -> None:
    """In an environment that uv makes for it, with the newest packages that pyproject.toml lets it have."""
    where = ROOT
    if source == "wheel":
        uv("build", "--quiet", "--wheel", "--out-dir", tmp_path)
        (where,) = tmp_path.glob("*.whl")
    clean = tmp_path / "clean"
    clean.mkdir()
    shutil.copy(SNAPSHOT, clean)
    words = ("--from", where, "kubectl-dra", "why", "infer-1", "-n", "ml", "--snapshot", SNAPSHOT.name)
    given = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    done = subprocess.run(
        [UV, "tool", "run", *words], cwd=clean, env=given, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ml/infer-1  Pending")
