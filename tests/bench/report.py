from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from tests.bench.rows import Row


def show(rows: Iterable[Row], console: Console) -> None:
    """The rows as a table, and what else was measured about each below it."""
    rows = list(rows)
    table = Table(title="ours against a peer, side by side in this run")
    for name in ("area", "case", "unit", "peer"):
        table.add_column(name)
    for name in ("ours", "peer's", "ratio", "over the rounds", "goal"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            row.area,
            row.case,
            row.unit,
            row.peer_name,
            f"{row.ours:g}",
            f"{row.peer:g}",
            f"{row.ratio:.3g}",
            f"{row.lowest:.3g} to {row.highest:.3g} ({row.rounds})",
            verdict(row),
        )
    console.print(table)
    for row in rows:
        if row.details:
            told = ", ".join(f"{name} {value:g}" for name, value in row.details.items())
            console.print(f"{row.area}: {row.case}, {row.peer_name}: {told}", soft_wrap=True)


def verdict(row: Row) -> str:
    """The goal and whether it was met."""
    return "none" if row.goal is None else f"{row.goal} {'met' if row.met else 'MISSED'}"
