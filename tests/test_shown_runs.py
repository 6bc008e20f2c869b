"""What the documents show of a run is what the program prints; `python -m tests.support.shown_runs` writes it there."""

import gzip
from collections.abc import Callable

import pytest

from tests.support.inspection import example_snapshot
from tests.support.shown_runs import (
    BESIDE,
    CAPTURED,
    CAPTURES,
    DOCUMENTS,
    ON_NODES,
    ROOT,
    beside,
    capture,
    on_nodes,
    rerun,
    runs_in,
)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_runs_in_documents_are_what_the_program_prints(document: str) -> None:
    assert runs_in(document)
    assert (ROOT / document).read_text() == rerun(document)


@pytest.mark.parametrize("name", CAPTURED)
def test_captures_of_the_terminal_are_what_the_program_prints(name: str) -> None:
    assert (CAPTURES / name).read_text() == capture(CAPTURED[name])


def test_the_capture_of_both_schedulers_words_is_what_they_say() -> None:
    """A real in-tree scheduler is asked in tests/e2e/test_e2e_shown_words.py."""
    assert (CAPTURES / BESIDE).read_text() == beside()


def test_the_capture_of_real_nodes_is_what_was_shown_there() -> None:
    """The story is told again on real nodes by tests/node/test_node_demo.py."""
    assert (CAPTURES / ON_NODES).read_text() == on_nodes()


def test_every_capture_is_shown_in_a_document() -> None:
    shown = "".join((ROOT / each).read_text() for each in DOCUMENTS)
    captures = {each.name for each in CAPTURES.glob("*.svg")}
    assert [each for each in sorted(captures) if f"captures/{each}" not in shown] == []
    assert captures == {*CAPTURED, BESIDE, ON_NODES}


def test_example_snapshot_is_what_its_script_makes() -> None:
    """Compressors differ, so the unpacked bytes are compared."""
    unpacked: Callable[[bytes], bytes] = gzip.decompress
    assert unpacked(example_snapshot.FILE.read_bytes()) == unpacked(example_snapshot.packed())
    assert example_snapshot.packed() == example_snapshot.packed()
