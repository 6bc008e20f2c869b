"""The licenses of what is shipped beside our own code: `python -m tests.release.licenses` prints the texts of all of them.

What is shipped is what requirements.lock installs on this platform.  Each package has to be under a license that lets us ship it
under ours, and has to bring its text.
"""

import importlib.metadata
import os
import re
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageMetadata
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from packaging.markers import Marker

ROOT: Final = Path(__file__).parents[2]
PERMITTED: Final = frozenset(
    {"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MIT-0", "MPL-2.0", "PSF-2.0"}
)
"""SPDX identifiers.  MPL-2.0 binds changed files of the package itself, and we change none."""
ALSO_CALLED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Apache 2.0": "Apache-2.0",
        "Apache Software License": "Apache-2.0",
        "BSD License": "BSD-3-Clause",
        "ISC License": "ISC",
        "MIT License": "MIT",
        "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
        "Python Software Foundation License": "PSF-2.0",
    }
)
_RULE: Final = "=" * 100


class Shipped(NamedTuple):
    """A package with its licenses (SPDX identifiers where they are known) and their texts."""

    name: str
    version: str
    licenses: frozenset[str]
    texts: tuple[str, ...]


class LicenseError(Exception):
    """A package may not be shipped, or not without a text that it does not bring."""


def shipped() -> list[Shipped]:
    """The packages of requirements.lock that this platform installs.

    Raises:
        LicenseError: a license is not among the permitted ones, or its text is missing; all such packages are named.
        PackageNotFoundError: the environment of this program lacks a package.
    """
    return checked([_shipped(name) for name in locked()])


def checked(found: list[Shipped]) -> list[Shipped]:
    """The packages, if all may be shipped; LicenseError as above."""
    wrong = [f"{each.name}: {', '.join(sorted(each.licenses))}" for each in found if not each.licenses <= PERMITTED]
    wrong += [f"{each.name}: no text of its license" for each in found if not each.texts]
    if wrong:
        raise LicenseError("these packages cannot be shipped: " + "; ".join(wrong))
    return found


def text() -> str:
    """Names, versions, licenses and texts of all packages, and of Python."""
    parts = [f"{each.name} {each.version} ({', '.join(sorted(each.licenses))})" for each in shipped()]
    bodies = ["\n\n".join(each.texts) for each in shipped()]
    parts.append(f"Python {sys.version.split()[0]} (PSF-2.0)")
    bodies.append(_license_of_python())
    return "".join(f"{_RULE}\n{head}\n{_RULE}\n\n{body.strip()}\n\n" for head, body in zip(parts, bodies, strict=True))


def locked() -> Iterator[str]:
    """Names of the packages that requirements.lock installs here."""
    lines = re.findall(r"^([a-z][\w.-]*)==\S+(?: ; (.+?))? \\$", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    return (name for name, condition in lines if not condition or Marker(condition).evaluate())


def _shipped(name: str) -> Shipped:
    package = importlib.metadata.distribution(name)
    told = package.metadata
    named = re.split(r"\s+(?:AND|OR)\s+", _field(told, "License-Expression") or _field(told, "License"))
    if named == [""]:
        named = [
            each.rpartition("::")[2].strip() for each in told.get_all("Classifier", []) if each.startswith("License ")
        ]
    licenses = frozenset(ALSO_CALLED.get(each.strip("() "), each) for each in named) or {"none named"}
    files = [each for each in package.files or () if re.match(r"(licen[cs]e|copying|notice)", each.name, re.IGNORECASE)]
    texts = tuple(each.read_text() for each in files if ".dist-info" in str(each.parent))
    return Shipped(name, package.version, frozenset(licenses), texts)


def _field(told: PackageMetadata, name: str) -> str:
    found: list[str] = told.get_all(name) or [""]
    return found[0]


def _license_of_python() -> str:
    candidates = [Path(os.__file__).parent / "LICENSE.txt", Path(sys.base_prefix) / "LICENSE.txt"]
    for each in candidates:
        if each.exists():
            return each.read_text(encoding="utf-8")
    raise LicenseError(f"the license of Python is not where it is installed: {candidates}")


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    sys.stdout.write(text())
