"""JUnit reports: which tests of them ended how."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple
from xml.etree import ElementTree as ET

_NOT_PASSED: Final = frozenset({"failure", "error", "skipped"})


class CaseResult(NamedTuple):
    """How a test ended; `name` is MODULE::TEST[PARAMETERS], without the folder of the module."""

    name: str
    passed: bool


def not_passed(names: Iterable[str], reports: Iterable[Path]) -> list[str]:
    """The named tests that the reports do not have as passed; of a whole file or all parameters every test counts."""
    results = list(results_in(reports))
    return [name for name in names if not _passed(name, results)]


def _passed(test: str, results: list[CaseResult]) -> bool:
    meant = [each.passed for each in results if each.name == test or each.name.startswith((f"{test}::", f"{test}["))]
    return bool(meant) and all(meant)


def results_in(reports: Iterable[Path]) -> Iterator[CaseResult]:
    for report in reports:
        for case in ET.parse(report).iter("testcase"):  # noqa: S314 - pytest wrote it a moment ago
            name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
            yield CaseResult(name, not {each.tag for each in case} & _NOT_PASSED)
