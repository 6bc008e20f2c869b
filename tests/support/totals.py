"""The closing line of `make test` and `make verify`: how many tests of all parts passed, by the reports that pytest wrote.

`python -m tests.support.totals REPORT...` exits with status 1 if a test failed or a report is missing, empty or unreadable.  What
was not tested comes before that line, with the reasons.
"""

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET


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
