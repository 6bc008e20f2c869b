import contextlib
import gc
import tracemalloc

import pytest
from dra_extender.cel.errors import CelCompileError
from dra_extender.cel.program import ProgramCache


def test_an_expression_is_compiled_once() -> None:
    cache = ProgramCache()
    assert cache.compile("true") is cache.compile("true")


def test_an_error_is_cached_and_raised_anew() -> None:
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


def test_the_least_recently_used_program_is_evicted_first() -> None:
    cache = ProgramCache(max_bytes=200_000)
    first = cache.compile("1 == 1", owner="one")
    second = cache.compile("2 == 2", owner="one")
    number, held = 3, 0
    while len(cache) > held:
        held = len(cache)
        assert cache.compile("1 == 1", owner="one") is first
        cache.compile(f"{number} == {number}", owner="one")
        number += 1
    assert cache.compile("1 == 1", owner="one") is first
    assert cache.compile("2 == 2", owner="one") is not second


def test_programs_of_one_namespace_are_bounded_in_bytes_and_leave_those_of_others_and_of_classes_alone() -> None:
    cache = ProgramCache(max_bytes=2**20)
    victims = [cache.compile(f"device.driver == 'd{number}'", owner="victim") for number in range(50)]
    of_class = cache.compile("device.driver == 'class'")
    for number in range(40):
        cache.compile("&&".join([f"[1,2].all(x,x!={number})"] * 30), owner="attacker")
        assert cache.bytes_kept <= 2**20
    assert len(victims) + 10 <= len(cache) < len(victims) + 20
    for number, program in enumerate(victims):
        assert cache.compile(f"device.driver == 'd{number}'", owner="victim") is program
    assert cache.compile("device.driver == 'class'") is of_class


def test_many_small_failures_are_bounded_too() -> None:
    cache = ProgramCache(max_bytes=2**20)
    for number in range(3_000):
        with pytest.raises(CelCompileError):
            cache.compile(f"device.nope{number}", owner="attacker")
    assert cache.bytes_kept <= 2**20


@pytest.mark.parametrize(
    "expression",
    [
        "device.driver == '{}'",
        (
            "device.driver == '{}' && device.attributes['gpu.example.com'].model == 'H100' "
            "&& device.capacity['gpu.example.com'].memory.isGreaterThan(quantity('10Gi'))"
        ),
        "'{}' != '" + "x" * 8_000 + "'",
        "'{}' != '" + "\U0001f600" * 2_000 + "'",
        "&&".join(["[1,2].all(x,x!={})"] * 40),
        "&&".join(["dyn(1).a.b.c.d == {}"] * 40),
        "&&".join(["device.driver.startsWith('{}')"] * 40),
        "device.attributes['a.b'].x in ['{}', " + ", ".join(f"'GPU-{number:036}'" for number in range(100)) + "]",
        "{{'{}': 1, " + ", ".join(f"'{number}': {number}" for number in range(100)) + "}}.size() == 1",
        "device.nope{}",
        " || ".join(["device.attributes['a.b'].x == {}"] * 200) + " || 'a'.matches('(')",
    ],
)
def test_the_bytes_that_are_counted_are_the_bytes_that_are_taken_within_a_factor_of_two(expression: str) -> None:
    cache = ProgramCache()
    filled = expression.replace("{{", "{").replace("}}", "}")
    texts = [filled.replace("{}", str(100 + number)) for number in range(6)]

    def compiled(text: str) -> None:
        with contextlib.suppress(CelCompileError):
            cache.compile(text, owner="team")

    compiled(texts.pop())
    gc.freeze()  # What the process has by now is no garbage of these programs, and is not searched for it.
    gc.collect()  # Empties the free lists, of which tracemalloc does not know.
    tracemalloc.start()
    before, held = tracemalloc.get_traced_memory()[0], cache.bytes_kept
    for text in texts:
        compiled("".join(list(text)))
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    gc.unfreeze()
    assert taken / 2 < cache.bytes_kept - held < taken * 2
