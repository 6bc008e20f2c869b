from pathlib import Path

import pytest

from tests.support.totals import main

GOOD = '<testsuites><testsuite><testcase name="a"/><testcase name="b"><system-out/></testcase></testsuite></testsuites>'


def report(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_tests_of_all_parts_are_added_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    skipped = '<testsuite><testcase name="c"/><testcase name="d"><skipped message="no fish"/></testcase></testsuite>'
    assert main([report(tmp_path, "one.xml", GOOD), report(tmp_path, "two.xml", skipped)]) == 0
    assert capsys.readouterr().out == "NOT TESTED, 1 times: no fish\n3 passed, 0 failed, 1 skipped\n"


@pytest.mark.parametrize("end", ["failure", "error"])
def test_a_test_that_failed_is_counted_and_fails_the_run(
    end: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = f'<testsuite><testcase name="c"><{end} message="no"/></testcase><testcase name="d"/></testsuite>'
    assert main([report(tmp_path, "one.xml", GOOD), report(tmp_path, "two.xml", failed)]) == 1
    assert capsys.readouterr().out == "3 passed, 1 failed\n"


@pytest.mark.parametrize("text", ["", "<testsuite", "<testsuite/>"])
def test_a_part_without_a_report_of_its_tests_fails_the_run(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = report(tmp_path, "one.xml", GOOD)
    assert main([good, report(tmp_path, "two.xml", text)]) == 1
    assert main([good, str(tmp_path / "missing.xml")]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "left no report" in shown.err
