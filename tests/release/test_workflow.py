"""The release workflow makes what the documents promise, from actions that nobody can exchange."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.controlplane.build import ACTIONLINT, ensure

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
Steps = list[dict[str, Any]]


@pytest.fixture(scope="module")
def release() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yaml").read_text())
    return read


def steps(release: dict[str, Any]) -> Steps:
    """Steps of the job that publishes."""
    found: Steps = release["jobs"]["publish"]["steps"]
    return found


def those_of(release: dict[str, Any], action: str) -> Steps:
    return [each["with"] for each in steps(release) if each.get("uses", "").startswith(f"{action}@")]


@pytest.mark.verify
def test_actionlint_accepts_the_workflows() -> None:
    command = [str(ensure(ACTIONLINT) / "actionlint"), "-no-color", *map(str, WORKFLOWS)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_each_action_is_named_by_its_commit_with_the_version_beside_it(file: Path) -> None:
    """A tag can be moved to other code."""
    lines = [line.strip() for line in file.read_text().splitlines() if re.search(r"\buses:", line)]
    assert lines
    assert [line for line in lines if not re.fullmatch(r"-? ?uses: [\w-]+/[\w/-]+@[0-9a-f]{40} # v[\d.]+", line)] == []


def test_workflows_agree_on_the_commit_of_an_action() -> None:
    found = {use for file in WORKFLOWS for use in re.findall(r"uses: (\S+@\S+)", file.read_text())}
    assert len({use.partition("@")[0] for use in found}) == len(found)


def test_image_is_published_where_chart_and_manifests_look_for_it(release: dict[str, Any]) -> None:
    """In a repository of another name the workflow stops before anything is published."""
    chart = ROOT / "helm" / "dra-extender"
    assert yaml.safe_load((chart / "values.yaml").read_text())["image"]["repository"] == release["env"]["IMAGE"]
    manifests = yaml.safe_load((ROOT / "deploy" / "base" / "kustomization.yaml").read_text())
    assert [each["name"] for each in manifests["images"]] == [release["env"]["IMAGE"]]
    assert 'printf "v%s" $.Chart.AppVersion' in (chart / "templates" / "_extender-container.tpl").read_text()
    (built,) = those_of(release, "docker/build-push-action")
    assert built["tags"] == "${{ env.IMAGE }}:${{ github.ref_name }}"
    assert release["env"]["CHARTS"].startswith(release["env"]["IMAGE"].rpartition("/")[0])
    checks = "\n".join(str(each.get("run", "")) for each in release["jobs"]["test"]["steps"])
    assert 'test "$IMAGE" = "ghcr.io/${REPOSITORY,,}"' in checks


def test_nothing_is_published_before_the_tests_have_passed(release: dict[str, Any]) -> None:
    jobs = release["jobs"]
    assert set(jobs["publish"]["needs"]) == {"test", "image", "archives"}
    assert release["permissions"] == {"contents": "read"}
    assert [name for name, job in jobs.items() if "permissions" in job] == ["publish"]
    for name, command in [("test", "make test"), ("test", "make verify"), ("image", "make image")]:
        assert any(command in str(each.get("run", "")) for each in jobs[name]["steps"])


def test_what_dependabot_renews_is_there() -> None:
    reads = {
        "github-actions": ".github/workflows",
        "docker": "Dockerfile",
        "gomod": "go.mod",
        "npm": "package-lock.json",
    }
    updates = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())["updates"]
    assert {each["package-ecosystem"] for each in updates} == set(reads)
    for each in updates:
        for folder in each.get("directories", [each.get("directory")]):
            assert (ROOT / folder.lstrip("/") / reads[each["package-ecosystem"]]).exists(), folder
