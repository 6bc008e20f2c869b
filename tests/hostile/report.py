"""The table of a part, and its findings."""

import json
import shlex
from collections.abc import Iterator
from typing import Final

from tests.hostile.verdicts import BROKEN, GROWN, NATIVE, STALL, Row, Tally

_TEXT: Final = 60
_COLUMNS: Final = (
    f"{'subject':44} {'runs':>6} {'of limit':>9} {'native':>9} {'stall':>9} {'grown':>9} {'us/unit':>8}  worst input"
)


def table(tally: Tally, most: int) -> Iterator[str]:
    """Lines for people."""
    rows = sorted(tally.rows.values(), key=lambda row: -row.ratio)
    yield _COLUMNS
    yield from (_line(row) for row in rows[:most])
    if len(rows) > most:
        yield f"... and {len(rows) - most} subjects that came less near to a limit"
    yield f"{tally.part}: {tally.executions} executions, {len(rows)} subjects, {len(tally.findings)} findings" + (
        f", {tally.unconfirmed} not confirmed in fresh processes" if tally.unconfirmed else ""
    )
    yield from tally.notes
    for finding in tally.findings:
        replay = f"--replay {shlex.quote(tally.module + ' ' + json.dumps(finding.job))}"
        yield from finding.lines(tally.seed, replay)


def _line(row: Row) -> str:
    values = [NATIVE.shown(row.worst.get("native", 0.0)), STALL.shown(row.worst.get("stall", 0.0))]
    values.append(GROWN.shown(row.worst.get("grown", 0.0)))
    broken = " BROKEN" if row.worst.get(BROKEN.name) else ""
    shown = row.text if len(row.text) <= _TEXT else f"{row.text[:_TEXT]}..."
    cells = " ".join(f"{each:>9}" for each in values)
    return f"{row.subject[:44]:44} {row.executions:>6} {row.ratio:>8.2f}x {cells} {row.dearest * 1e6:>8.2f}  {shown}{broken}"
