"""The search itself: it finds what is planted, accuses nobody else, and looks at everything that is declared."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count
from random import Random
from typing import Any

import pytest
from dra_extender.cel.environment import FUNCTIONS

from tests.hostile.__main__ import PARTS
from tests.hostile.cel_calls import MOST_BYTES, expression, new_call, subject
from tests.hostile.climbing import Search, Subject
from tests.hostile.genes import Gene, changed, smaller
from tests.hostile.report import table
from tests.hostile.verdicts import BROKEN, STALL, Job, Measured, Tally
from tests.hostile.worker import HERE, Worker

SIZE = 1 << 16


def climb(cost: Callable[[int], float], *, fresh: Callable[[int], float] | None = None) -> Tally:
    """Search for a size up to 65,536 whose cost is too high; the cost is told, not measured."""

    def measure(told: Callable[[int], float], job: Job) -> Measured:
        return Measured({STALL.name: told(job["size"])})

    def make(random: Random) -> Gene:
        return Gene("size", (random.randrange(8),))

    def job(gene: Gene) -> Job | None:
        return {"kind": "size", "size": 2 ** gene.numbers[0]} if 2 ** gene.numbers[0] <= SIZE else None

    def change(random: Random, gene: Gene) -> Gene:
        return changed(random, gene, lambda _: None)

    tally = Tally("test", 1)
    found: Search[Gene] = Search(tally, (STALL,), partial(measure, cost), partial(measure, fresh or cost), seed=1)
    looks = count()
    with pytest.MonkeyPatch.context() as patch:
        # How many inputs are tried is the same on every machine: time passes with each look at the clock.
        patch.setattr("tests.hostile.climbing.monotonic", lambda: next(looks) * 1e-4)
        found.run([Subject("planted", make, change, job, str, smaller)], seconds=0.5)
    return tally


def test_a_planted_quadratic_function_is_found_and_made_small() -> None:
    tally = climb(lambda size: size * size * 1e-9)
    (finding,) = tally.findings
    assert finding.value > STALL.most
    assert finding.job["size"] <= 2 * 10_000 * 2


def test_a_linear_function_is_not_accused() -> None:
    tally = climb(lambda size: size * 1e-7)
    assert tally.findings == []
    assert tally.executions > 100


def test_a_worker_that_dies_is_broken() -> None:
    with Worker(HERE, "cel") as worker:
        assert worker.measure({"kind": "no such probe"}).of(BROKEN)
        assert worker.measure({"kind": "evaluate", "expression": "[1].exists(x, x == 2)"}).note == "value"


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


SECONDS = {
    "cel": 9.0,
    "natives": 5.0,
    "compile": 5.0,
    "policy": 2.0,
    "informer": 5.0,
    "lives": 5.0,
    "objects": 6.0,
    "http": 6.0,
    "tls": 2.0,
    "search": 5.0,
}
"""Beside one input for each subject, which has no limit of time."""
ABOUT = {"objects": "loops"}
"""Subjects that the short run is about, where it is not about all of a part; tests of the ledger hold what is kept."""
SLACK = 1.5
"""Beside other tests work takes more CPU than on a quiet machine, for which the limits are; an attack takes many times that."""
SEED = 1
"""The same in each run, so that a change is judged by itself; `make hostile` takes another one each time."""


def test_every_part_has_its_share() -> None:
    assert SECONDS.keys() == PARTS.keys()


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", SECONDS)
def test_a_short_search_finds_nothing(part: str) -> None:
    """`make hostile ONLY=part SEED=1` repeats it for longer."""
    tally = PARTS[part].run(HERE, SEED, SECONDS[part], ABOUT.get(part, ""))
    printed = "\n".join(table(tally, 10))
    print(f"{part}: seed {tally.seed}\n{printed}")
    assert not [each for each in tally.findings if each.value > SLACK * each.limit.most], printed
    assert tally.executions
