"""The search: random inputs for each subject, then changes to the best, as long as there is time; findings are made small."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from time import monotonic
from typing import Final, Generic, TypeVar

from tests.hostile.verdicts import NATIVE, Finding, Job, Limit, Measured, Tally
from tests.hostile.worker import Worker

Input = TypeVar("Input")
_FRESH: Final = 1
_CHANGES: Final = 3
_CANDIDATES: Final = 3
"""Of so many subjects, drawn at random, the one nearest to a limit gets the turn."""
_TWICE: Final = 0.3
"""How often an input is changed in two places."""
_STEPS_TO_SHRINK: Final = 40
_SHRINK_SECONDS: Final = 15.0
_CONFIRMATIONS: Final = 3


@dataclass(frozen=True)
class Subject(Generic[Input]):
    """Something to attack: how inputs are made and changed, what a worker is asked, and how an input reads."""

    name: str
    make: Callable[[Random], Input]
    change: Callable[[Random, Input], Input]
    job: Callable[[Input], Job | None]
    text: Callable[[Input], str]
    smaller: Callable[[Input], Iterator[Input]]
    weight: float = 1.0
    """How often it gets a turn, compared with others."""


Measure = Callable[[Job], Measured]


class Search(Generic[Input]):
    """Climbs in turn on each subject; `measure` asks a worker, `measure_fresh` one that was just started."""

    def __init__(
        self,
        tally: Tally,
        limits: tuple[Limit, ...],
        measure: Measure,
        measure_fresh: Measure,
        seed: int,
        about: str = "",
    ) -> None:
        """Search nothing yet; subjects whose names lack `about` get no turn."""
        self._about = about
        self._tally = tally
        self._limits = limits
        self._measure = measure
        self._measure_fresh = measure_fresh
        self._random = Random(seed)
        self._best: dict[str, tuple[float, Input]] = {}
        self._settled: set[str] = set()
        self._accused: set[tuple[str, str]] = set()
        self._seen = ""

    def run(self, subjects: Sequence[Subject[Input]], seconds: float) -> None:
        """Search each subject once in a random order, then until the time is up, most often those nearest to a limit.

        When the time is up before, a subject has one input instead of a turn.
        """
        end = monotonic() + seconds
        subjects = [each for each in subjects if self._about in each.name]
        first = sorted(subjects, key=lambda each: self._random.random() ** (1.0 / each.weight))
        while first or (monotonic() < end and len(self._settled) < len(subjects)):
            subject = first.pop() if first else self._promising(subjects)
            if subject.name not in self._settled:
                self._turn(subject, end)

    def _promising(self, subjects: Sequence[Subject[Input]]) -> Subject[Input]:
        candidates = self._random.choices(subjects, [each.weight for each in subjects], k=_CANDIDATES)
        return max(candidates, key=lambda each: self._best[each.name][0] if each.name in self._best else 0.0)

    def _turn(self, subject: Subject[Input], end: float) -> None:
        for _ in range(_FRESH):
            if self._try(subject, subject.make(self._random)):
                return
        for _ in range(_CHANGES):
            known = self._best.get(subject.name)
            if known is None or monotonic() > end:
                return
            candidate = subject.change(self._random, known[1])
            if self._random.random() < _TWICE:
                candidate = subject.change(self._random, candidate)
            if self._try(subject, candidate):
                return

    def _try(self, subject: Subject[Input], candidate: Input) -> bool:
        """Measure one; whether it was a finding."""
        job = subject.job(candidate)
        if job is None:
            return False
        measured = self._measure(job)
        limit, ratio = measured.worst(self._limits)
        self._seen = measured.note
        self._tally.row(subject.name).note(measured, ratio, subject.text(candidate))
        if not measured.values:
            return False
        known = self._best.get(subject.name)
        score = ratio + 1e-3 * measured.values.get("cpu", 0.0)
        if known is None or score >= known[0]:
            self._best[subject.name] = score, candidate
        return (
            ratio > 1.0
            and self._place(limit, measured) not in self._accused
            and self._accuse(subject, candidate, limit)
        )

    @staticmethod
    def _place(limit: Limit, measured: Measured) -> tuple[str, str]:
        """One place in the program is accused once, whatever function leads to it."""
        place = measured.note.rpartition(", ")[2] if limit is NATIVE else ""
        return limit.name, place or repr(measured)

    def _accuse(self, subject: Subject[Input], candidate: Input, limit: Limit) -> bool:
        """Make the input small, then measure it in fresh processes; all of them have to agree."""
        small = self._shrunk(subject, candidate, limit)
        for chosen in (small, candidate) if small is not candidate else (candidate,):
            job = subject.job(chosen)
            assert job is not None
            confirmed = [self._measure_fresh(job) for _ in range(_CONFIRMATIONS)]
            least = min(each.of(limit) for each in confirmed)
            if least > limit.most:
                text, note = subject.text(chosen), confirmed[0].note
                self._tally.findings.append(Finding(self._tally.part, subject.name, limit, least, job, text, note))
                self._settled.add(subject.name)
                self._accused.add(self._place(limit, confirmed[0]))
                return True
        self._tally.unconfirmed += 1
        self._tally.notes.append(
            f"not confirmed: {subject.name}: {limit.name}, {self._seen[:160]}, {subject.text(candidate)[:200]}"
        )
        self._best.pop(subject.name, None)
        return False

    def _shrunk(self, subject: Subject[Input], candidate: Input, limit: Limit) -> Input:
        steps = 0
        end = monotonic() + _SHRINK_SECONDS
        shrinking = True
        while shrinking:
            shrinking = False
            for smaller in subject.smaller(candidate):
                steps += 1
                if steps > _STEPS_TO_SHRINK or monotonic() > end:
                    return candidate
                job = subject.job(smaller)
                if job is not None and self._measure(job).of(limit) > 1.2 * limit.most:
                    candidate, shrinking = smaller, True
                    break
        return candidate


@dataclass(frozen=True)
class Part(Generic[Input]):
    """A part of `make hostile`.

    `module`: the probes that its worker runs, each for so much CPU at most.  `searches`: limits and the subjects that may not
    exceed them, as the worker tells of them.  `measure`: what a worker is told to do with a job.
    """

    name: str
    module: str
    searches: Callable[[Worker], Sequence[tuple[tuple[Limit, ...], Sequence[Subject[Input]]]]]
    cpu_seconds: float = 0.6
    measure: Callable[[Worker, Job], Measured] = Worker.measure

    def run(self, target: Path, seed: int, seconds: float, about: str = "") -> Tally:
        """Search this checkout; the searches share the time."""

        def measure_fresh(job: Job) -> Measured:
            with Worker(target, self.module, cpu_seconds=self.cpu_seconds) as worker:
                return self.measure(worker, job)

        tally = Tally(self.name, seed, self.module)
        with Worker(target, self.module, cpu_seconds=self.cpu_seconds) as worker:
            searches = self.searches(worker)
            for limits, subjects in searches:
                found: Search[Input] = Search(tally, limits, partial(self.measure, worker), measure_fresh, seed, about)
                found.run(subjects, seconds / len(searches))
        return tally
