"""Files that are made from the program are as it makes them now; `make generate` writes those that are stale."""

from pathlib import Path

import pytest

from tests.support.generate import FILES, ROOT, made_part, snapshot_is_stale


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_generated_file_is_as_the_program_makes_it(file: Path) -> None:
    assert file.read_text() == FILES[file](), "stale: run `make generate`"


def test_example_snapshot_is_as_the_program_makes_it() -> None:
    assert not snapshot_is_stale(), "stale: run `make generate`"


def test_a_document_without_its_mark_is_refused(tmp_path: Path) -> None:
    document = tmp_path / "document.md"
    document.write_text("words <!-- begin -->\nold")
    assert made_part(document, "<!-- begin -->\n", "new") == "words <!-- begin -->\n\nnew"
    with pytest.raises(ValueError, match=r"document\.md has no <!-- begin --> <!-- end -->"):
        made_part(document, "<!-- begin -->\n", "new", "<!-- end -->")
