"""The notes of a release are the section of the changelog."""

import pytest

from tests.release.notes import CHANGELOG, notes

LOG = "# Changelog\n\n## [Unreleased]\n\n* later\n\n## [1.10.0] - 2026-01-02\n\n### Added\n\n* this\n\n## [1.1.0]\n\n* that\n"


def test_notes_are_the_section_of_the_version_alone() -> None:
    assert notes(LOG, "1.10.0") == "### Added\n\n* this\n"
    assert notes(LOG, "1.1.0") == "* that\n"


@pytest.mark.parametrize("version", ["1.1", "2.0.0", "1x10.0"])
def test_version_without_a_section_is_an_error_that_says_what_to_do(version: str) -> None:
    with pytest.raises(ValueError, match=r"says nothing of version .*Unreleased"):
        notes(LOG, version)


def test_changelog_has_a_section_to_be_named() -> None:
    assert notes(CHANGELOG.read_text(), "Unreleased")
