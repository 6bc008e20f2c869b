import pytest

from app.cel import CelCompileError, ProgramCache


def test_an_expression_is_compiled_once() -> None:
    cache = ProgramCache()
    assert cache.compile("true") is cache.compile("true")


def test_a_failure_is_remembered_and_raised_anew() -> None:
    cache = ProgramCache()
    messages = []
    errors = []
    for _ in range(2):
        with pytest.raises(CelCompileError) as caught:
            cache.compile("device.nope")
        messages.append(str(caught.value))
        errors.append(caught.value)
    assert messages[0] == messages[1]
    assert errors[0] is not errors[1]
    assert len(cache) == 1


def test_the_least_recently_used_program_is_forgotten_first() -> None:
    cache = ProgramCache(max_entries=2)
    first = cache.compile("1 == 1")
    second = cache.compile("2 == 2")
    assert cache.compile("1 == 1") is first
    cache.compile("3 == 3")
    assert len(cache) == 2
    assert cache.compile("1 == 1") is first
    assert cache.compile("2 == 2") is not second
