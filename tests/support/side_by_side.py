"""Rows of a table that one test carries out at the same time."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from types import TracebackType
from typing import Generic, Self, TypeVar

Row = TypeVar("Row")


async def side_by_side(rows: Mapping[str, Coroutine[object, object, object]]) -> None:
    """Carry out the rows at the same time and wait for all.

    Raises:
        ExceptionGroup: rows failed; each error is annotated with the name of its row.
    """
    async with Table(rows) as table:
        await table.each(_await)


async def _await(row: Coroutine[object, object, object]) -> None:
    await row


class Table(Generic[Row]):
    """Rows that take several steps; what is wrong with any of them is reported together when the context ends.

    Raises:
        ExceptionGroup: as `side_by_side`.
    """

    def __init__(self, rows: Mapping[str, Row]) -> None:
        self._rows = dict(rows)
        self._failures: dict[str, Exception] = {}

    async def each(self, step: Callable[[Row], Awaitable[None]]) -> None:
        """Take a step of all rows at the same time; a row that fails takes no further steps."""
        await asyncio.gather(*(self._take(step, name, row) for name, row in tuple(self._rows.items())))

    async def one_by_one(self, step: Callable[[Row], Awaitable[None]]) -> None:
        """As `each`, one row after the other."""
        for name, row in tuple(self._rows.items()):
            await self._take(step, name, row)

    async def _take(self, step: Callable[[Row], Awaitable[None]], name: str, row: Row) -> None:
        try:
            await step(row)
        except Exception as error:  # noqa: BLE001 - reported in the end, with those of the other rows
            error.add_note(f"row: {name}")
            self._failures[name] = error
            del self._rows[name]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        failed, number = self._failures, len(self._failures) + len(self._rows)
        if failed and error is None:
            raise ExceptionGroup(f"{len(failed)} of {number} rows failed: {', '.join(failed)}", [*failed.values()])
