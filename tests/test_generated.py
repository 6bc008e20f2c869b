"""Files that are made from the program are as it makes them now; `make generate` writes those that are stale."""

from pathlib import Path

import pytest

from tests.support.generate import FILES, ROOT, snapshot_is_stale


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_generated_file_is_as_the_program_makes_it(file: Path) -> None:
    assert file.read_text() == FILES[file](), "stale: run `make generate`"


def test_example_snapshot_is_as_the_program_makes_it() -> None:
    assert not snapshot_is_stale(), "stale: run `make generate`"
