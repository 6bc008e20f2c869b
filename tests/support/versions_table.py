"""The end-to-end tests that docs/versions.md names for what works with each release of the API server.

`python -m tests.support.versions_table REPORT...` ends with status 1 if one of them is not among the passed tests of these JUnit
reports.
"""

import re
import sys
from pathlib import Path
from typing import Final

from tests.support.junit import not_passed

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "versions.md"
_TEST: Final = re.compile(
    r"^\| \d+ \| `tests/e2e/(\w+)\.py`(?:, all of its tests|::(\w+)(?:, (.+))?) \|$", re.MULTILINE
)


def named_tests() -> tuple[str, ...]:
    """FILE, FILE::TEST or FILE::TEST[PARAMETERS] of each test of the list, in its order."""
    return tuple(
        file + (f"::{test}" if test else "") + (f"[{parameters}]" if parameters else "")
        for file, test, parameters in _TEST.findall(DOCUMENT.read_text())
    )


def main(reports: list[str]) -> int:
    """Compare the list with JUnit reports."""
    lost = not_passed(named_tests(), map(Path, reports))
    sys.stderr.writelines(f"docs/versions.md names a test that did not pass: {test}\n" for test in lost)
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
