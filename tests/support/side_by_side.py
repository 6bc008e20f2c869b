"""Rows of a table that one test carries out at the same time."""

import asyncio
from collections.abc import Coroutine, Mapping


async def side_by_side(rows: Mapping[str, Coroutine[object, object, object]]) -> None:
    """Carry out the rows at the same time and wait for all.

    Raises:
        ExceptionGroup: rows failed; each error is annotated with the name of its row.
    """
    outcomes = await asyncio.gather(*rows.values(), return_exceptions=True)
    failed = []
    for name, outcome in zip(rows, outcomes, strict=True):
        if isinstance(outcome, Exception):
            outcome.add_note(f"row: {name}")
            failed.append(outcome)
        elif isinstance(outcome, BaseException):
            raise outcome
    if failed:
        raise ExceptionGroup(f"{len(failed)} of {len(rows)} rows failed", failed)
