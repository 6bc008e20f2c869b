"""The examples of the README of the CEL engine give what it says."""

import doctest
from pathlib import Path

import dra_extender.cel


def test_the_examples_of_the_readme_are_true() -> None:
    readme = Path(dra_extender.cel.__path__[0]) / "README.md"
    results = doctest.testfile(str(readme), module_relative=False)
    assert results.attempted > 0
    assert results.failed == 0
