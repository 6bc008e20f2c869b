"""The table of docs/comparison.md about real nodes: the document has it, and each row is played."""

from tests.node.test_node_comparison import PLAYS
from tests.support.node.comparison import DOCUMENT, ROWS, table


def test_the_document_has_the_table() -> None:
    """If it fails: `python -m tests.support.node.comparison`."""
    assert DOCUMENT.read_text().endswith(f"\n{table()}")


def test_each_row_is_played() -> None:
    assert PLAYS.keys() == ROWS.keys()
