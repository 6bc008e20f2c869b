"""Semantic versions as Kubernetes reads them: strict by default, lenient on request."""

import re
from functools import lru_cache
from typing import Final

import msgspec

from dra_extender.cel.values.integers import MAX_UINT

_STRICT: Final = re.compile(
    r"(0|[1-9][0-9]{0,19})\.(0|[1-9][0-9]{0,19})\.(0|[1-9][0-9]{0,19})(?:-([0-9A-Za-z.-]++))?+(?:\+([0-9A-Za-z.-]++))?+",
)
LONGEST_VERSION: Final = 4096
"""Characters of the longest text that is read."""
_KEPT_LENGTH: Final = 64
"""The most characters of a text whose version is cached."""
_PARTS: Final = 3
_NUMBERS: Final = frozenset("0123456789")

_Identifier = tuple[int, int, str]


class SemverError(ValueError):
    """A text that is no semantic version; the message is a sentence that quotes it."""


class Semver(msgspec.Struct, frozen=True, gc=False, eq=False):
    """A version; build metadata (`+...`) takes part in neither comparison nor equality."""

    text: str
    major: int
    minor: int
    patch: int
    key: tuple[int, int, int, int, tuple[_Identifier, ...]]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def parse_semver(text: str) -> Semver:
    """Read a strict semantic version: three numbers without leading zeros, then optionally `-prerelease` and `+build`."""
    return _cached(text) if len(text) <= _KEPT_LENGTH else _parsed(text)


def _parsed(text: str) -> Semver:
    match = _STRICT.fullmatch(text) if len(text) <= LONGEST_VERSION else None
    if match is None:
        raise SemverError(
            f"cannot read version {text[:60]!r}: expected MAJOR.MINOR.PATCH, as in 1.2.3 or 1.2.3-rc.1+build"
        )
    numbers = tuple(map(int, match.groups()[:_PARTS]))
    if max(numbers) > MAX_UINT:
        raise SemverError(f"cannot read version {text[:60]!r}: a number is above {MAX_UINT}")
    major, minor, patch = numbers
    prerelease = () if match[4] is None else tuple(_identifier(text, part) for part in match[4].split("."))
    if match[5] is not None and not all(match[5].split(".")):
        raise SemverError(f"cannot read version {text[:60]!r}: a build identifier is empty")
    return Semver(text, major, minor, patch, (major, minor, patch, 0 if prerelease else 1, prerelease))


_cached: Final = lru_cache(maxsize=4096)(_parsed)


def parse_lenient(text: str) -> Semver:
    """Read a version after normalising it: a leading `v` and leading zeros are dropped, missing numbers are 0.

    A shortened version with a pre-release or build part is an error all the same.
    """
    parts = [_without_zeros(part) for part in text.removeprefix("v").split(".", _PARTS - 1)]
    if len(parts) < _PARTS:
        if "-" in parts[-1] or "+" in parts[-1]:
            raise SemverError(
                f"cannot read version {text[:60]!r}: a shortened version has no pre-release or build part"
            )
        parts.extend(["0"] * (_PARTS - len(parts)))
    return parse_semver(".".join(parts))


def _without_zeros(part: str) -> str:
    if len(part) <= 1:
        return part
    trimmed = part.lstrip("0")
    return trimmed if trimmed and trimmed[0] in _NUMBERS else f"0{trimmed}"


def _identifier(text: str, part: str) -> _Identifier:
    """Order pre-release identifiers: numbers by value, before all others, which go by their characters."""
    if not part:
        raise SemverError(f"cannot read version {text[:60]!r}: a pre-release identifier is empty")
    if not part.isdigit():
        return (1, 0, part)
    if (part[0] == "0" and len(part) > 1) or int(part) > MAX_UINT:
        raise SemverError(f"cannot read version {text[:60]!r}: pre-release number {part[:30]!r} is out of form")
    return (0, int(part), "")
