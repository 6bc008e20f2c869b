"""The shape of the source tree: one package, no class name twice."""

import ast
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = ROOT / "app" / "dra_extender"
MOST_LINES: Final = 600
MOST_MODULES: Final = 25


def test_the_package_is_imported_by_its_own_name_alone() -> None:
    """`app` is the root of the sources and no package: another project may have one of that name."""
    wrong = re.compile(r"^\s*(?:from|import)\s+app\b|\bapp\.dra_extender\b", re.MULTILINE)
    files = [
        *ROOT.glob("app/**/*.py"),
        *ROOT.glob("tests/**/*.py"),
        ROOT / "pyproject.toml",
        ROOT / "Dockerfile",
        ROOT / "Makefile",
    ]
    assert [str(file) for file in files if file != Path(__file__) and wrong.search(file.read_text())] == []
    assert not (ROOT / "app" / "__init__.py").exists()


def test_no_two_public_classes_have_one_name() -> None:
    names = Counter(
        name
        for file in PACKAGE.rglob("*.py")
        for name in re.findall(r"^class ([A-Za-z]\w*)", file.read_text(), re.MULTILINE)
    )
    assert [name for name, times in names.items() if times > 1] == []


def test_an_entrance_of_a_package_says_what_it_is_for_and_runs_nothing() -> None:
    for file in PACKAGE.rglob("__init__.py"):
        (statement,) = ast.parse(file.read_text()).body
        assert isinstance(statement, ast.Expr), file
        assert isinstance(statement.value, ast.Constant), file


def test_a_module_is_one_concept_and_a_folder_fits_on_a_screen() -> None:
    modules = list(PACKAGE.rglob("*.py"))
    large = {file.relative_to(PACKAGE).as_posix() for file in modules if file.read_text().count("\n") > MOST_LINES}
    assert large == set()
    folders = Counter(file.parent.relative_to(PACKAGE).as_posix() for file in modules if file.name != "__init__.py")
    assert [folder for folder, files in folders.items() if files > MOST_MODULES] == []


def test_no_pattern_repeats_a_group_possessively() -> None:
    """CPython before 3.11.5 takes quadratic time for `(...)*+`: a text of 1 MiB stops the service for minutes."""
    wrong = re.compile(r"(?<![\\(])\)(?:[*+]|\{[0-9,]+\})\+")
    found = [str(file) for file in PACKAGE.rglob("*.py") if wrong.search(file.read_text())]
    assert found == []


@pytest.mark.parametrize("target", re.findall(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE))
def test_make_can_read_the_commands_of_each_target(target: str) -> None:
    """`make --dry-run` expands them, and those of the targets that they call, and runs nothing else."""
    answer = subprocess.run(
        ["/usr/bin/env", "make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
