"""The wheel of the image: built from the files that the Dockerfile copies, installed beside a distribution with a package `app`."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from zipfile import ZipFile

import pytest
from dra_extender.inspection.snapshot_file import write_snapshot

from tests.controlplane.objects import device_class, request
from tests.support.inspection.made_cluster import NAMESPACE, MadeCluster

pytestmark = pytest.mark.verify

ROOT = Path(__file__).parents[2]
OTHER = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "other"
version = "1"
[tool.hatch.build.targets.wheel]
packages = ["app"]
"""


def run(*command: str | Path, cwd: Path) -> str:
    """Standard output of a program that must succeed, which sees nothing of this checkout's environment."""
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def copied_into_the_image() -> list[str]:
    """The sources of the COPY lines from which the Dockerfile builds the wheel."""
    lines = [line.split()[1:] for line in (ROOT / "Dockerfile").read_text().splitlines() if line.startswith("COPY ")]
    names = [name for *sources, _ in lines for name in sources if not name.startswith(("--", "/", "requirements"))]
    assert "pyproject.toml" in names
    return names


def build_wheel(source: Path, into: Path) -> Path:
    before = set(into.glob("*.whl"))
    flags = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "wheel", *flags, "--wheel-dir", into, source, cwd=into)
    (made,) = set(into.glob("*.whl")) - before
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    context, built = tmp_path_factory.mktemp("context"), tmp_path_factory.mktemp("wheels")
    for name in copied_into_the_image():
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, context / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
        else:
            shutil.copy(ROOT / name, context / name)
    return build_wheel(context, built)


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel and another distribution, and the dependencies of this one."""
    other, home = tmp_path_factory.mktemp("other"), tmp_path_factory.mktemp("environment")
    (other / "app").mkdir()
    (other / "app" / "__init__.py").write_text("OTHER = True\n")
    (other / "pyproject.toml").write_text(OTHER)
    run(sys.executable, "-m", "venv", "--without-pip", home, cwd=home)
    python = home / "bin" / "python"
    wheels = (wheel, build_wheel(other, wheel.parent))
    flags = ("--quiet", "--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "--python", python, "install", *flags, *wheels, cwd=home)
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home).strip())
    # A path in a .pth file is searched last, and the .pth files there, such as that of an editable installation, are not read.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home


def test_a_wheel_of_what_the_dockerfile_copies_holds_one_package_and_the_examples(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"dra_extender"}
    modules = {path.relative_to(ROOT / "app").as_posix() for path in (ROOT / "app").rglob("*.py")}
    assert modules <= names
    page = ROOT / "app" / "dra_extender" / "page"
    loaded = {path.relative_to(ROOT / "app").as_posix() for path in page.rglob("*.*") if path.parent != page}
    assert {name.rpartition(".")[2] for name in loaded} >= {"html", "css", "js", "svg"}
    assert {name for name in loaded if "__pycache__" not in name} <= names
    examples = {path.relative_to(ROOT / "deploy" / "examples").as_posix() for path in example_files()}
    assert {f"dra_extender/_examples/{name}" for name in examples} <= names


def test_an_installed_wheel_plays_its_examples_beside_another_package_app(environment: Path, tmp_path: Path) -> None:
    origin = "import app, dra_extender; print(app.OTHER, dra_extender.__file__)"
    found = run(environment / "bin" / "python", "-c", origin, cwd=tmp_path).split()
    assert found == ["True", str(packaged(environment) / "__init__.py")]
    program = environment / "bin" / "dra-extender"
    stories = [path.stem for path in example_files() if path.parent.name == "examples"]
    assert [line.split()[0] for line in run(program, "demo", "--list", cwd=tmp_path).splitlines()] == stories
    with_policy = next(path.stem for path in example_files() if path.parent.name == "policies")
    played = json.loads(run(program, "demo", stories[0], with_policy, "--output", "json", cwd=tmp_path))
    assert (len(played["stories"]), played["failures"]) == (2, 0)


def test_an_installed_wheel_renders_a_view(environment: Path, tmp_path: Path) -> None:
    render = (
        "from dra_extender.page.rendering import page_templates; page_templates('/t').get_template('parts.html').render();"
        " from dra_extender.page.application import PageApplication"
    )
    run(environment / "bin" / "python", "-c", render, cwd=tmp_path)


def test_an_installed_package_runs_as_a_module(environment: Path, tmp_path: Path) -> None:
    example = packaged(environment) / "_examples" / "01-mig-against-vgpu.yaml"
    command = ("-m", "dra_extender", "demo", "--filename", example, "--output", "json")
    assert len(json.loads(run(environment / "bin" / "python", *command, cwd=tmp_path))["stories"]) == 1


def test_an_installed_wheel_is_a_plugin_of_kubectl(environment: Path, tmp_path: Path) -> None:
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu"))
    made.pod("train", request("gpu", "gpu"))
    write_snapshot(made.cluster(), tmp_path / "cluster.tar.gz")
    command = ("why", "train", "-n", NAMESPACE, "--snapshot", "cluster.tar.gz")
    tree = run(environment / "bin" / "kubectl-dra", *command, cwd=tmp_path)
    assert tree.startswith("ml/train  Pending 12m, dra-extender-scheduler, fits 0 of 1 nodes\n")
    assert run(environment / "bin" / "kubectl_complete-dra", "devi", cwd=tmp_path).startswith("devices\t")
    for shell in ("bash", "zsh", "fish"):
        assert "kubectl-dra __complete" in run(environment / "bin" / "kubectl-dra", "completion", shell, cwd=tmp_path)


def packaged(environment: Path) -> Path:
    """Where the environment has the package."""
    (found,) = environment.glob("lib/python*/site-packages/dra_extender")
    return found


def example_files() -> list[Path]:
    return sorted((ROOT / "deploy" / "examples").rglob("*.yaml"))
