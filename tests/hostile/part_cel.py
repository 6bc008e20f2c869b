"""Part "cel": every declared function and operator, called with the worst values that a selector can make."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.hostile.cel_calls import MOST_BYTES, expression, new_call, renewed, subject
from tests.hostile.climbing import Search, Subject
from tests.hostile.genes import Gene, changed, smaller
from tests.hostile.verdicts import BROKEN, GROWN, NATIVE, STALL, Job, Measured, Tally
from tests.hostile.worker import Worker

LIMITS: Final = (NATIVE, STALL, GROWN, BROKEN)
MODULE: Final = "cel"
_LARGE: Final = frozenset({"string", "list", "map", "bytes", "dyn"})
"""Types whose values can be large."""


def run(target: Path, seed: int, seconds: float, about: str = "") -> Tally:
    """Search for calls that are charged too little."""
    tally = Tally("cel", seed, MODULE)
    with Worker(target, MODULE) as worker:
        overloads = worker.ask({"kind": "describe"})["overloads"]
        search: Search[Gene] = Search(tally, LIMITS, worker.measure, partial(measure_fresh, target), seed, about)
        search.run(subjects(overloads), seconds)
    return tally


def measure_fresh(target: Path, job: Job, *, cpu_seconds: float = 0.6) -> Measured:
    """Measure in a process of its own."""
    with Worker(target, MODULE, cpu_seconds=cpu_seconds) as worker:
        return worker.measure(job)


def subjects(overloads: Sequence[Mapping[str, Any]]) -> list[Subject[Gene]]:
    """One for each overload."""
    return [_subject(each) for each in overloads]


def _subject(overload: Mapping[str, Any]) -> Subject[Gene]:
    def change(random: Random, gene: Gene) -> Gene:
        return changed(random, gene, partial(renewed, random, overload))

    def job(gene: Gene) -> Job | None:
        text = expression(overload, gene)
        return {"kind": "evaluate", "expression": text, "observe": True} if len(text.encode()) <= MOST_BYTES else None

    return Subject(
        name=subject(overload),
        make=lambda random: new_call(random, overload),
        change=change,
        job=job,
        text=partial(expression, overload),
        smaller=smaller,
        weight=1.0 + 3.0 * sum(each["name"] in _LARGE for each in overload["parameters"]),
    )
