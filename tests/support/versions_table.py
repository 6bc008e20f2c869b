"""The table of docs/versions.md: what works with each release of the API server, and the end-to-end tests that show it.

`python -m tests.support.versions_table` writes the table into the document.  With JUnit reports as arguments it writes nothing, and
ends with status 1 if a test that the table names is not among the passed tests of the reports.
"""

import sys
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.junit import not_passed

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "versions.md"
RELEASES: Final = ("1.34", "1.35", "1.36", "1.37")


class Cell(NamedTuple):
    """What an API server of one release has with its default gates, and the tests that show it (file and test below tests/e2e)."""

    word: str
    tests: tuple[str, ...] = ()


class Feature(NamedTuple):
    """A row: one cell for each of RELEASES."""

    name: str
    cells: tuple[Cell, Cell, Cell, Cell]


_ONE_CLAIM: Final = (
    "test_e2e_releases::test_claims_are_served_without_counters_and_extended_resources_left_to_nodes_that_list_them"
)
_BESIDE: Final = (
    "test_e2e_devices_beside_counters::"
    "test_devices_beside_counters_are_allocated_by_counters_and_by_groups_of_the_policy[1.34]"
)
_COUNTERS_ALONE: Final = (
    "test_e2e_releases::test_counters_alone_decide_without_groups_and_members_are_placed_one_by_one[1.36]"
)
_GROUPS: Final = (
    "test_e2e_groups::test_a_gpu_serves_one_mode_at_a_time_by_the_groups_that_were_published_at_its_allocation"
)
_CONDITIONS: Final = (
    "test_e2e_binding::test_devices_succeed_fail_and_take_too_long_also_while_extender_and_scheduler_are_down"
)
_BY_POLICY: Final = "test_e2e_policy::test_groups_of_the_policy_keep_pods_apart"
_TAINT_RULES: Final = (
    "test_e2e_upstream_rules::test_taint_rule_with_an_empty_selector_keeps_every_pod_away_and_one_without_selector_none"
)

_GATES: Final = "test_e2e_gates::test_what_gates_switch_on_is_served"
_GATES_34: Final = f"{_GATES}[1.34]"
_GATES_35: Final = f"{_GATES}[1.35]"
_GATES_36: Final = f"{_GATES}[1.36]"

TABLE: Final = (
    Feature(
        "claims, classes, selectors, alternatives, admin access",
        (
            Cell("yes", (f"{_ONE_CLAIM}[1.34]",)),
            Cell("yes", (f"{_ONE_CLAIM}[1.35]",)),
            Cell("yes", (_COUNTERS_ALONE,)),
            Cell("yes", (_GROUPS,)),
        ),
    ),
    Feature(
        "partitionable devices (counters)",
        (
            Cell("gate, [devices beside their counters](operate/upgrade.md#from-134-to-135)", (_BESIDE, _GATES_34)),
            Cell("gate", (_GATES_35,)),
            Cell("yes", (_COUNTERS_ALONE,)),
            Cell("yes", (_GROUPS,)),
        ),
    ),
    Feature(
        "consumable capacity, device taints in slices",
        (
            Cell("gate", (_GATES_34,)),
            Cell("gate", (_GATES_35,)),
            Cell("yes", (_GATES_36,)),
            Cell("yes", ("test_e2e_reasons",)),
        ),
    ),
    Feature(
        "DeviceTaintRules",
        (
            Cell("gate and API version", (_GATES_34,)),
            Cell("gate and API version", (_GATES_35,)),
            Cell("gate and API version", (_GATES_36,)),
            Cell("yes", (_TAINT_RULES,)),
        ),
    ),
    Feature(
        "binding conditions",
        (
            Cell("gate, or policy", (_GATES_34, f"{_CONDITIONS}[1.34]")),
            Cell("gate, or policy", (_GATES_35, f"{_CONDITIONS}[1.35]")),
            Cell("yes", (f"{_CONDITIONS}[1.36]",)),
            Cell("yes", ("test_e2e_binding",)),
        ),
    ),
    Feature(
        "compatibility groups",
        (
            Cell("policy", (_BESIDE,)),
            Cell("policy", (_GATES_35,)),
            Cell("policy", (_BY_POLICY,)),
            Cell("gate, or policy", (_GROUPS,)),
        ),
    ),
    Feature(
        "groups in the allocation (`compatibilityGroups` of results)",
        (
            Cell("no: annotation"),
            Cell("no: annotation"),
            Cell("no: annotation", (_BY_POLICY,)),
            Cell("no: annotation", (_GROUPS,)),
        ),
    ),
    Feature(
        "claims of PodGroups, gangs",
        (
            Cell("no: pods are placed one by one"),
            Cell("no: pods are placed one by one"),
            Cell("gates (alpha); without them one by one", (_COUNTERS_ALONE,)),
            Cell("gates (beta, off)", ("test_e2e_gangs",)),
        ),
    ),
    Feature(
        "extended resources backed by a DeviceClass",
        (
            Cell("gate; without it left to nodes that list them", (_GATES_34, f"{_ONE_CLAIM}[1.34]")),
            Cell("gate; without it left to nodes that list them", (_GATES_35, f"{_ONE_CLAIM}[1.35]")),
            Cell("yes", (_GATES_36,)),
            Cell("yes", ("test_e2e_extended_resources",)),
        ),
    ),
    Feature("derived attributes", (Cell("no"), Cell("no"), Cell("no"), Cell("gate"))),
)


def table() -> str:
    """The table in Markdown; a number behind a cell leads to the list of tests, and a cell without one has none."""
    numbers = {test: number for number, test in enumerate(named_tests(), 1)}
    lines = [f"| | {' | '.join(RELEASES)} |", f"|---|{'---|' * len(RELEASES)}"]
    for feature in TABLE:
        cells = (_with_numbers(cell, numbers) for cell in feature.cells)
        lines.append(f"| {feature.name} | {' | '.join(cells)} |")
    lines += ["", "| test | |", "|---|---|"]
    lines += [f"| {number} | {_shown(test)} |" for test, number in numbers.items()]
    return "\n".join(lines) + "\n"


def _with_numbers(cell: Cell, numbers: dict[str, int]) -> str:
    if not cell.tests:
        return cell.word if cell.word.startswith("no") else f"{cell.word} (no test)"
    return f"{cell.word} ({', '.join(str(numbers[test]) for test in cell.tests)})"


def _shown(test: str) -> str:
    file, _, name = test.partition("::")
    function, _, parameters = name.partition("[")
    path = f"`tests/e2e/{file}.py`"
    if not function:
        return f"{path}, all of its tests"
    return f"{path}::{function}" + (f", {parameters.rstrip(']')}" if parameters else "")


def named_tests() -> tuple[str, ...]:
    """The tests that the table names, each once, in the order of the table."""
    return tuple(dict.fromkeys(test for feature in TABLE for cell in feature.cells for test in cell.tests))


def main(reports: list[str]) -> int:
    """Compare the table with JUnit reports."""
    lost = not_passed(named_tests(), map(Path, reports))
    sys.stderr.writelines(f"docs/versions.md names a test that did not pass: {test}\n" for test in lost)
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
