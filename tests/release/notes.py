"""The notes of a release: `python -m tests.release.notes VERSION` prints what the changelog says of the version."""

import re
import sys
from pathlib import Path
from typing import Final

CHANGELOG: Final = Path(__file__).parents[2] / "CHANGELOG.md"


def notes(changelog: str, version: str) -> str:
    """The section of a version, without its heading.

    Raises:
        ValueError: the changelog has no section for it, or an empty one.
    """
    found = re.search(rf"^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## \[|\Z)", changelog, re.DOTALL | re.MULTILINE)
    if found is None or not found[1].strip():
        raise ValueError(f"CHANGELOG.md says nothing of version {version}: give the section Unreleased that name")
    return found[1].strip() + "\n"


if __name__ == "__main__":
    try:
        sys.stdout.write(notes(CHANGELOG.read_text(), sys.argv[1]))
    except ValueError as error:
        sys.exit(str(error))
