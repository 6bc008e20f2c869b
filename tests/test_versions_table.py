"""The tables of docs/versions.md: each cell names tests that exist, or says that it has none."""

import re

from tests.support.versions_table import DOCUMENT, named_tests


def test_named_tests_exist() -> None:
    folder = DOCUMENT.parents[1] / "tests" / "e2e"
    for test in named_tests():
        file, _, name = test.partition("::")
        text = (folder / f"{file}.py").read_text()
        assert f"def {name.partition('[')[0]}(" in text or not name, test


def test_cells_have_the_numbers_of_the_list_or_say_that_there_is_no_test() -> None:
    _, features, _ = re.split(r"^\|(?: \S*)* \|\n\|---.*\n", DOCUMENT.read_text(), flags=re.MULTILINE)
    cells = [cell for line in features.splitlines() for cell in line.strip("| ").split(" | ")[1:]]
    numbers = {
        int(number) for cell in cells for group in re.findall(r"\(([\d, ]+)\)", cell) for number in group.split(",")
    }
    assert numbers == set(range(1, len(named_tests()) + 1))
    assert [
        cell for cell in cells if not cell.startswith("no") and not re.search(r"\((?:[\d, ]+|no test)\)$", cell)
    ] == []
