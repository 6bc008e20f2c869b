"""How `make verify` prepares, runs and reports its parts, with commands that stand for those of the Makefile."""

import re
import sys
import time
from pathlib import Path

import pytest

from tests.support.verify import PARTS, ROOT, Outcome, Part, close, run_all

GOOD = '<testsuite><testcase name="a"/></testsuite>'


def python(text: str) -> tuple[str, ...]:
    return (sys.executable, "-c", text)


DONE = python("")


def outcome(part: Part, seconds_left: float = 1000.0) -> Outcome:
    (found,) = run_all([part], time.time() + seconds_left)
    return Outcome(found.part, found.status, found.problem)


UNPREPARED = [
    Part("one", DONE, 60.0, needs=python("print('no browser'); raise SystemExit(1)")),
    Part("one", DONE, 60.0, prepare=(python("raise SystemExit('no browser')"), DONE)),
]


@pytest.mark.parametrize("part", UNPREPARED, ids=["needs", "prepare"])
def test_a_part_that_the_machine_cannot_run_is_said_and_fails_a_strict_run(
    part: Part, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "unit.xml"
    report.write_text(GOOD)
    found = outcome(part)
    assert found == Outcome("one", None, "NOT RUN: no browser")
    assert close([found], [report], strict=False, folder=tmp_path) == 0
    assert capsys.readouterr().out.endswith("verify: one: NOT RUN: no browser\n1 passed, 0 failed\n")
    assert close([found], [report], strict=True, folder=tmp_path) == 1


def test_parts_are_targets_of_the_makefile_that_write_reports_of_their_names() -> None:
    rules = dict(re.findall(r"^([a-z0-9-]+):.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for part in PARTS:
        assert part.name in part.call
        assert "--junitxml $(REPORTS)/$@.xml" in rules[part.name]
        for target in {word for step in part.setup for word in step if word.endswith("-setup")}:
            assert target in rules


def test_each_part_is_prepared_with_what_its_target_builds() -> None:
    """A part that its target makes wait for a build would keep the others waiting."""
    rules = dict(re.findall(r"^([a-z0-9-]+):.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for part in PARTS:
        built = {word for call in re.findall(r"\$\(call build,(.*?)\)", rules[part.name]) for word in call.split()}
        prepared = {
            word.removeprefix("--only=") for step in part.prepare for word in step if word.startswith("--only=")
        }
        assert built == prepared, part.name
