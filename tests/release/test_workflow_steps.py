"""The commands of the release workflow run here, in their order, with stand-ins for what publishes."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.controlplane.build import HELM, ensure
from tests.release.archive import NAME, PLATFORMS, file_name, pack
from tests.release.krew import SHORT

pytestmark = pytest.mark.verify
ROOT: Final = Path(__file__).parents[2]
VERSION: Final = str(re.findall(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[0])
TAG: Final = f"v{VERSION}"
DIGESTS: Final = {name: f"sha256:{hashlib.sha256(name.encode()).hexdigest()}" for name in ("base", "image", "chart")}
STAND_IN: Final = """\
#!/bin/sh
echo "$(basename "$0") $*" >> "$CALLED"
"""
HELM_STAND_IN: Final = """\
if [ "$1" = push ]; then echo "Pushed: $3" >&2; echo "Digest: %s" >&2; exit; fi
exec %s "$@"
"""
BASH: Final = shutil.which("bash") or "bash"
TOOLS: Final = "/tmp/tools/bin/"  # noqa: S108 - where the workflow puts them


class Checkout:
    """A checkout as the runner has it, with the changelog as it is at a release, and programs that only note their calls."""

    def __init__(self, folder: Path) -> None:
        self.root, self._bin, self._output = folder / "checkout", folder / "bin", folder / "output"
        self._called = folder / "called"
        self._called.touch()
        self._bin.mkdir()
        self.root.mkdir()
        for name in (
            "app",
            "deploy",
            "helm",
            "tests",
            "pyproject.toml",
            "hatch_build.py",
            "README.md",
            "LICENSE",
            "Dockerfile",
        ):
            (self.root / name).symlink_to(ROOT / name)
        changelog = (ROOT / "CHANGELOG.md").read_text()
        (self.root / "CHANGELOG.md").write_text(changelog.replace("## [Unreleased]", f"## [{VERSION}]"))
        (self.root / "dist").mkdir()
        for name in ("cosign", "gh", "uv"):
            self._program(name, STAND_IN)
        self._program("docker", f"{STAND_IN}echo {DIGESTS['base']}\n")
        self._program("git", f"{STAND_IN}echo 1767225600\n")
        self._program("helm", STAND_IN + HELM_STAND_IN % (DIGESTS["chart"], ensure(HELM) / "helm"))
        self._program("python", f'{STAND_IN}[ "$2" = venv ] || exec {sys.executable} "$@"\n')
        self._program("pip", STAND_IN)

    def _program(self, name: str, text: str) -> None:
        file = self._bin / name
        file.write_text(text)
        file.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        """Programs with their arguments."""
        return self._called.read_text().splitlines()

    def run(self, step: Mapping[str, Any], **variables: str) -> dict[str, str]:
        """Run a step as GitHub does, and return what it outputs; `variables` are those that the step takes from others."""
        taken = {name: str(value) for name, value in step.get("env", {}).items() if "${{" not in str(value)}
        assert set(step.get("env", {})) <= set(taken) | set(variables), step["name"]
        self._output.write_text("")
        path = os.pathsep.join((str(self._bin), os.environ["PATH"]))
        given = {"PATH": path, "CALLED": str(self._called), "GITHUB_OUTPUT": str(self._output)}
        done = subprocess.run(
            [BASH, "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"].replace(TOOLS, "")],
            cwd=self.root,
            env={**os.environ, **given, **taken, **variables},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{step['name']}: {done.stdout}{done.stderr}"
        return dict(line.split("=", 1) for line in self._output.read_text().splitlines())


@pytest.fixture(scope="module")
def workflow() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yaml").read_text())
    return read


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def steps(workflow: Mapping[str, Any], job: str) -> dict[str, Mapping[str, Any]]:
    """The steps of a job that run commands, by name."""
    return {str(each["name"]): each for each in workflow["jobs"][job]["steps"] if "run" in each and "name" in each}


@pytest.mark.parametrize(
    ("tag", "repository", "failing"),
    [
        (TAG, "dra-extender/DRA-Extender", None),
        ("v0.0.0", "dra-extender/dra-extender", "The tag names the version of the program"),
        (TAG, "somebody/dra-extender", "The image that the chart names is that of this repository"),
    ],
)
def test_a_tag_or_a_repository_that_does_not_fit_ends_the_release(
    workflow: dict[str, Any], checkout: Checkout, tag: str, repository: str, failing: str | None
) -> None:
    for name, step in steps(workflow, "test").items():
        variables = {"TAG": tag, "REPOSITORY": repository, **workflow["env"]}
        given = {key: value for key, value in variables.items() if key in step.get("env", {}) or key in workflow["env"]}
        if name == failing:
            with pytest.raises(AssertionError, match=name):
                checkout.run(step, **given)
        else:
            checkout.run(step, **given)


def test_every_command_of_the_publication_runs(workflow: dict[str, Any], checkout: Checkout, tmp_path: Path) -> None:
    """All but what asks a registry: these note what they were asked."""
    publish, env = steps(workflow, "publish"), workflow["env"]
    todo = iter(publish.values())
    assert checkout.run(next(todo), TAG=TAG) == {"version": VERSION, "epoch": "1767225600", "base": DIGESTS["base"]}
    chart = checkout.run(next(todo), **env)
    assert chart == {"digest": DIGESTS["chart"]}
    checkout.run(next(todo), IMAGE_DIGEST=DIGESTS["image"], CHART_DIGEST=chart["digest"], **env)
    image, charts = f"{env['IMAGE']}@{DIGESTS['image']}", f"{env['CHARTS']}/dra-extender@{DIGESTS['chart']}"
    assert f"cosign sign --yes {image} {charts}" in checkout.calls
    checkout.run(next(todo))
    _archives(tmp_path, checkout.root / "dist")
    checkout.run(next(todo), TAG=TAG, REPOSITORY="https://github.com/dra-extender/dra-extender")
    checkout.run(next(todo))
    checkout.run(next(todo), TAG=TAG, GH_TOKEN="")
    assert next(todo, None) is None

    made = {file.name for file in (checkout.root / "dist").iterdir()}
    packages = {
        f"dra-extender-{VERSION}.tgz",
        f"dra_extender-{VERSION}.tar.gz",
        f"dra_extender-{VERSION}-py3-none-any.whl",
    }
    assert made == {*packages, *map(file_name, PLATFORMS), "dra.yaml", "SHA256SUMS"}
    sums = (checkout.root / "dist" / "SHA256SUMS").read_text().splitlines()
    assert {line.split()[1] for line in sums} == made - {"SHA256SUMS"}
    assert yaml.safe_load((checkout.root / "dist" / "dra.yaml").read_text())["spec"]["shortDescription"] == SHORT
    assert "### Added" in (checkout.root / "notes.md").read_text()
    with tarfile.open(checkout.root / "dist" / f"dra-extender-{VERSION}.tgz") as packed:
        assert "dra-extender/values.schema.json" in packed.getnames()
    (published,) = (call.split() for call in checkout.calls if call.startswith("uv publish"))
    assert {Path(each).name for each in published[4:]} == packages - {f"dra-extender-{VERSION}.tgz"}
    assert any(call.startswith(f"gh release create {TAG} dist/") for call in checkout.calls)


def _archives(work: Path, folder: Path) -> None:
    """What the job of the archives leaves."""
    built = work / "built" / NAME
    built.mkdir(parents=True)
    for name in ("LICENSE", NAME, f"{NAME}.exe"):
        (built / name).write_text(name)
    for platform in PLATFORMS:
        pack(built, folder / file_name(platform))
