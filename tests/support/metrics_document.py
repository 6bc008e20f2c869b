"""The table of docs/reference/metrics.md."""

from pathlib import Path
from typing import Final

from dra_extender.telemetry.metrics import DEFINITIONS

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


def table() -> str:
    """Return the metrics as a Markdown table, by name."""
    rows = ["| name | type | labels | meaning |", "|---|---|---|---|"]
    for metric in sorted(DEFINITIONS, key=lambda metric: metric.full_name):
        labels = ", ".join(f"`{label}`" for label in metric.labels) or "-"
        rows.append(f"| `{metric.full_name}` | {metric.kind} | {labels} | {metric.meaning} |")
    return "\n".join(rows) + "\n"
