import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.controlplane.build import (
    HELM,
    REFUSED,
    BuildError,
    ensure,
    find_go,
)

BUILDER = Path(__file__).with_name("build.py")
ROOT = Path(__file__).parents[2]
# Stands for a toolchain: says a version, notes each build beside itself, and fails or makes the program it was asked for.
GO = """#!{python}
import pathlib, sys, time
here = pathlib.Path(__file__).parent
if sys.argv[1] == "version":
    print("go version {version} linux/amd64")
    sys.exit()
with (here / "builds").open("a") as notes:
    notes.write(sys.argv[-1] + "\\n")
if {broken}:
    sys.exit("undefined: everything")
time.sleep(0.5)
program = pathlib.Path(sys.argv[sys.argv.index("-o") + 1])
program.touch(mode=0o755)
"""


def toolchain(folder: Path, version: str = "go1.26.3", *, broken: bool = False) -> dict[str, str]:
    """Environment in which the only go is one of this version; no package can be installed, and the cache is empty."""
    folder.mkdir(exist_ok=True)
    go = folder / "go"
    go.write_text(GO.format(python=sys.executable, version=version, broken=broken))
    go.chmod(0o755)
    here = {"PATH": str(folder), "PIP_NO_INDEX": "1", "DRA_EXTENDER_CACHE": str(folder.parent / "cache"), REFUSED: ""}
    return {**os.environ, **here}


def builder(environment: dict[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, str(BUILDER), "--only", "helm", "--print-dir"]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_nothing_is_built_for_a_test_of_make_test_and_nothing_built_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = toolchain(tmp_path / "go")
    for name, value in {**environment, REFUSED: "1"}.items():
        monkeypatch.setenv(name, value)
    for _ in range(2):
        with pytest.raises(BuildError, match="make test build no programs: mark the test that needs helm"):
            ensure(HELM)
        # The second time the program is in the cache.
        building = builder(environment)
        building.communicate(timeout=60)
        assert building.returncode == 0
    with pytest.raises(BuildError, match="make test build no programs"):
        find_go()
    assert (tmp_path / "go" / "builds").read_text().count("\n") == 1


def test_make_test_refuses_builds_and_downloads() -> None:
    make = shutil.which("make") or "make"
    shown = subprocess.run([make, "-n", "unit"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (line,) = (line for line in shown.splitlines() if "pytest" in line)
    assert {f"{REFUSED}=1", "GOPROXY=off", "PIP_NO_INDEX=1", "UV_OFFLINE=1"} <= set(line.partition("pytest")[0].split())
