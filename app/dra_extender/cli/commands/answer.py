import sys
from typing import BinaryIO, Final

from dra_extender.cli.answers import CommandError, ExitStatus
from dra_extender.manifests.files import STDIN, opened, title
from dra_extender.simulator.scenario import answers

EXAMPLES: Final = (
    "PROGRAM answer < scenarios.jsonl",
    "PROGRAM answer < scenarios.jsonl > answers.jsonl",
)


def command() -> None:
    """Answer scenarios: one JSON object a line on standard input, one answer a line on standard output.

    A line that cannot be read gets an answer with an error; it does not end the run.
    """
    try:
        with opened(STDIN) as source:
            _copy(source, sys.stdout.buffer)
    except OSError as problem:
        raise CommandError(f"{title(STDIN)}: cannot be read: {problem.strerror}", ExitStatus.UNKNOWN) from problem


def _copy(source: BinaryIO, sink: BinaryIO) -> None:
    try:
        for line in answers(source):
            sink.write(line)
            sink.flush()
    except BrokenPipeError:
        # The reader has closed the pipe; the interpreter must not complain about it at exit.
        sys.stdout = None
