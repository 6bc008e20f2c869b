"""Mutations are valid Python, are the same for the same seed, and leave alone what is written for people."""

import ast
from pathlib import Path

import pytest

from tests.mutants import mutations
from tests.mutants.mutations import choose, mutations_of

SOURCE = '''"""A module with a number: 1."""
def admits(amount: int | None, limit: int = 3) -> bool:
    """Return whether 2 is enough."""
    _LOG.info("asked", amount=amount)
    note(amount)
    if amount is None:
        raise ValueError(f"expected {limit + 1}")
    return not (amount < limit and limit != 0)
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(mutations, "ROOT", tmp_path)
    path = tmp_path / "module.py"
    path.write_text(SOURCE)
    return path


def test_each_mutation_changes_one_decision(module: Path) -> None:
    assert [str(mutation).partition(" ")[2] for mutation in mutations_of(module)] == [
        "other number: 3 -> (4)",
        "call removed: note(amount) -> pass",
        "other comparison: amount is None -> (amount is not None)",
        "not left out: not (amount < limit and limit != 0) -> (amount < limit and limit != 0)",
        "and for or: amount < limit and limit != 0 -> (amount < limit or limit != 0)",
        "condition left out: amount < limit and limit != 0 -> (limit != 0)",
        "other comparison: amount < limit -> (amount <= limit)",
        "other comparison: limit != 0 -> (limit == 0)",
        "other number: 0 -> (1)",
    ]


def test_each_mutant_is_valid_python_and_differs(module: Path) -> None:
    for mutation in mutations_of(module):
        ast.parse(mutation.source())
        assert mutation.source() != SOURCE.encode()


def test_a_seed_chooses_the_same_mutations_again() -> None:
    assert choose(["nodefit"], 20, 7) == choose(["nodefit"], 20, 7) != choose(["nodefit"], 20, 8)
