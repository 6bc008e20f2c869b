import sys
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import typer

from dra_extender.simulator.scenario.answer import answer_line


def register(app: typer.Typer) -> None:
    """Add the command `answer`."""
    app.command("answer")(answer)


def answer() -> None:
    """Answer scenarios: one JSON object a line on standard input, one answer a line on standard output.

    A line that cannot be read gets an answer with an error; it does not end the run.  Exit status: 0 when all lines are answered.
    """
    _copy(sys.stdin.buffer, sys.stdout.buffer)


def answers(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The answers to these lines in the same order, each with its line end; blank lines are no questions."""
    for line in lines:
        if line.strip():
            yield answer_line(line) + b"\n"


def _copy(source: BinaryIO, sink: BinaryIO) -> None:
    try:
        for line in answers(source):
            sink.write(line)
            sink.flush()
    except BrokenPipeError:
        # The reader has closed the pipe; the interpreter must not complain about it at exit.
        sys.stdout = None
