"""Says what `make ui-test` lacks, with how to get it; ends with status 1 if anything is missing.  Runs with any Python."""

import os
import shutil
import sys
from typing import Final

NEEDED: Final = {
    "chromium": "the browser: make ui-test-setup (Debian: apt-get install chromium), or CHROMIUM=path",
    "chromedriver": "which drives it: make ui-test-setup (Debian: apt-get install chromium-driver), or CHROMEDRIVER=path",
    "npm": "which fetches axe-core: install Node.js",
}


def main() -> int:
    """The exit status."""
    missing = {name: why for name, why in NEEDED.items() if find(name) is None}
    for name, why in missing.items():
        sys.stderr.write(f"ui-test: {name} is not installed; {why}\n")
    return 1 if missing else 0


def find(name: str) -> str | None:
    """Where a program is: what the variable of its name says, else what the path has."""
    return shutil.which(os.environ.get(name.upper(), name))


if __name__ == "__main__":
    sys.exit(main())
