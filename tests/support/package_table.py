"""The table of packages in docs/architecture.md, made from docstrings: `python -m tests.support.package_table` writes it."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "app" / "dra_extender"
DOCUMENT: Final = ROOT / "docs" / "architecture.md"
_BEGIN: Final = "<!-- packages -->\n"
_END: Final = "<!-- end of packages -->"


def package_table() -> str:
    """One row per package: its path below `dra_extender` and the first sentence of its docstring."""
    rows = (f"| {name} | {sentence} |" for name, sentence in _packages())
    return "\n".join(("| package | what it is for |", "|---|---|", *rows, ""))


def table_in_document() -> str:
    """The table as the document has it."""
    return DOCUMENT.read_text().partition(_BEGIN)[2].partition(_END)[0]


def _packages() -> Iterator[tuple[str, str]]:
    for file in sorted(PACKAGE.rglob("__init__.py"), key=lambda path: path.parent.parts):
        name = file.parent.relative_to(PACKAGE).as_posix()
        if name != ".":
            text = ast.get_docstring(ast.parse(file.read_text())) or ""
            sentence = re.split(r"(?<=\.)\s|\n\n", text, maxsplit=1)[0].replace("\n", " ")
            sentence = re.sub(r"`(\w+)\.(\w+)`", r"`\1/\2`", sentence)
            yield (f"`{name}`" if "/" in name else f"**`{name}`**"), sentence


def main() -> int:
    """Write the table into the document."""
    before, _, rest = DOCUMENT.read_text().partition(_BEGIN)
    DOCUMENT.write_text(f"{before}{_BEGIN}{package_table()}{_END}{rest.partition(_END)[2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
