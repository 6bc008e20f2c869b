"""Files that a command line names, `-` for standard input among them."""

import io
import sys
from pathlib import Path

import pytest
from dra_extender.manifests.files import STDIN, files_in, opened, read_text, title


def stdin_of(data: bytes) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(data))


def test_standard_input_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", stdin_of("é".encode()))
    assert (title(STDIN), files_in(STDIN), read_text(STDIN)) == ("standard input", [STDIN], "é")
    with pytest.raises(OSError, match="it is named twice"):
        read_text(STDIN)
    monkeypatch.setattr(sys, "stdin", stdin_of(b"another"))
    assert read_text(STDIN) == "another"


def test_standard_input_that_is_closed_is_a_file_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(OSError, match="it is closed"), opened(STDIN):
        pass


def test_folder_has_its_manifests_by_name(tmp_path: Path) -> None:
    for name in ("b.yml", "a.yaml", "c.json"):
        (tmp_path / name).write_text(name)
    assert [title(file) for file in files_in(tmp_path)] == [str(tmp_path / "a.yaml"), str(tmp_path / "b.yml")]
    assert files_in(tmp_path / "none.yaml") == [tmp_path / "none.yaml"]
