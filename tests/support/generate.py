"""Files that are made from the program: `make generate` writes them, and tests/test_generated.py names those that are stale.

What needs more than Python is made apart: `tests.support.chart.kubernetes_types` reads Go modules, `make ui-test SCREENSHOTS=1`
needs a browser, `make demo-node CAPTURE=1` real nodes, `python -m tests.simulation --planted --write` hours.
"""

import gzip
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tests.support import (
    commands_document,
    known_fields,
    reference_tables,
    report_schemas,
    shown_runs,
)
from tests.support.chart import values_schema
from tests.support.inspection import example_snapshot
from tests.support.node import comparison

ROOT: Final = Path(__file__).parents[2]


def made_part(document: Path, begin: str, text: str, end: str = "") -> str:
    """Return the document with this text in place of what stands between the two marks; without `end`, up to its end.

    Raises:
        ValueError: the document does not have a mark.
    """
    before, found, rest = document.read_text().partition(begin)
    _, closed, after = rest.partition(end) if end else ("", begin, "")
    if not found or not closed:
        raise ValueError(f"{document.name} has no {begin.strip()} {end}")
    return f"{before}{begin}\n{text}{end}{after}"


FILES: Final[Mapping[Path, Callable[[], str]]] = MappingProxyType(
    {
        known_fields.FILE: known_fields.text,
        values_schema.SCHEMA: values_schema.schema_text,
        values_schema.DOCUMENT: lambda: made_part(values_schema.DOCUMENT, "<!-- values -->\n", values_schema.table()),
        commands_document.DOCUMENT: commands_document.document,
        reference_tables.SETTINGS: lambda: made_part(
            reference_tables.SETTINGS, "<!-- tables -->\n", reference_tables.settings_tables()
        ),
        reference_tables.METRICS: lambda: made_part(
            reference_tables.METRICS, "<!-- metrics -->\n", reference_tables.metrics_table()
        ),
        reference_tables.ARCHITECTURE: lambda: made_part(
            reference_tables.ARCHITECTURE,
            "<!-- packages -->\n",
            reference_tables.packages_table(),
            "<!-- end of packages -->",
        ),
        comparison.DOCUMENT: lambda: made_part(comparison.DOCUMENT, "<!-- real nodes -->\n", comparison.table()),
        **{report_schemas.file_of(name): partial(report_schemas.text, name) for name in report_schemas.REPORTS},
        **{ROOT / document: partial(shown_runs.rerun, document) for document in shown_runs.DOCUMENTS},
        **{
            shown_runs.CAPTURES / name: partial(shown_runs.capture, command)
            for name, command in shown_runs.CAPTURED.items()
        },
        shown_runs.CAPTURES / shown_runs.BESIDE: shown_runs.beside,
        shown_runs.CAPTURES / shown_runs.ON_NODES: shown_runs.on_nodes,
    }
)
"""Each file, and what makes its text."""


def snapshot_is_stale() -> bool:
    """Return whether the example snapshot is another one than is made now; compressors differ, so its content is compared."""
    stored, made = example_snapshot.FILE, example_snapshot.packed()
    return not stored.exists() or gzip.decompress(stored.read_bytes()) != gzip.decompress(made)


def main() -> int:
    """Write the files that are stale, and name them."""
    # Shown commands read the snapshot.
    if snapshot_is_stale():
        example_snapshot.write()
        print(example_snapshot.FILE.relative_to(ROOT))
    for file, make in FILES.items():
        text = make()
        if not file.exists() or file.read_text() != text:
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
            print(file.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
