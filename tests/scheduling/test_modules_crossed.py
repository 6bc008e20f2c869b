"""How many modules a filter call runs through until its response: a reader who follows it opens all of them.

What follows the response (deferred holds, prefetch) is another flow and is not traced; see `tests/support/call_walks.py`.
Modules of `telemetry` are in the table and do not count: a metric that is recorded leads nowhere.
"""

import re

from tests.support.call_walks import tables, tables_in_document, trace_calls

MOST_FIRST = 63
"""The first pod of a workload: expressions are compiled, the demand is prepared, nodes are searched."""
MOST_REPLICA = 21
"""The next pod of the workload: every result is cached."""


async def test_a_filter_call_crosses_few_modules() -> None:
    walks = await trace_calls()
    assert "scheduling/filter.py" in walks.replica
    for walk, most in ((walks.first, MOST_FIRST), (walks.replica, MOST_REPLICA)):
        counted = [each for each in walk if not each.startswith("telemetry/")]
        assert len(counted) <= most, f"{len(counted)}: {counted}"


async def test_the_document_names_the_modules_of_both_calls() -> None:
    """`python -m tests.support.call_walks` writes the tables; their sentences are those of the docstrings."""
    traced, written = tables(await trace_calls()), tables_in_document()
    assert {name: modules(table) for name, table in traced.items()} == {
        name: modules(table) for name, table in written.items()
    }


def modules(table: str) -> list[str]:
    return re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
