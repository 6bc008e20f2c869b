"""What `.ci/run` does behind `make test`, with commands that stand for those of the Makefile."""

import os
import re
import sys
import time
from pathlib import Path

import pytest

from tests.support.machine_checks import CHECKS, ROOT, Check, Outcome, close, run_all

GOOD = '<testsuite><testcase name="a"/></testsuite>'
BAD = '<testsuite><testcase name="a"><failure/></testcase></testsuite>'


def python(text: str) -> tuple[str, ...]:
    return (sys.executable, "-c", text)


DONE = python("")


def outcome(check: Check, seconds_left: float = 1000.0) -> Outcome:
    (found,) = run_all([check], time.time() + seconds_left)
    return found


def test_a_check_that_passes_has_no_problem() -> None:
    assert outcome(Check("one", DONE, 60.0, needs=DONE, prepare=(DONE,))) == Outcome("one", 0)


def test_a_check_that_fails_is_told_with_its_status() -> None:
    assert outcome(Check("one", python("raise SystemExit(3)"), 60.0)) == Outcome("one", 3, "failed with status 3")


def test_a_check_that_takes_too_long_is_ended_with_what_it_started(tmp_path: Path) -> None:
    """Its child holds a pipe open, of which the end is read once nobody does."""
    held, never = tmp_path / "held", tmp_path / "never"
    os.mkfifo(held)
    os.mkfifo(never)
    reader = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
    check = Check("one", ("sh", "-c", f"(echo begun; cat {never}) > {held}; true"), 2.0)
    assert outcome(check) == Outcome("one", 1, "did not end within 2 s")
    os.set_blocking(reader, True)
    with os.fdopen(reader, encoding="ascii") as pipe:
        assert pipe.read() == "begun\n"


@pytest.mark.parametrize(
    "check",
    [
        Check("one", DONE, 60.0, needs=python("print('no browser'); raise SystemExit(1)")),
        Check("one", DONE, 60.0, prepare=(python("raise SystemExit('no browser')"), DONE)),
    ],
    ids=["needs", "prepare"],
)
def test_a_check_that_the_machine_cannot_run_is_said_and_does_not_fail_the_run(
    check: Check, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "unit.xml"
    report.write_text(GOOD)
    found = outcome(check)
    assert found == Outcome("one", None, "NOT RUN: no browser")
    assert close([found], [report], tmp_path) == 0
    assert capsys.readouterr().out.endswith("ci: one: NOT RUN: no browser\n1 passed, 0 failed\n")


def test_a_program_that_the_set_up_installs_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program"
    needs = python(f"import pathlib, sys; sys.exit(not pathlib.Path({str(program)!r}).exists())")
    install = python(f"import pathlib; pathlib.Path({str(program)!r}).touch()")
    check = Check("one", DONE, 60.0, needs=needs, setup=(install,))
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert outcome(check).status is None
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert outcome(check) == Outcome("one", 0)


def test_no_check_is_started_that_may_not_end_in_time() -> None:
    assert outcome(Check("one", DONE, 60.0), seconds_left=30.0).problem.startswith("NOT RUN: it may take 60 s, and")


def test_the_closing_line_adds_up_what_ran(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tested = tmp_path / "unit.xml"
    tested.write_text(GOOD)
    (tmp_path / "image.xml").write_text(GOOD)
    (tmp_path / "old.xml").write_text(BAD)
    assert close([Outcome("image", 0), Outcome("old", None, "NOT RUN: why")], [tested], tmp_path) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 passed, 0 failed"
    assert close([Outcome("image", 0), Outcome("old", 1, "failed")], [tested], tmp_path) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "2 passed, 1 failed"
    assert close([Outcome("image", 2, "failed")], [tested], tmp_path) == 1


def test_a_check_without_a_report_fails_the_run(tmp_path: Path) -> None:
    tested = tmp_path / "unit.xml"
    tested.write_text(GOOD)
    assert close([Outcome("image", 0)], [tested], tmp_path) == 1


def test_all_checks_may_take_their_time_beside_the_tests() -> None:
    """Fifteen minutes of `make test` and the longest that each check may take are less than the hour."""
    assert 15 * 60 + sum(each.seconds for each in CHECKS) < 3600


def test_checks_are_targets_of_the_makefile_that_write_reports_of_their_names() -> None:
    rules = dict(re.findall(r"^([a-z-]+):.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for check in CHECKS:
        assert check.name in check.call
        assert "--junitxml $(REPORTS)/$@.xml" in rules[check.name]
        for target in {word for step in check.setup for word in step if word.endswith("-setup")}:
            assert target in rules
    assert "tests.support.machine_checks" in (ROOT / ".ci" / "run").read_text()
