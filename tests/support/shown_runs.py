"""What documents show of real runs: blocks in Markdown, and captures of a terminal as SVG.

`make generate` runs every shown command and writes what it prints.  A block follows the mark `<!-- run -->`,
and its first line is `$ ` and the command; it runs in the root of the repository, in a terminal of 80 columns.
"""

import contextlib
import re
import shlex
import textwrap
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final
from xml.sax.saxutils import escape

from dra_extender.cli.app import app
from typer.testing import CliRunner

ROOT: Final = Path(__file__).parents[2]
DOCUMENTS: Final = (
    "README.md",
    "docs/operate/audit.md",
    "docs/tasks/why.md",
    "docs/tasks/what-if.md",
    "docs/tasks/defrag.md",
)
CAPTURES: Final = ROOT / "docs" / "captures"
IN_TREE_WORDS: Final = CAPTURES / "in-tree.txt"
"""What the in-tree scheduler says of the pod of the first capture; `tests/e2e/test_e2e_shown_words.py` asks a real one."""
REAL_NODES: Final = CAPTURES / "real-nodes.txt"
"""What `make demo-node` shows on real nodes; `tests/node/test_node_demo.py` tells the story again."""
FRAGMENTED: Final = "--snapshot deploy/examples/snapshots/fragmented.tar.gz"
CAPTURED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "why.svg": f"dra-extender why infer-1 -n ml {FRAGMENTED}",
        "devices.svg": f"dra-extender devices node-6 {FRAGMENTED}",
    }
)
"""The captures, by file: which command each of them shows."""

BESIDE: Final = "beside.svg"
"""The capture that shows both schedulers' words about one pod."""
ON_NODES: Final = "real-nodes.svg"
"""The capture of `make demo-node`."""
_BLOCK: Final = re.compile(r"(<!-- run -->\n```console\n\$ )([^\n]+)\n(.*?)(```\n)", re.DOTALL)
_PROGRAM: Final = re.compile(r"(\.venv/bin/|uvx --from \. )?(dra-extender|kubectl-dra|kubectl dra) ")
_COMMAND: Final = ' class="command"'
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
    return _terminal(f"What `{command}` prints", [f"$ {command}", *run(command).splitlines()], {0})


def in_tree_words() -> str:
    """What the in-tree scheduler says of the pod of the first capture."""
    return IN_TREE_WORDS.read_text().strip()


def beside() -> str:
    """The words of the in-tree scheduler about a pod, and below them the first lines of `why` about the same pod, as SVG."""
    words = textwrap.wrap(in_tree_words(), 76)
    above = ["$ kubectl describe pod infer-1 -n ml | tail -n 1", *(f"  {line}" for line in words)]
    found = run(CAPTURED["why.svg"]).partition("\n\n")[0].splitlines()
    below = ["$ kubectl dra why infer-1 -n ml", *found]
    title = "The same pending pod in the words of the in-tree scheduler and of kubectl dra why"
    return _terminal(title, [*above, "", *below], {0, len(above) + 1})


def on_nodes() -> str:
    """What `make demo-node` shows, as SVG."""
    lines = REAL_NODES.read_text().splitlines()
    commands = {number for number, line in enumerate(lines) if line.startswith("$ ")}
    return _terminal("Pods on real nodes print the devices that they were given", lines, commands)


def _terminal(title: str, lines: list[str], commands: set[int]) -> str:
    width, height = max(map(len, lines)) * _CHARACTER + 24, len(lines) * _LINE + 24
    label = escape(title)
    texts = "\n".join(
        f'<text x="12" y="{12 + _LINE * number - 5}"{_COMMAND if number - 1 in commands else ""}'
        f' xml:space="preserve">{escape(line)}</text>'
        for number, line in enumerate(lines, 1)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" width="{width:g}" role="img" '
        f'aria-label="{label}">\n<title>{label}</title>\n<style>{_STYLE}</style>\n'
        f'<rect x="0.5" y="0.5" width="{width - 1:g}" height="{height - 1}" rx="6"/>\n{texts}\n</svg>\n'
    )
