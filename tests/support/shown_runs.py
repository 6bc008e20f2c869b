"""What documents show of real runs: blocks in Markdown, and captures of a terminal as SVG.

`python -m tests.support.shown_runs` runs every shown command and writes what it prints.  A block follows the mark `<!-- run -->`,
and its first line is `$ ` and the command; it runs in the root of the repository, in a terminal of 80 columns.
"""

import contextlib
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final
from xml.sax.saxutils import escape

from dra_extender.cli.app import app
from typer.testing import CliRunner

ROOT: Final = Path(__file__).parents[2]
DOCUMENTS: Final = ("README.md", "docs/audit.md", "docs/inspection.md", "docs/what-if.md")
CAPTURES: Final = ROOT / "docs" / "captures"
FRAGMENTED: Final = "--snapshot deploy/examples/snapshots/fragmented.tar.gz"
CAPTURED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "why.svg": f"dra-extender why infer-1 -n ml {FRAGMENTED}",
        "devices.svg": f"dra-extender devices node-6 {FRAGMENTED}",
    }
)
"""The captures, by file: which command each of them shows."""

_BLOCK: Final = re.compile(r"(<!-- run -->\n```console\n\$ )([^\n]+)\n(.*?)(```\n)", re.DOTALL)
_PROGRAM: Final = re.compile(r"(\.venv/bin/)?(dra-extender|kubectl-dra|kubectl dra) ")
_CHARACTER: Final = 8.4
_LINE: Final = 19
_STYLE: Final = (
    "text{font:14px ui-monospace,Menlo,Consolas,monospace;fill:#1f2328;white-space:pre}rect{fill:#f6f8fa;stroke:#d1d9e0}"
    ".command{font-weight:bold}"
    "@media(prefers-color-scheme:dark){text{fill:#f0f6fc}rect{fill:#151b23;stroke:#3d444d}}"
)


def run(command: str) -> str:
    """What a command of the program prints in the root of the repository."""
    arguments = shlex.split(_PROGRAM.sub("", command, count=1))
    with contextlib.chdir(ROOT):
        return CliRunner().invoke(app, arguments, env={"COLUMNS": "80"}).output


def rerun(document: str) -> str:
    """The text of a document with every shown run as it is now."""
    return _BLOCK.sub(lambda found: f"{found[1]}{found[2]}\n{run(found[2])}{found[4]}", (ROOT / document).read_text())


def runs_in(document: str) -> list[str]:
    """The commands that a document shows."""
    return [found[2] for found in _BLOCK.finditer((ROOT / document).read_text())]


def capture(command: str) -> str:
    """A terminal with the command and what it prints, as SVG."""
    lines = [f"$ {command}", *run(command).splitlines()]
    width, height = max(map(len, lines)) * _CHARACTER + 24, len(lines) * _LINE + 24
    title = escape(f"What `{command}` prints")
    texts = "\n".join(
        f'<text x="12" y="{12 + _LINE * number - 5}"{" class=" + chr(34) + "command" + chr(34) if number == 1 else ""}'
        f' xml:space="preserve">{escape(line)}</text>'
        for number, line in enumerate(lines, 1)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" width="{width:g}" role="img" '
        f'aria-label="{title}">\n<title>{title}</title>\n<style>{_STYLE}</style>\n'
        f'<rect x="0.5" y="0.5" width="{width - 1:g}" height="{height - 1}" rx="6"/>\n{texts}\n</svg>\n'
    )


def write() -> None:
    """Write all documents and captures anew."""
    for document in DOCUMENTS:
        (ROOT / document).write_text(rerun(document))
    CAPTURES.mkdir(exist_ok=True)
    for name, command in CAPTURED.items():
        (CAPTURES / name).write_text(capture(command))


if __name__ == "__main__":
    write()
