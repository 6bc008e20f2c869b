"""What the documents show of a run is shown somewhere, and twice the same; tests/test_generated.py compares it with the program."""

from tests.support.inspection import example_snapshot
from tests.support.shown_runs import BESIDE, CAPTURED, CAPTURES, DOCUMENTS, ON_NODES, ROOT, runs_in


def test_documents_have_runs_and_show_every_capture() -> None:
    assert all(map(runs_in, DOCUMENTS))
    shown = "".join(document.read_text() for document in (ROOT / "docs").rglob("*.md"))
    captures = {file.name for file in CAPTURES.glob("*.svg")}
    assert [name for name in sorted(captures) if f"captures/{name}" not in shown] == []
    assert captures == {*CAPTURED, BESIDE, ON_NODES}


def test_the_example_snapshot_is_made_equal_twice() -> None:
    assert example_snapshot.packed() == example_snapshot.packed()
