"""A short search of each part finds nothing, and every declared function is among what is attacked."""

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

import pytest
from dra_extender.cel.environment import FUNCTIONS

from tests.hostile.__main__ import PARTS
from tests.hostile.cel_calls import MOST_BYTES, expression, new_call, subject
from tests.hostile.report import table
from tests.hostile.worker import HERE, Worker


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker(HERE, "cel", cpu_seconds=10.0) as made:
        yield made


def test_every_declared_function_is_called_by_the_generator(worker: Worker) -> None:
    """At least one overload of each is accepted by the compiler: new functions are attacked without a line for them."""
    overloads = worker.ask({"kind": "describe"})["overloads"]
    called = {each["name"] for each in overloads if _accepted(worker, each)}
    assert set(FUNCTIONS) == {each["name"] for each in overloads} == called


def _accepted(worker: Worker, overload: Mapping[str, Any]) -> bool:
    random = Random(subject(overload))
    texts = (expression(overload, new_call(random, overload)) for _ in range(40))
    jobs = ({"kind": "accepted", "expression": text} for text in texts if len(text.encode()) <= MOST_BYTES)
    return any(worker.measure(job).values for job in jobs)


SECONDS = 5.0
"""For each part, beside one input for each subject, which has no limit of time."""
ABOUT = {"objects": "loops"}
"""Subjects that the short run is about, where it is not about all of a part; tests of the ledger hold what is kept."""
SLACK = 1.5
"""Beside other tests work takes more CPU than on a quiet machine, for which the limits are; an attack takes many times that."""
SEED = 1
"""The same in each run, so that a change is judged by itself; `make hostile` takes another one each time."""


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", PARTS)
def test_a_short_search_finds_nothing(part: str) -> None:
    """`make hostile ONLY=part SEED=1` repeats it for longer."""
    tally = PARTS[part].run(HERE, SEED, SECONDS, ABOUT.get(part, ""))
    printed = "\n".join(table(tally, 10))
    print(f"{part}: seed {tally.seed}\n{printed}")
    assert not [each for each in tally.findings if each.value > SLACK * each.limit.most], printed
    assert tally.executions
