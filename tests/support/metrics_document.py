"""The table of docs/reference/metrics.md."""

from pathlib import Path
from typing import Final

from dra_extender.telemetry.metrics import DEFINITIONS

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


def table() -> str:
    """Return the metrics as a Markdown table, by name; a metric with a second name has two rows."""
    named = {metric.full_name: (metric, metric.meaning) for metric in DEFINITIONS}
    named |= {
        metric.upstream_name: (metric, f"The same as `{metric.full_name}`") for metric in DEFINITIONS if metric.upstream
    }
    rows = ["| name | type | labels | meaning |", "|---|---|---|---|"]
    for name, (metric, meaning) in sorted(named.items()):
        labels = ", ".join(f"`{label}`" for label in metric.labels) or "-"
        rows.append(f"| `{name}` | {metric.kind} | {labels} | {meaning} |")
    return "\n".join(rows) + "\n"
