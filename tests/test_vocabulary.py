"""The program says what Kubernetes and the literature of search say; see docs/glossary.md."""

from tests.support.vocabulary import IDENTIFIERS, PHRASES, findings, left


def test_words_that_the_program_does_not_use_stand_in_no_further_file() -> None:
    allowed = left()
    wrong = [
        f"{each.file}:{each.line}: {each.found}: say {each.instead}" for each in findings() if each.file not in allowed
    ]
    assert wrong == []


def test_a_file_without_such_words_is_not_on_the_list_of_those_that_have_them() -> None:
    """If it fails: `python -m tests.support.vocabulary`."""
    assert left() - {each.file for each in findings()} == set()


def test_each_word_has_another_one_in_its_place() -> None:
    assert all({**IDENTIFIERS, **PHRASES}.values())
