"""The table of versions: the document has it, and the tests that it names exist."""

from tests.support.versions_table import DOCUMENT, named_tests


def test_named_tests_exist() -> None:
    folder = DOCUMENT.parents[1] / "tests" / "e2e"
    for test in named_tests():
        file, _, name = test.partition("::")
        text = (folder / f"{file}.py").read_text()
        assert f"def {name.partition('[')[0]}(" in text or not name, test
