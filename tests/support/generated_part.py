"""The end of a document that a program makes: whatever stands behind a mark."""

from pathlib import Path


def replace_behind(document: Path, mark: str, text: str) -> None:
    """Put the text behind the mark, in place of what stood there.

    Raises:
        ValueError: the document does not have the mark.
    """
    words, found, _ = document.read_text().partition(mark)
    if not found:
        raise ValueError(f"{document.name} has no {mark.strip()}")
    document.write_text(f"{words}{mark}\n{text}")
