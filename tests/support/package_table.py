"""The table of packages in docs/architecture.md, made from docstrings."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "app" / "dra_extender"
DOCUMENT: Final = ROOT / "docs" / "architecture.md"


def table() -> str:
    """One row per package: its path below `dra_extender` and the first sentence of its docstring."""
    rows = (f"| {name} | {sentence} |" for name, sentence in _packages())
    return "\n".join(("| package | what it is for |", "|---|---|", *rows, ""))


def _packages() -> Iterator[tuple[str, str]]:
    for file in sorted(PACKAGE.rglob("__init__.py"), key=lambda path: path.parent.parts):
        name = file.parent.relative_to(PACKAGE).as_posix()
        if name != ".":
            text = ast.get_docstring(ast.parse(file.read_text())) or ""
            sentence = re.split(r"(?<=\.)\s|\n\n", text, maxsplit=1)[0].replace("\n", " ")
            sentence = re.sub(r"`(\w+)\.(\w+)`", r"`\1/\2`", sentence)
            yield (f"`{name}`" if "/" in name else f"**`{name}`**"), sentence
