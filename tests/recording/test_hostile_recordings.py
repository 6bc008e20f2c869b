"""A recording that was cut off, reordered or edited gives a clear answer: refused with its line, or played as far as it goes."""

import asyncio
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from dra_extender.cli.app import app
from dra_extender.recording.recorder import RecordingFileError
from dra_extender.recording.recording_file import read_recording
from dra_extender.recording.replay import replay
from typer.testing import CliRunner

from tests.support.recording.recorded_story import record_story

Line = dict[str, Any]
STRANGE: tuple[Any, ...] = (None, True, -1, 10**18, 1e300, "", "x\x1b[31m", [], {}, [[]], [1, 2, 3], {"metadata": []})
ESCAPE = "\x1b[31mred"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, ...]:
    """The lines of a story with few calls."""
    file = tmp_path_factory.mktemp("recorded") / "r.gz"
    asyncio.run(record_story("16", file))
    return tuple(gzip.decompress(file.read_bytes()).splitlines())


def edited(recorded: tuple[bytes, ...], kind: str, edit: Callable[[Line], object]) -> list[bytes]:
    """The lines, the first of this kind edited."""
    at = next(at for at, line in enumerate(recorded) if json.loads(line).get("type") == kind)
    found = json.loads(recorded[at])
    edit(found)
    return [*recorded[:at], json.dumps(found).encode(), *recorded[at + 1 :]]


def packed(lines: list[bytes] | tuple[bytes, ...], file: Path) -> Path:
    file.write_bytes(gzip.compress(b"\n".join(lines) + b"\n"))
    return file


def output_of(file: Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["replay", str(file)])
    assert "Traceback" not in result.output
    assert isinstance(result.exception, SystemExit | None)
    return result.exit_code, result.output


def test_answer_that_was_edited_is_a_difference_and_its_text_is_escaped(
    recorded: tuple[bytes, ...], tmp_path: Path
) -> None:
    lines = edited(recorded, "answered", lambda line: line.update(answer=ESCAPE))
    status, output = output_of(packed(lines, tmp_path / "r.gz"))
    assert status == 1
    assert "different answers: 1" in output
    assert ESCAPE not in output
    assert "red" in output


