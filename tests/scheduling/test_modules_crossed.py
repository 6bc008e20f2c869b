"""How many modules a filter call runs through until its response: a reader who follows it opens all of them.

What follows the response (deferred holds, prefetch) is another flow and is not traced; see `tests/support/call_walks.py`.
"""

import re

from tests.support.call_walks import tables, tables_in_document, trace_calls

MOST_FIRST = 68
"""The first pod of a workload: expressions are compiled, the demand is prepared, nodes are searched."""
MOST_REPLICA = 21
"""The next pod of the workload: every result is cached."""


async def test_a_filter_call_crosses_few_modules() -> None:
    walks = await trace_calls()
    assert "scheduling/filter.py" in walks.replica
    assert len(walks.first) <= MOST_FIRST, f"{len(walks.first)}: {walks.first}"
    assert len(walks.replica) <= MOST_REPLICA, f"{len(walks.replica)}: {walks.replica}"


async def test_the_document_names_the_modules_of_both_calls() -> None:
    """`python -m tests.support.call_walks` writes the tables; their sentences are those of the docstrings."""
    traced, written = tables(await trace_calls()), tables_in_document()
    assert {name: modules(table) for name, table in traced.items()} == {
        name: modules(table) for name, table in written.items()
    }


def modules(table: str) -> list[str]:
    return re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
