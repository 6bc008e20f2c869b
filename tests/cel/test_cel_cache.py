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
    cache = ProgramCache(max_bytes=200_000)
    first = cache.compile("1 == 1", owner="one")
    second = cache.compile("2 == 2", owner="one")
    number = 3
    while cache.compile("1 == 1", owner="one") is first and ("2 == 2", False) in cache._of_namespaces:
        cache.compile(f"{number} == {number}", owner="one")
        number += 1
    assert cache.compile("1 == 1", owner="one") is first
    assert cache.compile("2 == 2", owner="one") is not second