def test_recording_that_is_cut_off_is_played_as_far_as_it_goes_and_says_so(
    recorded: tuple[bytes, ...], tmp_path: Path
) -> None:
    """As when the process was killed: what it had decided by then is compared."""
    for lines in (recorded[:-1], recorded[: len(recorded) // 2], recorded[:1]):
        status, output = output_of(packed(lines, tmp_path / "r.gz"))
        assert status == 0
        assert "it is cut off: the process was killed, or part of the file is missing" in output
        assert "different answers: 0" in output
        assert "departs" not in output


def test_recording_that_is_cut_off_anywhere_replays_equal_up_to_there(
    recorded: tuple[bytes, ...], tmp_path: Path
) -> None:
    """The last step is left out where what clocks showed in it was not written any more, as after an answer."""
    cut_off = 0
    after_answers = [number for number, line in enumerate(recorded, 1) if b'"answered"' in line]
    for length in sorted({*after_answers, *range(1, len(recorded), 13)}):
        report = replay(read_recording(packed(recorded[:length], tmp_path / "r.gz")))
        assert (report.different, report.other_requests, report.departure) == ((), (), ""), length
        assert report.ended is None
        cut_off += report.excepted["cut off"]
    assert cut_off


@pytest.mark.parametrize(
    ("kind", "edit", "said"),
    [
        ("delivered", lambda line: line.update(kind="secrets"), "expected a kind that is watched, found 'secrets'"),
        ("delivered", lambda line: line.update(change="vanished"), "Invalid enum value 'vanished'"),
        ("called", lambda line: line.update(verb="delete"), "Invalid enum value 'delete'"),
        ("called", lambda line: line.update(number=7), "expected call 0, found call 7"),
        ("asked", lambda line: line.update(port="secrets"), "Invalid enum value 'secrets'"),
        ("clocks", lambda line: line.update(readings=[9, 9, 9]), "expected a clock below 3 and a count, found 9 and 9"),
        ("clocks", lambda line: line.update(readings=[0, 10**400, 1]), "expected no more than 9007199254740992 ticks"),
        ("clocks", lambda line: line.update(step=10**30), "expected step 1"),
        ("answered", lambda line: line.update(at=1e-9), "expected a time from"),
        ("answered", lambda line: line.update(number=3), "call 3 is answered, which was not made or has its answer"),
        (None, lambda line: line["options"].update(policy=1, search_slice_seconds="x"), "line 1: Expected `float`"),
        (None, lambda line: line.update(shareSeed="x"), "line 1: badly formed hexadecimal UUID string"),
    ],
)
def test_record_that_no_service_has_written_is_refused_with_what_was_expected(
    kind: str, edit: Callable[[Line], object], said: str, recorded: tuple[bytes, ...], tmp_path: Path
) -> None:
    status, output = output_of(packed(edited(recorded, kind, edit), tmp_path / "r.gz"))
    assert (status, said in " ".join(output.split())) == (2, True), output


def test_header_that_nests_too_deep_is_refused(tmp_path: Path) -> None:
    status, output = output_of(packed([b'{"format": "x", "options": {"a": ' + b"[" * 5000], tmp_path / "r.gz"))
    assert (status, "line 1: maximum recursion depth" in " ".join(output.split())) == (2, True), output


def test_records_in_another_order_are_refused_with_the_line(recorded: tuple[bytes, ...], tmp_path: Path) -> None:
    for at in (5, len(recorded) // 2):
        lines = [*recorded[:at], *recorded[at + 5 :], *recorded[at : at + 5]]
        status, output = output_of(packed(lines, tmp_path / "r.gz"))
        assert status == 2
        assert "line " in output


def test_step_beyond_any_number_ends(recorded: tuple[bytes, ...], tmp_path: Path) -> None:
    """The replay has fewer steps: it departs, and goes on."""
    lines = [json.dumps({**json.loads(line), "step": 10**15}).encode() for line in recorded[40:]]
    report = replay(read_recording(packed([*recorded[:40], *lines], tmp_path / "r.gz")))
    assert report.departure
    assert report.records == len(recorded) - 1


def test_line_of_any_length_is_refused_before_it_fills_the_memory(
    tmp_path: Path, recorded: tuple[bytes, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dra_extender.recording.recording_file._LONGEST_LINE", 2**20)
    status, output = output_of(packed([recorded[0], b" " * 2**23], tmp_path / "r.gz"))
    assert status == 2
    assert "has a line of more than 0 MiB" in output or "has a line of more than 1 MiB" in output


def test_random_edits_are_refused_or_played_and_never_fail_otherwise(
    recorded: tuple[bytes, ...], tmp_path: Path
) -> None:
    outcomes = set[bool | None]()
    for seed in range(60):
        file = packed(_edited_at_random(recorded, Random(seed)), tmp_path / "r.gz")
        try:
            outcomes.add(replay(read_recording(file)).is_equal)
        except RecordingFileError:
            outcomes.add(None)
    assert outcomes == {True, False, None}


def _edited_at_random(recorded: tuple[bytes, ...], chance: Random) -> list[bytes]:
    lines = list(recorded)
    at = chance.randrange(1, len(lines))
    how = chance.randrange(4)
    if how == 0:
        del lines[at]
    elif how == 1:
        lines.insert(at, chance.choice(lines[1:]))
    else:
        line = json.loads(lines[at])
        name = chance.choice([name for name in line if name != "type"])
        line[name] = _strange(line[name], chance)
        lines[at] = json.dumps(line).encode()
    return lines


def _strange(value: Any, chance: Random) -> Any:
    """The value with one part of it replaced."""
    if not isinstance(value, dict | list) or not value or chance.random() < 0.2:
        return chance.choice(STRANGE)
    if isinstance(value, list):
        at = chance.randrange(len(value))
        return [*value[:at], _strange(value[at], chance), *value[at + 1 :]]
    name = chance.choice(list(value))
    return {**value, name: _strange(value[name], chance)}
