"""A replay has the answers of the recording byte by byte; with another rule it says which answers differ."""

import asyncio
from pathlib import Path

import pytest
from dra_extender.allocator.rules import compatibility
from dra_extender.cli.app import app
from dra_extender.model.pod import Pod
from dra_extender.recording.recording_file import read_recording
from dra_extender.recording.replay import replay
from dra_extender.recording.replay_report import ReplayReport
from dra_extender.scheduling.search_time.time_slices import CallBudget, TimeSlices
from typer.testing import CliRunner

from tests.support.recording.recorded_story import SHORT_SLICE, record_story

STORIES = ("01", "04", "06", "07", "10", "12", "13", "15", "16", "17")


def recorded(name: str, file: Path) -> ReplayReport:
    asyncio.run(record_story(name, file))
    return replay(read_recording(file))


@pytest.mark.parametrize("name", STORIES)
def test_recorded_story_is_answered_alike_when_it_is_played_again(name: str, tmp_path: Path) -> None:
    """Groups, counters, policies, taints, gangs, extended resources, republished slices: all of the real service."""
    report = recorded(name, tmp_path / "story.jsonl.gz")
    assert report.different == ()
    assert report.other_requests == ()
    assert not report.excepted
    assert report.departure == ""
    assert report.equal["filter"] >= 4
    assert report.equal["bind"] >= 2
    assert report.requests > 0


def test_gang_of_300_pods_is_answered_alike(tmp_path: Path) -> None:
    report = recorded("14", tmp_path / "story.jsonl.gz")
    assert report.different == ()
    assert report.equal["bind"] >= 300


def test_search_pauses_in_a_replay_where_it_did_in_the_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other calls come between two slices of a search, and hold devices."""
    pauses = list[str]()
    goes_on = TimeSlices.next

    async def counted(slices: TimeSlices, pod: Pod, budget: CallBudget) -> bool:
        pauses.append(pod.name)
        return await goes_on(slices, pod, budget)

    monkeypatch.setattr(TimeSlices, "next", counted)
    asyncio.run(record_story("12", tmp_path / "story.gz", SHORT_SLICE))
    recorded_pauses, pauses = pauses, []
    report = replay(read_recording(tmp_path / "story.gz"))
    assert len(recorded_pauses) >= 3
    assert pauses == recorded_pauses
    assert (report.different, report.other_requests, report.departure) == ((), (), "")


def test_rule_that_is_another_one_shows_as_different_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "story.jsonl.gz"
    assert recorded("01", file).is_equal

    monkeypatch.setattr(compatibility.CompatibilityTable, "join", lambda *_, **__: True)
    monkeypatch.setattr(compatibility.CompatibilityTable, "conflict", lambda *_, **__: None)
    monkeypatch.setattr(compatibility.GroupedSets, "closed", lambda *_, **__: None)
    report = replay(read_recording(file))

    assert not report.is_equal
    assert report.departure
    first = report.different[0]
    assert (first.verb, first.recorded.startswith("ok: {"), first.replayed.startswith("ok: {")) == (
        "filter",
        True,
        True,
    )
    assert "compatibility groups" in first.recorded
    assert "compatibility groups" not in first.replayed


def test_command_says_how_many_answers_are_equal_and_which_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "story.jsonl.gz"
    asyncio.run(record_story("01", file))
    result = CliRunner().invoke(app, ["replay", str(file)])
    assert result.exit_code == 0
    assert "equal answers: 4 bind, 6 filter" in result.output
    assert "different answers: 0" in result.output

    monkeypatch.setattr(compatibility.CompatibilityTable, "join", lambda *_: True)
    result = CliRunner().invoke(app, ["replay", str(file)])
    assert result.exit_code == 1
    assert "    recorded " in result.output


def test_file_that_is_no_recording_ends_with_the_status_for_bad_input(tmp_path: Path) -> None:
    file = tmp_path / "x.gz"
    file.write_bytes(b"x")
    result = CliRunner().invoke(app, ["replay", str(file)])
    assert result.exit_code == 2
    assert "expected a recording" in result.output
    assert "Traceback" not in result.output
