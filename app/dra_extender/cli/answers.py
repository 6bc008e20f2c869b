"""How an answer is printed: its formats, the width of its lines, where its facts come from, and what the exit status says.

Nothing here imports what an answer is made of before there is one, so that help and completion take no time.
"""

import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol, TypeVar

import typer

from dra_extender.cli.color import painted

if TYPE_CHECKING:
    from dra_extender.inspection.objects import Origin

WIDTH: Final = 80
"""Columns of a line where no terminal says how many it has."""
_LEAST_WIDTH: Final = 40
_MOST_DIGITS: Final = 5
_STATUS_SECONDS: Final = 0.3
_TIME_FIELDS: Final = frozenset({"origin", "age", "until"})
_FENCE: Final = "```"
_LONGEST_ERROR: Final = 4_000


class ExitStatus(IntEnum):
    """The exit status of a command; see EXIT_STATUSES."""

    ANSWERED = 0
    NEGATIVE = 1
    UNKNOWN = 2


class CommandError(typer.TyperException):
    """An error that ends the program; the program prints the message and ends with this exit status."""

    def __init__(self, problem: Exception | str, status: ExitStatus) -> None:
        super().__init__(str(problem))
        self.exit_code = status


class ProgramFormat(StrEnum):
    """Text for people, JSON for programs."""

    TEXT = "text"
    JSON = "json"


class AnswerFormat(StrEnum):
    """A tree for people, Markdown for issues and chats, JSON and YAML for programs."""

    TREE = "tree"
    JSON = "json"
    YAML = "yaml"
    MARKDOWN = "markdown"


class TableFormat(StrEnum):
    """As AnswerFormat, and tables: wide for people, CSV for spreadsheets."""

    TREE = "tree"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    MARKDOWN = "markdown"
    CSV = "csv"


Output = Annotated[AnswerFormat, typer.Option("--output", "-o", help="Format of the answer.")]
TableOutput = Annotated[TableFormat, typer.Option("--output", "-o", help="Format of the answer.")]


class Answer(Protocol):
    """A report as msgspec encodes it, with where its facts come from."""

    @property
    def origin(self) -> "Origin":
        """Return where the objects come from and when they were read."""
        ...


R = TypeVar("R", bound=Answer)


@contextmanager
def status_line(doing: str) -> Iterator[Callable[[int, int], None]]:
    """Say on a terminal what the command is doing until the block ends; a block that ends at once writes nothing.

    Give a function that adds how many of how many pods are evaluated.
    """
    text, longest, ended_block = doing, 0, threading.Event()

    def count(evaluated: int, total: int) -> None:
        nonlocal text
        text = f"{doing}: {evaluated} of {total} pods"

    def keep_writing() -> None:
        nonlocal longest
        while not ended_block.wait(_STATUS_SECONDS):
            longest = max(longest, len(text))
            sys.stderr.write(f"\r{text}")
            sys.stderr.flush()

    if not sys.stderr.isatty():
        yield count
        return
    writer = threading.Thread(target=keep_writing, daemon=True)
    writer.start()
    try:
        yield count
    finally:
        ended_block.set()
        writer.join()
        sys.stderr.write(f"\r{' ' * longest}\r" if longest else "")


def width() -> int:
    """Return the columns that $COLUMNS names, else those of the terminal; 80 if the output goes elsewhere."""
    named = os.environ.get("COLUMNS", "")[:_MOST_DIGITS]
    if named.isdecimal() and int(named):
        return max(_LEAST_WIDTH, int(named))
    return max(_LEAST_WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns) if sys.stdout.isatty() else WIDTH


class ChangedAnswers:
    """Prints answers one after the other; leaves out an answer that differs from the one before only in its times."""

    def __init__(self, output: AnswerFormat) -> None:
        self._output = output
        self._last: object = None

    def print(self, report: R, as_tree: Callable[[R, int], str]) -> None:
        """Print the answer if it says something new; a blank line (in YAML `---`) stands before each but the first."""
        content = _without_times(_plain(report))
        if content == self._last:
            return
        if self._last is not None:
            sys.stdout.write("---\n" if self._output is AnswerFormat.YAML else "\n")
        self._last = content
        print_answer(report, self._output, as_tree)
        sys.stdout.flush()


def _plain(report: Answer) -> Any:
    import msgspec

    from dra_extender.model.metadata import encoded_moment

    return msgspec.to_builtins(report, str_keys=True, enc_hook=encoded_moment)


def _without_times(value: object) -> object:
    """Return the value without source, time of reading and ages."""
    if isinstance(value, dict):
        return {name: _without_times(part) for name, part in value.items() if name not in _TIME_FIELDS}
    if isinstance(value, list | tuple):
        return [_without_times(item) for item in value]
    return value


def print_answer(report: R, output: AnswerFormat, as_tree: Callable[[R, int], str]) -> None:
    """Print a report in a format; `as_tree` lays it out for so many columns.

    Trees and Markdown end with where the facts come from; JSON and YAML have that in the report.
    """
    import msgspec

    from dra_extender.inspection.lines import answer_text, origin_lines
    from dra_extender.model.metadata import encoded_moment

    if output is AnswerFormat.JSON:
        text = msgspec.json.format(msgspec.json.encode(report, enc_hook=encoded_moment)).decode()
        sys.stdout.write(answer_text(text.split("\n")))
        return
    if output is AnswerFormat.YAML:
        sys.stdout.write(_yaml(report))
        return
    columns = width() if output is AnswerFormat.TREE else WIDTH
    text = as_tree(report, columns) + "\n" + "".join(f"{line}\n" for line in origin_lines(report.origin, columns))
    sys.stdout.write(painted(text) if output is AnswerFormat.TREE else as_markdown(text))


def print_table(
    report: R, output: TableFormat, tree: Callable[[R], str], wide: Callable[[R], str], csv: Callable[[R], str]
) -> None:
    """Print a report that is a table too; CSV has nothing but the table."""
    if output is TableFormat.CSV:
        sys.stdout.write(csv(report))
    elif output is TableFormat.WIDE:
        print_answer(report, AnswerFormat.TREE, lambda report, _: wide(report))
    else:
        print_answer(report, AnswerFormat(output.value), lambda report, _: tree(report))


def as_markdown(text: str) -> str:
    """Return the lines of a tree as a heading and a fenced block, which nothing in the lines can end."""
    title, _, body = text.partition("\n")
    fence = _FENCE
    while fence in text:
        fence += "`"
    plain = title.translate({ord(mark): f"\\{mark}" for mark in r"\`*_[]<>#|"})
    return f"### {plain}\n\n{fence}text\n{body}{fence}\n"


def complain(text: str) -> None:
    """Print an error on one line as kubectl does; control characters are escapes, and what is endless is cut."""
    from dra_extender.model.api_json import printable

    line = printable(" ".join(text.split()))
    sys.stderr.write(f"error: {line if len(line) <= _LONGEST_ERROR else line[:_LONGEST_ERROR] + '...'}\n")


def _yaml(report: Answer) -> str:
    import yaml

    plain = _plain(report)
    text: str = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
    if text.replace("\n", "").isprintable():
        return text
    # What a terminal would obey is escaped, and so is every other character beyond ASCII.
    escaped: str = yaml.safe_dump(plain, sort_keys=False)
    return escaped
