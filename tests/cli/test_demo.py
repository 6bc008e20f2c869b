"""`dra-extender demo` and `dra-extender answer` as programs: output, complaints and exit status."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from dra_extender.cli.app import app
from dra_extender.cli.demo_stories import Playing, StoryFile, example_files, read_story
from dra_extender.config.settings import Settings
from dra_extender.simulator.demo.results import StoryResult
from typer.testing import CliRunner

ROOT = Path(__file__).parent.parent.parent
BY_POLICY = ROOT / "deploy" / "examples" / "10-groups-by-policy.yaml"
FOUR_MODES = ROOT / "deploy" / "examples" / "12-four-modes-by-policy.yaml"
FIRST = ROOT / "deploy" / "examples" / "01-mig-against-vgpu.yaml"


def program(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "dra_extender.cli.app", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "80"},
    )


@pytest.mark.verify
def test_without_files_the_first_example_is_shown_in_full_and_each_other_in_one_line() -> None:
    done = program("demo")
    assert (done.returncode, done.stderr) == (0, "")
    lines, others = done.stdout.splitlines(), sorted(path.stem for path in FIRST.parent.glob("*.yaml"))[1:]
    assert lines[-2].startswith(f"{len(others) + 1} stories, ")
    assert lines[-1] == "dra-extender demo NAME shows a story in full, demo -v all of them."
    assert "default/vgpu-a -> node-1" in done.stdout
    assert [line.split()[1] for line in lines if line.startswith("ok  ")] == others
    assert all(len(line) <= 80 for line in lines)
    assert "FAILED" not in done.stdout
    assert "\x1b" not in done.stdout
    shown = (ROOT / "README.md").read_text().partition("```text\n")[2].partition("```")[0].splitlines()
    assert len(shown) > 10
    assert [line for line in shown if line not in (*lines, "...")] == []


def test_examples_are_listed_with_what_they_are_about() -> None:
    done = CliRunner().invoke(app, ["demo", "--list"])
    lines = done.stdout.splitlines()
    assert (done.exit_code, len(lines)) == (0, len(list(FIRST.parent.glob("*.yaml"))))
    assert lines[0].split(maxsplit=1) == [FIRST.stem, "MIG against vGPU (KEP-5963)."]


def test_examples_chosen_by_name_are_shown_in_full() -> None:
    """By the beginning of the name, or a part that no other has."""
    done = CliRunner().invoke(app, ["demo", "03", "several-groups"])
    assert done.exit_code == 0
    for title in ("03-group-less-neighbour.yaml", "05-several-groups.yaml"):
        assert f" {title} " in done.stdout or f"{title} =" in done.stdout
    assert "2 stories, " in done.stdout


def test_pods_of_the_scheduler_that_is_named_are_scheduled() -> None:
    story = FIRST.read_text().replace("schedulerName: dra-extender-scheduler", "schedulerName: mine")
    done = CliRunner().invoke(app, ["demo", "-f", "-", "--scheduler-name", "mine"], input=story)
    assert done.exit_code == 0
    left = CliRunner().invoke(app, ["demo", "-f", "-"], input=story)
    assert left.exit_code == 1
    assert "use --scheduler-name mine" in " ".join(left.stdout.split())


def test_demo_runs_the_service_with_its_shipped_defaults() -> None:
    """But for the address, which is a free port of this machine."""
    chosen: list[Settings] = []

    async def not_played(_: object, playing: Playing, *__: object) -> list[StoryResult]:
        chosen.append(playing.settings)
        return []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dra_extender.cli.demo_stories.play", not_played)
        assert CliRunner().invoke(app, ["demo", "01"]).exit_code == 0
    (settings,) = chosen
    assert settings.model_copy(update={"server": Settings().server}) == Settings()


def test_steps_of_several_files_name_their_file() -> None:
    """Lines of two files may be equal."""
    done = CliRunner().invoke(app, ["demo", "-f", str(FIRST), "-f", str(FOUR_MODES), "-o", "json"])
    (story,) = json.loads(done.stdout)["stories"]
    places = [(each["file"], each["line"]) for each in story["steps"]]
    assert {file for file, _ in places} == {str(FIRST), str(FOUR_MODES)}
    assert len(set(places)) == len(places)


def test_json_is_all_that_is_written() -> None:
    done = CliRunner().invoke(app, ["demo", "-f", str(FIRST), "-o", "json"])
    assert done.exit_code == 0
    document = json.loads(done.stdout)
    assert [story["title"] for story in document["stories"]] == [str(FIRST)]
    assert document["failures"] == 0


@pytest.mark.verify
def test_a_policy_is_in_force_from_the_beginning_and_without_it_the_story_fails(tmp_path: Path) -> None:
    """The story alone, in a folder without the policy of its name, and with that policy given."""
    alone = tmp_path / BY_POLICY.name
    alone.write_bytes(BY_POLICY.read_bytes())
    arguments = ("demo", "-f", str(alone), "--kubernetes", "1.36")
    with_policy = program(*arguments, "--policy", str(BY_POLICY.parent / "policies" / BY_POLICY.name))
    assert (with_policy.returncode, with_policy.stderr) == (0, "")
    without = program(*arguments)
    assert without.returncode == 1
    assert "FAILED: default/vgpu-a expected waiting: " in without.stdout


@pytest.mark.verify
def test_slices_with_devices_beside_their_counters_are_played_as_1_34_has_them(tmp_path: Path) -> None:
    """The four modes of the HackMD proposals, in one slice as it draws them; later API servers refuse such a slice."""
    documents = [each for each in yaml.safe_load_all(FOUR_MODES.read_text()) if each]
    merged: dict[str, dict[str, Any]] = {}
    others: list[dict[str, Any]] = []
    for each in documents:
        if each["kind"] != "ResourceSlice":
            others.append(each)
            continue
        first = merged.setdefault(each["spec"]["pool"]["name"], each)
        first["spec"] |= {**each["spec"], "pool": {**each["spec"]["pool"], "resourceSliceCount": 1}}
    story = tmp_path / "story.yaml"
    places = [index for index, each in enumerate(documents) if each["kind"] == "ResourceSlice"]
    story.write_text(yaml.safe_dump_all([*others[: places[0]], *merged.values(), *others[places[0] :]]))
    arguments = ("demo", "-f", str(story), "--policy", str(FOUR_MODES.parent / "policies" / FOUR_MODES.name))
    done = program(*arguments, "--kubernetes", "1.34")
    assert (done.returncode, done.stderr) == (0, "")
    assert "FAILED" not in done.stdout
    later = program(*arguments, "--kubernetes", "1.35")
    assert later.returncode == 1
    assert "only one of `sharedCounters` or `devices`" in " ".join(later.stdout.split())


def test_an_expectation_that_fails_is_status_1() -> None:
    """On an API server that drops the groups, MIG and vGPU are not kept apart, and the story says so."""
    done = CliRunner().invoke(app, ["demo", "-f", str(FIRST), "--kubernetes", "1.36"])
    assert done.exit_code == 1
    assert "FAILED: default/vgpu-d expected node=node-2 at the end: it is on node-1" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "given", "complaint"),
    [
        (("-f", "nowhere.yaml"), "", "nowhere.yaml: cannot be read: No such file or directory\n"),
        (("-f", "-"), "kind: Pot\n", "standard input:1:1: kind: unknown kind 'Pot'; expected one of Node, "),
        (("-f", "-", "-f", "-"), "", "standard input: cannot be read: it is named twice, and can be read once\n"),
        (("01", "--policy", "nowhere.yaml"), "", "policy file nowhere.yaml: it does not exist\n"),
        (("01", "--policy", str(FIRST)), "", f"policy file {FIRST}: expected at most 8 documents (line "),
        (("01", "--policy", "-"), "", "--policy: expected a file, because the service follows it; '-' is none\n"),
        (("-f", "-"), "", "standard input:1:1: expected a manifest, the file has none\n"),
        (("nothing-like-it",), "", "there is no story 'nothing-like-it'; "),
        (("0",), "", "several stories are called '0': 01-mig-against-vgpu, "),
        (("--list", "-f", str(FIRST)), "", "STORY and --list are about the examples: "),
        (("01", "--kubernetes", "1.33"), "", "--kubernetes: expected a release from 1.34 to 1.37, found '1.33'\n"),
        (("01", "--kubernetes", "new"), "", "--kubernetes: expected a release from 1.34 to 1.37, found 'new'\n"),
    ],
)
def test_what_cannot_be_used_is_a_sentence_and_status_2(arguments: tuple[str, ...], given: str, complaint: str) -> None:
    done = CliRunner().invoke(app, ["demo", *arguments], input=given)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"error: {complaint}")
    assert done.stdout == ""


def test_answer_is_silent_without_questions() -> None:
    done = CliRunner().invoke(app, ["answer"])
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")


def test_answer_gives_a_line_for_each_line_and_survives_bad_ones() -> None:
    scenario = {"name": "one", "nodes": [{"metadata": {"name": "n1"}}], "claims": []}
    lines = [json.dumps(scenario), "", "no json", json.dumps({"scenario": scenario, "expected": {}})]
    done = CliRunner().invoke(app, ["answer"], input="\n".join(lines))
    assert (done.exit_code, done.stderr) == (0, "")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["name"] for answer in answers] == ["one", "", "one"]
    assert answers[0] == answers[2]
    assert "not JSON" in answers[1]["error"]


@pytest.mark.parametrize("file", example_files(), ids=lambda file: file.name)
def test_an_example_named_as_a_file_is_the_story_that_comes_with_the_project(file: StoryFile) -> None:
    """With the policy file of its name beside it, where there is one; tests of the simulator play each story."""
    named, shipped = read_story([FIRST.parent / file.title]), file.story()
    assert named.policy == shipped.policy
    assert [(each.key, each.item) for each in named.manifests.documents] == [
        (each.key, each.item) for each in shipped.manifests.documents
    ]
