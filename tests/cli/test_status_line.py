"""What a command writes to a terminal before its answer is there."""

import io
import threading

import pytest
from dra_extender.cli import answers
from dra_extender.cli.answers import status_line
from dra_extender.cli.app import plugin_main

from tests.support.inspection.example_snapshot import FILE

SECONDS = 10
"""How long a test waits for a thread at most."""


class Terminal(io.StringIO):
    """A terminal that says when it shows a text."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        with self._changed:
            written = super().write(text)
            self._changed.notify_all()
        return written

    def shows(self, text: str) -> bool:
        """Wait until the text was written; return False if it is not written in time."""
        with self._changed:
            return self._changed.wait_for(lambda: text in self.getvalue(), SECONDS)


def _terminal(monkeypatch: pytest.MonkeyPatch, *, seconds: float) -> Terminal:
    """Return what stands for standard error; the line is written anew after so many seconds."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(answers, "_STATUS_SECONDS", seconds)
    return terminal


def test_status_is_written_with_how_far_the_work_is_and_wiped(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _terminal(monkeypatch, seconds=0.001)
    with status_line("what-if") as count:
        assert terminal.shows("\rwhat-if")
        count(1, 9)
        assert terminal.shows("\rwhat-if: 1 of 9 pods")
    assert terminal.getvalue().endswith("\r" + " " * len("what-if: 1 of 9 pods") + "\r")


def test_block_that_ends_at_once_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _terminal(monkeypatch, seconds=600.0)
    with status_line("reading the cluster"):
        pass
    assert not terminal.getvalue()


def test_nothing_is_written_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _terminal(monkeypatch, seconds=0.001)
    monkeypatch.setattr(terminal, "isatty", lambda: False)
    with status_line("what-if") as count:
        count(1, 9)
    assert not terminal.getvalue()


def test_line_is_gone_before_an_error_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _terminal(monkeypatch, seconds=0.001)

    def fail() -> None:
        with status_line("reading"):
            assert terminal.shows("\rreading")
            raise ValueError("unread")

    with pytest.raises(ValueError, match="unread"):
        fail()
    assert terminal.getvalue().endswith("\r" + " " * len("reading") + "\r")


@pytest.mark.parametrize(
    ("question", "error"),
    [
        (("nobody",), "error: pod ml/nobody"),
        (("train-7", "--node", "nowhere"), "error: node nowhere"),
        (("--policy", "/no/such/file"), "error: policy file /no/such/file"),
    ],
)
def test_error_of_a_question_is_written_when_the_line_is_gone(
    monkeypatch: pytest.MonkeyPatch, question: tuple[str, ...], error: str
) -> None:
    terminal = _terminal(monkeypatch, seconds=0.0)
    monkeypatch.setattr("sys.argv", ["kubectl-dra", "why", *question, "-n", "ml", "--snapshot", str(FILE)])
    with pytest.raises(SystemExit):
        plugin_main()
    *_, last = terminal.getvalue().split("\r")
    assert last.startswith(error)
    assert last.endswith("\n")
