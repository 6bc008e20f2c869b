"""What pods come to with the in-tree scheduler and with the extender, on the same nodes: the table in docs/start/comparison.md.

`python -m tests.support.node.comparison` writes the table.  With JUnit reports as arguments it writes nothing, and
ends with status 1 if a row is not shown by a passed test of the reports for each of the two.
"""

import sys
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.junit import not_passed

DOCUMENT: Final = Path(__file__).parents[3] / "docs" / "start" / "comparison.md"
OURS: Final = "extender"
RIVAL: Final = "in-tree"
TEST: Final = "test_node_comparison::test_pods_come_to_what_the_table_says"


class Row(NamedTuple):
    """A scenario, and what is seen after each of its steps: of all pods in the order of their names.

    `in_tree` is empty where both come to the same; otherwise `why` says why they do not.
    """

    scenario: str
    ours: tuple[str, ...]
    in_tree: tuple[str, ...] = ()
    why: str = ""

    def expected(self, program: str) -> tuple[str, ...]:
        """What is seen after each step with one of the two."""
        return self.in_tree if program == RIVAL and self.in_tree else self.ours


ROWS: Final[dict[str, Row]] = {
    "one-each": Row("a device for each pod, from a template", ("a has A; b has B",)),
    "two-containers": Row("two containers of a pod share its claim", ("a has A and A",)),
    "two-pods": Row("two pods share a claim", ("a has A; b has A",)),
    "requests": Row("two requests in a claim, one container for each, on the same NUMA node", ("a has A and B",)),
    "all": Row("all devices of a kind", ("a has A B",)),
    "first-available": Row(
        "a large device or else a small one: one large one is left", ("a has A; b has B", "a has A; b has B; c waits")
    ),
    "shares": Row(
        "shares of a device with capacity for two", ("a has A#1; b has A#2; c waits", "b has A#2; c has A#3")
    ),
    "admin": Row("admin access to a device that a pod has", ("a has A; b has A as admin",)),
    "taint": Row("a tainted device, tolerated by one of two pods", ("a waits; b has A",)),
    "counters": Row("two halves of a card, or the whole of it", ("a has A; b waits", "b has B")),
    "groups": Row("a MIG partition of a card while a vGPU runs on it, and after it", ("a has A; b waits", "b has B")),
    "groups-changed": Row(
        "the same, but the driver publishes the card without groups meanwhile",
        ("a has A; b waits", "a has A; b waits; c waits"),
        ("a has A; b waits", "a has A; b has B; c has C"),
        "the extender keeps the groups with which a device was allocated, the in-tree plugin reads those of the slice",
    ),
    "extended": Row("an extended resource that a class backs", ("a has A B; b waits", "b has A B")),
    "ended": Row("a pod that has ended gives its device to the next", ("a has ended; b has A",)),
    "gang": Row("a gang of three where two devices are left", ("a waits; b waits; c waits",)),
    "driver-error": Row("a driver that fails at first", ("a does not start", "a has A")),
    "priority": Row(
        "a pod of higher priority that needs the device of another",
        ("a has A; b waits",),
    ),
    "group-claim": Row("two members of a PodGroup share the claim from its template", ("a has A; b has A",)),
    "gang-search": Row(
        "a gang of two: a large device or else a small one for the first, a large one for the second",
        ("a has A; b has B",),
        ("a waits; b waits",),
        "the extender plans all members together, kube-scheduler places one after the other",
    ),
}


def table() -> str:
    lines = ["| scenario | in-tree plugin | dra-extender |", "|---|---|---|"]
    for row in ROWS.values():
        ours = "the same" if not row.in_tree else f"{_shown(row.ours)}: {row.why}"
        lines.append(f"| {row.scenario} | {_shown(row.expected(RIVAL))} | {ours} |")
    return "\n".join(lines) + "\n"


def _shown(steps: tuple[str, ...]) -> str:
    return ". Then: ".join(steps)


def shown_by() -> tuple[str, ...]:
    """The tests that show the rows."""
    return tuple(f"{TEST}[{program}-{key}]" for key in ROWS for program in (RIVAL, OURS))


def main(reports: list[str]) -> int:
    """Compare the table with JUnit reports."""
    lost = not_passed(shown_by(), map(Path, reports))
    sys.stderr.writelines(f"docs/start/comparison.md has a row that no passed test shows: {test}\n" for test in lost)
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
