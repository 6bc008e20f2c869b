"""The search itself: it finds what is planted, accuses nobody else, and looks at everything that is declared."""

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count
from random import Random
from typing import Any

import pytest
import structlog
from dra_extender.cel.library.environment import FUNCTIONS

from tests.hostile import part_lives
from tests.hostile.cel_calls import MOST_BYTES, expression, new_call, subject
from tests.hostile.climbing import Search, Subject
from tests.hostile.genes import Gene, changed, smaller
from tests.hostile.measuring import NativeCalls, Stalls
from tests.hostile.report import table
from tests.hostile.service_host import ServiceHost
from tests.hostile.verdicts import BROKEN, NATIVE, STALL, Finding, Job, Measured, Tally
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


def test_what_fresh_processes_do_not_confirm_is_not_accused() -> None:
    tally = climb(lambda size: size * size * 1e-9, fresh=lambda _: 0.01)
    assert tally.findings == []
    assert tally.unconfirmed


def test_a_finding_names_the_part_the_input_and_how_to_see_it_again() -> None:
    tally = Tally("cel", 7, "cel")
    tally.findings.append(Finding("cel", "f(string)", STALL, 0.5, {"kind": "evaluate"}, "f('a')", "here"))
    printed = "\n".join(table(tally, 10))
    assert "FOUND cel, f(string): stall 500 ms (at most 100 ms)" in printed
    assert "--only cel --seed 7" in printed
    assert """--replay 'cel {"kind": "evaluate"}'""" in printed


def test_a_native_call_that_takes_long_is_seen_and_many_short_ones_are_not() -> None:
    text, part = "a" * 200_000, "ab" + "a" * 20_000
    slow, quick = NativeCalls(), NativeCalls()
    slow.run(lambda: text.rfind(part))
    quick.run(lambda: [text.find("b", place) for place in range(0, 200_000, 20_000)])
    assert slow.longest > NATIVE.most > quick.longest
    assert "rfind" in slow.where


def test_time_that_passes_between_two_looks_at_a_deadline_is_a_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    used = 0.0
    monkeypatch.setattr("tests.hostile.measuring.thread_time", lambda: used)
    stalls = Stalls(seconds=10.0)
    for _ in range(30):
        used += 0.001
        assert not stalls()
    assert stalls.end() == pytest.approx((0.001, 0.03))
    used += 0.03
    assert stalls.end() == pytest.approx((0.03, 0.06))
    used += 10.0
    assert stalls()


def test_a_worker_that_does_not_answer_is_ended_and_counts_as_a_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing_to_read(*_: object) -> tuple[list[object], list[object], list[object]]:
        time.sleep(0.001)
        return [], [], []

    loop = {"kind": "compiling", "expression": "'a'.matches('" + "[\\\\pL\\\\pN]{1,90}" * 40 + "')"}
    with Worker(HERE, "cel", cpu_seconds=0.0) as worker:
        worker.ask({"kind": "evaluate", "expression": "true"}, cpu_seconds=60.0)
        # Its answer is kept back: where other work keeps this process from looking for a while, it would be there already.
        with monkeypatch.context() as silent:
            silent.setattr("tests.hostile.worker.select.select", nothing_to_read)
            ended = worker.measure({"kind": "linting", "expression": " || ".join(["1 in [1, 2]"] * 600)})
        assert ended.of(STALL) > 0
        assert ended.note.startswith("ended after")
        assert isinstance(worker.measure(loop), Measured)


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


def test_long_texts_that_differ_at_their_ends_alone_are_looked_for_in_lists() -> None:
    texts = {"kind": "list", "name": "list", "parameters": [{"kind": "variable", "name": "A", "parameters": []}]}
    overload = {"name": "@in", "member": False, "parameters": [{"kind": "variable", "name": "A"}, texts]}
    random, found = Random(1), 0
    for _ in range(300):
        gene = new_call(random, overload)
        inner = [part.parts[0] if part.kind == "doubled" else part for part in gene.parts]
        kinds, ends = [each.kind for each in inner], {each.texts[-1] for each in inner if each.texts}
        if kinds == ["text", "same"] and inner[0].numbers[1] > 12:
            found += len(ends) == 2
    assert found > 10


def test_marks_of_objects_come_and_go_until_they_are_deleted() -> None:
    """A claim for extended resources of a pod that exists becomes one for nothing, and goes."""
    random, found = Random(1), 0
    for _ in range(300):
        marked: dict[int, list[bool]] = {}
        for step in part_lives.new_lives("resourceclaims", random).parts:
            if step.texts[0] == "resourceclaims":
                lives = marked.setdefault(step.numbers[0], [])
                if step.kind == "DELETED":
                    found += lives[0] and not lives[-1]
                    lives.clear()
                else:
                    lives.append({"owned by pod", "for extended resources"}.issubset(step.texts))
    assert found > 30


def test_a_background_task_that_raises_is_seen_although_it_is_started_again() -> None:
    host = ServiceHost.__new__(ServiceHost)
    host.problems = []
    for record in (
        {"event": "background work failed", "task": "wake-up", "exc_info": KeyError("x")},
        {"event": "late"},
    ):
        with pytest.raises(structlog.DropEvent):
            host.on_log(None, "error", record)
    assert host.problems == ["background work failed (wake-up): KeyError('x')"]
