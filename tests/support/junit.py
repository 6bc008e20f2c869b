"""JUnit reports: which tests of them ended how."""

import sys
from collections import Counter
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


class Totals(NamedTuple):
    """Results of tests; an error in the set-up or tear-down of a test counts as failed.  `reasons` are those of skipped tests."""

    passed: int
    failed: int
    skipped: int
    reasons: Counter[str]

    @property
    def line(self) -> str:
        """One line for people and for programs."""
        return f"{self.passed} passed, {self.failed} failed" + (f", {self.skipped} skipped" if self.skipped else "")


def totals(reports: Iterable[Path]) -> Totals:
    """Add up JUnit reports. Raises OSError, ParseError or ValueError for one that does not say how its tests ended."""
    passed = failed = skipped = 0
    reasons = Counter[str]()
    for report in reports:
        cases = list(ET.parse(report).iter("testcase"))  # noqa: S314 - pytest wrote it a moment ago
        if not cases:
            raise ValueError(f"{report} has no tests")
        for case in cases:
            ends = {end.tag for end in case}
            if ends & {"failure", "error"}:
                failed += 1
            elif "skipped" in ends:
                skipped += 1
                reasons.update(end.get("message", "no reason given") for end in case if end.tag == "skipped")
            else:
                passed += 1
    return Totals(passed, failed, skipped, reasons)


def main(arguments: list[str]) -> int:
    """Print the line of the reports."""
    try:
        found = totals(map(Path, arguments))
    except (OSError, ValueError, ET.ParseError) as error:
        sys.stderr.write(f"test: a part left no report of its tests: {error}\n")
        return 1
    for reason, times in sorted(found.reasons.items()):
        sys.stdout.write(f"NOT TESTED, {times} times: {reason}\n")
    sys.stdout.write(f"{found.line}\n")
    return 1 if found.failed or not found.passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
