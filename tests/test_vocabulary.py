"""The program says what Kubernetes and the literature of search say; see docs/glossary.md."""

from tests.support.vocabulary import IDENTIFIERS, PHRASES, findings


def test_words_that_the_program_does_not_use_stand_nowhere() -> None:
    assert [f"{each.file}:{each.line}: {each.found}: say {each.instead}" for each in findings()] == []


def test_each_word_has_another_one_in_its_place() -> None:
    assert all({**IDENTIFIERS, **PHRASES}.values())
