"""The table of docs/start/comparison.md about real nodes: the document has it, and each row is played."""

from tests.node.test_node_comparison import PLAYS
from tests.support.node.comparison import ROWS


def test_each_row_is_played() -> None:
    assert PLAYS.keys() == ROWS.keys()
